//! What is remembered of each object between its cycles: as little as possible.
//!
//! A slot of an idle object has its memory, the version of our last write until that is seen, and nothing else: no task, no
//! timer, no body. Nothing here waits or talks.

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
    /// What the server says has happened.
    pub kind: EventType,
    /// The new state.
    pub object: Arc<Object>,
    /// It is no event: a delay is over, and the last state is looked at again.
    pub requeued: bool,
    /// The indices have it already.
    pub indexed: bool,
    /// The state as it was told, if the object is looked at otherwise.
    pub received: Option<Arc<Object>>,
}

/// The work in progress of an object.
#[derive(Debug, Default)]
pub struct InFlight {
    /// What has come since the current cycle began.
    pub pending: VecDeque<QueuedEvent>,
    /// Tells the worker that something has come.
    pub arrived: Arc<Notify>,
    /// Events were skipped, and that was logged.
    pub overflowed: bool,
    /// There is no worker here: the one of a predecessor is still at work.
    pub awaited: bool,
    /// There is a successor: what waits for the time does not wait any longer.
    pub leaving: bool,
    /// There is no worker yet: it waits for its turn in the backlog, with so many bytes.
    pub parked: Option<usize>,
    /// There is no worker: the cycle waits for nothing but the reply.
    pub detached_cycle: Option<DetachedCycle>,
}

/// A cycle in progress.
#[derive(Debug)]
pub struct OpenCycle {
    /// Its number.
    pub id: CycleId,
    /// Where it stands.
    pub cycle: Cycle,
    /// What is next, until somebody goes on with it.
    pub next: Option<Effect>,
    /// What it is about.
    pub event: QueuedEvent,
    /// What the indices need first.
    pub round: Option<IndexPass>,
    /// The other side is done with it already.
    pub closed: bool,
    /// What is to be logged of it.
    pub log_messages: Vec<LogRecord>,
}

/// A cycle that waits for its completion without a worker.
#[derive(Debug)]
pub struct DetachedCycle {
    pub(super) open_cycle: Box<OpenCycle>,
    /// It counts as a worker for those who wait until all are done.
    pub(super) _token: TaskTrackerToken,
}

impl DetachedCycle {
    /// The number of the cycle.
    pub fn id(&self) -> CycleId {
        self.open_cycle.id
    }
}

/// One object.
#[derive(Default)]
pub struct Slot {
    /// What the core remembers.
    pub memory: ObjectMemory,
    /// The echo of our last write, while it is awaited.
    pub consistency: Option<Box<Consistency>>,
    /// How its indexing went; none if it was never indexed.
    pub indexing: Option<Box<Indexing>>,
    /// The pauses after unexpected errors.
    pub throttle: ErrorBackoff,
    /// The worker, if there is one.
    pub active: Option<Box<InFlight>>,
    /// Its daemons and timers, if it ever had any.
    pub object_daemons: Option<Arc<ObjectDaemons>>,
    /// The object is deleted: nothing is to be remembered after the last event.
    pub gone: bool,
    /// Where it is, if its stream has a derived selector.
    pub place: Membership,
    /// The number of the last listing that had the object.
    pub seen: u32,
}

impl Slot {
    /// What it has waited with in the backlog, if it has.
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

/// An object that is missing in a list.
pub struct RemovedObject {
    /// Its key.
    pub key: Arc<str>,
    /// Its daemons and timers.
    pub object_daemons: Option<Arc<ObjectDaemons>>,
    /// It is not known any more; otherwise, its worker forgets it.
    pub forgotten: bool,
}

/// All objects of one stream.
#[derive(Default)]
pub struct Slots {
    /// Those that wait behind what is new.
    pub backlog: Backlog,
    /// What becomes of objects that the stream does not tell of any more, if its selector is derived.
    pub departures: Option<Box<MembershipTracker>>,
    map: HashMap<Arc<str>, Slot>,
    listing: u32,
    pauses: u64,
}

impl Slots {
    /// No objects yet; with what becomes of them if the stream loses them, and with what counts the bytes that wait.
    pub fn with(departures: Option<Box<MembershipTracker>>, parked: Arc<AtomicUsize>) -> Self {
        Self { departures, backlog: Backlog::sharing(parked), ..Self::default() }
    }

