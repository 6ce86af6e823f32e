//! The state machine of one object between its cycles, without I/O: which event is handled next, when, and what is known then.
//!
//! The driver (the engine's worker, or a test) executes the actions and reports their results:
//!
//! 1. A watch event of an idle object starts a cycle, unless [`ObjectWorker::is_throttled`]. [`ObjectWorker::enqueue`] takes the events
//!    that wait. Who works on the object is not known here: see [`crate::slot`].
//! 2. [`ObjectWorker::prepare`] and [`Cycle::open`](crate::cycle::Cycle::open) start the cycle. It is apart from the worker, so that the
//!    driver can execute its effects without a lock on the worker.
//! 3. [`ObjectWorker::on_decision`] takes the decision of the cycle and returns the changes to write.
//!    [`ObjectWorker::on_write_result`] records the result of the write. All cycles end there.
//! 4. [`ObjectWorker::next`] returns the next action: another cycle, a sleep, or none.
//!
//! There is one cycle at a time. Time is an argument. An idle worker has no queue and no sleep.

mod failures;
mod foreign_write;
mod log;
mod queue;
#[cfg(test)]
mod tests;
mod write_result;

use crate::activation::{CommandResult, Completion};
use crate::cause::EventType;
use crate::cycle::{CycleStart, OperatorConfig};
use crate::handler::registry::{Registry, ResourceHandlers};
use crate::handling::error_backoff::ErrorBackoff;
use crate::indexing::{IndexPass, Indexing};
use crate::object::Object;
use crate::persistence::consistency::{Consistency, ViewAge};
use crate::persistence::memory::{Accepted, ObjectMemory};
use crate::time::Timestamp;
use std::sync::Arc;

pub use crate::cycle::QueuedEvent;
pub use log::{WorkerLog, WorkerMessage};
pub use queue::{NextAction, OperatorState, SleepKind, Transition};
pub use write_result::{DecidedWrite, DecisionResult, Finished};

use queue::Queue;

/// Whether the derived label selector of the watch matches an object.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SelectorMatch {
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
    pub resource_handlers: &'a Arc<ResourceHandlers>,
    /// The handlers and the settings at the start of the operator.
    pub startup_config: &'a OperatorConfig,
    /// The current handlers and settings.
    pub live_config: &'a Arc<OperatorConfig>,
}

impl WorkerContext<'_> {
    /// Whether every event is handled, or only the newest state.
    fn handles_every_event(self) -> bool {
        !self.resource_handlers.watching.is_empty() || !self.resource_handlers.indexing.is_empty()
    }
}

/// The state of one object.
#[derive(Clone, Debug, Default)]
pub struct ObjectWorker {
    /// The memory of the cycles.
    pub memory: ObjectMemory,
    /// Whether the derived label selector matches the object.
    pub selector_match: SelectorMatch,
    /// The object is deleted, or not watched any more: of the queued events, only event handlers and indices get the last states.
    pub gone: bool,
    /// The object does not exist any more: its deletion event was received, or a listing does not have it.
    pub is_deleted: bool,
    /// The number of the last listing that had the object. It is here to keep the slots of idle objects small.
    pub last_listing: u32,
    /// The last write of ours whose watch event is still awaited.
    pub consistency: Option<Box<Consistency>>,
    /// The back-off after unexpected errors; none without errors.
    pub backoff: Option<Box<ErrorBackoff>>,
    is_running: bool,
    /// The results of indexing; none if the object was never indexed.
    indexing: Option<Box<Indexing>>,
    /// The waiting events; none if there are none, in most cases.
    queue: Option<Box<Queue>>,
}

impl ObjectWorker {
    /// The worker of an object whose first event is of this type.
    pub fn new(first: EventType) -> Self {
        let memory =
            ObjectMemory { noticed_by_listing: first == EventType::Listed, ..ObjectMemory::default() };
        Self { memory, ..Self::default() }
    }

    /// Takes the inputs of the cycle for an event of an idle object, or for one that [`ObjectWorker::next`] has returned.
    pub fn prepare(&mut self, event: QueuedEvent, context: WorkerContext<'_>, now: Timestamp) -> CycleStart {
        self.is_running = true;
        let index_pass = self.index_pass(&event, context, now);
        // The listing after a pause may be older than the write of a cycle that was running.
        let version = event.object.resource_version();
        let is_older = self.consistency.as_ref().is_some_and(|consistency| consistency.is_older(version));
        // No change handler is called for the last states of an object that does not exist any more.
        let view_age = if self.is_consistent(&event.object, now) && !self.gone {
            ViewAge::Consistent
        } else if is_older {
            ViewAge::Outdated
        } else {
            ViewAge::Unknown
        };
        if !context.resource_handlers.changing.is_empty() && !is_older {
            self.memory.observe(&event.object, &context.startup_config.settings, context.resource_handlers);
        }
        CycleStart { memory: self.memory.clone(), event, view_age, index_pass }
    }

