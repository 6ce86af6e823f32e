//! The commands to Python, as frozen classes: each with its data, and with its reply.

pub(crate) mod activation;
pub(crate) mod attempt;
pub(crate) mod caching;
pub(crate) mod change;
pub(crate) mod daemons;
pub(crate) mod handler_state;
pub(crate) mod lazy_attribute;
pub(crate) mod login;
pub(crate) mod matching;
pub(crate) mod notifications;
pub(crate) mod patch_fns;
pub(crate) mod pending_reply;
pub(crate) mod probe;
pub(crate) mod reconcile;
pub(crate) mod reply;
pub(crate) mod reply_sender;
pub(crate) mod review;
pub(crate) mod storage;
pub(crate) mod sub_handlers;
