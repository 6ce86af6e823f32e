//! Progress of handlers: records of their attempts, persisted with the object, and the storages of these records.

mod record;
mod storage;

pub use record::{Malformed, Record};
pub use storage::ProgressStorage;