    /// The object's slot; a new one remembers how the object was first noticed.
    pub fn entry(&mut self, key: &Arc<str>, kind: EventType) -> &mut Slot {
        let listing = self.listing;
        let slot = self.map.entry(Arc::clone(key)).or_insert_with(|| Slot {
            memory: ObjectMemory { noticed_by_listing: kind == EventType::Listed, ..ObjectMemory::default() },
            ..Slot::default()
        });
        slot.seen = listing;
        // It was not in a listing, but it is there nevertheless.
        slot.gone &= kind == EventType::Deleted;
        slot.place = Membership::Selected;
        slot
    }

    /// The object's slot, if it is known.
    pub fn get(&mut self, key: &str) -> Option<&mut Slot> {
        self.map.get_mut(key)
    }

    /// The object is there, though it cannot be read: what is known of it stays as it is.
    pub fn keep_known(&mut self, key: &str) {
        let listing = self.listing;
        if let Some(slot) = self.map.get_mut(key) {
            slot.seen = listing;
        }
    }

    /// Lets an object wait for its turn in the backlog.
    pub fn park(&mut self, key: &Arc<str>, event: QueuedEvent) {
        let bytes = event.object.raw().len();
        let Some(slot) = self.map.get_mut(key) else { return };
        let pending = [event].into_iter().collect();
        slot.active = Some(Box::new(InFlight { pending, parked: Some(bytes), ..InFlight::default() }));
        self.backlog.park(Arc::clone(key), bytes);
    }

    /// What an object has waited with in the backlog, if it has.
    pub fn unpark(&mut self, key: &str) -> Option<VecDeque<QueuedEvent>> {
        self.map.get_mut(key)?.unpark(&mut self.backlog)
    }

    /// Forgets an object.
    pub fn remove(&mut self, key: &str) {
        self.map.remove(key);
    }

    /// Takes an object out, with all that is known of it.
    pub fn take(&mut self, key: &str) -> Option<Slot> {
        self.map.remove(key)
    }

    /// Takes an object over that a predecessor has worked on; with the events that have come here meanwhile. It may be gone.
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

