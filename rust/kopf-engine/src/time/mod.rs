//! Time: clocks, virtual time, durations, and the pause of the operator.

pub mod clock;
pub mod duration;
pub mod pause;
pub mod virtual_time;
