//! The resource types.

pub(crate) mod builtin;
pub(crate) mod conversion;
pub(crate) mod custom;
pub(crate) mod definition;
pub(crate) mod protobuf;
pub(crate) mod resources;
