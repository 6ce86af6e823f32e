//! Scheme: resource types, built-in data, conversion and protobuf.

pub(crate) mod builtin;
pub(crate) mod conversion;
pub(crate) mod custom;
pub(crate) mod from_crd;
pub(crate) mod go_difference;
pub(crate) mod go_values;
pub(crate) mod protobuf;
pub(crate) mod resources;
