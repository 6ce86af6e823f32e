//! Progress of handlers: records of their attempts, persisted with the object, and the storages of these records.

mod discovery;
mod record;
mod storage;

pub use discovery::Records;
pub use record::{Malformed, Record};
pub use storage::ProgressStorage;
