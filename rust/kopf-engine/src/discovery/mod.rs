//! Discovery of resources and namespaces.

pub mod namespaces;
pub mod observers;
pub mod scan;
