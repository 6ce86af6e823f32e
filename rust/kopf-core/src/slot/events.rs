//! Events of an object: they start a cycle, or wait for the holder of the object, the index gate, or the backlog.

use super::{Slot, SlotState};
use crate::cause::EventType;
use crate::object::Object;
use crate::object_worker::{OperatorState, QueuedEvent, WorkerContext, WorkerLog};
use crate::time::Timestamp;
use std::collections::VecDeque;
use std::sync::Arc;

/// The state of the operator and of the watch when an event arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Admission {
    /// The replica does not lead: it forgets deleted objects without handling them.
    pub is_standby: bool,
    /// No handler may be called: other operators may handle the objects. Only deletions are handled; the listing after the pause
    /// delivers the other objects again.
    pub is_paused: bool,
    /// The replica does not lead, and there are indices of the resource: they follow the cluster.
    pub only_indexes: bool,
    /// Further listed objects wait in the backlog.
    pub is_full: bool,
}

impl Admission {
    fn drops(self, kind: EventType) -> bool {
        self.is_paused && kind != EventType::Deleted
    }

    fn parks(self, kind: EventType) -> bool {
        self.is_full && kind == EventType::Listed
    }
}

/// The task of the driver after an event.
#[derive(Clone, Debug)]
pub enum Action {
    /// Open a cycle for this event.
    Open(QueuedEvent),
    /// Start a worker: it asks for the next action.
    Drive,
    /// Notify the worker, if there is one, and log this line.
    Notify(Option<WorkerLog>),
    /// Add the object to the backlog, with its size in bytes.
    Park(usize),
    /// Take the object out of the backlog, and report its events to [`Slot::resume`].
    Unpark(Box<Unparked>),
    /// Start to index the object: see [`Slot::take_newest_gated`].
    Index,
    /// Remove the object: see [`Slot::remove`].
    Remove,
    /// Nothing.
    Ignore,
}

/// An object that has left the backlog.
#[derive(Clone, Debug)]
pub struct Unparked {
    /// Its size in bytes.
    pub bytes: usize,
    /// Its events, in their order.
    pub events: VecDeque<QueuedEvent>,
    /// The line to be logged first.
    pub log: Option<WorkerLog>,
}

/// The reaction to an event while the index gate may be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateReaction {
    /// The event waits.
    Waits,
    /// The gate is open: the event is to be reported to [`Slot::on_event`], and so are all later ones.
    Open,
    /// The object does not wait for the gate any more: the event is to be reported to [`Slot::on_event`].
    Passed,
}

impl<D, W> Slot<D, W> {
    /// Takes an event: it starts a cycle if the object is idle; otherwise, it waits. `now` is called only if the event waits.
    pub fn on_event(
        &mut self,
        mut event: QueuedEvent,
        admission: Admission,
        context: WorkerContext<'_>,
        now: impl FnOnce() -> Timestamp,
    ) -> Action {
        if event.kind == EventType::Deleted && admission.is_standby {
            return Action::Remove;
        }
        let (is_dropped, must_wait) = (admission.drops(event.kind), admission.parks(event.kind));
        if is_dropped && admission.only_indexes && matches!(self.state, SlotState::Idle | SlotState::Gated) {
            let is_idle = self.is_idle();
            self.wait_at_gate(event, true);
            return if is_idle { Action::Index } else { Action::Notify(None) };
        }
        if is_dropped && self.is_idle() {
            return Action::Ignore;
        }
        if must_wait || !self.is_idle() {
            event.arrived.get_or_insert_with(now);
        }
        if must_wait && self.is_idle() {
            let bytes = event.object.raw().len();
            self.worker.block(event, false);
            self.state = SlotState::Parked(bytes);
            return Action::Park(bytes);
        }
        let action = self.resume(event, context);
        if must_wait || is_dropped {
            return action;
        }
        match self.unpark(admission.is_paused) {
            Some(unparked) => {
                let log = if let Action::Notify(log) = action { log } else { None };
                Action::Unpark(Box::new(Unparked { log, ..unparked }))
            }
            None => action,
        }
    }

