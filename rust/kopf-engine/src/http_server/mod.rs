//! Limits of HTTP servers: connections and stalled writes.

pub(crate) mod connection_limit;
pub(crate) mod write_timeout;
