//! Dispatching: each event goes to its object's slot, one cycle at a time per object.
//!
//! Most events need nothing: no handler matches, or the essence is as it was. Those are decided right here, with no task, no
//! crossing into Python, no memory that stays. Only if there is something to do, a worker is spawned for the object, and it
//! lives as long as there is work (`worker.rs`).

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use kopf_core::activation::{CommandResult, Completion};
use kopf_core::cause::EventType;
use kopf_core::cycle::{Cycle, CycleEvent, CycleInput, Decision, Effect, OperatorConfig};
use kopf_core::daemon::StopReasons;
use kopf_core::handler::label_selector::DerivedSelector;
use kopf_core::handler::registry::ResourceHandlers;
use kopf_core::handling::error_backoff;
use kopf_core::indexing::{IndexPass, Indexing};
use kopf_core::json::value::Map;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::persistence::memory::Accepted;
use tokio::sync::{Notify, Semaphore};

use crate::context::index_gate::{IndexGate, IndexGateGuard};
use crate::context::{DetachedCycles, OperatorContext};
use crate::daemons::Reconciled;
use crate::host::{HostTask, LogRecord};
use crate::object_key::key_of;
use crate::objects::backlog::WINDOW;
use crate::objects::membership::{Membership, MembershipTracker};
use crate::objects::slots::{InFlight, OpenCycle, QueuedEvent, RemovedObject, Slot, Slots};
use crate::supervision::{Panicked, shielded};
use crate::watch::name_of;

mod daemons;
mod detached;
mod effects;
mod membership;
mod pool;

pub use pool::{Work, WorkerPool};

use effects::Effects;

/// How many of the backlog are looked at in one go.
const BATCH: usize = 64;

/// The objects of one stream.
///
/// The order of locks, where several are held at once: the slots of a predecessor; the slots of its successor; the state of an
/// object's daemons; the registry of all daemons, or the queue of their scheduler; the queue of the border. Handlers are
/// called, workers are spawned, and lines are logged when the slots are not locked any more (see `Effects`).
pub struct Dispatcher {
    /// What all streams share.
    pub shared: Arc<OperatorContext>,
    /// Starts the workers.
    pool: &'static dyn WorkerPool,
    /// The handlers of the resource.
    pub plan: Arc<ResourceHandlers>,
    /// The label selector that follows from them, if it is wanted.
    pub derived: Option<DerivedSelector>,
    /// Bounds the workers of this stream, if the settings say so.
    pub limit: Option<Arc<Semaphore>>,
    slots: Mutex<Slots>,
    /// Keeps the barrier closed until the stream takes care of that itself.
    gate_guard: Mutex<Option<IndexGateGuard>>,
    /// Whether each event counts, or only the newest state.
    every_event: bool,
    /// Somebody is about to look at the backlog.
    is_advancing: AtomicBool,
    /// The first states of the objects are being indexed.
    pub(crate) is_filling: AtomicBool,
    /// Who goes on with the objects, in another version of their kind.
    successor: OnceLock<Arc<Self>>,
}

impl Dispatcher {
    /// A dispatcher that knows no objects yet.
    pub fn new(
        shared: Arc<OperatorContext>,
        pool: &'static dyn WorkerPool,
        plan: Arc<ResourceHandlers>,
        namespace: Option<&str>,
    ) -> Arc<Self> {
        let name = name_of(&plan.resource, namespace);
        let limit =
            shared.rules.settings.queueing.worker_limit.map(|limit| Arc::new(Semaphore::new(limit.max(1))));
        let every_event = !plan.watching.is_empty() || !plan.indexing.is_empty();
        let index_gate = shared.index_gate.as_ref().filter(|_| !plan.indexing.is_empty());
        let gate_guard = Mutex::new(index_gate.and_then(|index_gate| IndexGate::block(index_gate, name)));
        let OperatorConfig { registry, settings, .. } = &*shared.rules;
        let derived =
            settings.watching.derived_selectors.then(|| DerivedSelector::of(&plan, registry)).flatten();
        let departures = derived.clone().map(|derived| Box::new(MembershipTracker::from(derived)));
        let slots = Mutex::new(Slots::with(departures, Arc::clone(&shared.parked)));
        let dispatcher = Arc::new(Self {
            shared,
            pool,
            plan,
            derived,
            limit,
            slots,
            gate_guard,
            every_event,
            is_advancing: AtomicBool::new(false),
            is_filling: AtomicBool::new(false),
            successor: OnceLock::new(),
        });
        let itself: Arc<dyn DetachedCycles> = Arc::<Self>::clone(&dispatcher);
        dispatcher.shared.detached.register(Arc::downgrade(&itself));
        dispatcher
    }

