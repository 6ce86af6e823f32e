//! One decision about one object, as a state machine without I/O.
//!
//! The driver (the engine, or a test) executes the effects, and reports their results: it runs activations and waits (`running`). The
//! cycle ends with a decision: one patch, and the time of the next cycle. The phases run in this order:
//!
//! 1. `detect`: event handlers; the cause; matching handlers; callable filters.
//! 2. `daemons`: the daemons and timers that should run.
//! 3. `detect`: the finalizer; the consistency with our own last write.
//! 4. `handle`: the progress so far; the selection of handlers; their calls.
//! 5. `decision`: everything to persist, as one patch.
//!
//! `comparison` compares the essence with the diff-base. `final_progress` completes a handling. `custom_storage` reads and writes
//! the state in custom storages. `obstacle` finds why a handler is not called. `reversals` finds fields that were changed and
//! reverted during a handling.
//!
//! A cycle that calls no handler and changes nothing needs no activation.

mod comparison;
mod custom_storage;
mod daemons;
mod decision;
mod detect;
mod final_progress;
mod foreign_write;
mod handle;
mod obstacle;
mod queued_event;
mod rejected;
mod reversals;
mod running;
#[cfg(test)]
mod tests;

use crate::activation::log::LogMessage;
use crate::activation::{Activation, Command};
use crate::cause::{EventType, Reason};
use crate::daemon::DesiredDaemons;
use crate::handler::filters::FilterVerdict;
use crate::handler::lifecycle::Lifecycle;
use crate::handler::registry::{Registry, ResourceHandlers};
use crate::handling::attempt::Attempt;
use crate::handling::cause_id::Handling;
use crate::handling::change::Change;
use crate::indexing::IndexPass;
use crate::json::merge_patch::Patch;
use crate::json::value::{Map, Value};
use crate::object::Object;
use crate::persistence::consistency::ViewAge;
use crate::persistence::essence::KnownComparison;
use crate::persistence::finalizer::Edit;
use crate::persistence::memory::{HandlingStatus, ObjectMemory};
use crate::persistence::observed_essences::ObservedEssences;
use crate::persistence::superseding::CalledHandler;
use crate::settings::Settings;
use crate::time::Timestamp;
use std::sync::Arc;

pub use obstacle::ChangeObstacle;
pub use queued_event::QueuedEvent;

/// The handlers and the settings of the operator.
#[derive(Clone, Debug)]
pub struct OperatorConfig {
    /// All handlers.
    pub registry: Arc<Registry>,
    /// The settings.
    pub settings: Arc<Settings>,
    /// The selection of change handlers for a cycle.
    pub lifecycle: Lifecycle,
}

/// The inputs of a cycle.
#[derive(Clone, Debug)]
pub struct CycleStart {
    /// The event.
    pub event: QueuedEvent,
    /// The memory of the object.
    pub memory: ObjectMemory,
    /// The age of the received state.
    pub view_age: ViewAge,
    /// The index commands, which run before all others.
    pub index_pass: Option<IndexPass>,
}

/// The time, the entropy, and the age of the state.
#[derive(Clone, Copy, Debug)]
struct Moment {
    /// The current time.
    now: Timestamp,
    /// A random number, for lifecycles.
    entropy: u64,
    /// The age of the received state.
    view_age: ViewAge,
}

/// The next action of the driver of a cycle.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Run these commands in Python, then call [`Cycle::on_completion`].
    Run(Activation),
    /// Wait until our own write arrives or times out, or another event comes first, then call [`Cycle::on_consistency`].
    AwaitConsistency,
    /// Start and stop the daemons and timers of the object accordingly, then call [`Cycle::on_daemons`].
    Spawn(DesiredDaemons),
    /// The cycle is finished with this decision.
    Done(Box<Decision>),
}

/// The decision of a cycle: its patch and when to look at the object again.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub struct Decision {
    /// The patch to merge into the object.
    pub patch: Patch,
    /// The progress in its final state, if a later request removes it than the one that writes the handlers' results.
    pub final_progress: Patch,
    /// The change of Kopf's finalizer.
    pub finalizer: Option<Edit>,
    /// The new value of [`ObjectMemory::deletion_handled`], if the decision is executed.
    pub deletion_handled: bool,
    /// Whether the handlers' patch has transformation functions.
    pub fns: bool,
    /// Seconds until the next cycle, unless an event comes earlier; zero for at once, none for never.
    pub delay: Option<f64>,
    /// The new value of [`ObjectMemory::fully_handled_once`].
    pub fully_handled_once: bool,
    /// Whether there was a cause with matching handlers.
    pub matched: bool,
    /// An unexpected error: the object is throttled, and the rest of the decision is ignored.
    pub error: Option<String>,
    /// The status of the running handling.
    pub handling_status: HandlingStatus,
    /// The new value of [`ObjectMemory::annotations_removed`].
    pub annotations_removed: bool,
    /// A patch that the API server rejected before, to be sent in a separate request.
    pub rejected_patch: Option<Box<Patch>>,
}

