//! Storage of objects.

pub(crate) mod encoding;
mod history;
pub(crate) mod object;
pub(crate) mod store;
mod uid_index;
