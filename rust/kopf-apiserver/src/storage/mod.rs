//! Storage of objects.

pub(crate) mod encoding;
pub(crate) mod object;
pub(crate) mod store;
mod uid_index;
