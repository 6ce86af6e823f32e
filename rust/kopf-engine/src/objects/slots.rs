//! The per-object state between cycles, kept as small as possible.
//!
//! The slot of an idle object has its memory and, until it is observed, the version of our last write. It has no task, no
//! timer, no body. This module does no I/O and does not block.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use kopf_core::cause::EventType;
use kopf_core::cycle::{Cycle, Effect};
use kopf_core::handling::error_backoff::ErrorBackoff;
use kopf_core::indexing::{IndexPass, Indexing};
use kopf_core::object::Object;
use kopf_core::persistence::consistency::Consistency;
use kopf_core::persistence::memory::ObjectMemory;
use tokio::sync::Notify;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::daemons::ObjectDaemons;
use crate::host::{CycleId, LogRecord};
use crate::objects::backlog::Backlog;
use crate::objects::membership::{MAX_LOOKUPS, Membership, MembershipTracker};

/// An event in the queue of its object.
#[derive(Debug, Clone)]
pub struct QueuedEvent {
    /// The type of the event.
    pub kind: EventType,
    /// The new state.
    pub object: Arc<Object>,
    /// Not a watch event: a delay is over, and the last state is handled again.
    pub requeued: bool,
    /// The indices already contain the object.
    pub indexed: bool,
    /// The object as received, if the cycle works on one with unconfirmed writes overlaid.
    pub received: Option<Arc<Object>>,
}

/// The work in progress of an object.
#[derive(Debug, Default)]
pub struct InFlight {
    /// The events since the start of the current cycle.
    pub pending: VecDeque<QueuedEvent>,
    /// Notifies the worker about new events.
    pub arrived: Arc<Notify>,
    /// Events were skipped, and that was logged.
    pub overflowed: bool,
    /// There is no worker here: the predecessor's worker still handles the object.
    pub awaited: bool,
    /// There is a successor: delays are cut short.
    pub leaving: bool,
    /// There is no worker yet: the object waits in the backlog, with this size in bytes.
    pub parked: Option<usize>,
    /// There is no worker: the cycle only waits for its completion.
    pub detached_cycle: Option<DetachedCycle>,
}

/// A cycle in progress.
#[derive(Debug)]
pub struct OpenCycle {
    /// The id of the cycle.
    pub id: CycleId,
    /// The state machine.
    pub cycle: Cycle,
    /// The next effect; none while a worker executes it.
    pub next: Option<Effect>,
    /// The event of the cycle.
    pub event: QueuedEvent,
    /// The index commands to run first.
    pub index_pass: Option<IndexPass>,
    /// The host has already closed the cycle.
    pub closed: bool,
    /// The log records to emit.
    pub log_messages: Vec<LogRecord>,
}

/// A cycle that waits for its completion without a worker.
#[derive(Debug)]
pub struct DetachedCycle {
    pub(super) open_cycle: Box<OpenCycle>,
    /// Counts as a worker for those who wait until all workers are done.
    pub(super) _token: TaskTrackerToken,
}

impl DetachedCycle {
    /// The id of the cycle.
    pub fn id(&self) -> CycleId {
        self.open_cycle.id
    }
}

/// The state of one object.
#[derive(Default)]
pub struct Slot {
    /// The memory of the core.
    pub memory: ObjectMemory,
    /// The last write of ours whose watch event is still awaited.
    pub consistency: Option<Box<Consistency>>,
    /// The results of indexing; none if the object was never indexed.
    pub indexing: Option<Box<Indexing>>,
    /// The back-off after unexpected errors.
    pub throttle: ErrorBackoff,
    /// The work in progress; none if the object is idle.
    pub active: Option<Box<InFlight>>,
    /// The daemons and timers, if there ever were any.
    pub object_daemons: Option<Arc<ObjectDaemons>>,
    /// The object is deleted: the slot is removed after the last event.
    pub gone: bool,
    /// Whether the derived selector of the watch matches the object.
    pub membership: Membership,
    /// The number of the last listing that had the object.
    pub seen: u32,
}

impl Slot {
    /// Takes the object out of the backlog; returns its events.
    pub fn unpark(&mut self, backlog: &mut Backlog) -> Option<VecDeque<QueuedEvent>> {
        let bytes = self.active.as_ref()?.parked?;
        backlog.left(bytes);
        self.active.take().map(|active| active.pending)
    }

