//! Server-side apply.

pub(crate) mod field_set;
pub(crate) mod last_applied;
pub(crate) mod managed_fields;
pub(crate) mod merge;
pub(crate) mod scale_fields;
pub(crate) mod typed;
