//! Dispatching: each event goes to its object's slot, one cycle at a time per object.
//!
//! Most events need nothing: no handler matches, or the essence is as it was. Those are decided right here, with no task, no
//! crossing into Python, no memory that stays. Only if there is something to do, a worker is spawned for the object, and it
//! lives as long as there is work (`worker.rs`).

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use kopf_core::cause::EventType;
use kopf_core::cycle::{Conclusion, Cycle, Moment, Next, Observation, Rules};
use kopf_core::daemon::Reasons;
use kopf_core::derivation::Derivation;
use kopf_core::indexing::{Indexing, Round};
use kopf_core::ledger::Accepted;
use kopf_core::notes::Level;
use kopf_core::object::Object;
use kopf_core::registry::Plan;
use kopf_core::throttle;
use kopf_core::value::Map;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::Desk;
use crate::api::Api;
use crate::backlog::WINDOW;
use crate::clock::Clock;
use crate::daemons::{Background, Staffed};
use crate::departures::{Departures, Whereabouts};
use crate::health::Health;
use crate::indexing::{Barrier, Blocker};
use crate::invoke::{CycleId, Entry, Invoker, Job};
use crate::patching::Denials;
use crate::rules::CurrentRules;
use crate::slots::{Active, Event, Slot, Slots, Vanished, key_of};
use crate::supervision::{Failing, Panicked, shielded};
use crate::toggles::Pause;
use crate::watch::name_of;
use crate::worker::Worker;

mod effects;
mod sink;
mod unattended;

use effects::Effects;
pub use sink::DispatchSink;
pub use unattended::{Absentees, Unattended};

/// How many of the backlog are looked at in one go.
const GO: usize = 64;
/// What all streams of an operator share.
pub struct Shared {
    /// The handlers and the settings, as at the start.
    pub rules: Arc<Rules>,
    /// The same as of now.
    pub current: CurrentRules,
    /// The way to the server.
    pub api: Api,
    /// The other side of the border.
    pub invoker: Arc<dyn Invoker>,
    /// Where admission reviews are taken in.
    pub admission: Arc<Desk>,
    /// What time it is.
    pub clock: Clock,
    /// Set when the operator begins to stop: nobody waits for delays any longer.
    pub stopping: CancellationToken,
    /// Set when there is no more time: what runs is cancelled.
    pub killing: CancellationToken,
    /// All workers.
    pub workers: TaskTracker,
    /// Told whenever a worker is done: there may be room again.
    pub freed: Notify,
    /// How many workers wait for nothing but the time: they hold no streams.
    pub dozing: AtomicUsize,
    /// Daemons and timers.
    pub background: Background,
    /// The source of the cycles' numbers.
    pub cycles: AtomicU64,
    /// Why the operator is paused, if it is.
    pub pause: Arc<Pause>,
    /// How the streams are.
    pub health: Arc<Health>,
    /// Who we are among the operators.
    pub identity: String,
    /// Closed until the indices are filled; none if there are none.
    pub barrier: Option<Arc<Barrier>>,
    /// Who may have cycles without workers.
    pub absentees: Absentees,
    /// The resources whose status the operator may not write.
    pub denials: Denials,
    /// How many bytes of objects wait for their turn, of all streams.
    pub parked: Arc<AtomicUsize>,
    /// Why the operator cannot go on.
    pub failing: Failing,
}

/// A worker that waits for nothing but the time, until this is dropped.
pub struct Nap<'a>(&'a Shared);

impl Drop for Nap<'_> {
    fn drop(&mut self) {
        self.0.dozing.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    /// A worker begins to wait for the time.
    pub fn nap(&self) -> Nap<'_> {
        self.dozing.fetch_add(1, Ordering::Relaxed);
        self.freed.notify_waiters();
        Nap(self)
    }

    /// How many objects are worked on.
    fn working(&self) -> usize {
        self.workers.len().saturating_sub(self.dozing.load(Ordering::Relaxed))
    }

    /// A number for a new cycle.
    pub fn next_cycle(&self) -> CycleId {
        self.cycles.fetch_add(1, Ordering::Relaxed)
    }
}

