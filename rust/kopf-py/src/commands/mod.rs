//! The commands to Python, as frozen classes: each with its data, and with its reply.

pub(crate) mod attempt;
pub(crate) mod batch;
pub(crate) mod change;
pub(crate) mod pending_reply;
pub(crate) mod requests;
pub(crate) mod review;
pub(crate) mod run;
pub(crate) mod script;
pub(crate) mod storage;
