//! Test kit: fault injection, the log of requests, and the logs of pods.

pub(crate) mod faults;
pub(crate) mod pod_logs;
pub(crate) mod request_log;
