//! Errors: what requests are answered with, and why a server does not start.

pub(crate) mod server;
pub(crate) mod status;
