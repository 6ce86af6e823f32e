//! The state machine of one object between its cycles, without I/O: which event is handled next, when, and what is known then.
//!
//! The driver (the engine's worker, or a test) executes the actions and reports their results:
//!
//! 1. [`ObjectWorker::on_event`] takes a watch event: a cycle starts, or the event waits in the queue.
//! 2. [`ObjectWorker::prepare`] and [`RunningCycle::open`] start the cycle. [`RunningCycle::effect`] is its next effect, and
//!    [`RunningCycle::on_completion`] and its siblings take the results. The cycle is apart from the worker, so that the driver can
//!    work on it without a lock on the worker.
//! 3. [`ObjectWorker::on_decision`] takes the decision of the cycle and returns the changes to write.
//!    [`ObjectWorker::on_write_result`] records the result of the write. All cycles end there.
//! 4. [`ObjectWorker::next`] returns the next action: another cycle, a sleep, or none.
//!
//! There is one cycle at a time. Time is an argument. An idle worker has no queue and no sleep.

mod finish;
mod log;
mod queue;
mod running;
#[cfg(test)]
mod tests;

use crate::cause::EventType;
use crate::cycle::OperatorConfig;
use crate::handler::registry::ResourceHandlers;
use crate::handling::error_backoff::ErrorBackoff;
use crate::indexing::{IndexPass, Indexing};
use crate::object::Object;
use crate::persistence::consistency::Consistency;
use crate::persistence::memory::{Accepted, ObjectMemory};
use crate::time::Timestamp;
use std::sync::Arc;

pub use finish::{Concluded, DecidedWrite, Finished, WriteFailure, WriteOutcome};
pub use log::{WorkerLog, WorkerMessage};
pub use queue::{Next, OperatorState, Reaction, SleepKind, Step};
pub use running::{CycleEffect, RunningCycle};

use queue::Queue;

/// An event in the queue of its object.
#[derive(Clone, Debug)]
pub struct QueuedEvent {
    /// The type of the event.
    pub kind: EventType,
    /// The new state, as received.
    pub object: Arc<Object>,
    /// Not a watch event: a delay is over, and the last state is handled again.
    pub requeued: bool,
    /// The indices already contain the object.
    pub indexed: bool,
}

impl QueuedEvent {
    /// A watch event.
    pub fn of(kind: EventType, object: Arc<Object>) -> Self {
        Self { kind, object, requeued: false, indexed: false }
    }

    /// The state of an object to be handled again without a watch event.
    pub fn requeued(object: Arc<Object>) -> Self {
        Self { requeued: true, ..Self::of(EventType::Modified, object) }
    }
}

/// Whether the derived label selector of the watch matches an object.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Membership {
    /// The watch delivers the object.
    #[default]
    Selected,
    /// The watch does not deliver the object any more.
    Deselected,
    /// Deselected, and our copy is stale because we patched the object or have to handle it again: it must be looked up.
    Stale,
}

/// The configuration that a worker decides by.
#[derive(Clone, Copy, Debug)]
pub struct WorkerContext<'a> {
    /// The handlers of the resource.
    pub plan: &'a Arc<ResourceHandlers>,
    /// The handlers and the settings at the start of the operator.
    pub rules: &'a OperatorConfig,
    /// The current handlers and settings.
    pub current: &'a Arc<OperatorConfig>,
}

impl WorkerContext<'_> {
    /// Whether every event is handled, or only the newest state.
    fn handles_every_event(self) -> bool {
        !self.plan.watching.is_empty() || !self.plan.indexing.is_empty()
    }
}

/// The driver of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    /// There is none: nothing is to be done.
    #[default]
    Idle,
    /// There is none yet: the events wait until the queue is released.
    Blocked,
    /// It runs a cycle.
    Running,
    /// It is between two cycles.
    Free,
}