    fn mark_removed(&mut self, key: &Arc<str>, backlog: &mut Backlog) -> RemovedObject {
        self.gone = true;
        self.unpark(backlog);
        let forgotten = self.active.is_none();
        RemovedObject { key: Arc::clone(key), object_daemons: self.object_daemons.take(), forgotten }
    }
}

/// An object that does not exist any more.
pub struct RemovedObject {
    /// Its key.
    pub key: Arc<str>,
    /// Its daemons and timers.
    pub object_daemons: Option<Arc<ObjectDaemons>>,
    /// The slot is removed already; otherwise, the worker removes it.
    pub forgotten: bool,
}

/// The slots of the objects of one watch.
#[derive(Default)]
pub struct Slots {
    /// The objects of the listing that wait for their turn.
    pub backlog: Backlog,
    /// Lookups of objects that the watch does not deliver any more; only if its selector is derived.
    pub tracker: Option<Box<MembershipTracker>>,
    map: HashMap<Arc<str>, Slot>,
    listing: u32,
    pauses: u64,
}

impl Slots {
    /// No objects yet. `parked` counts the bytes of the backlogs of all watches.
    pub fn with(tracker: Option<Box<MembershipTracker>>, parked: Arc<AtomicUsize>) -> Self {
        Self { tracker, backlog: Backlog::sharing(parked), ..Self::default() }
    }

