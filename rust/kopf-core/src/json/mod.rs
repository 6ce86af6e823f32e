//! JSON: scanning, values, paths, differences, and patches.

pub mod diff;
mod error;
pub mod json_patch;
pub mod merge_patch;
pub mod path;
pub(crate) mod scanner;
pub(crate) mod strings;
pub mod value;

pub use error::DecodeError;

/// How deep a value may be nested. Readers of checked texts recurse so deep at most (see [`value::parse_checked`]), and
/// Python's `copy.deepcopy()`, with two frames per level, stays below its recursion limit of 1,000.
pub(crate) const MAX_DEPTH: u32 = 300;