/// The objects of one stream.
///
/// The order of locks, where several are held at once: the slots of a predecessor; the slots of its successor; the state of an
/// object's daemons; the registry of all daemons, or the queue of their scheduler; the queue of the border. Handlers are
/// called, workers are spawned, and lines are logged when the slots are not locked any more (see `Effects`).
pub struct Dispatcher {
    /// What all streams share.
    pub shared: Arc<Shared>,
    /// The handlers of the resource.
    pub plan: Arc<Plan>,
    /// The label selector that follows from them, if it is wanted.
    pub derived: Option<Derivation>,
    /// Bounds the workers of this stream, if the settings say so.
    pub limit: Option<Arc<Semaphore>>,
    slots: Mutex<Slots>,
    /// Keeps the barrier closed until the stream takes care of that itself.
    blocker: Mutex<Option<Blocker>>,
    /// Whether each event counts, or only the newest state.
    every_event: bool,
    /// Somebody is about to look at the backlog.
    is_advancing: AtomicBool,
    /// The first states of the objects are being indexed.
    pub(crate) is_filling: AtomicBool,
    /// Who goes on with the objects, in another version of their kind.
    successor: OnceLock<Arc<Self>>,
}

/// A cycle that has begun and needs somebody to go on with it.
#[derive(Debug)]
pub struct Begun {
    /// Its number.
    pub id: CycleId,
    /// Where it stands.
    pub cycle: Cycle,
    /// What is next, until somebody goes on with it.
    pub next: Option<Next>,
    /// What it is about.
    pub event: Event,
    /// What the indices need first.
    pub round: Option<Round>,
    /// The other side is done with it already.
    pub closed: bool,
    /// What is to be logged of it.
    pub notes: Vec<Entry>,
}

impl Dispatcher {
    /// A dispatcher that knows no objects yet.
    pub fn new(shared: Arc<Shared>, plan: Arc<Plan>, namespace: Option<&str>) -> Arc<Self> {
        let name = name_of(&plan.resource, namespace);
        let limit =
            shared.rules.settings.queueing.worker_limit.map(|limit| Arc::new(Semaphore::new(limit.max(1))));
        let every_event = !plan.watching.is_empty() || !plan.indexing.is_empty();
        let barrier = shared.barrier.as_ref().filter(|_| !plan.indexing.is_empty());
        let blocker = Mutex::new(barrier.and_then(|barrier| Barrier::block(barrier, name)));
        let Rules { registry, settings, .. } = &*shared.rules;
        let derived = settings.watching.derived_selectors.then(|| Derivation::of(&plan, registry)).flatten();
        let departures = derived.clone().map(|derived| Box::new(Departures::from(derived)));
        let slots = Mutex::new(Slots::with(departures, Arc::clone(&shared.parked)));
        let dispatcher = Arc::new(Self {
            shared,
            plan,
            derived,
            limit,
            slots,
            blocker,
            every_event,
            is_advancing: AtomicBool::new(false),
            is_filling: AtomicBool::new(false),
            successor: OnceLock::new(),
        });
        dispatcher.shared.absentees.admit(&dispatcher);
        dispatcher
    }

    /// Takes a new event of an object.
    pub fn dispatch(self: &Arc<Self>, kind: EventType, object: Object) {
        let key = key_of(&object);
        let event = Event { kind, object: Arc::new(object), woken: false, indexed: false, told: None };
        self.with_slots(|slots, effects| {
            slots.notice(&key, kind);
            self.queue(slots, key, event, effects);
        });
    }

