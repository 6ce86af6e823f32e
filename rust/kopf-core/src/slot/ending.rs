//! The end of the work on an object, and the removal of its slot.

use super::{Slot, SlotState};
use crate::object_worker::SelectorMatch;

/// What follows the end of a cycle, or of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// An action follows, now or later: a worker is needed.
    Drive,
    /// The object is idle: its slot is kept.
    Keep,
    /// The object does not exist any more, or is not watched any more: its slot is to be removed.
    Remove,
    /// The object is idle, but the watch does not deliver it any more: its slot is to be removed unless it is looked up.
    RemoveUnlessLookedUp,
}

/// The removal of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The bytes that have left the backlog.
    pub bytes: usize,
    /// Nothing is in progress: the slot is to be removed now. Otherwise, that follows its last cycle: see [`Ending::Remove`].
    pub is_over: bool,
}

impl<D, W> Slot<D, W> {
    /// A cycle has ended that has no worker: it becomes idle, or a worker is needed.
    pub fn on_cycle_end(&mut self) -> Ending {
        if self.worker.needs_driver() {
            return Ending::Drive;
        }
        self.state = SlotState::Idle;
        self.retire()
    }

    /// The slot is idle after some work: whether it is kept.
    pub fn retire(&self) -> Ending {
        if self.worker.gone {
            Ending::Remove
        } else if self.worker.selector_match == SelectorMatch::Selected {
            Ending::Keep
        } else {
            Ending::RemoveUnlessLookedUp
        }
    }

    /// The object does not exist any more, or is not watched any more: waiting events are dropped, and sleeps are cut short. None if
    /// that is known. The worker is to be notified, if there is one.
    pub fn remove(&mut self, is_deleted: bool) -> Option<Removal> {
        if self.worker.gone {
            return None;
        }
        self.worker.gone = true;
        self.worker.is_deleted |= is_deleted;
        let bytes = self.drop_waiting();
        Some(Removal { bytes, is_over: self.is_idle() })
    }

    /// Drops the events that wait in the backlog or for the index gate: the object is idle then. Returns the bytes that have left the
    /// backlog.
    pub(super) fn drop_waiting(&mut self) -> usize {
        let bytes = match self.state {
            SlotState::Parked(bytes) => bytes,
            SlotState::Gated => 0,
            _ => return 0,
        };
        self.release_all();
        bytes
    }
}
