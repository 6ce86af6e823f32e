//! Selectors that are evaluated in memory: label selectors, field paths that lead into lists, and look-ups in both directions.

mod label_selector;
mod list_path;
mod reverse_index;

pub use label_selector::{LabelSelector, SelectorError};
pub use list_path::ListPath;
pub use reverse_index::ReverseIndex;
