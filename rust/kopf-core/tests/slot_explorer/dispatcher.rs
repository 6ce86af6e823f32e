//! The dispatcher of the model: one slot, and who works on it.

use crate::oracle::Oracle;
use kopf_core::cycle::{Cycle, CycleStart};
use kopf_core::slot::{Slot, SlotState};
use kopf_core::time::Timestamp;

/// The slot of the model; detached cycles and workers need no handles.
pub type ModelSlot = Slot<(), ()>;

/// Who works on the object, as the driver knows it.
#[derive(Clone, Debug)]
pub enum Holder {
    /// No one.
    None,
    /// The thread that opens a cycle.
    Opening(Box<CycleStart>),
    /// A cycle without a task.
    Detached(Box<Cycle>),
    /// A worker, with its cycle.
    Worker(Option<Box<Cycle>>),
    /// A worker that sleeps until this time.
    Sleeping(Timestamp),
}

/// The dispatcher of one version of the resource.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    pub slot: Option<ModelSlot>,
    pub holder: Holder,
    /// The number of the last listing, and of pauses and terms at its start.
    pub listing: u32,
    pub pauses: u64,
    pub terms: u64,
    /// The events wait for the index gate, as far as the watch knows.
    pub is_gated: bool,
    /// The objects to be indexed, and those to be released when the gate opens.
    pub messages: u8,
    pub held: u8,
    /// The number of tasks of a standby that index the object.
    pub following: u8,
    /// The bytes of the backlog, and whether it has the key of the object.
    pub bytes: usize,
    pub has_key: bool,
}

impl Dispatcher {
    pub fn new(is_gated: bool, pauses: u64) -> Self {
        Self {
            slot: None,
            holder: Holder::None,
            listing: 0,
            pauses,
            terms: 0,
            is_gated,
            messages: 0,
            held: 0,
            following: 0,
            bytes: 0,
            has_key: false,
        }
    }

    /// Whether nothing remains to be done.
    pub fn is_idle(&self) -> bool {
        matches!(self.holder, Holder::None) && self.messages == 0 && self.held == 0 && self.following == 0
    }

    /// The watch has ended: so have its indexer and its guards.
    pub fn end_watch(&mut self) {
        (self.messages, self.held) = (0, 0);
    }

    /// Checks the laws of every state.
    pub fn check(&self, oracle: &mut Oracle) {
        let state = self.slot.as_ref().map(ModelSlot::state);
        let is_held = match &self.holder {
            Holder::None => matches!(
                state,
                None | Some(SlotState::Idle | SlotState::Gated | SlotState::Parked(_) | SlotState::Awaiting)
            ),
            Holder::Opening(_) => matches!(state, Some(SlotState::Opening)),
            Holder::Detached(_) => matches!(state, Some(SlotState::Detached(()))),
            Holder::Worker(_) | Holder::Sleeping(_) => matches!(state, Some(SlotState::Working(()))),
        };
        if !is_held {
            oracle.violate("the object has no holder, or another one than its slot has");
        }
        let parked = if let Some(SlotState::Parked(bytes)) = state { *bytes } else { 0 };
        if self.bytes != parked {
            oracle.violate("the backlog has the bytes of other objects");
        }
        let is_waiting = matches!(
            state,
            Some(SlotState::Idle | SlotState::Gated | SlotState::Parked(_) | SlotState::Awaiting)
        );
        if is_waiting && self.slot.as_ref().is_some_and(|slot| slot.worker.is_running()) {
            oracle.violate("a cycle runs in a waiting slot");
        }
    }
}
