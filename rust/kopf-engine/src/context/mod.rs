//! The context of an operator: what all its tasks share.

pub mod index_gate;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kopf_core::cycle::OperatorConfig;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client::Api;
use crate::daemons::DaemonContext;
use crate::host::{CycleId, Host};
use crate::live_config::LiveConfig;
use crate::metrics::Health;
use crate::patching::Denials;
use crate::supervision::Failing;
use crate::time::clock::Clock;
use crate::time::pause::Pause;
use index_gate::IndexGate;

/// The context of an operator, shared by its tasks.
pub struct OperatorContext {
    /// The handlers and the settings, as at the start.
    pub rules: Arc<OperatorConfig>,
    /// The same as of now.
    pub current: LiveConfig,
    /// The way to the server.
    pub api: Api,
    /// The other side of the border.
    pub host: Arc<dyn Host>,
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
    pub sleeping_workers: AtomicUsize,
    /// Daemons and timers.
    pub daemons: Arc<DaemonContext>,
    /// The source of the cycles' numbers.
    pub cycles: Arc<AtomicU64>,
    /// Why the operator is paused, if it is.
    pub pause: Arc<Pause>,
    /// How the streams are.
    pub health: Arc<Health>,
    /// Who we are among the operators.
    pub identity: String,
    /// Closed until the indices are filled; none if there are none.
    pub index_gate: Option<Arc<IndexGate>>,
    /// Who may have cycles without workers.
    pub detached: DetachedRegistry,
    /// The resources whose status the operator may not write.
    pub denials: Denials,
    /// How many bytes of objects wait for their turn, of all streams.
    pub parked: Arc<AtomicUsize>,
    /// Why the operator cannot go on.
    pub failing: Arc<Failing>,
}

/// A sleeping worker, which does not count as working; until this is dropped.
pub struct SleepingGuard<'a>(&'a OperatorContext);

impl Drop for SleepingGuard<'_> {
    fn drop(&mut self) {
        self.0.sleeping_workers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OperatorContext {
    /// A worker begins to wait for the time.
    pub fn sleeping(&self) -> SleepingGuard<'_> {
        self.sleeping_workers.fetch_add(1, Ordering::Relaxed);
        self.freed.notify_waiters();
        SleepingGuard(self)
    }

    /// How many objects are worked on.
    pub fn working(&self) -> usize {
        self.workers.len().saturating_sub(self.sleeping_workers.load(Ordering::Relaxed))
    }

    /// A number for a new cycle.
    pub fn next_cycle(&self) -> CycleId {
        self.cycles.fetch_add(1, Ordering::Relaxed)
    }
}

/// A dispatcher that may have cycles without workers.
pub trait DetachedCycles: Send + Sync {
    /// Cancels all of them.
    fn cancel_all(&self);
}

/// The dispatchers that may own detached cycles, which are cancelled through this at shutdown.
#[derive(Default)]
pub struct DetachedRegistry(Mutex<Vec<Weak<dyn DetachedCycles>>>);

impl DetachedRegistry {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<Weak<dyn DetachedCycles>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A dispatcher is there; others may have gone.
    pub fn register(&self, dispatcher: Weak<dyn DetachedCycles>) {
        let mut known = self.lock();
        known.retain(|one| one.strong_count() > 0);
        known.push(dispatcher);
    }

    /// There is no more time: what still runs is cancelled, and nobody waits for it any longer.
    pub fn give_up(&self) {
        let dispatchers: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        for dispatcher in dispatchers {
            dispatcher.cancel_all();
        }
    }
}
