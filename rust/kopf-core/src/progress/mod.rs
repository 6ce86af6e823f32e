//! Progress of handlers.
mod record;
mod storage;
pub use record::{Malformed, Record};
pub use storage::ProgressStorage;
