//! Storage.

pub(crate) mod encoding;
pub(crate) mod store;
