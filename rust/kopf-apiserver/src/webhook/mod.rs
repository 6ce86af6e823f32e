//! Calls of webhooks: the HTTP client, and the conversion of custom resources.

pub(crate) mod client;
pub(crate) mod conversion;
