//! One decision about one object, as a machine that is driven from outside.
//!
//! The only file that sees all the others; nobody imports it. It asks for scripts to be run in Python, and for waits, and
//! ends with a conclusion: one patch, and when to look again. In the order of things:
//!
//! 1. `opening`: event handlers; why we act; who might be interested; questions to callable filters.
//! 2. `spawning`: which daemons and timers are to be running.
//! 3. `opening`: what the finalizer needs; whether our own last write has arrived.
//! 4. `handling`: the progress so far; who is to be called now; calls.
//! 5. `concluding`: everything that is to be remembered, as one patch.
//!
//! `keeping` stands between them and what is kept: on the object, or in storages that only Python knows.
//!
//! What is likely to follow on the first script is put along with it: `foreseeing`.
//!
//! Whatever calls nobody and changes nothing goes through without a crossing into Python.

mod concluding;
mod facts;
mod foreseeing;
mod handling;
mod keeping;
mod opening;
mod spawning;
#[cfg(test)]
mod tests;

use crate::cause::{Change, EventType, Reason};
use crate::daemon::Wanted;
use crate::filters::Verdict;
use crate::finalizer::Edit;
use crate::ledger::{Ledger, Seen};
use crate::lifecycle::Lifecycle;
use crate::notes::Note;
use crate::object::Object;
use crate::outcome::Attempt;
use crate::patch::Patch;
use crate::registry::{Plan, Registry};
use crate::script::{Reply, Script};
use crate::settings::Settings;
use crate::time::Timestamp;
use crate::value::{Map, Value};
use std::num::NonZeroU64;
use std::sync::Arc;

/// What was seen.
#[derive(Clone, Debug)]
pub struct Observation {
    /// How it came.
    pub event: EventType,
    /// The object's state.
    pub object: Arc<Object>,
    /// It is no event: a delay is over, and the last known state is looked at again. Event handlers have seen it already.
    pub woken: bool,
}

/// What is remembered of an object between its cycles, in memory only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub struct Memory {
    /// Its very first event was a listing: it was there before the operator.
    pub noticed_by_listing: bool,
    /// All that was to be called for it was called once: resume handlers are over.
    pub fully_handled_once: bool,
    /// Transformation functions are left from earlier cycles.
    pub remaining_fns: bool,
    /// How many times in a row the server has rejected what these functions made.
    pub rejected_fns: u8,
    /// All handlers of the deletion are done: it is only to be let go.
    pub parted: bool,
    /// Somebody removes what we keep on the object, and that was told.
    pub stripped: bool,
    /// What is kept on the object was looked at for the first time.
    pub noticed: bool,
    /// The digest of the essence that was handled last, as we have seen or written it.
    pub handled: Option<NonZeroU64>,
    /// What we know better than the object.
    pub ledger: Option<Arc<Ledger>>,
}

/// What becomes of the handling that was going on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Sequel {
    /// It is as it was before the cycle.
    #[default]
    Before,
    /// It goes on; with what those have seen who are done with it.
    Ongoing(Seen),
    /// It is over; with what the last have seen, if that is more than what counts as handled.
    Over(Seen),
}

/// What is the same for all objects.
#[derive(Clone, Debug)]
pub struct Rules {
    /// All handlers.
    pub registry: Arc<Registry>,
    /// The settings.
    pub settings: Arc<Settings>,
    /// How change handlers are chosen.
    pub lifecycle: Lifecycle,
}

/// What the world is like now.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The time.
    pub now: Timestamp,
    /// Chance.
    pub entropy: u64,
    /// No own write is awaited.
    pub consistent: bool,
}

/// What is to be done next.
#[derive(Clone, Debug)]
pub enum Next {
    /// Run this in Python, and answer with a reply.
    Run(Script),
    /// Wait until our own write arrives or is given up, and answer whether either came true; false if something new came.
    AwaitConsistency,
    /// Start and stop the daemons and timers of the object accordingly, and answer what came of it.
    Spawn(Wanted),
    /// Nothing more: this is the result.
    Done(Box<Conclusion>),
}

/// An answer to what was to be done.
#[derive(Clone, Debug)]
pub enum Answer {
    /// What came of a script.
    Reply(Reply),
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

/// The result of a cycle.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub struct Conclusion {
    /// What is to be merged into the object.
    pub patch: Patch,
    /// The progress in its final state, if it is removed by a later request than that which writes what was returned.
    pub outcomes: Patch,
    /// What is to be done with our finalizer.
    pub finalizer: Option<Edit>,
    /// The new value of [`Memory::parted`], if the conclusion is carried out.
    pub parted: bool,
    /// The handlers' patch has transformation functions.
    pub fns: bool,
    /// Look again after so many seconds, unless something comes earlier; zero is at once; none is never.
    pub delay: Option<f64>,
    /// The new value of [`Memory::fully_handled_once`].
    pub fully_handled_once: bool,
    /// A cause of change was followed to its end.
    pub matched: bool,
    /// An unexpected error: the object is to be throttled, and nothing else of this counts.
    pub error: Option<String>,
    /// What becomes of the handling that was going on.
    pub sequel: Sequel,
    /// The new value of [`Memory::stripped`].
    pub stripped: bool,
    /// What the server has rejected before: to be merged into the object apart from everything else.
    pub pending: Option<Box<Patch>>,
}

