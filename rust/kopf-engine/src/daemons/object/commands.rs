//! The commands to the scheduler of daemons and timers.

use std::sync::{Arc, Weak};

use kopf_core::handling::attempt::Outcome;
use kopf_core::time::Timestamp;
use kopf_core::writes::WriteOutcome;
use tokio::sync::oneshot;

use super::{ObjectDaemons, RunState, State};
use crate::host::{CallDaemonReply, RunId};

/// An entry of the scheduler's heap.
pub(crate) struct ScheduledRun {
    pub(crate) at: Timestamp,
    pub(crate) object_daemons: Weak<ObjectDaemons>,
    pub(crate) run: RunId,
    pub(crate) turn: u32,
}

/// A command to the scheduler.
pub(crate) enum SchedulerCommand {
    /// Schedules a run.
    Sleep(ScheduledRun),
    /// The result of the initial delay function; none if it raised.
    Delayed { object_daemons: Arc<ObjectDaemons>, run: RunId, delay: Option<f64> },
    /// A call is over.
    Returned { object_daemons: Arc<ObjectDaemons>, run: RunId, reply: Option<CallDaemonReply> },
    /// The patch of a call was written, or has failed.
    Written { object_daemons: Arc<ObjectDaemons>, run: RunId, outcome: Outcome, written: Box<WriteOutcome> },
    /// Ordering barrier: replies once all earlier commands are processed.
    Flush(oneshot::Sender<()>),
    /// Wakes up the cycles of these objects.
    Wake(Vec<Arc<ObjectDaemons>>),
    /// A batch of commands, in their order.
    Many(Vec<SchedulerCommand>),
}

impl ScheduledRun {
    /// The position of the run; none if it has ended, is parked, or is scheduled for another time since then.
    pub(in crate::daemons) fn position_in(&self, state: &State) -> Option<usize> {
        let position = state.find(self.run)?;
        let run = &state.runs[position];
        (run.state == RunState::Sleeping && run.turn == self.turn).then_some(position)
    }

    /// Whether the run is still scheduled for this time.
    pub(in crate::daemons) fn is_current(&self) -> bool {
        let object_daemons = self.object_daemons.upgrade();
        object_daemons.is_some_and(|object_daemons| self.position_in(&object_daemons.state()).is_some())
    }
}

impl PartialEq for ScheduledRun {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for ScheduledRun {}

impl PartialOrd for ScheduledRun {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ScheduledRun {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

impl SchedulerCommand {
    /// Wakes up the cycles of these objects.
    pub(crate) fn wake_all(objects: &[Arc<ObjectDaemons>]) {
        for object_daemons in objects {
            object_daemons.wake();
        }
    }
}
