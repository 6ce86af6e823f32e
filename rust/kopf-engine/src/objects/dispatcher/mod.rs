//! Dispatching: each event goes to its object's slot, one cycle at a time per object.
//!
//! Most events need no work: no handler matches, or the essence is unchanged. Those are processed here, without a task, without
//! calls into Python, without allocations that stay. For other events, a worker is spawned for the object, and it runs as long
//! as there is work (`worker.rs`).

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

/// Number of objects of the backlog that are started per lock of the slots.
const BATCH: usize = 64;

/// The dispatcher of the objects of one watch.
///
/// Lock order, where several are held at once: the slots of a predecessor; the slots of its successor; the state of an object's
/// daemons; the registry of all daemons, or the queue of their scheduler; the queue of the Python bindings. Handlers are
/// called, workers are spawned, and lines are logged after the lock of the slots is released (see `Effects`).
pub struct Dispatcher {
    /// The context of the operator.
    pub shared: Arc<OperatorContext>,
    /// Starts the workers.
    pool: &'static dyn WorkerPool,
    /// The handlers of the resource.
    pub plan: Arc<ResourceHandlers>,
    /// The label selector derived from them, if enabled.
    pub derived: Option<DerivedSelector>,
    /// Bounds the workers of this watch, if the settings specify a limit.
    pub limit: Option<Arc<Semaphore>>,
    slots: Mutex<Slots>,
    /// Keeps the index gate closed until the watch takes the guard.
    gate_guard: Mutex<Option<IndexGateGuard>>,
    /// Whether every event is handled, or only the newest state.
    every_event: bool,
    /// A task is about to start objects of the backlog.
    is_advancing: AtomicBool,
    /// The initial indexing is in progress.
    pub(crate) is_filling: AtomicBool,
    /// The dispatcher that continues with the objects, in another version of their resource.
    successor: OnceLock<Arc<Self>>,
}

impl Dispatcher {
    /// A dispatcher without objects.
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
        let tracker = derived.clone().map(|derived| Box::new(MembershipTracker::from(derived)));
        let slots = Mutex::new(Slots::with(tracker, Arc::clone(&shared.parked)));
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

    /// Takes a watch event of an object.
    pub fn dispatch(self: &Arc<Self>, kind: EventType, object: Object) {
        let key = key_of(&object);
        let event =
            QueuedEvent { kind, object: Arc::new(object), requeued: false, indexed: false, received: None };
        self.with_slots(|slots, effects| {
            slots.entry(&key, kind);
            self.enqueue(slots, key, event, effects);
        });
    }

    /// Dispatches the buffered events of an object after the initial indexing.
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

    /// Calls the function with the locked slots, and executes the effects after the lock is released.
    pub(crate) fn with_slots<T>(self: &Arc<Self>, act: impl FnOnce(&mut Slots, &mut Effects) -> T) -> T {
        let mut effects = Effects::default();
        let mut slots = self.slots();
        let done = act(&mut slots, &mut effects);
        drop(slots);
        effects.take_place(&self.shared);
        done
    }

    /// Queues the event if the object is busy; otherwise, starts to handle it or adds it to the backlog.
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

    /// Maximum number of listed objects that are worked on concurrently.
    fn window(&self) -> usize {
        let limit = self.shared.rules.settings.queueing.worker_limit;
        limit.unwrap_or(WINDOW).clamp(1, WINDOW)
    }

    /// Starts the work on an object of the backlog.
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

    /// The work on a listed object is done: starts the next ones of the backlog.
    pub async fn advance(self: &Arc<Self>) {
        self.slots().backlog.ended();
        self.schedule_backlog().await;
    }

    async fn schedule_backlog(self: &Arc<Self>) {
        while self.schedule_batch() {
            tokio::task::yield_now().await;
        }
    }

    /// Starts a batch of the backlog; true if more objects can be started.
    fn schedule_batch(self: &Arc<Self>) -> bool {
        self.with_slots(|slots, effects| {
            for _ in 0..BATCH {
                // During a pause, other operators may handle the objects; the listing after the pause delivers them again.
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

    /// Handles the object again without a watch event.
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
            // The next event will handle the object anyway.
            if active.pending.is_empty() {
                active.pending.push_back(event);
                active.arrived.notify_one();
            }
        });
    }

    /// Starts to handle an event of an idle object.
    fn start(self: &Arc<Self>, slots: &mut Slots, key: Arc<str>, event: QueuedEvent, effects: &mut Effects) {
        let Some(slot) = slots.get(&key) else { return };
        if slot.throttle.remaining(self.shared.clock.now()).is_some() {
            // The object is held after an error: the worker waits for the rest of the back-off.
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
            OpenCycle { next: Some(Effect::Done(decision)), index_pass: None, event, .. }
                if is_trivial(decision) =>
            {
                self.apply_trivial(slots, &key, event, decision, effects);
            }
            _ if self.needs_no_worker(&open_cycle) => self.submit_detached(slots, key, open_cycle, effects),
            _ => self.spawn(slots, key, open_cycle, effects),
        }
    }

    /// Applies the error back-off after a panic of a cycle. Returns the event if it is to be handled after the delay.
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
        // Without a delay, the cycle would panic again at once.
        delay.is_some().then_some(event)
    }

