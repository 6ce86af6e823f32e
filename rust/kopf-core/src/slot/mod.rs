//! The slot of one object: who works on it, and which of its events wait; without I/O.
//!
//! The driver (the engine's dispatcher, or a test) reports inputs and executes the returned actions. It has one slot per object and
//! watch, and one lock for all of them; tasks, permits and requests are its own. A slot is always in one of the [`SlotState`]s:
//!
//! | state | who has the object | next states |
//! |---|---|---|
//! | idle | no one | gated, parked, opening |
//! | gated | no one yet: its events wait for the index gate, or while a standby indexes it | idle |
//! | parked | no one yet: its events wait in the backlog | idle |
//! | awaiting | the dispatcher of the previous version of its resource | idle |
//! | opening | the thread that has taken an event, or ends a cycle | detached, working, idle |
//! | detached | a cycle that only waits for its completion | opening |
//! | working | a worker | idle |
//!
//! Invariants: a cycle starts only in an idle slot, or is continued by the holder of the object, so there is one cycle at a time. Every
//! event is handled, or superseded by a newer state, or dropped because a listing follows. A slot is removed only while it is idle,
//! and only once.
//!
//! `D` is the driver's handle of a detached cycle, `W` that of a worker.

mod ending;
mod events;
mod hand_over;
#[cfg(test)]
mod tests;

pub use ending::{Ending, Removal};
pub use events::{Action, Admission, GateReaction, Unparked};
pub use hand_over::{Adopted, HandOver};

use crate::cause::EventType;
use crate::object_worker::{
    NextAction, ObjectWorker, OperatorState, SelectorMatch, Transition, WorkerContext,
};
use crate::time::Timestamp;

/// Who has an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SlotState<D, W> {
    /// No one: nothing is in progress, and nothing waits.
    #[default]
    Idle,
    /// No one yet: the events wait until the object is indexed.
    Gated,
    /// No one yet: the object waits in the backlog, with this size in bytes.
    Parked(usize),
    /// The dispatcher of the previous version of the resource, which is finishing its work; new events wait.
    Awaiting,
    /// The current thread, which opens or ends a cycle.
    Opening,
    /// A cycle without a task, which only waits for its completion.
    Detached(D),
    /// A worker.
    Working(W),
}

/// The state of one object in the dispatcher of its watch.
#[derive(Clone, Debug)]
pub struct Slot<D, W> {
    /// Its events, and the memory of its cycles.
    pub worker: ObjectWorker,
    state: SlotState<D, W>,
}

impl<D, W> Default for Slot<D, W> {
    fn default() -> Self {
        Self { worker: ObjectWorker::default(), state: SlotState::Idle }
    }
}

impl<D, W> Slot<D, W> {
    /// The slot of an object whose first event is of this type.
    pub fn new(first: EventType) -> Self {
        Self { worker: ObjectWorker::new(first), state: SlotState::Idle }
    }

    /// Who has the object.
    pub fn state(&self) -> &SlotState<D, W> {
        &self.state
    }

    /// Whether nothing is in progress and nothing waits.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, SlotState::Idle)
    }

    /// Whether the object waits in the backlog.
    pub fn is_parked(&self) -> bool {
        matches!(self.state, SlotState::Parked(_))
    }

    /// Whether work on the object is in progress, in this dispatcher or in its predecessor.
    pub fn is_busy(&self) -> bool {
        !matches!(self.state, SlotState::Idle | SlotState::Gated | SlotState::Parked(_))
    }

    /// The handle of the worker, if there is one.
    pub fn working(&self) -> Option<&W> {
        if let SlotState::Working(worker) = &self.state { Some(worker) } else { None }
    }

    /// An event of the object has arrived, or a listing with this number has it: it exists, unless it is deleted. The watch delivers
    /// it.
    pub fn observe(&mut self, kind: EventType, listing: u32) {
        let is_deleted = kind == EventType::Deleted;
        self.worker.last_listing = listing;
        self.worker.is_deleted = is_deleted;
        // A listing did not have the object, but it exists.
        self.worker.gone &= is_deleted;
        self.worker.selector_match = SelectorMatch::Selected;
    }

    /// Whether the object was not in the listing with this number, and is not known to be gone.
    pub fn is_missing(&self, listing: u32) -> bool {
        !self.worker.gone && self.worker.last_listing != listing
    }

    /// The listing after a pause has begun: another operator may have handled the object, so its memory is dropped, and so are the
    /// states that wait. A cycle that is running now writes what it knows, and that is remembered.
    pub fn invalidate(&mut self) {
        self.worker.memory.invalidate();
        self.outdate();
    }

    /// The listing at the start of a term of a leader election has begun: see [`ObjectWorker::begin_term`].
    pub fn begin_term(&mut self) {
        self.worker.begin_term();
        self.outdate();
    }

    fn outdate(&mut self) {
        match self.state {
            SlotState::Gated | SlotState::Parked(_) | SlotState::Awaiting => self.worker.mark_outdated(),
            SlotState::Idle | SlotState::Opening | SlotState::Detached(_) | SlotState::Working(_) => {
                self.worker.drop_outdated();
            }
        }
    }

    /// A worker has the object from now on, if none has it already. Returns the handle of the worker.
    pub fn enter_worker(&mut self, new: impl FnOnce() -> W) -> W
    where
        W: Clone,
    {
        if let SlotState::Working(worker) = &self.state {
            return worker.clone();
        }
        let worker = new();
        self.state = SlotState::Working(worker.clone());
        worker
    }

    /// The opened cycle waits for its completion without a worker.
    pub fn detach(&mut self, cycle: D) {
        self.state = SlotState::Detached(cycle);
    }

    /// Takes the detached cycle if it is this one; the current thread ends it. None if it was cancelled meanwhile.
    pub fn take_detached(&mut self, is_it: impl Fn(&D) -> bool) -> Option<D> {
        if !matches!(&self.state, SlotState::Detached(cycle) if is_it(cycle)) {
            return None;
        }
        match std::mem::replace(&mut self.state, SlotState::Opening) {
            SlotState::Detached(cycle) => Some(cycle),
            _ => None,
        }
    }

    /// The next action of the worker. If there is none, the slot is idle, and [`Slot::retire`] follows.
    pub fn next(
        &mut self,
        context: WorkerContext<'_>,
        operator: OperatorState,
        now: Timestamp,
    ) -> Transition {
        let transition = self.worker.next(context, operator, now);
        if matches!(transition.next, NextAction::Idle) {
            self.state = SlotState::Idle;
        }
        transition
    }
}