/// The machine.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub struct Cycle {
    event: EventType,
    object: Arc<Object>,
    woken: bool,
    memory: Memory,
    plan: Arc<Plan>,
    rules: Arc<Rules>,
    moment: Moment,
    notes: Vec<Note>,
    /// The handlers' patch, as of the last reply.
    patch: Patch,
    fns: bool,
    /// What goes into the handlers' patch before they are called.
    preset: Option<Map<String, Value>>,
    finalizer: Option<Edit>,
    /// Why we act, unless nobody is interested.
    cause: Option<Reason>,
    candidates: Vec<Candidate>,
    facts: Option<facts::Facts>,
    change: Option<Arc<Change>>,
    state: Option<crate::state::State>,
    background: spawning::Background,
    /// The user's lifecycle has chosen nobody, although there was somebody to choose.
    undecided: bool,
    /// The exchange with the user's storages, if there are any.
    foreign: Option<Box<keeping::Foreign>>,
    /// What is missing on the object, though we have written it or tried to.
    owed: Map<String, Value>,
    /// The handling before is to be written first.
    unfinished: bool,
    /// Others have removed or changed what is missing there.
    removed: bool,
    /// It is to be written even if nothing else is.
    urgent: bool,
    /// It makes the handling begin anew.
    anew: bool,
    /// What the server has rejected before, and when it is to be sent again.
    pending: Option<Box<(Patch, Timestamp)>>,
    /// What handlers have seen, in earlier cycles and in this one, though others have not.
    seen: Seen,
    /// Somebody has finished in this cycle, or has gone a part of the way.
    advanced: bool,
    /// The same machine, as it is when the foreseen calls are made.
    foreseen: Option<Box<Cycle>>,
    phase: Phase,
}

/// A change handler that may be interested in the object.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    handler: usize,
    prematch: Verdict,
    full: Verdict,
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
        observation: Observation,
        memory: &Memory,
        plan: Arc<Plan>,
        rules: Arc<Rules>,
        moment: Moment,
    ) -> (Self, Next) {
        let amendment = match observation.event {
            EventType::Deleted => None,
            _ => memory.amend(&observation.object, moment.consistent, &rules.settings, &plan),
        };
        let restarted = amendment.as_ref().and_then(|amendment| amendment.restarted.clone());
        let anew = restarted.is_some();
        let persistence = &rules.settings.persistence;
        let known = || Some(memory.ledger.as_ref()?.seen(&observation.object, persistence, &plan));
        let seen = restarted.or_else(known).unwrap_or_default();
        let unfinished = amendment.as_ref().is_some_and(|amendment| amendment.unfinished);
        let removed = amendment.as_ref().is_some_and(|amendment| amendment.removed);
        let pending = amendment.as_ref().and_then(|amendment| amendment.pending.clone()).map(Box::new);
        let (object, owed, urgent) =
            amendment.map_or((observation.object, Map::new(), false), |it| (it.object, it.owed, it.urgent));
        let mut cycle = Self {
            event: observation.event,
            object,
            woken: observation.woken,
            memory: memory.clone(),
            plan,
            rules,
            moment,
            notes: Vec::new(),
            patch: Patch::default(),
            fns: memory.remaining_fns,
            preset: None,
            finalizer: None,
            cause: None,
            candidates: Vec::new(),
            facts: None,
            change: None,
            state: None,
            background: spawning::Background::default(),
            undecided: false,
            foreign: None,
            owed,
            unfinished,
            removed,
            urgent,
            anew,
            pending,
            seen,
            advanced: false,
            foreseen: None,
            phase: Phase::Over,
        };
        let next = if cycle.needs_recall() { cycle.recall() } else { cycle.begin() };
        (cycle, next)
    }

    /// The object as it is looked at: with what is missing there.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// Goes on with an answer.
    pub fn resume(&mut self, answer: Answer, now: Timestamp) -> Next {
        self.moment.now = now;
        match (std::mem::replace(&mut self.phase, Phase::Over), answer) {
            (Phase::Waiting, Answer::Consistent(true)) => self.handle(),
            (Phase::Waiting, Answer::Consistent(false)) => self.postpone(),
            (Phase::Spawning, Answer::Spawned { delay, holds }) => self.spawned(delay, holds),
            (phase, Answer::Reply(reply)) => self.hear(&phase, reply),
            _ => self.fail("Something was answered that was not asked for.".to_owned()),
        }
    }

    /// What there is to say since the last call, in order; to be logged before the next script is run.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    fn hear(&mut self, phase: &Phase, mut reply: Reply) -> Next {
        // Filters and lifecycles have nobody to handle their errors: the object is throttled.
        if let Some(error) = reply.error {
            return self.fail(error);
        }
        if let Some(patch) = reply.patch {
            self.patch = Patch(patch);
        }
        self.fns = reply.fns;
        if let Some(then) = reply.then {
            return self.fulfilled(&then).unwrap_or_else(|| self.misfit());
        }
        self.foreseen = None;
        let heard = match phase {
            Phase::Opening { steps, asked } if *steps == reply.steps.len() => {
                self.opened(asked, &reply.steps).then(|| self.decide())
            }
            Phase::Handling { steps } if *steps == reply.steps.len() => Some(self.handled(&reply.steps)),
            Phase::Picking => self.picked(&reply.steps),
            Phase::Recalling => self.recalled(&mut reply.steps),
            Phase::Keeping => self.kept(),
            _ => None,
        };
        heard.unwrap_or_else(|| self.misfit())
    }

    fn misfit(&mut self) -> Next {
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
