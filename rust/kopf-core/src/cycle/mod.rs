//! One decision about one object, as a machine that is driven from outside.
//!
//! The host runs activations and waits; the cycle ends with a decision: one patch, and when to look again. In this order:
//!
//! 1. `detect`: event handlers; the cause; matching handlers; questions to callable filters.
//! 2. `daemons`: which daemons and timers are to run.
//! 3. `detect`: the finalizer; whether our own last write has arrived.
//! 4. `handle`: the progress so far; who is called now; calls.
//! 5. `finish`: everything that is to be persisted, as one patch.
//!
//! `comparison` compares the essence with the diff-base. `custom_storage` reads and writes the state that users' storages keep.
//!
//! A cycle that calls no handler and changes nothing needs no crossing into Python.

mod comparison;
mod custom_storage;
mod daemons;
mod detect;
mod finish;
mod handle;
#[cfg(test)]
mod tests;

use crate::activation::log::LogMessage;
use crate::activation::{Activation, Completion};
use crate::cause::{EventType, Reason};
use crate::daemon::DesiredDaemons;
use crate::handler::filters::FilterVerdict;
use crate::handler::lifecycle::Lifecycle;
use crate::handler::registry::{Registry, ResourceHandlers};
use crate::handling::attempt::Attempt;
use crate::handling::change::Change;
use crate::json::merge_patch::Patch;
use crate::json::value::{Map, Value};
use crate::object::Object;
use crate::persistence::finalizer::Edit;
use crate::persistence::memory::{HandlingStatus, ObjectMemory};
use crate::persistence::pending_state::ObservedEssences;
use crate::settings::Settings;
use crate::time::Timestamp;
use std::sync::Arc;

/// The event that a cycle decides about.
#[derive(Clone, Debug)]
pub struct CycleEvent {
    /// How it came.
    pub event: EventType,
    /// The object's state.
    pub object: Arc<Object>,
    /// It is no event: a delay is over, and the last known state is looked at again. Event handlers have seen it already.
    pub requeued: bool,
}

/// The handlers and the settings of the operator.
#[derive(Clone, Debug)]
pub struct OperatorConfig {
    /// All handlers.
    pub registry: Arc<Registry>,
    /// The settings.
    pub settings: Arc<Settings>,
    /// How change handlers are chosen.
    pub lifecycle: Lifecycle,
}

/// The time, the entropy, and the consistency at the start of a cycle.
#[derive(Clone, Copy, Debug)]
pub struct CycleInput {
    /// The time.
    pub now: Timestamp,
    /// Chance.
    pub entropy: u64,
    /// No own write is awaited.
    pub consistent: bool,
}

/// What the engine does next for a cycle.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Run this in Python, and answer with a reply.
    Run(Activation),
    /// Wait until our own write arrives or is given up, and answer whether either came true; false if something new came.
    AwaitConsistency,
    /// Start and stop the daemons and timers of the object accordingly, and answer what came of it.
    Spawn(DesiredDaemons),
    /// Nothing more: this is the result.
    Done(Box<Decision>),
}

/// The result of an effect.
#[derive(Clone, Debug)]
pub enum EffectResult {
    /// The results of an activation.
    Completion(Completion),
    /// Whether the wait was waited out.
    Consistent(bool),
    /// What came of starting and stopping daemons and timers.
    Spawned {
        /// Look again after so many seconds: some are still stopping.
        delay: Option<f64>,
        /// The deletion of the object is to be held because of them.
        holds: bool,
    },
}