    /// Takes a new event of an object.
    pub fn dispatch(self: &Arc<Self>, kind: EventType, object: Object) {
        let key = key_of(&object);
        let event =
            QueuedEvent { kind, object: Arc::new(object), requeued: false, indexed: false, received: None };
        self.with_slots(|slots, effects| {
            slots.entry(&key, kind);
            self.enqueue(slots, key, event, effects);
        });
    }

    /// Lets the events of an object go that were held until the indices are filled.
    pub fn release(self: &Arc<Self>, key: &Arc<str>) {
        self.with_slots(|slots, effects| {
            let held = slots.get(key).and_then(|slot| slot.active.take());
            for event in held.into_iter().flat_map(|active| active.pending) {
                if slots.get(key).is_none() {
                    slots.entry(key, event.kind);
                }
                self.enqueue(slots, Arc::clone(key), event, effects);
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
    pub(crate) fn enqueue(
        self: &Arc<Self>,
        slots: &mut Slots,
        key: Arc<str>,
        event: QueuedEvent,
        effects: &mut Effects,
    ) {
        let is_full = slots.backlog.is_full(self.window());
        let must_wait = is_full && event.kind == EventType::Listed;
        let Some(slot) = slots.get(&key) else { return };
        let Some(active) = &mut slot.active else {
            if must_wait {
                slots.park(&key, event);
            } else {
                self.start(slots, key, event, effects);
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
                effects.log(LogRecord::local(Level::Warning, &event.object, text));
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
                slots.entry(key, event.kind);
            }
            match slots.get(key).and_then(|slot| slot.active.as_mut()) {
                Some(active) => active.pending.push_back(event),
                None => self.start(slots, Arc::clone(key), event, effects),
            }
        }
    }

    /// One of the backlog has had its turn, the next ones have theirs.
    pub async fn advance(self: &Arc<Self>) {
        self.slots().backlog.ended();
        self.schedule_backlog().await;
    }

    async fn schedule_backlog(self: &Arc<Self>) {
        while self.schedule_batch() {
            tokio::task::yield_now().await;
        }
    }

    /// True if there is more to look at.
    fn schedule_batch(self: &Arc<Self>) -> bool {
        self.with_slots(|slots, effects| {
            for _ in 0..BATCH {
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
        let event =
            QueuedEvent { kind: EventType::Modified, object, requeued: true, indexed: false, received: None };
        self.with_slots(|slots, effects| {
            let Some(slot) = slots.get(key).filter(|slot| !slot.gone) else { return };
            let Some(active) = &mut slot.active else {
                self.start(slots, Arc::clone(key), event, effects);
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
    fn start(self: &Arc<Self>, slots: &mut Slots, key: Arc<str>, event: QueuedEvent, effects: &mut Effects) {
        let Some(slot) = slots.get(&key) else { return };
        if slot.throttle.remaining(self.shared.clock.now()).is_some() {
            // Held after an error: the worker waits for the rest of the pause.
            self.spawn_waiting(slots, key, event, effects);
            return;
        }
        let mut open_cycle = match self.begin(slot, event) {
            Ok(open_cycle) => open_cycle,
            Err(panicked) => {
                let (event, panicked) = *panicked;
                if let Some(event) = self.hold_back(slot, event, &panicked, effects) {
                    self.spawn_waiting(slots, key, event, effects);
                }
                return;
            }
        };
        effects.log_all(std::mem::take(&mut open_cycle.log_messages));
        match &open_cycle {
            OpenCycle { next: Some(Effect::Done(decision)), round: None, event, .. }
                if is_trivial(decision) =>
            {
                self.apply_trivial(slots, &key, event, decision, effects);
            }
            _ if self.needs_no_worker(&open_cycle) => self.submit_detached(slots, key, open_cycle, effects),
            _ => self.spawn(slots, key, open_cycle, effects),
        }
    }

    /// Slows an object down after a panic of its cycle; gives the event back if it is to be handled then.
    pub(crate) fn hold_back(
        &self,
        slot: &mut Slot,
        event: QueuedEvent,
        panicked: &Panicked,
        effects: &mut Effects,
    ) -> Option<QueuedEvent> {
        let rules = self.shared.current.get();
        let delay = slot.throttle.fail(&rules.settings.queueing.error_delays, self.shared.clock.now());
        effects.log(LogRecord::local(
            Level::Error,
            &event.object,
            error_backoff::text(delay, &panicked.to_string()),
        ));
        if slot.object_daemons.as_ref().is_some_and(|object_daemons| object_daemons.is_damaged()) {
            self.shared.failing.raise(panicked.clone().into());
        }
        // Without a pause, it would only panic again, and at once.
        delay.is_some().then_some(event)
    }

    /// Opens a cycle for the event, in the state that the slot is in. If that panics, the slot is as it was before.
    pub fn begin(
        self: &Arc<Self>,
        slot: &mut Slot,
        event: QueuedEvent,
    ) -> Result<OpenCycle, Box<(QueuedEvent, Panicked)>> {
        let (memory, kept) = (slot.memory.clone(), event.clone());
        shielded("The cycle of the object", || self.open(slot, event)).map_err(|panicked| {
            slot.memory = memory;
            Box::new((kept, panicked))
        })
    }

    fn open(self: &Arc<Self>, slot: &mut Slot, event: QueuedEvent) -> OpenCycle {
        let mut event = event;
        if let Some(received) = event.received.take() {
            event.object = received;
        }
        self.refresh(slot, &event.object);
        let now = self.shared.clock.now();
        let round = self.index_pass(slot, &event);
        let consistent = is_consistent(slot, &event.object, now);
        let id = self.shared.next_cycle();
        let moment = CycleInput { now, entropy: id, consistent };
        let observation =
            CycleEvent { event: event.kind, object: Arc::clone(&event.object), requeued: event.requeued };
        if !self.plan.changing.is_empty() {
            slot.memory.observe(&event.object, &self.shared.rules.settings, &self.plan);
        }
        let (mut cycle, mut next) =
            Cycle::open(observation, &slot.memory, Arc::clone(&self.plan), self.shared.current.get(), moment);
        if !Arc::ptr_eq(cycle.object(), &event.object) {
            event.received = Some(std::mem::replace(&mut event.object, Arc::clone(cycle.object())));
        }
        // Daemons and timers may look into the indices: they start when the object is there.
        if let Effect::Spawn(wanted) = &next
            && round.is_none()
            && let Reconciled::Done(answer) =
                self.reconcile_daemons(slot, event.received.as_ref().unwrap_or(&event.object), wanted)
        {
            next = cycle.resume(answer, now);
        }
        let log_messages = self.log_records_of(&mut cycle, &event.object);
        OpenCycle { id, cycle, next: Some(next), event, round, closed: false, log_messages }
    }

    /// What the indices need for the event, before anything else.
    pub fn index_pass(&self, slot: &mut Slot, event: &QueuedEvent) -> Option<IndexPass> {
        if self.plan.indexing.is_empty() || event.indexed {
            return None;
        }
        let indexing = slot.indexing.as_deref();
        // What is only looked at again is in the indices, unless that has failed.
        if event.requeued && !indexing.is_some_and(Indexing::is_broken) {
            return None;
        }
        let rules = self.shared.current.get();
        let now = self.shared.clock.now();
        let fresh = Indexing::default();
        indexing.unwrap_or(&fresh).pass(
            event.kind,
            &event.object,
            &self.plan,
            (&rules.registry, &rules.settings),
            now,
        )
    }

    /// What keeps the barrier closed until the objects of this stream are listed.
    pub fn take_gate_guard(&self) -> Option<IndexGateGuard> {
        self.gate_guard.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The stream is over, but another one goes on with the same objects. Those that are worked on now follow when that is
    /// done: until then, what the other stream delivers of them waits there.
    pub fn hand_over(&self, successor: &Arc<Self>) {
        // First of all: cycles that end from now on hand over by themselves.
        let _only = self.successor.set(Arc::clone(successor));
        drop(self.take_gate_guard());
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
            slot.place != Membership::Selected && slots.leave(key)
        };
        drop(slots);
        if is_over {
            self.shared.host.submit(HostTask::Forget(Arc::clone(key)));
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
                    slots.entry(key, event.kind);
                }
                self.enqueue(slots, Arc::clone(key), event, effects);
            }
            vanished
        });
        self.terminate_daemons(vanished.into_iter().collect());
    }

    /// The stream is over for good: nothing is remembered of its objects.
    pub fn shutdown(&self) {
        drop(self.take_gate_guard());
        let vanished = self.slots().end();
        self.terminate_daemons(vanished);
    }

    /// Logs what the cycle has to say so far.
    pub fn emit_log(&self, cycle: &mut Cycle, object: &Arc<Object>) {
        for entry in self.log_records_of(cycle, object) {
            self.shared.host.log(entry);
        }
    }

    /// What the cycle has to say so far.
    fn log_records_of(&self, cycle: &mut Cycle, object: &Arc<Object>) -> Vec<LogRecord> {
        let log_messages =
            cycle.drain_log().into_iter().filter(|note| self.shared.host.enabled(note.level()));
        log_messages.map(|note| LogRecord::posted(note.level(), object, note.text(object))).collect()
    }

    /// Keeps what a cycle that needs no more work has taught about the object.
    fn apply_trivial(
        &self,
        slots: &mut Slots,
        key: &Arc<str>,
        event: &QueuedEvent,
        decision: &Decision,
        effects: &mut Effects,
    ) {
        let is_gone = event.kind == EventType::Deleted || slots.get(key).is_some_and(|slot| slot.gone);
        if is_gone {
            slots.remove(key);
            effects.submit(HostTask::Forget(Arc::clone(key)));
        } else if let Some(slot) = slots.get(key) {
            slot.memory.fully_handled_once |= decision.fully_handled_once;
            slot.memory.remaining_fns = false;
            slot.memory.deletion_handled = decision.deletion_handled;
            slot.memory.annotations_removed |= decision.annotations_removed;
            let (handling_status, settings) = (decision.handling_status.clone(), &self.shared.rules.settings);
            let accepted = Accepted { patch: &Map::new(), latest: None };
            slot.memory.record_write(&event.object, accepted, handling_status, settings, &self.plan);
            slot.throttle.succeed();
            if slot.place != Membership::Selected && slots.leave(key) {
                effects.submit(HostTask::Forget(Arc::clone(key)));
            }
        }
    }

    fn spawn(
        self: &Arc<Self>,
        slots: &mut Slots,
        key: Arc<str>,
        open_cycle: OpenCycle,
        effects: &mut Effects,
    ) {
        let arrived = activate(slots, &key);
        let is_listed = open_cycle.event.kind == EventType::Listed;
        if is_listed {
            slots.backlog.began();
        }
        let open_cycle = Some(Box::new(open_cycle));
        effects.spawn(Work { dispatcher: Arc::clone(self), key, arrived, is_listed, open_cycle });
    }

    fn spawn_waiting(
        self: &Arc<Self>,
        slots: &mut Slots,
        key: Arc<str>,
        event: QueuedEvent,
        effects: &mut Effects,
    ) {
        let arrived = activate(slots, &key);
        if let Some(active) = slots.get(&key).and_then(|slot| slot.active.as_mut()) {
            active.pending.push_back(event);
        }
        effects.spawn(Work {
            dispatcher: Arc::clone(self),
            key,
            arrived,
            is_listed: false,
            open_cycle: None,
        });
    }

    /// Stops the daemons and timers of objects that are gone, and forgets what nobody works on any more.
    pub(crate) fn terminate_daemons(&self, vanished: Vec<RemovedObject>) {
        for RemovedObject { key, object_daemons, forgotten } in vanished {
            self.shared
                .daemons
                .terminate_daemons(object_daemons.into_iter().collect(), StopReasons::RESOURCE_DELETED);
            if forgotten {
                self.shared.host.submit(HostTask::Forget(key));
            }
        }
    }

    /// All slots, for a short while.
    pub fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn activate(slots: &mut Slots, key: &Arc<str>) -> Arc<Notify> {
    let active = InFlight::default();
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
fn is_trivial(decision: &Decision) -> bool {
    decision.patch.is_empty()
        && decision.pending.is_none()
        && decision.finalizer.is_none()
        && !decision.fns
        && decision.delay.is_none()
        && decision.error.is_none()
}

/// Takes the outcomes of a round out of the reply of its script; false if it came to no end.
pub fn learn(dispatcher: &Dispatcher, slot: &mut Slot, round: &IndexPass, reply: &mut Completion) -> bool {
    let indexing = slot.indexing.get_or_insert_default();
    if !matches!(reply.steps.first(), Some(CommandResult::Indexed(_))) {
        indexing.fail();
        return false;
    }
    if let CommandResult::Indexed(outcomes) = reply.steps.remove(0) {
        indexing.record_outcomes(round, &outcomes, &dispatcher.shared.rules.registry);
    }
    true
}

#[cfg(test)]
mod costs;
