//! Daemons and timers: handlers that run in the background as long as their object exists and matches.
//!
//! Pure rules, without a clock: which of them should run (`diff`), the next action of a running one (`schedule`), and the
//! stages of its termination (`termination`). The engine sleeps, calls and cancels.

mod diff;
mod schedule;
mod termination;

pub use diff::{DaemonDiff, DesiredDaemons, diff};
pub use schedule::{DaemonAction, Schedule};
pub use termination::{StopReasons, Stopping, TerminationPolicy, TerminationStage, TerminationStep};
