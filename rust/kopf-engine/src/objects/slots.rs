//! The slots of the objects: their state between cycles, kept as small as possible.
//!
//! The slot of an idle object has its memory and, until it is observed, the version of our last write. It has no task, no
//! timer, no body. This module does no I/O and does not block.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use kopf_core::cause::EventType;
use kopf_core::object_worker::{ObjectWorker, QueuedEvent, SelectorMatch};

use crate::daemons::ObjectDaemons;
use crate::host::CycleId;
use crate::objects::backlog::Backlog;
use crate::objects::execution::{DetachedCycle, Execution};
use crate::objects::selector_match::{MAX_LOOKUPS, SelectorMatchTracker};
use crate::objects::worker_signals::WorkerSignals;

/// The state of one object.
#[derive(Default)]
pub struct Slot {
    /// The state machine.
    pub worker: ObjectWorker,
    /// Who works on the object; none if it is idle, if its cycle is being opened, or if its events wait for the initial indexing.
    pub execution: Option<Box<Execution>>,
    /// The daemons and timers, if there ever were any.
    pub object_daemons: Option<Arc<ObjectDaemons>>,
    /// The number of the last listing that had the object.
    pub last_listing: u32,
    /// The object does not exist any more: its deletion event was received, or a listing does not have it.
    pub is_deleted: bool,
}

impl Slot {
    /// Takes the object out of the backlog; returns its events.
    pub fn dequeue_from_backlog(&mut self, backlog: &mut Backlog) -> Option<VecDeque<QueuedEvent>> {
        let Some(Execution::Backlog(bytes)) = self.execution.as_deref() else { return None };
        backlog.left(*bytes);
        self.execution = None;
        Some(self.worker.release())
    }

    /// Whether the object waits in the backlog.
    pub fn is_in_backlog(&self) -> bool {
        matches!(self.execution.as_deref(), Some(Execution::Backlog(_)))
    }

    /// A worker starts, or is there already: the signals between it and the slot.
    pub fn enter_worker(&mut self) -> Arc<WorkerSignals> {
        if let Some(Execution::Worker(signals)) = self.execution.as_deref() {
            return Arc::clone(signals);
        }
        let signals = Arc::default();
        self.execution = Some(Box::new(Execution::Worker(Arc::clone(&signals))));
        signals
    }

    /// Takes the detached cycle with this id; none if it was cancelled meanwhile.
    pub fn take_detached(&mut self, id: CycleId) -> Option<DetachedCycle> {
        let is_it = |execution: &mut Box<Execution>| matches!(&**execution, Execution::Detached(cycle) if cycle.id == id);
        match self.execution.take_if(is_it).map(|execution| *execution) {
            Some(Execution::Detached(cycle)) => Some(cycle),
            _ => None,
        }
    }

    /// Notifies the task of the object, if there is one.
    pub fn notify(&self) {
        if let Some(Execution::Worker(signals)) = self.execution.as_deref() {
            signals.arrived.notify_one();
        }
    }

    /// Whether the events of the object wait for the initial indexing, so that no cycle runs and no worker exists.
    pub(super) fn is_behind_gate(&self) -> bool {
        self.worker.is_blocked() && self.execution.is_none()
    }

    /// Drops the events that wait in the backlog or for the initial indexing: the object is idle then.
    fn drop_waiting(&mut self, backlog: &mut Backlog) {
        self.dequeue_from_backlog(backlog);
        if self.is_behind_gate() {
            self.worker.release();
        }
    }

    /// Forgets what was known of the object in earlier terms. Its daemons have been stopped, and are started again.
    fn begin_term(&mut self) {
        self.worker.begin_term();
        self.object_daemons.take_if(|object_daemons| !object_daemons.has_runs());
    }

