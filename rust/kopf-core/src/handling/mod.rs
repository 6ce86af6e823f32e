//! The handling of one cause: attempts of handlers, their outcomes, and the progress over all of them.

pub mod attempt;
pub mod cause_id;
pub mod change;
pub mod error_backoff;
pub(crate) mod progress;
pub mod sub_handlers;