    /// Opens a cycle for the event. If that panics, the slot is unchanged.
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
        let index_pass = self.index_pass(slot, &event);
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
        // Daemons and timers may read the indices: they start after the object is indexed.
        if let Effect::Spawn(desired) = &next
            && index_pass.is_none()
            && let Reconciled::Done(answer) =
                self.reconcile_daemons(slot, event.received.as_ref().unwrap_or(&event.object), desired)
        {
            next = cycle.resume(answer, now);
        }
        let log_messages = self.log_records_of(&mut cycle, &event.object);
        OpenCycle { id, cycle, next: Some(next), event, index_pass, closed: false, log_messages }
    }

    /// The index commands for the event, which run before all others.
    pub fn index_pass(&self, slot: &mut Slot, event: &QueuedEvent) -> Option<IndexPass> {
        if self.plan.indexing.is_empty() || event.indexed {
            return None;
        }
        let indexing = slot.indexing.as_deref();
        // A requeued state is in the indices already, unless indexing has failed.
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

    /// The guard that keeps the index gate closed until the objects of this watch are listed.
    pub fn take_gate_guard(&self) -> Option<IndexGateGuard> {
        self.gate_guard.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The watch has ended, and a successor continues with the same objects. Busy objects are handed over when their work is
    /// done; until then, their events wait in the successor.
    pub fn hand_over(&self, successor: &Arc<Self>) {
        // This comes first: cycles that end from now on hand over by themselves.
        let _only = self.successor.set(Arc::clone(successor));
        drop(self.take_gate_guard());
        self.slots().hand_over(&mut successor.slots());
    }

    /// No cycle works on the object any more: it becomes idle, or is handed over, or its slot is removed.
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
            slot.membership != Membership::Selected && slots.leave(key)
        };
        drop(slots);
        if is_over {
            self.shared.host.submit(HostTask::Forget(Arc::clone(key)));
        }
    }

    /// Takes over an object of a predecessor.
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

    /// The watch has ended for good: all slots are removed.
    pub fn shutdown(&self) {
        drop(self.take_gate_guard());
        let vanished = self.slots().end();
        self.terminate_daemons(vanished);
    }

    /// Emits the log records of the cycle so far.
    pub fn emit_log(&self, cycle: &mut Cycle, object: &Arc<Object>) {
        for entry in self.log_records_of(cycle, object) {
            self.shared.host.log(entry);
        }
    }

    /// The log records of the cycle so far.
    fn log_records_of(&self, cycle: &mut Cycle, object: &Arc<Object>) -> Vec<LogRecord> {
        let log_messages =
            cycle.drain_log().into_iter().filter(|note| self.shared.host.enabled(note.level()));
        log_messages.map(|note| LogRecord::posted(note.level(), object, note.text(object))).collect()
    }

    /// Stores the results of a cycle that needs no further work in the slot.
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
            if slot.membership != Membership::Selected && slots.leave(key) {
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

    /// Stops the daemons and timers of removed objects. For those without a slot, the host drops its state.
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

    /// The lock of all slots; to be held briefly.
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

/// Records the observed state; true if it is the result of our last write.
fn is_consistent(slot: &mut Slot, object: &Object, now: kopf_core::time::Timestamp) -> bool {
    let Some(consistency) = &mut slot.consistency else { return true };
    consistency.seen(object.resource_version());
    let reached = consistency.is_reached(now);
    if reached {
        slot.consistency = None;
    }
    reached
}

/// Whether no work is left after the cycle.
fn is_trivial(decision: &Decision) -> bool {
    decision.patch.is_empty()
        && decision.pending.is_none()
        && decision.finalizer.is_none()
        && !decision.fns
        && decision.delay.is_none()
        && decision.error.is_none()
}

/// Takes the index outcomes out of the completion; false if indexing is incomplete.
pub fn record_indexing(
    dispatcher: &Dispatcher,
    slot: &mut Slot,
    index_pass: &IndexPass,
    reply: &mut Completion,
) -> bool {
    let indexing = slot.indexing.get_or_insert_default();
    if !matches!(reply.steps.first(), Some(CommandResult::Indexed(_))) {
        indexing.fail();
        return false;
    }
    if let CommandResult::Indexed(outcomes) = reply.steps.remove(0) {
        indexing.record_outcomes(index_pass, &outcomes, &dispatcher.shared.rules.registry);
    }
    true
}

#[cfg(test)]
mod costs;
