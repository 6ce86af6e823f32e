//! Dispatching: each event goes to its object's slot, one cycle at a time per object.
//!
//! The rules are in `kopf_core::slot` and `kopf_core::object_worker`. Most events need no work: no handler matches, or the essence
//! is unchanged. Those are processed here, without a task, without calls into Python, without allocations that stay. For other
//! events, a worker is spawned for the object, and it runs as long as there is work (`worker`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use kopf_core::cycle::OperatorConfig;
use kopf_core::handler::label_selector::DerivedSelector;
use kopf_core::handler::registry::ResourceHandlers;
use kopf_core::object_worker::{OperatorState, WorkerContext};
use kopf_core::slot::Unparked;
use tokio::sync::Notify;

use crate::client::Client;
use crate::context::index_gate::{IndexGate, IndexGateGuard};
use crate::context::{DetachedCycles, DispatchContext};
use crate::metrics::ResourceMetrics;
use crate::objects::backlog::WINDOW;
use crate::objects::selector_match::SelectorMatchTracker;
use crate::objects::slots::Slots;
use crate::objects::worker_limit::WorkerLimit;
use crate::watch::name_of;

mod counting;
mod cycles;
mod daemons;
mod deselected;
mod detached;
mod events;
mod handover;
mod other_operators;
mod pool;
mod stalls;
mod standby_indexing;

pub use counting::CycleSummary;
pub(crate) use cycles::CycleError;
pub use pool::{Work, WorkerPool, WorkerTask};

use events::{Effect, Effects};

/// Number of objects of the backlog that are started per lock of the slots.
const BATCH: usize = 64;

/// The dispatcher of the objects of one watch.
///
/// Lock order, where several are held at once: the slots of a predecessor; the slots of its successor; the state of an object's
/// daemons; the registry of all daemons, or the queue of their scheduler; the queue of the Python bindings. Handlers are
/// called, cycles are opened, workers are spawned, and lines are logged after the lock of the slots is released (see `Effect`).
pub struct Dispatcher {
    /// The context of the operator.
    pub shared: Arc<DispatchContext>,
    /// Starts the workers.
    pool: &'static dyn WorkerPool,
    /// The handlers of the resource.
    pub resource_handlers: Arc<ResourceHandlers>,
    /// The label selector derived from them, if enabled.
    pub derived: Option<DerivedSelector>,
    /// Whether a deletion event means that the object does not exist. With selectors in the settings, it may only have stopped
    /// matching them. Selectors that are derived are no reason: a lookup precedes such an event.
    trusts_deletions: bool,
    /// Bounds the workers of this watch, if the settings specify a limit.
    pub limit: Option<WorkerLimit>,
    /// The metrics of the resource.
    pub metrics: Arc<ResourceMetrics>,
    /// The client for patches of the objects, which counts them.
    pub client: Client,
    slots: Mutex<Slots>,
    /// Keeps the index gate closed until the watch takes the guard.
    gate_guard: Mutex<Option<IndexGateGuard>>,
    /// A task is about to start objects of the backlog.
    is_advancing: AtomicBool,
    /// Notified when an object is added to the backlog.
    backlogged: Notify,
    /// The initial indexing is in progress.
    pub(crate) is_filling: AtomicBool,
    /// The dispatcher that continues with the objects, in another version of their resource.
    successor: OnceLock<Arc<Self>>,
}

impl Dispatcher {
    /// A dispatcher without objects.
    pub fn new(
        shared: Arc<DispatchContext>,
        pool: &'static dyn WorkerPool,
        resource_handlers: Arc<ResourceHandlers>,
        namespace: Option<&str>,
    ) -> Arc<Self> {
        let name = name_of(&resource_handlers.resource, namespace);
        let limit = shared.base.startup_config.settings.queueing.worker_limit.map(WorkerLimit::new);
        let registry = &shared.base.startup_config.registry;
        // Without cycles, no consumer of the watch takes the guard.
        let is_awaited = resource_handlers.has_cycles() && registry.is_awaited(&resource_handlers);
        let index_gate = shared.index_gate.as_ref().filter(|_| is_awaited);
        let gate_guard = Mutex::new(index_gate.and_then(|index_gate| IndexGate::block(index_gate, name)));
        let OperatorConfig { registry, settings, .. } = &*shared.base.startup_config;
        let derived = settings
            .watching
            .derived_selectors
            .then(|| DerivedSelector::of(&resource_handlers, registry))
            .flatten();
        let trusts_deletions = settings.watching.selectors_of(&resource_handlers.resource).is_empty();
        let tracker = derived.clone().map(|derived| Box::new(SelectorMatchTracker::from(derived)));
        let slots = Mutex::new(Slots::with(tracker, Arc::clone(&shared.parked)));
        let metrics = shared.base.metrics.resources.of(&resource_handlers.resource);
        metrics.is_handled.store(true, Ordering::Relaxed);
        let client = shared.base.client.counting_patches(&metrics);
        let dispatcher = Arc::new(Self {
            metrics,
            client,
            shared,
            pool,
            resource_handlers,
            derived,
            trusts_deletions,
            limit,
            slots,
            gate_guard,
            is_advancing: AtomicBool::new(false),
            backlogged: Notify::new(),
            is_filling: AtomicBool::new(false),
            successor: OnceLock::new(),
        });
        dispatcher.shared.base.other_operators.serve(&dispatcher.resource_handlers.resource);
        let itself: Arc<dyn DetachedCycles> = Arc::<Self>::clone(&dispatcher);
        dispatcher.shared.detached.register(Arc::downgrade(&itself));
        dispatcher
    }

