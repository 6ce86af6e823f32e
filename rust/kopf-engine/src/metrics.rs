//! The metrics of one operator: what its parts count while they work.
//!
//! Each part resolves its counters once, and then only adds to atomics. `metrics/text.rs` writes them when they are scraped. No label has a
//! value from an object of a user.

pub(crate) mod handler;
pub(crate) mod instruments;
pub(crate) mod resource;
mod review;
mod text;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use kopf_core::handler::Handler;
use kopf_core::resource::Resource;
use tokio::time::Instant;

pub use handler::{HandlerTable, outcome_name};
pub use instruments::{Counter, Histogram};
pub use resource::{
    AcceptedPatches, ConnectionEnd, EndedCycle, PatchMetrics, PatchPart, ResourceMetrics, WatchMetrics,
};
pub use review::{OpenedReview, ReviewMetrics};
pub use text::{DispatcherSample, RunCounts, Samples, add_metrics, add_reviews};

/// The value of labels of what exceeds the limit of their values.
pub(crate) const OTHER: &str = "_other";
/// Maximum number of resources; further ones share their metrics.
const MOST_RESOURCES: usize = 200;
/// How long the series of a resource exist after it is not served any more.
const KEPT: Duration = Duration::from_mins(10);

/// The metrics of one operator.
#[derive(Debug)]
pub struct OperatorMetrics {
    /// Those of resources.
    pub resources: Arc<ResourceTable>,
    /// Those of handlers.
    pub handlers: HandlerTable,
    /// Those of Kubernetes events.
    pub events: EventMetrics,
}

/// The metrics of posted Kubernetes events.
#[derive(Debug, Default)]
pub struct EventMetrics {
    /// Events that the server has accepted.
    pub posted: Counter,
    /// Events that could not be posted.
    pub failed: Counter,
    /// Events that were dropped, because too many were waiting.
    pub dropped: Counter,
    /// The number of events that wait, once the recorder runs.
    pub waiting: OnceLock<Arc<AtomicUsize>>,
}

impl OperatorMetrics {
    /// The metrics of an operator with these handlers, before it does anything.
    pub fn of(handlers: &[Handler]) -> Self {
        Self {
            resources: Arc::default(),
            handlers: HandlerTable::of(handlers),
            events: EventMetrics::default(),
        }
    }
}

/// The metrics of all resources, by their names.
#[derive(Debug, Default)]
pub struct ResourceTable<M = ResourceMetrics>(Mutex<BTreeMap<String, Known<M>>>);

#[derive(Debug, Default)]
struct Known<M> {
    metrics: Arc<M>,
    unused_since: Option<Instant>,
}

impl<M: Default> ResourceTable<M> {
    /// The metrics of a resource, which exist as long as they are held, and some minutes longer.
    pub fn of(&self, resource: &Resource) -> Arc<M> {
        self.named(&name_of(resource))
    }

    /// The same by the name.
    pub fn named(&self, name: &str) -> Arc<M> {
        let mut known = self.known();
        let is_known = known.contains_key(name);
        let name = if is_known || known.len() < MOST_RESOURCES { name } else { OTHER };
        let found = known.entry(name.to_owned()).or_default();
        found.unused_since = None;
        Arc::clone(&found.metrics)
    }

    /// All of them; those of resources that are not served for a while are removed.
    fn all(&self) -> Vec<(String, Arc<M>)> {
        let now = Instant::now();
        let mut known = self.known();
        known.retain(|_, one| {
            if Arc::strong_count(&one.metrics) > 1 {
                one.unused_since = None;
                return true;
            }
            now.duration_since(*one.unused_since.get_or_insert(now)) < KEPT
        });
        known.iter().map(|(name, one)| (name.clone(), Arc::clone(&one.metrics))).collect()
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known<M>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of a resource in metrics.
pub fn name_of(resource: &Resource) -> String {
    let Resource { plural, group, .. } = resource;
    if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(table: &ResourceTable) -> Vec<String> {
        table.all().into_iter().map(|(name, _)| name).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_series_of_a_resource_disappear_ten_minutes_after_it_is_not_served_any_more() {
        // MET-9.
        let table: ResourceTable = ResourceTable::default();
        let (pods, sites) = (table.named("pods"), table.named("sites.example.com"));
        pods.watch.on_bookmark();
        assert_eq!(names(&table), ["pods", "sites.example.com"]);
        drop(sites);
        for _ in 0..2 {
            assert_eq!(names(&table).len(), 2);
            tokio::time::advance(Duration::from_mins(5)).await;
        }
        assert_eq!(names(&table), ["pods"]);
        drop(pods);
        assert_eq!(names(&table), ["pods"]);
        tokio::time::advance(Duration::from_mins(9)).await;
        let again = table.named("pods");
        tokio::time::advance(Duration::from_mins(9)).await;
        assert_eq!(names(&table), ["pods"]);
        again.watch.on_bookmark();
        assert_eq!(again.watch.records[4].get(), 2, "it continues");
    }

    #[test]
    fn the_number_of_resources_is_limited() {
        let table: ResourceTable = ResourceTable::default();
        let held: Vec<_> = (0..300).map(|number| table.named(&format!("r{number}"))).collect();
        assert_eq!(names(&table).len(), MOST_RESOURCES + 1);
        assert!(Arc::ptr_eq(&held[299], &table.named(OTHER)));
    }
}