    fn mark_removed(&mut self, key: &Arc<str>, backlog: &mut Backlog) -> RemovedObject {
        self.worker.gone = true;
        self.drop_waiting(backlog);
        // Nothing is awaited any more: neither delayed handlers nor a watch event.
        self.notify();
        let forgotten = self.worker.is_idle();
        let (key, object_daemons) = (Arc::clone(key), self.object_daemons.take());
        RemovedObject { key, object_daemons, is_deleted: self.is_deleted, forgotten }
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
            .or_insert_with(|| Slot { worker: ObjectWorker::new(kind), ..Slot::default() });
        slot.last_listing = listing;
        slot.is_deleted = kind == EventType::Deleted;
        // A listing did not have the object, but it exists.
        slot.worker.gone &= kind == EventType::Deleted;
        slot.worker.selector_match = SelectorMatch::Selected;
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
            slot.last_listing = listing;
        }
    }

    /// Adds the object and its event to the backlog.
    pub fn enqueue_in_backlog(&mut self, key: &Arc<str>, event: QueuedEvent) {
        let bytes = event.object.raw().len();
        let Some(slot) = self.map.get_mut(key) else { return };
        slot.worker.block(Some(event), false);
        slot.execution = Some(Box::new(Execution::Backlog(bytes)));
        self.backlog.push(Arc::clone(key), bytes);
    }

    /// Takes the object out of the backlog; returns its events.
    pub fn dequeue_from_backlog(&mut self, key: &str) -> Option<VecDeque<QueuedEvent>> {
        self.map.get_mut(key)?.dequeue_from_backlog(&mut self.backlog)
    }

    /// Removes the slot of an object.
    pub fn remove(&mut self, key: &str) {
        self.map.remove(key);
    }

    /// Removes the slot of an object and returns it.
    pub fn take(&mut self, key: &str) -> Option<Slot> {
        self.map.remove(key)
    }

    /// Takes over the slot of a predecessor, and returns the events received here meanwhile. If the object is deleted, it is
    /// returned as removed instead; with events if it is here again.
    pub fn adopt(&mut self, key: &Arc<str>, slot: Slot) -> (Option<RemovedObject>, VecDeque<QueuedEvent>) {
        let known = self.map.remove(key);
        let (is_gone, is_deleted, last_listing) =
            known.as_ref().map_or((false, slot.is_deleted, self.listing), |known| {
                (known.worker.gone, known.is_deleted || slot.is_deleted, known.last_listing)
            });
        let mut pending = known.map(|mut known| known.worker.release()).unwrap_or_default();
        if slot.worker.gone || is_gone {
            // The predecessor has handled the deletion, or what only looked like one. A selected object is handled as a new one.
            let deleted = pending.iter().rposition(|event| event.kind == EventType::Deleted);
            let after = pending.split_off(deleted.map_or(0, |deleted| deleted + 1));
            let pending = if is_gone { VecDeque::new() } else { after };
            let is_deleted = is_deleted && pending.is_empty();
            let (key, object_daemons) = (Arc::clone(key), slot.object_daemons);
            return (Some(RemovedObject { key, object_daemons, is_deleted, forgotten: true }), pending);
        }
        self.map.insert(Arc::clone(key), Slot { execution: None, last_listing, is_deleted, ..slot });
        (None, pending)
    }

    /// A listing begins. If the operator was paused since the last one, others may have handled the objects. If a term has begun
    /// since then, of a leader election, it is a start for all of them.
    pub fn begin_listing(&mut self, pauses: u64, terms: u64) {
        self.listing = self.listing.wrapping_add(1);
        let is_after_pause = std::mem::replace(&mut self.pauses, pauses) != pauses;
        if std::mem::replace(&mut self.terms, terms) != terms {
            self.map.values_mut().for_each(Slot::begin_term);
        } else if is_after_pause {
            self.map.values_mut().for_each(|slot| slot.worker.invalidate());
        }
    }

    /// A listing is complete: removes the slots of the objects that it did not have. Slots of busy objects are removed by their
    /// workers.
    pub fn end_listing(&mut self) -> Vec<RemovedObject> {
        self.enqueue_missing();
        let listing = self.listing;
        let vanished = self.forget(true, |slot| slot.last_listing != listing);
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
        let is_missing = |slot: &Slot| !slot.worker.gone && slot.last_listing != self.listing;
        self.map.iter().filter(|(_, slot)| is_missing(slot)).map(|(key, _)| Arc::clone(key)).collect()
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
            // The listing of the successor delivers these objects.
            slot.drop_waiting(&mut self.backlog);
            let last_listing = successor.listing;
            if slot.worker.is_idle() {
                let slot = std::mem::take(slot);
                successor.map.insert(Arc::clone(key), Slot { last_listing, ..slot });
                return false;
            }
            slot.worker.leave();
            slot.notify();
            let mut awaiting =
                Slot { last_listing, execution: Some(Box::new(Execution::Predecessor)), ..Slot::default() };
            awaiting.worker.block(None, false);
            successor.map.insert(Arc::clone(key), awaiting);
            true
        });
        if let (Some(mine), Some(theirs)) = (self.tracker.take(), &mut successor.tracker) {
            theirs.inherit(*mine);
        }
    }

    fn forget(&mut self, is_deleted: bool, which: impl Fn(&Slot) -> bool) -> Vec<RemovedObject> {
        let mut vanished = vec![];
        self.map.retain(|key, slot| {
            if slot.worker.gone || !which(slot) {
                return true;
            }
            slot.is_deleted |= is_deleted;
            let gone = slot.mark_removed(key, &mut self.backlog);
            let forgotten = gone.forgotten;
            vanished.push(gone);
            !forgotten
        });
        vanished
    }

    /// Removes the detached cycles; returns them with the keys of their objects.
    pub fn give_up(&mut self) -> Vec<(Arc<str>, DetachedCycle)> {
        let detached = self.map.iter_mut().filter_map(|(key, slot)| {
            let Some(Execution::Detached(cycle)) = slot.execution.as_deref() else { return None };
            let id = cycle.id;
            Some((Arc::clone(key), slot.take_detached(id)?))
        });
        detached.collect()
    }

    /// An object is gone without a deletion event: removes its slot. The slot of a busy object is removed by its worker.
    pub fn mark_removed(&mut self, key: &Arc<str>) -> Option<RemovedObject> {
        let slot = self.map.get_mut(key).filter(|slot| !slot.worker.gone)?;
        slot.is_deleted = true;
        let vanished = slot.mark_removed(key, &mut self.backlog);
        if vanished.forgotten {
            self.map.remove(key);
        }
        Some(vanished)
    }

    /// The keys of the busy objects.
    pub fn busy(&self) -> Vec<Arc<str>> {
        let is_busy = |slot: &Slot| !slot.worker.is_idle() && !slot.is_in_backlog() && !slot.is_behind_gate();
        self.map.iter().filter(|(_, slot)| is_busy(slot)).map(|(key, _)| Arc::clone(key)).collect()
    }

    /// The signals of the workers' tasks, with the keys of their objects.
    pub fn workers(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<WorkerSignals>)> {
        self.map.iter().filter_map(|(key, slot)| {
            let Some(Execution::Worker(signals)) = slot.execution.as_deref() else { return None };
            Some((key, signals))
        })
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
            slot.last_listing = listing;
        }
    }

    /// A cycle of a deselected object is done: removes the slot if nothing is left to do; then true.
    pub(crate) fn leave(&mut self, key: &Arc<str>) -> bool {
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
        self.remove(key);
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