    /// Lets the events of an object go that were held until the indices are filled.
    pub fn release(self: &Arc<Self>, key: &Arc<str>) {
        self.with_slots(|slots, effects| {
            let held = slots.get(key).and_then(|slot| slot.active.take());
            for event in held.into_iter().flat_map(|active| active.pending) {
                if slots.get(key).is_none() {
                    slots.notice(key, event.kind);
                }
                self.queue(slots, Arc::clone(key), event, effects);
            }
        });
    }

    /// Does something with the slots, and what follows from it when they are not locked any more.
    pub(crate) fn with_slots<T>(self: &Arc<Self>, act: impl FnOnce(&mut Slots, &mut Effects) -> T) -> T {
        let mut effects = Effects::default();
        let mut slots = self.slots();
        let done = act(&mut slots, &mut effects);
        drop(slots);
        effects.take_place(&self.shared);
        done
    }

    /// Puts an event behind those that are worked on, or begins with it.
    pub(crate) fn queue(
        self: &Arc<Self>,
        slots: &mut Slots,
        key: Arc<str>,
        event: Event,
        effects: &mut Effects,
    ) {
        let is_full = slots.backlog.is_full(self.window());
        let must_wait = is_full && event.kind == EventType::Listed;
        let Some(slot) = slots.get(&key) else { return };
        let Some(active) = &mut slot.active else {
            if must_wait {
                slots.park(&key, event);
            } else {
                self.admit(slots, key, event, effects);
            }
            return;
        };
        let settings = &self.shared.rules.settings;
        let most = settings.queueing.max_pending_events.max(1);
        if !self.every_event {
            active.pending.clear();
        } else if !settings.compat && active.pending.len() >= most {
            active.pending.pop_front();
            if !std::mem::replace(&mut active.overflowed, true) {
                let text = format!(
                    "More than {most} events of this object wait for its handlers: the oldest of them are skipped. The \
                     newest state is handled in any case. See settings.queueing.max_pending_events."
                );
                effects.log(Entry::local(Level::Warning, &event.object, text));
            }
        }
        active.pending.push_back(event);
        active.arrived.notify_one();
        if active.parked.is_some() && !must_wait {
            self.unpark(slots, &key, effects);
        }
    }

    /// How many objects of listings are worked on at once.
    fn window(&self) -> usize {
        let limit = self.shared.rules.settings.queueing.worker_limit;
        limit.unwrap_or(WINDOW).clamp(1, WINDOW)
    }

    /// It is the turn of an object that waited.
    fn unpark(self: &Arc<Self>, slots: &mut Slots, key: &Arc<str>, effects: &mut Effects) {
        let pending = slots.unpark(key);
        for event in pending.into_iter().flatten() {
            if slots.get(key).is_none() {
                slots.notice(key, event.kind);
            }
            match slots.get(key).and_then(|slot| slot.active.as_mut()) {
                Some(active) => active.pending.push_back(event),
                None => self.admit(slots, Arc::clone(key), event, effects),
            }
        }
    }

    /// One of the backlog has had its turn, the next ones have theirs.
    pub async fn advance(self: &Arc<Self>) {
        self.slots().backlog.ended();
        self.go_on_with_backlog().await;
    }

    async fn go_on_with_backlog(self: &Arc<Self>) {
        while self.go_on() {
            tokio::task::yield_now().await;
        }
    }

    /// True if there is more to look at.
    fn go_on(self: &Arc<Self>) -> bool {
        self.with_slots(|slots, effects| {
            for _ in 0..GO {
                // While it is paused, others may work on the objects; the listing after the pause brings them here again.
                let is_held = self.shared.stopping.is_cancelled() || self.shared.pause.is_on();
                if is_held || slots.backlog.is_full(self.window()) {
                    return false;
                }
                let Some(key) = slots.backlog.pop() else { return false };
                self.unpark(slots, &key, effects);
            }
            true
        })
    }

