//! Storage of objects.

pub(crate) mod encoding;
pub(crate) mod store;
