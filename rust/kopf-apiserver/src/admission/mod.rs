//! Admission control.

mod client;
pub(crate) mod pods;
pub(crate) mod webhooks;