    /// Takes an event that is not held back any more, such as one of the backlog.
    pub fn resume(&mut self, event: QueuedEvent, context: WorkerContext<'_>) -> Action {
        if !self.is_idle() {
            return Action::Notify(self.worker.enqueue(event, context));
        }
        self.state = SlotState::Opening;
        if self.worker.is_throttled() {
            self.worker.enqueue(event, context);
            return Action::Drive;
        }
        Action::Open(event)
    }

    /// Handles the state again without a watch event; none if that is not needed.
    pub fn on_wake(
        &mut self,
        object: Arc<Object>,
        operator: OperatorState,
        context: WorkerContext<'_>,
    ) -> Option<Action> {
        let event = self.worker.on_wake(object, operator)?;
        Some(self.resume(event, context))
    }

    /// Takes the object out of the backlog; none if it is not there. During a pause, only deletions remain of its events.
    pub fn unpark(&mut self, is_paused: bool) -> Option<Unparked> {
        let SlotState::Parked(bytes) = self.state else { return None };
        let mut events = self.release_all();
        events.retain(|event| !is_paused || event.kind == EventType::Deleted);
        Some(Unparked { bytes, events, log: None })
    }

    /// Takes an event while the index gate may be closed. `close` keeps the gate closed until the object is indexed; false if the gate
    /// is open. With `first_and_last`, only the first and the newest of the waiting events are kept.
    pub fn on_gated_event(
        &mut self,
        event: QueuedEvent,
        first_and_last: bool,
        close: impl FnOnce() -> bool,
    ) -> GateReaction {
        if self.is_idle() && !close() {
            return GateReaction::Open;
        }
        match self.state {
            SlotState::Idle | SlotState::Gated => self.wait_at_gate(event, first_and_last),
            SlotState::Awaiting => self.worker.block(event, first_and_last),
            SlotState::Parked(_) | SlotState::Opening | SlotState::Detached(_) | SlotState::Working(_) => {
                return GateReaction::Passed;
            }
        }
        GateReaction::Waits
    }

    fn wait_at_gate(&mut self, event: QueuedEvent, first_and_last: bool) {
        self.worker.block(event, first_and_last);
        self.state = SlotState::Gated;
    }

    /// The first event that waits until the object is indexed.
    pub fn first_gated(&mut self) -> Option<&QueuedEvent> {
        let is_gated = matches!(self.state, SlotState::Gated);
        if is_gated { self.worker.first_blocked().map(|event| &*event) } else { None }
    }

    /// The indices contain this state. It is not marked if it does not wait any more: the object was removed meanwhile, and is back in
    /// another state.
    pub fn mark_indexed(&mut self, indexed: &Arc<Object>) {
        if matches!(self.state, SlotState::Gated)
            && let Some(event) = self.worker.first_blocked()
        {
            event.indexed |= Arc::ptr_eq(&event.object, indexed);
        }
    }

    /// Takes the newest event that waits until the object is indexed, and drops the others. The slot stays gated.
    pub fn take_newest_gated(&mut self) -> Option<QueuedEvent> {
        let is_gated = matches!(self.state, SlotState::Gated);
        if is_gated { self.worker.take_newest_blocked() } else { None }
    }

    /// The object is indexed: returns its events, to be reported again; none if the slot is not gated. With `only_indexes`, see
    /// [`Admission::only_indexes`]: the newest state is indexed next if it is not the indexed one.
    pub fn release(
        &mut self,
        only_indexes: bool,
        operator: OperatorState,
        context: WorkerContext<'_>,
    ) -> VecDeque<QueuedEvent> {
        if !matches!(self.state, SlotState::Gated) {
            return VecDeque::new();
        }
        let newest = if only_indexes { self.worker.take_newest_blocked() } else { None };
        self.state = SlotState::Idle;
        let mut events = self.worker.release_in(operator, context);
        events.extend(newest.filter(|event| !event.indexed));
        events
    }

    /// No event is held back any more: the slot is idle.
    pub(super) fn release_all(&mut self) -> VecDeque<QueuedEvent> {
        self.state = SlotState::Idle;
        self.worker.release()
    }
}
