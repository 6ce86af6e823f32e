//! The per-object state of the engine: slots, the backlog, and dispatching.

pub mod backlog;
pub mod detached_cycle;
pub mod dispatcher;
pub mod open_cycle;
pub mod selector_match;
pub mod slots;
pub mod worker_limit;
pub mod worker_signals;