    /// Looks at the object again, though nothing has come from the server.
    pub fn wake(self: &Arc<Self>, key: &Arc<str>, object: Arc<Object>) {
        if self.shared.stopping.is_cancelled() {
            return;
        }
        let event = Event { kind: EventType::Modified, object, woken: true, indexed: false, told: None };
        self.with_slots(|slots, effects| {
            let Some(slot) = slots.get(key).filter(|slot| !slot.gone) else { return };
            let Some(active) = &mut slot.active else {
                self.admit(slots, Arc::clone(key), event, effects);
                return;
            };
            // The next event will look at it anyway.
            if active.pending.is_empty() {
                active.pending.push_back(event);
                active.arrived.notify_one();
            }
        });
    }

    /// Begins with an event of an object that nobody works on.
    fn admit(self: &Arc<Self>, slots: &mut Slots, key: Arc<str>, event: Event, effects: &mut Effects) {
        let Some(slot) = slots.get(&key) else { return };
        if slot.throttle.remaining(self.shared.clock.now()).is_some() {
            // Held after an error: the worker waits for the rest of the pause.
            self.spawn_waiting(slots, key, event, effects);
            return;
        }
        let mut begun = match self.begin(slot, event) {
            Ok(begun) => begun,
            Err(panicked) => {
                let (event, panicked) = *panicked;
                if let Some(event) = self.hold_back(slot, event, &panicked, effects) {
                    self.spawn_waiting(slots, key, event, effects);
                }
                return;
            }
        };
        effects.log_all(std::mem::take(&mut begun.notes));
        match &begun {
            Begun { next: Some(Next::Done(conclusion)), round: None, event, .. }
                if is_trivial(conclusion) =>
            {
                self.settle(slots, &key, event, conclusion, effects);
            }
            _ if self.needs_no_worker(&begun) => self.send_off(slots, key, begun, effects),
            _ => self.spawn(slots, key, begun, effects),
        }
    }

    /// Slows an object down after a panic of its cycle; gives the event back if it is to be handled then.
    pub(crate) fn hold_back(
        &self,
        slot: &mut Slot,
        event: Event,
        panicked: &Panicked,
        effects: &mut Effects,
    ) -> Option<Event> {
        let rules = self.shared.current.get();
        let delay = slot.throttle.fail(&rules.settings.queueing.error_delays, self.shared.clock.now());
        effects.log(Entry::local(Level::Error, &event.object, throttle::text(delay, &panicked.to_string())));
        if slot.subject.as_ref().is_some_and(|subject| subject.is_damaged()) {
            self.shared.failing.raise(panicked.clone().into());
        }
        // Without a pause, it would only panic again, and at once.
        delay.is_some().then_some(event)
    }

    /// Opens a cycle for the event, in the state that the slot is in. If that panics, the slot is as it was before.
    pub fn begin(self: &Arc<Self>, slot: &mut Slot, event: Event) -> Result<Begun, Box<(Event, Panicked)>> {
        let (memory, kept) = (slot.memory.clone(), event.clone());
        shielded("The cycle of the object", || self.open(slot, event)).map_err(|panicked| {
            slot.memory = memory;
            Box::new((kept, panicked))
        })
    }

    fn open(self: &Arc<Self>, slot: &mut Slot, event: Event) -> Begun {
        let mut event = event;
        if let Some(told) = event.told.take() {
            event.object = told;
        }
        self.refresh(slot, &event.object);
        let now = self.shared.clock.now();
        let round = self.round(slot, &event);
        let consistent = is_consistent(slot, &event.object, now);
        let id = self.shared.next_cycle();
        let moment = Moment { now, entropy: id, consistent };
        let observation =
            Observation { event: event.kind, object: Arc::clone(&event.object), woken: event.woken };
        if !self.plan.changing.is_empty() {
            slot.memory.notice(&event.object, &self.shared.rules.settings, &self.plan);
        }
        let (mut cycle, mut next) =
            Cycle::open(observation, &slot.memory, Arc::clone(&self.plan), self.shared.current.get(), moment);
        if !Arc::ptr_eq(cycle.object(), &event.object) {
            event.told = Some(std::mem::replace(&mut event.object, Arc::clone(cycle.object())));
        }
        // Daemons and timers may look into the indices: they start when the object is there.
        if let Next::Spawn(wanted) = &next
            && round.is_none()
            && let Staffed::Done(answer) =
                self.staff(slot, event.told.as_ref().unwrap_or(&event.object), wanted)
        {
            next = cycle.resume(answer, now);
        }
        let notes = self.notes_of(&mut cycle, &event.object);
        // What the indices need goes first, and its outcome is to be known before anything else.
        if round.is_none() {
            cycle.foresee(&mut next, |level| self.shared.invoker.enabled(level));
        }
        Begun { id, cycle, next: Some(next), event, round, closed: false, notes }
    }

