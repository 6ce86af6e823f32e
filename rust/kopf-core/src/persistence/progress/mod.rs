//! Progress of handlers: what is persisted with the object between the attempts.
//!
//! Owns: the record and the places where it is kept. Must not know: when a handler runs.

mod record;
mod storage;

pub use record::{Malformed, Record};
pub use storage::ProgressStorage;
