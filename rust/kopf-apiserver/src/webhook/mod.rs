//! Calls of webhooks: the HTTP client, their responses, and the conversion of custom resources.

pub(crate) mod client;
pub(crate) mod conversion;
pub(crate) mod review;
mod tls;
