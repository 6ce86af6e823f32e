//! JSON: scanning, values, paths, differences, and patches.

pub mod diff;
mod error;
mod escapes;
pub mod json_patch;
pub mod merge_patch;
pub mod path;
pub(crate) mod scanner;
pub(crate) mod strings;
pub mod value;
mod words;

pub use error::DecodeError;
pub(crate) use escapes::{escape, printable_end};
pub use strings::{escaped_string, plain_string};

/// The maximum nesting depth of a value. Parsers of validated texts recurse at most this deep (see
/// [`value::parse_checked`]). Python's `copy.deepcopy()` takes two frames per level, and stays below its recursion limit of
/// 1,000.
pub(crate) const MAX_DEPTH: u32 = 300;
