//! Time: clocks, virtual time and what it waits for, and durations.

pub mod clock;
pub mod duration;
pub mod traffic;
pub mod virtual_time;
pub mod worker_state;