/// The decision of a cycle: its patch and when to look at the object again.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub struct Decision {
    /// What is to be merged into the object.
    pub patch: Patch,
    /// The progress in its final state, if it is removed by a later request than that which writes what was returned.
    pub outcomes: Patch,
    /// What is to be done with our finalizer.
    pub finalizer: Option<Edit>,
    /// The new value of [`ObjectMemory::deletion_handled`], if the conclusion is carried out.
    pub deletion_handled: bool,
    /// The handlers' patch has transformation functions.
    pub fns: bool,
    /// Look again after so many seconds, unless something comes earlier; zero is at once; none is never.
    pub delay: Option<f64>,
    /// The new value of [`ObjectMemory::fully_handled_once`].
    pub fully_handled_once: bool,
    /// A cause of change was followed to its end.
    pub matched: bool,
    /// An unexpected error: the object is to be throttled, and nothing else of this counts.
    pub error: Option<String>,
    /// What becomes of the handling that was going on.
    pub handling_status: HandlingStatus,
    /// The new value of [`ObjectMemory::annotations_removed`].
    pub annotations_removed: bool,
    /// What the server has rejected before: to be merged into the object apart from everything else.
    pub pending: Option<Box<Patch>>,
}

/// The machine.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub struct Cycle {
    event: EventType,
    object: Arc<Object>,
    requeued: bool,
    memory: ObjectMemory,
    plan: Arc<ResourceHandlers>,
    rules: Arc<OperatorConfig>,
    moment: CycleInput,
    log_messages: Vec<LogMessage>,
    /// The handlers' patch, as of the last reply.
    patch: Patch,
    fns: bool,
    /// What goes into the handlers' patch before they are called.
    initial_patch: Option<Map<String, Value>>,
    finalizer: Option<Edit>,
    /// Why we act, unless nobody is interested.
    cause: Option<Reason>,
    candidates: Vec<Candidate>,
    comparison: Option<comparison::EssenceComparison>,
    change: Option<Arc<Change>>,
    state: Option<crate::handling::progress::HandlingProgress>,
    daemon_phase: daemons::DaemonPhase,
    /// The user's lifecycle has chosen nobody, although there was somebody to choose.
    undecided: bool,
    /// The exchange with the user's storages, if there are any.
    custom_storage: Option<Box<custom_storage::CustomStorageState>>,
    /// What is missing on the object, though we have written it or tried to.
    missing_patch: Map<String, Value>,
    /// The handling before is to be written first.
    unfinished: bool,
    /// Others have removed or changed what is missing there.
    removed: bool,
    /// It is to be written even if nothing else is.
    urgent: bool,
    /// It makes the handling begin anew.
    is_restarted: bool,
    /// What the server has rejected before, and when it is to be sent again.
    pending: Option<Box<(Patch, Timestamp)>>,
    /// What handlers have seen, in earlier cycles and in this one, though others have not.
    seen: ObservedEssences,
    /// Somebody has finished in this cycle, or has gone a part of the way.
    advanced: bool,
    phase: Phase,
}

/// A change handler that may be interested in the object.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    handler: usize,
    prematch: FilterVerdict,
    full: FilterVerdict,
}

/// What was asked last.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// What the user's storages keep.
    Recalling,
    /// Event handlers, and callable filters of these candidates.
    Opening { steps: usize, asked: Vec<usize> },
    /// Daemons and timers are started and stopped.
    Spawning,
    /// Waiting for our own write.
    Waiting,
    /// The user's lifecycle.
    Picking,
    /// Change handlers.
    Handling { steps: usize },
    /// The user's storages to keep something.
    Keeping,
    /// Nothing.
    Over,
}

