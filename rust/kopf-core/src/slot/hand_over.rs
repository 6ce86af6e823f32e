//! The hand-over of objects to the dispatcher of another version of their resource.
//!
//! The predecessor finishes its work on busy objects. Meanwhile, their events wait in the successor, in a separate slot.

use super::{Slot, SlotState};
use crate::cause::EventType;
use crate::object_worker::QueuedEvent;
use std::collections::VecDeque;

/// The hand-over of one object.
#[derive(Clone, Debug)]
pub struct HandOver<D, W> {
    /// The slot in the successor.
    pub heir: Slot<D, W>,
    /// The object was idle, and the heir is its slot. Otherwise, the predecessor keeps the slot until its work is done: then,
    /// [`Slot::adopt`] follows. Its worker is to be notified.
    pub is_moved: bool,
    /// The bytes that have left the backlog of the predecessor.
    pub bytes: usize,
}

/// The result of an adoption.
#[derive(Clone, Debug)]
pub enum Adopted<D, W> {
    /// The slot, and the events that have arrived meanwhile, to be reported.
    Kept(Slot<D, W>, VecDeque<QueuedEvent>),
    /// The object is gone: it is to be removed. With events if it is here again: they are reported as those of a new object.
    Removed {
        /// Whether the object is deleted; otherwise, it is here again, or not watched any more.
        is_deleted: bool,
        /// The events.
        events: VecDeque<QueuedEvent>,
    },
}

impl<D, W> Slot<D, W> {
    /// Hands the object over to a successor, whose last listing has this number. The listing of the successor delivers the objects
    /// that have waited in the backlog or for the index gate.
    pub fn hand_over(&mut self, listing: u32) -> HandOver<D, W> {
        let bytes = self.drop_waiting();
        let is_moved = self.is_idle();
        let mut heir = Self::default();
        if is_moved {
            heir = std::mem::take(self);
        } else {
            self.worker.leave();
            heir.state = SlotState::Awaiting;
        }
        heir.worker.last_listing = listing;
        HandOver { heir, is_moved, bytes }
    }

    /// Takes over the slot of a predecessor, whose work is done. `awaiting` is the slot that has collected the events meanwhile.
    /// Without it, `listing` is the number of the last listing.
    pub fn adopt(self, awaiting: Option<Self>, listing: u32) -> Adopted<D, W> {
        let mut slot = self;
        let (is_gone, is_deleted, last_listing) =
            awaiting.as_ref().map_or((false, slot.worker.is_deleted, listing), |awaiting| {
                let is_deleted = awaiting.worker.is_deleted || slot.worker.is_deleted;
                (awaiting.worker.gone, is_deleted, awaiting.worker.last_listing)
            });
        let mut events = awaiting.map(|mut awaiting| awaiting.release_all()).unwrap_or_default();
        if slot.worker.gone || is_gone {
            // The predecessor has handled the deletion, or what only looked like one. A selected object is handled as a new one.
            let deleted = events.iter().rposition(|event| event.kind == EventType::Deleted);
            let after = events.split_off(deleted.map_or(0, |deleted| deleted + 1));
            let events = if is_gone { VecDeque::new() } else { after };
            return Adopted::Removed { is_deleted: is_deleted && events.is_empty(), events };
        }
        slot.worker.last_listing = last_listing;
        slot.worker.is_deleted = is_deleted;
        slot.state = SlotState::Idle;
        Adopted::Kept(slot, events)
    }
}