/// The state of one object.
#[derive(Clone, Debug, Default)]
pub struct ObjectWorker {
    /// The memory of the cycles.
    pub memory: ObjectMemory,
    /// Whether the derived label selector matches the object.
    pub membership: Membership,
    /// The object is deleted: nothing remains to be handled after the queued events.
    pub gone: bool,
    /// The last write of ours whose watch event is still awaited.
    pub consistency: Option<Box<Consistency>>,
    /// The back-off after unexpected errors; none without errors.
    pub backoff: Option<Box<ErrorBackoff>>,
    phase: Phase,
    /// The results of indexing; none if the object was never indexed.
    indexing: Option<Box<Indexing>>,
    /// The waiting events; none if there are none, in most cases.
    queue: Option<Box<Queue>>,
}

/// The inputs of a cycle, taken from the worker.
#[derive(Clone, Debug)]
pub struct CycleStart {
    event: QueuedEvent,
    memory: ObjectMemory,
    consistent: bool,
    index_pass: Option<IndexPass>,
}

impl CycleStart {
    /// The event of the cycle.
    pub fn event(&self) -> &QueuedEvent {
        &self.event
    }
}

impl ObjectWorker {
    /// The worker of an object whose first event is of this type.
    pub fn new(first: EventType) -> Self {
        let memory =
            ObjectMemory { noticed_by_listing: first == EventType::Listed, ..ObjectMemory::default() };
        Self { memory, ..Self::default() }
    }

    /// Takes the inputs of the cycle for an event that [`ObjectWorker::on_event`] or [`ObjectWorker::next`] has returned.
    pub fn prepare(&mut self, event: QueuedEvent, context: WorkerContext<'_>, now: Timestamp) -> CycleStart {
        let index_pass = self.index_pass(&event, context, now);
        let consistent = self.is_consistent(&event.object, now);
        if !context.plan.changing.is_empty() {
            self.memory.observe(&event.object, &context.rules.settings, context.plan);
        }
        CycleStart { memory: self.memory.clone(), event, consistent, index_pass }
    }

    /// The index commands for the event, which run before all others.
    pub fn index_pass(
        &self,
        event: &QueuedEvent,
        context: WorkerContext<'_>,
        now: Timestamp,
    ) -> Option<IndexPass> {
        if context.plan.indexing.is_empty() || event.indexed {
            return None;
        }
        let indexing = self.indexing.as_deref();
        // A requeued state is in the indices already, unless indexing has failed.
        if event.requeued && !indexing.is_some_and(Indexing::is_broken) {
            return None;
        }
        let OperatorConfig { registry, settings, .. } = &**context.current;
        let fresh = Indexing::default();
        indexing.unwrap_or(&fresh).pass(event.kind, &event.object, context.plan, (registry, settings), now)
    }

    /// The state of the indexing, to record the outcomes of index commands.
    pub fn indexing(&mut self) -> &mut Indexing {
        self.indexing.get_or_insert_default()
    }

    /// Records a patch of a daemon or timer of the object.
    pub fn on_daemon_write(&mut self, accepted: Accepted<'_>, context: WorkerContext<'_>) {
        self.memory.record_daemon_write(accepted, &context.rules.settings, context.plan);
    }

    /// Drops the state because another operator may have handled the object.
    pub fn invalidate(&mut self) {
        self.memory.invalidate();
    }

    /// Whether nothing is in progress and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// Whether the cycle that waits for our last write may continue: with true if that has arrived or timed out, with false if
    /// another event came first. Otherwise, the end of the wait.
    ///
    /// # Errors
    /// The wait is not over: it ends at this time, unless an event arrives.
    pub fn await_consistency(&mut self, now: Timestamp) -> Result<bool, Timestamp> {
        if self.has_news() {
            return Ok(false);
        }
        match self.consistency.as_ref().and_then(|consistency| consistency.deadline()) {
            Some(deadline) if now < deadline => Err(deadline),
            deadline => {
                if deadline.is_some() {
                    self.consistency = None;
                }
                Ok(true)
            }
        }
    }

    /// Records the observed state; true if it contains the result of our last write.
    fn is_consistent(&mut self, object: &Object, now: Timestamp) -> bool {
        let Some(consistency) = &mut self.consistency else { return true };
        consistency.seen(object.resource_version());
        let reached = consistency.is_reached(now);
        if reached {
            self.consistency = None;
        }
        reached
    }
}
