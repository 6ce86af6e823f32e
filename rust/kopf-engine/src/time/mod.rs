//! Time: clocks, virtual time, and durations.

pub mod clock;
pub mod duration;
pub mod virtual_time;
