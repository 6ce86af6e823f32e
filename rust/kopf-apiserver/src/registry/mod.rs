//! Registry: what happens to objects between decoding and storage.

pub(crate) mod crd;
pub(crate) mod defaults;
pub(crate) mod deletion;
pub(crate) mod meta;
pub(crate) mod prepare;
pub(crate) mod rules;
pub(crate) mod selectors;
pub(crate) mod validation;
pub(crate) mod warnings;