    /// The object's slot; a new slot records how the object was first observed.
    pub fn entry(&mut self, key: &Arc<str>, kind: EventType) -> &mut Slot {
        let listing = self.listing;
        let slot = self.map.entry(Arc::clone(key)).or_insert_with(|| Slot {
            memory: ObjectMemory { noticed_by_listing: kind == EventType::Listed, ..ObjectMemory::default() },
            ..Slot::default()
        });
        slot.seen = listing;
        // A listing did not have the object, but it exists.
        slot.gone &= kind == EventType::Deleted;
        slot.membership = Membership::Selected;
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
            slot.seen = listing;
        }
    }

    /// Adds the object and its event to the backlog.
    pub fn park(&mut self, key: &Arc<str>, event: QueuedEvent) {
        let bytes = event.object.raw().len();
        let Some(slot) = self.map.get_mut(key) else { return };
        let pending = [event].into_iter().collect();
        slot.active = Some(Box::new(InFlight { pending, parked: Some(bytes), ..InFlight::default() }));
        self.backlog.park(Arc::clone(key), bytes);
    }

    /// Takes the object out of the backlog; returns its events.
    pub fn unpark(&mut self, key: &str) -> Option<VecDeque<QueuedEvent>> {
        self.map.get_mut(key)?.unpark(&mut self.backlog)
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
    /// returned as removed instead.
    pub fn adopt(&mut self, key: &Arc<str>, slot: Slot) -> (Option<RemovedObject>, VecDeque<QueuedEvent>) {
        let known = self.map.remove(key);
        let (is_gone, seen) = known.as_ref().map_or((false, self.listing), |known| (known.gone, known.seen));
        let pending = known.and_then(|known| known.active).map(|active| active.pending).unwrap_or_default();
        if slot.gone || is_gone {
            let gone =
                RemovedObject { key: Arc::clone(key), object_daemons: slot.object_daemons, forgotten: true };
            return (Some(gone), VecDeque::new());
        }
        self.map.insert(Arc::clone(key), Slot { active: None, seen, ..slot });
        (None, pending)
    }

    /// A listing begins. If the operator was paused since the last one, others may have handled the objects.
    pub fn begin_listing(&mut self, pauses: u64) {
        self.listing = self.listing.wrapping_add(1);
        if std::mem::replace(&mut self.pauses, pauses) != pauses {
            self.map.values_mut().for_each(|slot| slot.memory.invalidate());
        }
    }

    /// A listing is complete: removes the slots of the objects that it did not have. Slots of busy objects are removed by their
    /// workers.
    pub fn end_listing(&mut self) -> Vec<RemovedObject> {
        self.enqueue_missing();
        let listing = self.listing;
        let vanished = self.forget(|slot| slot.seen != listing);
        self.prune_addresses();
        vanished
    }

    /// The number of the last listing.
    pub fn listing(&self) -> u32 {
        self.listing
    }

    /// The objects that the last listing did not have.
    pub fn missing(&self) -> Vec<Arc<str>> {
        let is_missing = |slot: &Slot| !slot.gone && slot.seen != self.listing;
        self.map.iter().filter(|(_, slot)| is_missing(slot)).map(|(key, _)| Arc::clone(key)).collect()
    }

    /// The watch has ended: removes all slots. Slots of busy objects are removed by their workers.
    pub fn end(&mut self) -> Vec<RemovedObject> {
        self.forget(|_| true)
    }

    /// The watch has ended, and a successor continues with the same objects, in another version of their resource. Busy objects
    /// are finished here and handed over then; until then, their events wait in the successor.
    pub fn hand_over(&mut self, successor: &mut Self) {
        self.map.retain(|key, slot| {
            // The listing of the successor delivers the objects of the backlog.
            slot.unpark(&mut self.backlog);
            let seen = successor.listing;
            let Some(active) = &mut slot.active else {
                let slot = std::mem::take(slot);
                successor.map.insert(Arc::clone(key), Slot { seen, ..slot });
                return false;
            };
            active.leaving = true;
            active.arrived.notify_one();
            let active = Some(Box::new(InFlight { awaited: true, ..InFlight::default() }));
            successor.map.insert(Arc::clone(key), Slot { active, seen, ..Slot::default() });
            true
        });
        if let (Some(mine), Some(theirs)) = (self.tracker.take(), &mut successor.tracker) {
            theirs.inherit(*mine);
        }
    }

    fn forget(&mut self, which: impl Fn(&Slot) -> bool) -> Vec<RemovedObject> {
        let mut vanished = vec![];
        self.map.retain(|key, slot| {
            if slot.gone || !which(slot) {
                return true;
            }
            let gone = slot.mark_removed(key, &mut self.backlog);
            let forgotten = gone.forgotten;
            vanished.push(gone);
            !forgotten
        });
        vanished
    }

    /// Removes the detached cycles; returns their ids.
    pub fn give_up(&mut self) -> Vec<CycleId> {
        let active = self.map.values_mut().filter_map(|slot| slot.active.as_mut());
        active.filter_map(|active| active.detached_cycle.take()).map(|one| one.id()).collect()
    }

    /// An object is gone without a deletion event: removes its slot. The slot of a busy object is removed by its worker.
    pub fn mark_removed(&mut self, key: &Arc<str>) -> Option<RemovedObject> {
        let vanished = self.map.get_mut(key).filter(|slot| !slot.gone)?.mark_removed(key, &mut self.backlog);
        if vanished.forgotten {
            self.map.remove(key);
        }
        Some(vanished)
    }

    /// The keys of the busy objects.
    pub fn busy(&self) -> Vec<Arc<str>> {
        let is_busy = |slot: &Slot| slot.active.as_ref().is_some_and(|active| active.parked.is_none());
        self.map.iter().filter(|(_, slot)| is_busy(slot)).map(|(key, _)| Arc::clone(key)).collect()
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
            slot.membership = Membership::Deselected;
            // The object is not removed with those that the listing did not have.
            slot.seen = listing;
        }
    }

    /// A cycle of a deselected object is done: removes the slot if nothing is left to do; then true.
    pub(crate) fn leave(&mut self, key: &Arc<str>) -> bool {
        let Some(slot) = self.get(key) else { return false };
        let membership = slot.membership;
        // Daemons that are still stopping must not be started a second time.
        let has_runs = slot.object_daemons.as_ref().is_some_and(|object_daemons| object_daemons.has_runs());
        let Some(tracker) = &mut self.tracker else { return false };
        let is_looked_up = tracker.lookups.contains_key(key);
        if is_looked_up || (membership == Membership::Stale && tracker.enqueue_lookup(key, None)) || has_runs
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

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    fn event(name: &str) -> QueuedEvent {
        let object = Object::decode(&format!(r#"{{"metadata":{{"name":"{name}"}}}}"#)).unwrap();
        QueuedEvent {
            kind: EventType::Listed,
            object: Arc::new(object),
            requeued: false,
            indexed: false,
            received: None,
        }
    }

    fn forgotten(vanished: &[RemovedObject]) -> Vec<Arc<str>> {
        vanished.iter().filter(|one| one.forgotten).map(|one| Arc::clone(&one.key)).collect()
    }

    #[test]
    fn objects_missing_in_a_listing_are_removed_unless_they_are_busy() {
        let mut slots = Slots::default();
        slots.entry(&key("stays"), EventType::Added);
        slots.entry(&key("goes"), EventType::Added);
        slots.entry(&key("busy"), EventType::Added).active = Some(Box::default());
        slots.begin_listing(0);
        slots.entry(&key("stays"), EventType::Listed);
        assert_eq!(forgotten(&slots.end_listing()), [key("goes")]);
        assert!(slots.get("goes").is_none());
        assert_eq!(slots.get("stays").map(|slot| slot.gone), Some(false));
        // Its worker removes the slot in the end, unless the object comes back.
        assert_eq!(slots.get("busy").map(|slot| slot.gone), Some(true));
        assert!(!slots.entry(&key("busy"), EventType::Modified).gone);
    }

    #[test]
    fn the_slot_of_an_idle_object_is_small() {
        let kept = size_of::<(Arc<str>, Slot)>();
        assert!(kept <= 112, "a slot has {kept} bytes, in addition to its key of 36 letters");
    }

    #[test]
    fn all_slots_are_removed_with_the_watch() {
        let mut slots = Slots::default();
        slots.entry(&key("idle"), EventType::Listed);
        slots.entry(&key("busy"), EventType::Listed).active = Some(Box::default());
        assert_eq!(forgotten(&slots.end()), [key("idle")]);
        assert_eq!(slots.len(), 1);
    }

    #[test]
    fn waiting_objects_are_not_busy_and_their_bytes_are_released_on_removal() {
        let (mut slots, mut successor) = (Slots::default(), Slots::default());
        for name in ["goes", "moves"] {
            let parked = InFlight { parked: Some(200_000_000), ..InFlight::default() };
            slots.entry(&key(name), EventType::Listed).active = Some(Box::new(parked));
            slots.backlog.park(key(name), 200_000_000);
        }
        assert!(slots.busy().is_empty() && slots.backlog.is_heavy());
        slots.begin_listing(0);
        slots.entry(&key("moves"), EventType::Listed);
        assert_eq!(forgotten(&slots.end_listing()), [key("goes")]);
        assert!(!slots.backlog.is_heavy());
        slots.hand_over(&mut successor);
        assert!(successor.entry(&key("moves"), EventType::Listed).active.is_none());
    }

    #[test]
    fn slots_are_handed_over_to_another_version() {
        let (mut slots, mut successor) = (Slots::default(), Slots::default());
        slots.entry(&key("idle"), EventType::Listed).memory.fully_handled_once = true;
        let busy = slots.entry(&key("busy"), EventType::Listed);
        busy.memory.fully_handled_once = true;
        busy.active = Some(Box::default());
        slots.hand_over(&mut successor);
        assert_eq!(slots.busy(), [key("busy")]);
        assert_eq!(slots.len(), 1);
        let idle = successor.entry(&key("idle"), EventType::Listed);
        assert!(idle.memory.fully_handled_once && idle.memory.noticed_by_listing && idle.active.is_none());
        let busy = successor.entry(&key("busy"), EventType::Listed);
        assert!(!busy.memory.fully_handled_once);
        let active = busy.active.as_mut().unwrap();
        assert!(active.awaited);
        active.pending.push_back(event("busy"));
        let (gone, pending) = successor.adopt(&key("busy"), slots.take("busy").unwrap());
        assert!(gone.is_none() && pending.len() == 1);
        let busy = successor.get("busy").unwrap();
        assert!(busy.memory.fully_handled_once && busy.active.is_none());
    }

    #[test]
    fn objects_deleted_in_either_version_are_not_handed_over() {
        for by_predecessor in [true, false] {
            let (mut slots, mut successor) = (Slots::default(), Slots::default());
            slots.entry(&key("a"), EventType::Listed).active = Some(Box::default());
            slots.hand_over(&mut successor);
            if by_predecessor {
                slots.get("a").unwrap().gone = true;
            } else {
                successor.begin_listing(0);
                assert!(forgotten(&successor.end_listing()).is_empty(), "it is still busy");
            }
            let (gone, pending) = successor.adopt(&key("a"), slots.take("a").unwrap());
            assert!(gone.is_some_and(|gone| gone.forgotten) && pending.is_empty());
            assert!(successor.is_empty());
        }
    }
}
