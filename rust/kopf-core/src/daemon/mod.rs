//! Daemons and timers: what runs beside an object, for as long as the object is there and matches.
//!
//! Owns the rules without a clock: who is to be running (`roster`), what one of them does next (`routine`), and how
//! hard it is asked to stop (`stopping`). Who waits, calls and cancels, is not known here. Contract/engine 9.

mod reconcile;
mod schedule;
mod termination;

pub use reconcile::{DaemonDiff, DesiredDaemons, diff};
pub use schedule::{Action, Schedule};
pub use termination::{StopReasons, Stopping, TerminationPolicy, TerminationStage, TerminationStep};
