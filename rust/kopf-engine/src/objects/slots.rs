//! The slots of the objects of one watch, kept as small as possible.
//!
//! The rules of a slot are in `kopf_core::slot`. The slot of an idle object has its memory and, until it is observed, the version of our
//! last write. It has no task, no timer, no body. This module does no I/O and does not block.

use std::collections::{HashMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use kopf_core::cause::EventType;
use kopf_core::object_worker::{QueuedEvent, SelectorMatch};
use kopf_core::slot::{self, Adopted, Ending, HandOver};

use crate::daemons::ObjectDaemons;
use crate::host::CycleId;
use crate::objects::backlog::Backlog;
use crate::objects::detached_cycle::DetachedCycle;
use crate::objects::selector_match::{MAX_LOOKUPS, SelectorMatchTracker};
use crate::objects::worker_signals::WorkerSignals;

/// The state machine of a slot, with the engine's handles.
type Machine = slot::Slot<Box<DetachedCycle>, Arc<WorkerSignals>>;

/// The slot of one object: its state machine, and its daemons.
#[derive(Default)]
pub struct Slot {
    machine: Machine,
    /// The daemons and timers, if there ever were any.
    pub object_daemons: Option<Arc<ObjectDaemons>>,
}

impl Deref for Slot {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        &self.machine
    }
}

impl DerefMut for Slot {
    fn deref_mut(&mut self) -> &mut Machine {
        &mut self.machine
    }
}

impl Slot {
    /// Takes the detached cycle with this id; none if it was cancelled meanwhile.
    pub fn take_cycle(&mut self, id: CycleId) -> Option<Box<DetachedCycle>> {
        self.take_detached(|cycle| cycle.id == id)
    }

    /// Notifies the worker of the object, if there is one.
    pub fn notify(&self) {
        if let Some(signals) = self.working() {
            signals.arrived.notify_one();
        }
    }

    /// Forgets what was known of the object in earlier terms. Its daemons have been stopped, and are started again.
    fn begin_term(&mut self) {
        self.machine.begin_term();
        self.object_daemons.take_if(|object_daemons| !object_daemons.has_runs());
    }

    /// Removes the object; none if that has happened before.
    fn mark_removed(
        &mut self,
        key: &Arc<str>,
        is_deleted: bool,
        backlog: &mut Backlog,
    ) -> Option<RemovedObject> {
        let removal = self.machine.remove(is_deleted)?;
        backlog.left(removal.bytes);
        // Nothing is awaited any more: neither delayed handlers nor a watch event.
        self.notify();
        Some(RemovedObject {
            key: Arc::clone(key),
            object_daemons: self.object_daemons.take(),
            is_deleted: self.worker.is_deleted,
            forgotten: removal.is_over,
        })
    }
}

/// An object that does not exist any more, or is not watched any more.
pub struct RemovedObject {
    /// Its key.
    pub key: Arc<str>,
    /// Its daemons and timers.
    pub object_daemons: Option<Arc<ObjectDaemons>>,
    /// The object is deleted; otherwise, the operator only stops watching it.
    pub is_deleted: bool,
    /// The slot is removed already; otherwise, the worker removes it.
    pub forgotten: bool,
}

/// The slots of the objects of one watch.
#[derive(Default)]
pub struct Slots {
    /// The objects of the listing that wait for their turn.
    pub backlog: Backlog,
    /// Lookups of objects that the watch does not deliver any more; only if its selector is derived.
    pub tracker: Option<Box<SelectorMatchTracker>>,
    map: HashMap<Arc<str>, Slot>,
    listing: u32,
    pauses: u64,
    terms: u64,
}

impl Slots {
    /// No objects yet. `parked` counts the bytes of the backlogs of all watches.
    pub fn with(tracker: Option<Box<SelectorMatchTracker>>, parked: Arc<AtomicUsize>) -> Self {
        Self { tracker, backlog: Backlog::sharing(parked), ..Self::default() }
    }

    /// The object's slot; a new slot records how the object was first observed.
    pub fn entry(&mut self, key: &Arc<str>, kind: EventType) -> &mut Slot {
        let listing = self.listing;
        let slot = self
            .map
            .entry(Arc::clone(key))
            .or_insert_with(|| Slot { machine: Machine::new(kind), ..Slot::default() });
        slot.observe(kind, listing);
        slot
    }