    /// A listing is over: the objects that it did not have are forgotten. Busy ones are when their worker is done.
    pub fn end_listing(&mut self) -> Vec<RemovedObject> {
        self.enqueue_missing();
        let listing = self.listing;
        let vanished = self.forget(|slot| slot.seen != listing);
        self.end_departing();
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

    /// The stream is over: all objects are forgotten. Busy ones are when their worker is done.
    pub fn end(&mut self) -> Vec<RemovedObject> {
        self.forget(|_| true)
    }

    /// The stream is over, but another one goes on with the same objects, in another version of their kind. Busy ones are
    /// finished here, and follow then; until then, their events wait there.
    pub fn hand_over(&mut self, successor: &mut Self) {
        self.map.retain(|key, slot| {
            // The listing of the other stream brings those here that are still waiting.
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
        if let (Some(mine), Some(theirs)) = (self.departures.take(), &mut successor.departures) {
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

    /// Forgets the cycles that wait for their replies without workers; their numbers.
    pub fn give_up(&mut self) -> Vec<CycleId> {
        let active = self.map.values_mut().filter_map(|slot| slot.active.as_mut());
        active.filter_map(|active| active.detached_cycle.take()).map(|one| one.id()).collect()
    }

    /// An object is gone, though nobody has told: it is forgotten. A busy one is when its worker is done.
    pub fn mark_removed(&mut self, key: &Arc<str>) -> Option<RemovedObject> {
        let vanished = self.map.get_mut(key).filter(|slot| !slot.gone)?.mark_removed(key, &mut self.backlog);
        if vanished.forgotten {
            self.map.remove(key);
        }
        Some(vanished)
    }

    /// The keys of the objects that are worked on.
    pub fn busy(&self) -> Vec<Arc<str>> {
        let is_busy = |slot: &Slot| slot.active.as_ref().is_some_and(|active| active.parked.is_none());
        self.map.iter().filter(|(_, slot)| is_busy(slot)).map(|(key, _)| Arc::clone(key)).collect()
    }

    /// How many objects are known.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether no object is known.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}

impl Slots {
    /// Seeks the objects that the listing did not have, if that does not mean that they are gone.
    pub(crate) fn enqueue_missing(&mut self) {
        let missing = self.missing();
        let Some(departures) = &mut self.departures else { return };
        let lookups: Vec<_> =
            missing.into_iter().filter(|key| departures.enqueue_lookup(key, None)).collect();
        for key in lookups {
            self.on_deselected(&key);
        }
    }

    /// A listing is over: forgets where those objects are that are not known any more.
    pub(crate) fn end_departing(&mut self) {
        if let Some(mut departures) = self.departures.take() {
            departures.listed.notify_one();
            departures
                .addresses
                .retain(|key, _| self.get(key).is_some() || departures.lookups.contains_key(key));
            self.departures = Some(departures);
        }
    }

    /// The stream has lost the object.
    pub(crate) fn on_deselected(&mut self, key: &str) {
        let listing = self.listing();
        if let Some(slot) = self.get(key) {
            slot.place = Membership::Deselected;
            // It is not forgotten with those that are gone.
            slot.seen = listing;
        }
    }

    /// Nothing is left to be done for an object that the stream has lost: it is forgotten if that was all; then true.
    pub(crate) fn leave(&mut self, key: &Arc<str>) -> bool {
        let Some(slot) = self.get(key) else { return false };
        let place = slot.place;
        // Those who do not stop are not to be started again beside themselves.
        let is_staffed =
            slot.object_daemons.as_ref().is_some_and(|object_daemons| object_daemons.is_staffed());
        let Some(departures) = &mut self.departures else { return false };
        let is_looked_up = departures.lookups.contains_key(key);
        if is_looked_up || (place == Membership::Stale && departures.enqueue_lookup(key, None)) || is_staffed
        {
            return false;
        }
        departures.forget(key);
        self.remove(key);
        true
    }

    /// Whether there is so much to ask for that there should not be more.
    pub(crate) fn has_many_lookups(&self) -> bool {
        self.departures.as_ref().is_some_and(|departures| departures.lookups.len() > MAX_LOOKUPS)
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
    fn what_a_listing_does_not_have_is_forgotten_unless_it_is_busy() {
        let mut slots = Slots::default();
        slots.entry(&key("stays"), EventType::Added);
        slots.entry(&key("goes"), EventType::Added);
        slots.entry(&key("busy"), EventType::Added).active = Some(Box::default());
        slots.begin_listing(0);
        slots.entry(&key("stays"), EventType::Listed);
        assert_eq!(forgotten(&slots.end_listing()), [key("goes")]);
        assert!(slots.get("goes").is_none());
        assert_eq!(slots.get("stays").map(|slot| slot.gone), Some(false));
        // Its worker forgets it in the end, unless it comes back.
        assert_eq!(slots.get("busy").map(|slot| slot.gone), Some(true));
        assert!(!slots.entry(&key("busy"), EventType::Modified).gone);
    }

    #[test]
    fn what_is_kept_of_an_idle_object_is_small() {
        let kept = size_of::<(Arc<str>, Slot)>();
        assert!(kept <= 112, "{kept} bytes are kept of each object, besides its key of 36 letters");
    }

    #[test]
    fn all_is_forgotten_with_the_stream() {
        let mut slots = Slots::default();
        slots.entry(&key("idle"), EventType::Listed);
        slots.entry(&key("busy"), EventType::Listed).active = Some(Box::default());
        assert_eq!(forgotten(&slots.end()), [key("idle")]);
        assert_eq!(slots.len(), 1);
    }

    #[test]
    fn what_waits_for_its_turn_is_not_busy_and_is_forgotten_with_what_it_weighs() {
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
    fn what_is_remembered_is_handed_over_to_another_version() {
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
    fn what_is_gone_in_either_version_is_not_taken_over() {
        for by_predecessor in [true, false] {
            let (mut slots, mut successor) = (Slots::default(), Slots::default());
            slots.entry(&key("a"), EventType::Listed).active = Some(Box::default());
            slots.hand_over(&mut successor);
            if by_predecessor {
                slots.get("a").unwrap().gone = true;
            } else {
                successor.begin_listing(0);
                assert!(forgotten(&successor.end_listing()).is_empty(), "it is still worked on");
            }
            let (gone, pending) = successor.adopt(&key("a"), slots.take("a").unwrap());
            assert!(gone.is_some_and(|gone| gone.forgotten) && pending.is_empty());
            assert!(successor.is_empty());
        }
    }
}