    /// The configuration of the objects' state machines. `current` are the current handlers and settings.
    pub(crate) fn worker_context<'a>(&'a self, current: &'a Arc<OperatorConfig>) -> WorkerContext<'a> {
        WorkerContext {
            resource_handlers: &self.resource_handlers,
            startup_config: &self.shared.base.startup_config,
            live_config: current,
        }
    }

    /// The state of the operator, as it matters for the objects of this watch.
    pub(crate) fn operator_state(&self, slots: &Slots) -> OperatorState {
        let pause = self.shared.pause.snapshot();
        let paused = pause.is_on || pause.count != slots.pauses();
        OperatorState { paused, stopping: self.shared.base.stopping.is_cancelled() }
    }

    /// Whether no handler may be called for an object of a listing that began after so many pauses, and nothing may be written:
    /// another operator may handle the objects, or may have handled them since then. Kopf 1.45 handles the events that have arrived
    /// before the pause.
    pub(crate) fn has_paused_since(&self, pauses: u64) -> bool {
        let pause = self.shared.pause.snapshot();
        !self.shared.base.startup_config.settings.compat && (pause.is_on || pause.count != pauses)
    }

    /// Starts the work on an object that has left the backlog.
    fn start_unparked(
        self: &Arc<Self>,
        slots: &mut Slots,
        key: &Arc<str>,
        unparked: Unparked,
        effects: &mut Effects,
    ) {
        slots.backlog.left(unparked.bytes);
        if let Some(line) = unparked.log {
            effects.push(Effect::Log(events::record_of(&line, None)));
        }
        for event in unparked.events {
            let Some(slot) = slots.get(key) else { return };
            let current = self.shared.base.live_config.get();
            let action = slot.resume(event, self.worker_context(&current));
            self.execute(slots, key, action, effects);
        }
    }

    /// Maximum number of listed objects that are worked on concurrently.
    fn window(&self) -> usize {
        let limit = self.shared.base.startup_config.settings.queueing.worker_limit;
        limit.unwrap_or(WINDOW).clamp(1, WINDOW)
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

    /// Starts a batch of the backlog; true if more objects may be started. Those without work end with the batch.
    fn schedule_batch(self: &Arc<Self>) -> bool {
        self.with_slots(|slots, effects| {
            for started in 0..BATCH {
                // During a pause, other operators may handle the objects; the listing after the pause delivers them again.
                let is_held = self.shared.base.stopping.is_cancelled() || self.shared.pause.is_on();
                if is_held {
                    return false;
                }
                if slots.backlog.is_full(self.window()) {
                    return started > 0;
                }
                let Some(key) = slots.backlog.pop() else { return false };
                let is_paused = self.has_paused_since(slots.pauses());
                if let Some(unparked) = slots.get(&key).and_then(|slot| slot.unpark(is_paused)) {
                    self.start_unparked(slots, &key, unparked, effects);
                }
            }
            true
        })
    }

    /// Whether the object is known to be deleted, so that nothing can be written to it.
    pub fn is_deleted(&self, key: &str) -> bool {
        let is_deleted =
            self.trusts_deletions && self.slots().get(key).is_some_and(|slot| slot.worker.is_deleted);
        is_deleted || self.successor.get().is_some_and(|successor| successor.is_deleted(key))
    }

    /// The guard that keeps the index gate closed until the objects of this watch are listed.
    pub fn take_gate_guard(&self) -> Option<IndexGateGuard> {
        self.gate_guard.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The lock of all slots; to be held briefly.
    pub fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod costs;
#[cfg(test)]
mod endings;
#[cfg(test)]
mod lost_terms;
#[cfg(test)]
mod pauses;