    /// The object's slot, if there is one.
    pub fn get(&mut self, key: &str) -> Option<&mut Slot> {
        self.map.get_mut(key)
    }

    /// The object exists, though it cannot be decoded: its slot stays as it is.
    pub fn keep_known(&mut self, key: &str) {
        let listing = self.listing;
        if let Some(slot) = self.map.get_mut(key) {
            slot.worker.last_listing = listing;
        }
    }

    /// Removes the slot of an object and returns it.
    pub fn take(&mut self, key: &str) -> Option<Slot> {
        self.map.remove(key)
    }

    /// Takes over the slot of a predecessor, and returns the events received here meanwhile. If the object is deleted, it is
    /// returned as removed instead; with events if it is here again.
    pub fn adopt(&mut self, key: &Arc<str>, slot: Slot) -> (Option<RemovedObject>, VecDeque<QueuedEvent>) {
        let Slot { machine, object_daemons } = slot;
        let awaiting = self.map.remove(key).map(|awaiting| awaiting.machine);
        let key = Arc::clone(key);
        match machine.adopt(awaiting, self.listing) {
            Adopted::Kept(machine, events) => {
                self.map.insert(key, Slot { machine, object_daemons });
                (None, events)
            }
            Adopted::Removed { is_deleted, events } => {
                (Some(RemovedObject { key, object_daemons, is_deleted, forgotten: true }), events)
            }
        }
    }

    /// A listing begins. If the operator was paused since the last one, others may have handled the objects. If a term has begun
    /// since then, of a leader election, it is a start for all of them.
    pub fn begin_listing(&mut self, pauses: u64, terms: u64) {
        self.listing = self.listing.wrapping_add(1);
        let is_after_pause = std::mem::replace(&mut self.pauses, pauses) != pauses;
        if std::mem::replace(&mut self.terms, terms) != terms {
            self.map.values_mut().for_each(Slot::begin_term);
        } else if is_after_pause {
            self.map.values_mut().for_each(|slot| slot.invalidate());
        }
    }

    /// A listing is complete: removes the slots of the objects that it did not have. Slots of busy objects are removed by their
    /// workers.
    pub fn end_listing(&mut self) -> Vec<RemovedObject> {
        self.enqueue_missing();
        let listing = self.listing;
        let vanished = self.forget(true, |slot| slot.is_missing(listing));
        self.prune_addresses();
        vanished
    }

    /// The number of pauses at the start of the last listing.
    pub fn pauses(&self) -> u64 {
        self.pauses
    }

    /// The number of the last listing.
    pub fn listing(&self) -> u32 {
        self.listing
    }

    /// The objects that the last listing did not have.
    pub fn missing(&self) -> Vec<Arc<str>> {
        self.map
            .iter()
            .filter(|(_, slot)| slot.is_missing(self.listing))
            .map(|(key, _)| Arc::clone(key))
            .collect()
    }

    /// The watch has ended: removes all slots. Slots of busy objects are removed by their workers.
    pub fn end(&mut self) -> Vec<RemovedObject> {
        self.forget(false, |_| true)
    }

    /// The watch has ended, and a successor continues with the same objects, in another version of their resource. Busy objects
    /// are finished here and handed over then; until then, their events wait in the successor.
    pub fn hand_over(&mut self, successor: &mut Self) {
        (successor.pauses, successor.terms) = (self.pauses, self.terms);
        self.map.retain(|key, slot| {
            let HandOver { heir, is_moved, bytes } = slot.machine.hand_over(successor.listing);
            self.backlog.left(bytes);
            slot.notify();
            let object_daemons = if is_moved { slot.object_daemons.take() } else { None };
            successor.map.insert(Arc::clone(key), Slot { machine: heir, object_daemons });
            !is_moved
        });
        if let (Some(mine), Some(theirs)) = (self.tracker.take(), &mut successor.tracker) {
            theirs.inherit(*mine);
        }
    }

