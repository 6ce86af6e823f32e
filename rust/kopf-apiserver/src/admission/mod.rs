//! Admission.

mod client;
pub(crate) mod webhooks;
