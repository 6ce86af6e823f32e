//! The context of an operator, shared by its tasks.

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
    /// The handlers and the settings at the start.
    pub rules: Arc<OperatorConfig>,
    /// The current handlers and settings.
    pub current: LiveConfig,
    /// The API client.
    pub api: Api,
    /// The host: Python, or a test's.
    pub host: Arc<dyn Host>,
    /// The clock.
    pub clock: Clock,
    /// Cancelled when the operator begins to stop: delays are cut short.
    pub stopping: CancellationToken,
    /// Cancelled at the end of the grace period: running work is cancelled.
    pub killing: CancellationToken,
    /// The tasks of all workers.
    pub workers: TaskTracker,
    /// Notified when a worker ends: backpressure is checked again.
    pub freed: Notify,
    /// Number of workers that only sleep: they do not count for backpressure.
    pub sleeping_workers: AtomicUsize,
    /// The daemons and timers.
    pub daemons: Arc<DaemonContext>,
    /// The source of cycle ids.
    pub cycles: Arc<AtomicU64>,
    /// Whether the operator is paused, and why.
    pub pause: Arc<Pause>,
    /// The health of the watches.
    pub health: Arc<Health>,
    /// This operator's identity among its peers.
    pub identity: String,
    /// Closed until the indices are filled; none for operators without indices.
    pub index_gate: Option<Arc<IndexGate>>,
    /// The dispatchers that may own detached cycles.
    pub detached: DetachedRegistry,
    /// The resources whose status the operator may not write.
    pub denials: Denials,
    /// Bytes of the objects that wait in the backlogs of all watches.
    pub parked: Arc<AtomicUsize>,
    /// The fatal error of the operator, if there is one.
    pub failing: Arc<Failing>,
}

/// Excludes a sleeping worker from [`OperatorContext::working`] until this is dropped.
pub struct SleepingGuard<'a>(&'a OperatorContext);

impl Drop for SleepingGuard<'_> {
    fn drop(&mut self) {
        self.0.sleeping_workers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OperatorContext {
    /// Marks the calling worker as sleeping.
    pub fn sleeping(&self) -> SleepingGuard<'_> {
        self.sleeping_workers.fetch_add(1, Ordering::Relaxed);
        self.freed.notify_waiters();
        SleepingGuard(self)
    }

    /// Number of objects that are worked on.
    pub fn working(&self) -> usize {
        self.workers.len().saturating_sub(self.sleeping_workers.load(Ordering::Relaxed))
    }

    /// An id for a new cycle.
    pub fn next_cycle(&self) -> CycleId {
        self.cycles.fetch_add(1, Ordering::Relaxed)
    }
}

/// A dispatcher that may own cycles without workers.
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

    /// Registers a dispatcher; dropped ones are removed.
    pub fn register(&self, dispatcher: Weak<dyn DetachedCycles>) {
        let mut known = self.lock();
        known.retain(|one| one.strong_count() > 0);
        known.push(dispatcher);
    }

    /// The grace period is over: cancels running work and detached cycles.
    pub fn give_up(&self) {
        let dispatchers: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        for dispatcher in dispatchers {
            dispatcher.cancel_all();
        }
    }
}