    fn forget(&mut self, is_deleted: bool, which: impl Fn(&Slot) -> bool) -> Vec<RemovedObject> {
        let mut vanished = vec![];
        self.map.retain(|key, slot| {
            if !which(slot) {
                return true;
            }
            let Some(removed) = slot.mark_removed(key, is_deleted, &mut self.backlog) else { return true };
            let forgotten = removed.forgotten;
            vanished.push(removed);
            !forgotten
        });
        vanished
    }

    /// Removes the detached cycles; returns them with the keys of their objects.
    pub fn give_up(&mut self) -> Vec<(Arc<str>, Box<DetachedCycle>)> {
        let detached = self
            .map
            .iter_mut()
            .filter_map(|(key, slot)| Some((Arc::clone(key), slot.take_detached(|_| true)?)));
        detached.collect()
    }

    /// An object is gone without a deletion event: removes its slot. The slot of a busy object is removed by its worker.
    pub fn mark_removed(&mut self, key: &Arc<str>) -> Option<RemovedObject> {
        let vanished = self.map.get_mut(key)?.mark_removed(key, true, &mut self.backlog)?;
        if vanished.forgotten {
            self.map.remove(key);
        }
        Some(vanished)
    }

    /// The work on an object is done: removes its slot if it is not kept; then true.
    pub fn retire(&mut self, key: &Arc<str>) -> bool {
        match self.map.get(key).map(|slot| slot.machine.retire()) {
            Some(Ending::Remove) => self.map.remove(key).is_some(),
            Some(Ending::RemoveUnlessLookedUp) => self.leave(key),
            None | Some(Ending::Keep | Ending::Drive) => false,
        }
    }

    /// The keys of the busy objects.
    pub fn busy(&self) -> Vec<Arc<str>> {
        self.map.iter().filter(|(_, slot)| slot.is_busy()).map(|(key, _)| Arc::clone(key)).collect()
    }

    /// The signals of the workers' tasks, with the keys of their objects.
    pub fn workers(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<WorkerSignals>)> {
        self.map.iter().filter_map(|(key, slot)| Some((key, slot.working()?)))
    }

    /// Number of known objects.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether no object is known.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}

impl Slots {
    /// Requests lookups of the objects that the listing did not have, unless their absence means deletion.
    pub(crate) fn enqueue_missing(&mut self) {
        let missing = self.missing();
        let Some(tracker) = &mut self.tracker else { return };
        let lookups: Vec<_> = missing.into_iter().filter(|key| tracker.enqueue_lookup(key, None)).collect();
        for key in lookups {
            self.on_deselected(&key);
        }
    }

    /// A listing is complete: removes the addresses of unknown objects.
    pub(crate) fn prune_addresses(&mut self) {
        if let Some(mut tracker) = self.tracker.take() {
            tracker.listed.notify_one();
            tracker.addresses.retain(|key, _| self.get(key).is_some() || tracker.lookups.contains_key(key));
            self.tracker = Some(tracker);
        }
    }

    /// The watch does not deliver the object any more.
    pub(crate) fn on_deselected(&mut self, key: &str) {
        let listing = self.listing();
        if let Some(slot) = self.get(key) {
            slot.worker.selector_match = SelectorMatch::Deselected;
            // The object is not removed with those that the listing did not have.
            slot.worker.last_listing = listing;
        }
    }

    /// A cycle of a deselected object is done: removes the slot if nothing is left to do; then true.
    fn leave(&mut self, key: &Arc<str>) -> bool {
        let Some(slot) = self.get(key) else { return false };
        let selector_match = slot.worker.selector_match;
        // Daemons that are still stopping must not be started a second time.
        let has_runs = slot.object_daemons.as_ref().is_some_and(|object_daemons| object_daemons.has_runs());
        let Some(tracker) = &mut self.tracker else { return false };
        let is_looked_up = tracker.lookups.contains_key(key);
        if is_looked_up
            || (selector_match == SelectorMatch::Stale && tracker.enqueue_lookup(key, None))
            || has_runs
        {
            return false;
        }
        tracker.forget(key);
        self.map.remove(key);
        true
    }

    /// Whether so many lookups are pending that the watch is not to be read.
    pub(crate) fn has_many_lookups(&self) -> bool {
        self.tracker.as_ref().is_some_and(|tracker| tracker.lookups.len() > MAX_LOOKUPS)
    }
}

mod sampling;
#[cfg(test)]
mod tests;
