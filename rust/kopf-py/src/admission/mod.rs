//! The webhook server and its certificates, for Python.

pub(crate) mod certificates;
pub(crate) mod server;