impl Cycle {
    /// Begins a cycle.
    pub fn open(
        observation: CycleEvent,
        memory: &ObjectMemory,
        plan: Arc<ResourceHandlers>,
        rules: Arc<OperatorConfig>,
        moment: CycleInput,
    ) -> (Self, Effect) {
        let overlay = match observation.event {
            EventType::Deleted => None,
            _ => memory.overlay(&observation.object, moment.consistent, &rules.settings, &plan),
        };
        let restarted = overlay.as_ref().and_then(|overlay| overlay.restarted.clone());
        let is_restarted = restarted.is_some();
        let persistence = &rules.settings.persistence;
        let known = || Some(memory.pending_state.as_ref()?.seen(&observation.object, persistence, &plan));
        let seen = restarted.or_else(known).unwrap_or_default();
        let unfinished = overlay.as_ref().is_some_and(|overlay| overlay.unfinished);
        let removed = overlay.as_ref().is_some_and(|overlay| overlay.removed);
        let pending = overlay.as_ref().and_then(|overlay| overlay.pending.clone()).map(Box::new);
        let (object, missing_patch, urgent) = overlay
            .map_or((observation.object, Map::new(), false), |it| (it.object, it.missing_patch, it.urgent));
        let mut cycle = Self {
            event: observation.event,
            object,
            requeued: observation.requeued,
            memory: memory.clone(),
            plan,
            rules,
            moment,
            log_messages: Vec::new(),
            patch: Patch::default(),
            fns: memory.remaining_fns,
            initial_patch: None,
            finalizer: None,
            cause: None,
            candidates: Vec::new(),
            comparison: None,
            change: None,
            state: None,
            daemon_phase: daemons::DaemonPhase::default(),
            undecided: false,
            custom_storage: None,
            missing_patch,
            unfinished,
            removed,
            urgent,
            is_restarted,
            pending,
            seen,
            advanced: false,
            phase: Phase::Over,
        };
        let next = if cycle.needs_load() { cycle.load_state() } else { cycle.begin() };
        (cycle, next)
    }

    /// The object as it is looked at: with what is missing there.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// Goes on with an answer.
    pub fn resume(&mut self, answer: EffectResult, now: Timestamp) -> Effect {
        self.moment.now = now;
        match (std::mem::replace(&mut self.phase, Phase::Over), answer) {
            (Phase::Waiting, EffectResult::Consistent(true)) => self.handle(),
            (Phase::Waiting, EffectResult::Consistent(false)) => self.postpone(),
            (Phase::Spawning, EffectResult::Spawned { delay, holds }) => self.spawned(delay, holds),
            (phase, EffectResult::Completion(reply)) => self.on_completion(&phase, reply),
            _ => self.fail("Something was answered that was not asked for.".to_owned()),
        }
    }

    /// What there is to say since the last call, in order; to be logged before the next script is run.
    pub fn drain_log(&mut self) -> Vec<LogMessage> {
        std::mem::take(&mut self.log_messages)
    }

    fn on_completion(&mut self, phase: &Phase, mut reply: Completion) -> Effect {
        // Filters and lifecycles have nobody to handle their errors: the object is throttled.
        if let Some(error) = reply.error {
            return self.fail(error);
        }
        if let Some(patch) = reply.patch {
            self.patch = Patch(patch);
        }
        self.fns = reply.fns;
        let heard = match phase {
            Phase::Opening { steps, asked } if *steps == reply.steps.len() => {
                self.opened(asked, &reply.steps).then(|| self.decide())
            }
            Phase::Handling { steps } if *steps == reply.steps.len() => Some(self.handled(&reply.steps)),
            Phase::Picking => self.on_selected(&reply.steps),
            Phase::Recalling => self.on_loaded(&mut reply.steps),
            Phase::Keeping => self.on_stored(),
            _ => None,
        };
        heard.unwrap_or_else(|| self.protocol_error())
    }

    fn protocol_error(&mut self) -> Effect {
        self.fail("A script was answered with what does not fit its steps.".to_owned())
    }

    fn is_gone(&self) -> bool {
        self.event == EventType::Deleted
    }

    fn is_deleting(&self) -> bool {
        self.object.deletion_timestamp().is_some()
    }

    fn is_blocked(&self) -> bool {
        self.object.has_finalizer(&self.rules.settings.persistence.finalizer)
    }

    /// Whether resume handlers may join in.
    fn is_initial(&self) -> bool {
        self.memory.noticed_by_listing && !self.memory.fully_handled_once
    }

    fn attempt(&self, index: usize, started: Timestamp, retry: u64) -> Option<Attempt> {
        let handler = self.rules.registry.handlers.get(index)?;
        Some(Attempt::of(index, handler, self.rules.settings.execution.default_backoff, started, retry))
    }
}
