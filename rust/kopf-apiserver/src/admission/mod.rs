//! Admission control.

mod client;
pub(crate) mod webhooks;
