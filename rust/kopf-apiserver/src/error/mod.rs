//! Errors: Status responses, and errors of the server itself.

pub(crate) mod server;
pub(crate) mod status;