    /// The index commands for the event, which run before all others.
    pub fn index_pass(
        &self,
        event: &QueuedEvent,
        context: WorkerContext<'_>,
        now: Timestamp,
    ) -> Option<IndexPass> {
        if context.resource_handlers.indexing.is_empty() || event.indexed {
            return None;
        }
        let indexing = self.indexing.as_deref();
        // A requeued state is in the indices already, unless indexing has failed.
        if event.requeued && !indexing.is_some_and(Indexing::is_broken) {
            return None;
        }
        let OperatorConfig { registry, settings, .. } = &**context.live_config;
        let fresh = Indexing::default();
        indexing.unwrap_or(&fresh).pass(
            event.kind,
            &event.object,
            context.resource_handlers,
            (registry, settings),
            now,
        )
    }

    /// The state of the indexing, to record the outcomes of index commands.
    pub fn indexing(&mut self) -> &mut Indexing {
        self.indexing.get_or_insert_default()
    }

    /// Takes the index outcomes out of a completion; false if indexing is incomplete.
    pub fn record_indexing(
        &mut self,
        pass: &IndexPass,
        completion: &mut Completion,
        registry: &Registry,
    ) -> bool {
        let indexing = self.indexing();
        if !matches!(completion.results.first(), Some(CommandResult::Indexed(_))) {
            indexing.fail();
            return false;
        }
        if let CommandResult::Indexed(outcomes) = completion.results.remove(0) {
            indexing.record_outcomes(pass, &outcomes, registry);
        }
        true
    }

    /// Records a patch of a daemon or timer of the object.
    pub fn on_daemon_write(&mut self, accepted: Accepted<'_>, context: WorkerContext<'_>) {
        self.memory.record_daemon_write(
            accepted,
            &context.startup_config.settings,
            context.resource_handlers,
        );
    }

    /// The listing at the start of a term of a leader election has begun: another replica has handled the object. Nothing is
    /// remembered, as at the start of an operator, except for the results of indexing. The waiting states are outdated, too: see
    /// [`ObjectWorker::drop_outdated`].
    pub fn begin_term(&mut self) {
        self.memory = ObjectMemory { noticed_by_listing: true, ..ObjectMemory::default() };
        (self.consistency, self.backoff) = (None, None);
    }

    /// The term has ended in the middle of a cycle, which is dropped: the next leader handles the object. The driver asks for the
    /// next action. If the deletion event was received, nothing remains to be done with the object.
    pub fn on_term_lost(&mut self) {
        self.begin_term();
        self.drop_outdated();
        if self.is_deleted {
            (self.gone, self.queue) = (true, None);
        }
        self.is_running = false;
    }

    /// When the oldest of the waiting events was received; none if there is none.
    pub fn oldest_arrival(&self) -> Option<Timestamp> {
        self.queue.as_ref()?.pending.front()?.arrived
    }

    /// Why the object waits although it has no events: for a delay, or after an unexpected error.
    pub fn waits_for(&self, now: Timestamp) -> Option<SleepKind> {
        if self.is_held(now) {
            return Some(SleepKind::Backoff);
        }
        self.queue.as_ref()?.sleep.is_some().then_some(SleepKind::Delay)
    }

    /// Whether a cycle runs.
    pub fn is_running(&self) -> bool {
        self.is_running
    }

    /// Whether the cycle that waits for our last write may continue: with true if that has arrived or timed out, with false if
    /// another event came first, or a pause, or the object was deleted: then the write will not arrive. Otherwise, the end of the wait.
    ///
    /// # Errors
    /// The wait is not over: it ends at this time, unless an event arrives or a pause begins.
    pub fn await_consistency(
        &mut self,
        context: WorkerContext<'_>,
        operator: OperatorState,
        now: Timestamp,
    ) -> Result<bool, Timestamp> {
        // Kopf 1.45 continues during the pause, when the timeout is over.
        if self.has_events() || (operator.paused && !context.startup_config.settings.compat) {
            return Ok(false);
        }
        // The deletion event will end the handling, however late it comes.
        if self.consistency.as_ref().is_some_and(|consistency| consistency.is_deleted()) {
            return Ok(false);
        }
        match self.consistency.as_ref().and_then(|consistency| consistency.deadline()) {
            Some(deadline) if now < deadline => Err(deadline),
            deadline => {
                if deadline.is_some() {
                    self.consistency = None;
                    self.memory.has_unknown_writes = true;
                }
                Ok(true)
            }
        }
    }

    /// Records the observed state; true if it contains the result of our last write.
    fn is_consistent(&mut self, object: &Object, now: Timestamp) -> bool {
        let Some(consistency) = &mut self.consistency else { return true };
        consistency.observe(object.resource_version());
        let reached = consistency.is_reached(now);
        if reached {
            // The wait has timed out: our writes can still arrive.
            self.memory.has_unknown_writes |= consistency.deadline().is_some();
            self.consistency = None;
        }
        reached
    }
}
