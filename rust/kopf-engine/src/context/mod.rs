//! The context of the dispatchers and their workers.

pub mod index_gate;
mod running_activations;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use futures::future::{BoxFuture, join_all};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::daemons::DaemonContext;
use crate::metrics::DispatcherSample;
use crate::operator_pause::Pause;
use crate::patching::Denials;
use crate::task_context::TaskContext;
use index_gate::IndexGate;
use running_activations::RunningActivations;

pub use running_activations::RunningActivation;

/// The context of the dispatchers and their workers.
pub struct DispatchContext {
    /// The part that all tasks share.
    pub base: Arc<TaskContext>,
    /// Cancelled at the end of the grace period: running work is cancelled.
    pub force_stopping: CancellationToken,
    /// The tasks of all workers.
    pub workers: TaskTracker,
    /// Notified when a worker ends: backpressure is checked again.
    pub freed: Notify,
    /// Number of workers that only sleep, or wait for a permit of their watch: they do not count for the backpressure of all watches.
    sleeping_workers: AtomicUsize,
    /// The activations in progress. Those that have run for long do not count for backpressure either.
    pub activations: RunningActivations,
    /// The daemons and timers.
    pub daemons: Arc<DaemonContext>,
    /// Whether the operator is paused, and why.
    pub pause: Arc<Pause>,
    /// Closed until the indices are filled; none for operators without indices.
    pub index_gate: Option<Arc<IndexGate>>,
    /// The dispatchers that may own detached cycles.
    pub detached: DetachedRegistry,
    /// The resources whose status the operator may not write.
    pub denials: Denials,
    /// Bytes of the objects that wait in the backlogs of all watches.
    pub parked: Arc<AtomicUsize>,
    /// What holds the deletion of objects apart from their handlers and daemons: reconcilers.
    pub deletion_holds: OnceLock<Arc<dyn DeletionHolds>>,
}

/// Whether objects need the operator's finalizer for other reasons than their handlers and daemons.
pub trait DeletionHolds: Send + Sync {
    /// Whether the object with this key needs the finalizer.
    fn holds(&self, key: &str) -> bool;

    /// Waits until no call runs that began before the deletion of the object. Cancel safe.
    fn await_ordinary_calls<'a>(&'a self, key: &'a str) -> BoxFuture<'a, ()>;
}

/// Excludes a sleeping worker from [`DispatchContext::working`] until this is dropped.
pub struct SleepingGuard<'a>(&'a DispatchContext);

impl Drop for SleepingGuard<'_> {
    fn drop(&mut self) {
        self.0.sleeping_workers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DispatchContext {
    /// A context without work. Handlers wait for the index gate, if there is one.
    pub fn new(
        base: Arc<TaskContext>,
        daemons: Arc<DaemonContext>,
        index_gate: Option<Arc<IndexGate>>,
    ) -> Self {
        let force_stopping = base.term.giving_up();
        Self {
            base,
            force_stopping,
            workers: TaskTracker::new(),
            freed: Notify::new(),
            sleeping_workers: AtomicUsize::new(0),
            activations: RunningActivations::default(),
            daemons,
            pause: Arc::default(),
            index_gate,
            detached: DetachedRegistry::default(),
            denials: Denials::default(),
            parked: Arc::default(),
            deletion_holds: OnceLock::new(),
        }
    }

    /// Marks the calling worker as sleeping, or as waiting for a permit.
    pub fn sleeping(&self) -> SleepingGuard<'_> {
        self.sleeping_workers.fetch_add(1, Ordering::Relaxed);
        self.freed.notify_waiters();
        SleepingGuard(self)
    }

    /// Number of objects that are worked on. Those whose handlers have run for long are not: they may wait for events that are not read
    /// yet. Their number is bounded by that of the objects.
    pub fn working(&self) -> usize {
        let waiting = self.sleeping_workers.load(Ordering::Relaxed);
        let awaited = self.activations.long(self.base.clock.now());
        self.workers.len().saturating_sub(waiting + awaited)
    }
}

/// A dispatcher that may own cycles without workers.
pub trait DetachedCycles: Send + Sync {
    /// Cancels all of them.
    fn cancel_all(&self);

    /// Cancels all of them at the end of a term, and drops them when their calls have ended.
    fn end_term(self: Arc<Self>) -> BoxFuture<'static, ()>;

    /// Adds the workers that are inside of the engine now.
    fn add_inside(&self, workers: &mut Vec<InsideWorker>);

    /// Its objects now, for metrics.
    fn sample(&self) -> DispatcherSample;
}

/// A worker that is inside of the engine: not in the host, in a request, or in a delay.
#[derive(Debug)]
pub struct InsideWorker {
    /// Identifies the worker while it runs.
    pub id: usize,
    /// Its number of steps so far.
    pub steps: u32,
    /// The resource and the key of its object.
    pub object: String,
}

/// The dispatchers that may own detached cycles, which are cancelled through this at shutdown.
#[derive(Default)]
pub struct DetachedRegistry(Mutex<Vec<Weak<dyn DetachedCycles>>>);

impl DetachedRegistry {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<Weak<dyn DetachedCycles>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a dispatcher; dropped ones are removed.
    pub fn register(&self, dispatcher: Weak<dyn DetachedCycles>) {
        let mut known = self.lock();
        known.retain(|one| one.strong_count() > 0);
        known.push(dispatcher);
    }

    /// The workers that are inside of the engine now.
    pub fn inside(&self) -> Vec<InsideWorker> {
        let dispatchers: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        let mut workers = vec![];
        for dispatcher in dispatchers {
            dispatcher.add_inside(&mut workers);
        }
        workers
    }

    /// The objects of all dispatchers now.
    pub fn samples(&self) -> Vec<DispatcherSample> {
        let dispatchers: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        dispatchers.iter().map(|dispatcher| dispatcher.sample()).collect()
    }

    /// The term has ended: cancels all detached cycles, and waits until their calls have ended.
    pub async fn end_term(&self) {
        let dispatchers: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        join_all(dispatchers.into_iter().map(DetachedCycles::end_term)).await;
    }

    /// The grace period is over: cancels running work and detached cycles.
    pub fn give_up(&self) {
        let dispatchers: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        for dispatcher in dispatchers {
            dispatcher.cancel_all();
        }
    }
}