    /// What the indices need for the event, before anything else.
    pub fn round(&self, slot: &mut Slot, event: &Event) -> Option<Round> {
        if self.plan.indexing.is_empty() || event.indexed {
            return None;
        }
        let indexing = slot.indexing.as_deref();
        // What is only looked at again is in the indices, unless that has failed.
        if event.woken && !indexing.is_some_and(Indexing::is_broken) {
            return None;
        }
        let rules = self.shared.current.get();
        let now = self.shared.clock.now();
        let fresh = Indexing::default();
        indexing.unwrap_or(&fresh).round(
            event.kind,
            &event.object,
            &self.plan,
            (&rules.registry, &rules.settings),
            now,
        )
    }

    /// What keeps the barrier closed until the objects of this stream are listed.
    pub fn take_blocker(&self) -> Option<Blocker> {
        self.blocker.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The stream is over, but another one goes on with the same objects. Those that are worked on now follow when that is
    /// done: until then, what the other stream delivers of them waits there.
    pub fn hand_over(&self, successor: &Arc<Self>) {
        // First of all: cycles that end from now on hand over by themselves.
        let _only = self.successor.set(Arc::clone(successor));
        drop(self.take_blocker());
        self.slots().hand_over(&mut successor.slots());
    }

    /// No cycle works on the object any more: it rests here, or is handed over, or is forgotten.
    pub(crate) fn finish(&self, mut slots: MutexGuard<'_, Slots>, key: &Arc<str>) {
        if let Some(successor) = self.successor.get() {
            let slot = slots.take(key);
            drop(slots);
            if let Some(slot) = slot {
                successor.adopt(key, slot);
            }
            return;
        }
        let Some(slot) = slots.get(key) else { return };
        let is_over = if slot.gone {
            slots.remove(key);
            true
        } else {
            slot.place != Whereabouts::Inside && slots.leave(key)
        };
        drop(slots);
        if is_over {
            self.shared.invoker.submit(Job::Forget(Arc::clone(key)));
        }
    }

    /// Goes on with an object that a predecessor has worked on.
    fn adopt(self: &Arc<Self>, key: &Arc<str>, slot: Slot) {
        if let Some(next) = self.successor.get() {
            drop(self.slots().take(key));
            return next.adopt(key, slot);
        }
        let vanished = self.with_slots(|slots, effects| {
            let (vanished, pending) = slots.adopt(key, slot);
            for event in pending {
                if slots.get(key).is_none() {
                    slots.notice(key, event.kind);
                }
                self.queue(slots, Arc::clone(key), event, effects);
            }
            vanished
        });
        self.see_off(vanished.into_iter().collect());
    }

    /// The stream is over for good: nothing is remembered of its objects.
    pub fn abandon(&self) {
        drop(self.take_blocker());
        let vanished = self.slots().end();
        self.see_off(vanished);
    }

    /// Logs what the cycle has to say so far.
    pub fn say(&self, cycle: &mut Cycle, object: &Arc<Object>) {
        for entry in self.notes_of(cycle, object) {
            self.shared.invoker.log(entry);
        }
    }

    /// What the cycle has to say so far.
    fn notes_of(&self, cycle: &mut Cycle, object: &Arc<Object>) -> Vec<Entry> {
        let notes = cycle.take_notes().into_iter().filter(|note| self.shared.invoker.enabled(note.level()));
        notes.map(|note| Entry::posted(note.level(), object, note.text(object))).collect()
    }

    /// Keeps what a cycle that needs no more work has taught about the object.
    fn settle(
        &self,
        slots: &mut Slots,
        key: &Arc<str>,
        event: &Event,
        conclusion: &Conclusion,
        effects: &mut Effects,
    ) {
        let is_gone = event.kind == EventType::Deleted || slots.get(key).is_some_and(|slot| slot.gone);
        if is_gone {
            slots.remove(key);
            effects.submit(Job::Forget(Arc::clone(key)));
        } else if let Some(slot) = slots.get(key) {
            slot.memory.fully_handled_once |= conclusion.fully_handled_once;
            slot.memory.remaining_fns = false;
            slot.memory.parted = conclusion.parted;
            slot.memory.stripped |= conclusion.stripped;
            let (sequel, settings) = (conclusion.sequel.clone(), &self.shared.rules.settings);
            let accepted = Accepted { patch: &Map::new(), latest: None };
            slot.memory.wrote(&event.object, accepted, sequel, settings, &self.plan);
            slot.throttle.succeed();
            if slot.place != Whereabouts::Inside && slots.leave(key) {
                effects.submit(Job::Forget(Arc::clone(key)));
            }
        }
    }

    fn spawn(self: &Arc<Self>, slots: &mut Slots, key: Arc<str>, begun: Begun, effects: &mut Effects) {
        let arrived = activate(slots, &key);
        let is_listed = begun.event.kind == EventType::Listed;
        if is_listed {
            slots.backlog.began();
        }
        let worker = Worker { dispatcher: Arc::clone(self), key, arrived, is_listed };
        effects.spawn(worker, Some(Box::new(begun)));
    }

    fn spawn_waiting(
        self: &Arc<Self>,
        slots: &mut Slots,
        key: Arc<str>,
        event: Event,
        effects: &mut Effects,
    ) {
        let arrived = activate(slots, &key);
        if let Some(active) = slots.get(&key).and_then(|slot| slot.active.as_mut()) {
            active.pending.push_back(event);
        }
        let worker = Worker { dispatcher: Arc::clone(self), key, arrived, is_listed: false };
        effects.spawn(worker, None);
    }

    /// Stops the daemons and timers of objects that are gone, and forgets what nobody works on any more.
    pub(crate) fn see_off(&self, vanished: Vec<Vanished>) {
        for Vanished { key, subject, forgotten } in vanished {
            self.shared.see_off(subject.into_iter().collect(), Reasons::RESOURCE_DELETED);
            if forgotten {
                self.shared.invoker.submit(Job::Forget(key));
            }
        }
    }

    /// All slots, for a short while.
    pub fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn activate(slots: &mut Slots, key: &Arc<str>) -> Arc<Notify> {
    let active = Active::default();
    let arrived = Arc::clone(&active.arrived);
    if let Some(slot) = slots.get(key) {
        slot.active = Some(Box::new(active));
    }
    arrived
}

/// Notes that the state has come, and tells whether it is the one that our last write has made.
fn is_consistent(slot: &mut Slot, object: &Object, now: kopf_core::time::Timestamp) -> bool {
    let Some(consistency) = &mut slot.consistency else { return true };
    consistency.seen(object.resource_version());
    let reached = consistency.is_reached(now);
    if reached {
        slot.consistency = None;
    }
    reached
}

/// Whether nothing is left to be done after the cycle.
fn is_trivial(conclusion: &Conclusion) -> bool {
    conclusion.patch.is_empty()
        && conclusion.pending.is_none()
        && conclusion.finalizer.is_none()
        && !conclusion.fns
        && conclusion.delay.is_none()
        && conclusion.error.is_none()
}

#[cfg(test)]
mod costs;
