//! The work for Python, as frozen classes: each with what is needed to do it, and with the way to answer it.

pub(crate) mod attempt;
pub(crate) mod batch;
pub(crate) mod change;
pub(crate) mod requests;
pub(crate) mod review;
pub(crate) mod run;
pub(crate) mod script;
pub(crate) mod storage;
