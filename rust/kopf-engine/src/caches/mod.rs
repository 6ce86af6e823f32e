//! Readable caches: the objects of declared kinds, held by the engine. The rules are in `kopf_core::caches`.
//!
//! A [`CacheConsumer`] in each feed fills the caches of its kind. Readers lock one cache for the time of a look-up. The responses
//! to own writes are observed by [`Caches`] before the calls return. One task ([`Caches::run`]) ends waits for own writes, and
//! compresses objects that are not read.
//!
//! Lock order: the state of a cache, then the tickets of own writes. Notifications and tasks are sent after both are released.

mod cache;
mod changes;
mod children;
mod consumer;
mod functions;
mod memory;
mod metrics;
mod projection;
mod state;
mod tickets;
mod writes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kopf_core::log_level::Level;
use kopf_core::resource::Resource;
use kopf_core::time::Timestamp;
use tokio::sync::Notify;

use crate::context::index_gate::{IndexGate, IndexGateGuard};
use crate::host::{LogRecord, Logger};
use crate::reconciling::Reconcilers;
use crate::task_context::TaskContext;
use crate::watch_health::WatchHealth;

pub use cache::{Cache, NotReady};
pub use changes::CacheChanges;
pub use children::OperatorChildren;
pub use consumer::CacheConsumer;
use memory::Warnings;
use tickets::Tickets;

const LOGGER: Logger = Logger::Caches;

/// The delay between two checks for objects that are not read, in seconds of real time: a part of `rest`.
const SWEEPS: (f64, f64) = (0.5, 30.0);

/// The caches of an operator.
pub struct Caches {
    base: Arc<TaskContext>,
    by_index: BTreeMap<usize, Arc<Cache>>,
    index_gate: Option<Arc<IndexGate>>,
    tickets: Arc<Tickets>,
    /// Notified when own writes have ended.
    wake: Arc<Notify>,
}

/// A stream of a resource, with the caches that it fills.
pub struct CacheStream {
    /// The name of the stream.
    pub name: String,
    /// Its namespace; none for all of them.
    pub namespace: Option<String>,
    /// The resource.
    pub resource: Arc<Resource>,
    /// The indices of the caches among the handlers.
    pub caches: Vec<usize>,
}

impl Caches {
    /// The caches of the registry; none if it has none.
    pub fn of(
        base: &Arc<TaskContext>,
        health: &Arc<WatchHealth>,
        index_gate: Option<&Arc<IndexGate>>,
    ) -> Option<Arc<Self>> {
        let (tickets, wake) = (Arc::<Tickets>::default(), Arc::<Notify>::default());
        let handlers = base.startup_config.registry.handlers.iter().enumerate();
        let caches = handlers.filter_map(|(index, handler)| {
            let cache = Cache::new(index, handler, base, health, (&tickets, &wake))?;
            Some((index, Arc::new(cache)))
        });
        let caches: BTreeMap<_, _> = caches.collect();
        let index_gate = index_gate.cloned();
        (!caches.is_empty())
            .then(|| Arc::new(Self { base: Arc::clone(base), by_index: caches, index_gate, tickets, wake }))
    }

    /// The cache with this index among the handlers.
    pub fn get(&self, index: usize) -> Option<&Arc<Cache>> {
        self.by_index.get(&index)
    }

    /// Sets the streams of the caches. Before the served namespaces are known, no cache is ready.
    pub fn require(&self, streams: &[CacheStream], is_located: bool) {
        let resources: Vec<_> = streams.iter().map(|stream| Arc::clone(&stream.resource)).collect();
        let handlers = &self.base.startup_config.registry.handlers;
        for (index, cache) in &self.by_index {
            if let Some(owner) = cache.declared.owner {
                let selector = handlers.get(owner.reconciler).and_then(|handler| handler.selector.as_ref());
                cache.set_owner_kinds(selector.map(|own| own.select(&resources)).unwrap_or_default());
            }
            cache.require(streams.iter().filter(|stream| stream.caches.contains(index)), is_located);
        }
    }

    /// A guard that keeps the index gate closed until the stream is listed; none if no required cache needs it.
    fn guard(&self, caches: &[Arc<Cache>], stream: &str) -> Option<IndexGateGuard> {
        let index_gate =
            self.index_gate.as_ref().filter(|_| caches.iter().any(|cache| !cache.is_optional()))?;
        index_gate.block(stream)
    }

    /// Ends waits for own writes, and compresses objects that are not read, until the end of the operator.
    /// `reconcilers` wait for own writes.
    pub async fn run(self: Arc<Self>, reconcilers: Option<Arc<Reconcilers>>) {
        let rest = self.by_index.values().map(|cache| cache.rest()).fold(f64::INFINITY, f64::min);
        let sweep = Duration::from_secs_f64((rest / 2.0).clamp(SWEEPS.0, SWEEPS.1));
        let mut sweeps = tokio::time::interval(sweep);
        let mut warnings = Warnings::default();
        loop {
            if let Some(reconcilers) = reconcilers.as_ref().filter(|_| self.tickets.take_settled()) {
                reconcilers.on_visible_writes();
            }
            let next = self.by_index.values().filter_map(|cache| cache.next_expiry()).min();
            let clock = &self.base.clock;
            tokio::select! {
                () = self.wake.notified() => {}
                () = clock.sleep_until(next.unwrap_or(Timestamp::from_micros(0))), if next.is_some() => {
                    self.expire();
                }
                _ = sweeps.tick() => {
                    for cache in self.by_index.values() {
                        cache.compress_resting().await;
                    }
                    self.warn_about_memory(&mut warnings);
                }
            }
        }
    }

    fn expire(&self) {
        for cache in self.by_index.values() {
            for key in cache.expire() {
                let name = [key.namespace(), Some(key.name())].into_iter().flatten().collect::<Vec<_>>();
                let text = format!(
                    "The watch of the cache {:?} has not delivered an own write of {} in time: it is not shown any more.",
                    cache.id(),
                    name.join("/")
                );
                self.base.host.log(LogRecord::general(Level::Debug, LOGGER, text));
            }
        }
    }
}
