//! The schedule of reconcilers: when the reconciliation of a primary object starts, and which one starts first.
//!
//! - [`ScheduleEntry`] is the state machine of one (reconciler, primary): triggers, time requests, results, back-off (rules A1–A13).
//! - [`Finalization`] has the rules of the finalizer of one (reconciler, primary), and of its deletion (rules F1–F9).
//! - [`PrimarySchedule`] combines them: events of one primary in, the next actions out.
//! - [`WorkQueue`] grants the permits of one reconciler to its due entries.
//!
//! Nothing is stored on objects: a restart begins with the initial list (A13). The rule ids are those of the specification of
//! reconcilers.

mod entry;
mod finalization;
mod policy;
mod primary;
mod queue;

pub use entry::{Conclusion, Position, ReconcileResult, ScheduleEntry, Start};
pub use finalization::{Action, Call, Finalization, PrimaryState, finalizer_patch, shared_edit};
pub use policy::{Delays, GrowingDelays, SchedulePolicy};
pub use primary::{Next, PrimarySchedule};
pub use queue::{Grant, WorkQueue};

/// The class of a trigger. The higher priority is the greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// The initial list, or the list after a pause, a relist, or the appearance of a kind.
    Initial,
    /// A requested time has come: `Requeue`, a retry, `resync`.
    Scheduled,
    /// An object has changed.
    Changed,
}
