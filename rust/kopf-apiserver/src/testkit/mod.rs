//! Test kit: fault injection and the log of requests.

pub(crate) mod faults;
pub(crate) mod request_log;