/// The state machine of one cycle.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub struct Cycle {
    /// The id of the cycle.
    pub id: u64,
    /// Python has already closed the cycle.
    pub closed: bool,
    /// The event, with the object as received, without our unconfirmed writes.
    event: QueuedEvent,
    /// The object as handled by the cycle: with our unconfirmed writes applied.
    object: Arc<Object>,
    opened: Timestamp,
    /// The index commands that are not submitted yet.
    index_pass: Option<IndexPass>,
    /// The index commands that were submitted.
    indexing: Option<IndexPass>,
    /// The next effect; none while the driver executes it.
    next: Option<Effect>,
    /// Something was called in Python.
    has_run: bool,
    memory: ObjectMemory,
    resource_handlers: Arc<ResourceHandlers>,
    config: Arc<OperatorConfig>,
    moment: Moment,
    log_messages: Vec<LogMessage>,
    /// The handling that this cycle begins or continues; none before that is known.
    handling: Option<Handling>,
    /// The handlers' patch, as of the last completion.
    patch: Patch,
    fns: bool,
    /// The content of the handlers' patch before they are called.
    initial_patch: Option<Map<String, Value>>,
    finalizer: Option<Edit>,
    /// The reason to act; none if no handler matches.
    cause: Option<Reason>,
    candidates: Vec<Candidate>,
    /// The comparison of the object, if it was needed before the cause is detected.
    known_comparison: KnownComparison,
    comparison: Option<comparison::EssenceComparison>,
    change: Option<Arc<Change>>,
    state: Option<crate::handling::progress::HandlingProgress>,
    daemon_phase: daemons::DaemonPhase,
    /// The custom lifecycle has selected no handler, although some were due.
    undecided: bool,
    /// The exchange with custom storages, if there are any.
    custom_storage: Option<Box<custom_storage::CustomStorageState>>,
    /// Our writes that are missing on the object.
    missing_patch: Map<String, Value>,
    /// The final progress that belongs to it: see [`Decision::final_progress`].
    missing_final_progress: Map<String, Value>,
    /// The progress of the previous handling must be written first.
    unfinished: bool,
    /// Another client has removed or changed what is missing.
    removed: bool,
    /// The missing part must be written even if there are no other changes.
    urgent: bool,
    /// The missing part restarts the handling.
    is_restarted: bool,
    /// A patch that the API server rejected before, and the time of its next attempt.
    rejected_patch: Option<Box<(Patch, Timestamp)>>,
    /// The essences that only some handlers were called with, in earlier cycles and in this one.
    observed: ObservedEssences,
    /// A handler has finished in this cycle, or some of its sub-handlers have run.
    advanced: bool,
    /// The event handlers and change handlers that were called.
    called: Vec<CalledHandler>,
    phase: Phase,
}

/// A change handler that may match the object.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    handler: usize,
    prematch: FilterVerdict,
    full: FilterVerdict,
}

/// The effect whose result the cycle waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// The state from custom storages.
    Loading,
    /// Event handlers, and the callable filters of these candidates.
    Detecting { commands: usize, asked: Vec<usize> },
    /// The start and the stop of daemons and timers.
    Spawning,
    /// The arrival of our last write.
    Waiting,
    /// The custom lifecycle.
    Selecting,
    /// Change handlers.
    Handling { commands: usize },
    /// The storing of the state in custom storages.
    Storing,
    /// None: the cycle is finished.
    Finished,
}

impl Cycle {
    /// The event of the cycle, with the object as received.
    pub fn event(&self) -> &QueuedEvent {
        &self.event
    }

    /// When the cycle was opened.
    pub fn opened(&self) -> Timestamp {
        self.opened
    }

    /// Whether anything was called in Python.
    pub fn has_run(&self) -> bool {
        self.has_run
    }

    /// The object as handled by the cycle: with our unconfirmed writes applied.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// The reason to act; none if no handler matches, or while it is not known.
    pub fn reason(&self) -> Option<Reason> {
        self.cause
    }

    /// The handling that the cycle begins or continues; none if it calls no change handlers, or while that is not known.
    pub fn handling(&self) -> Option<Handling> {
        self.handling
    }

    /// The event handlers and change handlers that were called so far.
    pub fn called(&self) -> &[CalledHandler] {
        &self.called
    }

    /// The log messages since the last call, in order. They are logged before the next activation.
    pub fn drain_log(&mut self) -> Vec<LogMessage> {
        std::mem::take(&mut self.log_messages)
    }

    fn is_gone(&self) -> bool {
        self.event.kind == EventType::Deleted
    }

    fn is_deleting(&self) -> bool {
        self.object.deletion_timestamp().is_some()
    }

    fn is_blocked(&self) -> bool {
        self.object.has_finalizer(&self.config.settings.persistence.finalizer)
    }

    /// Whether resume handlers may be called.
    fn is_initial(&self) -> bool {
        self.memory.noticed_by_listing && !self.memory.fully_handled_once
    }

    fn record_called(&mut self, commands: &[Command]) {
        let attempts = commands.iter().filter_map(|command| match command {
            Command::CallEventHandler { attempt, .. } | Command::CallChangeHandler { attempt } => {
                Some(attempt)
            }
            _ => None,
        });
        self.called.extend(
            attempts.map(|it| CalledHandler { handler: it.handler, is_first_attempt: it.retry == 0 }),
        );
    }

    fn attempt(&self, index: usize, started: Timestamp, retry: u64) -> Option<Attempt> {
        let handler = self.config.registry.handlers.get(index)?;
        Some(Attempt::of(index, handler, self.config.settings.execution.default_backoff, started, retry))
    }
}
