//! Placeholder of the first commit; see the crate's description.
