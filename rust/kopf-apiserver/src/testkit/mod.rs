//! What tests do with a server: fault injection, and the log of its requests.

pub(crate) mod faults;
pub(crate) mod request_log;
