//! The adjustment of the streams to the planned ones.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kopf_core::handler::projection::Projection;
use kopf_core::handler::registry::ResourceHandlers;

use super::{Orchestrator, StreamKey};
use crate::objects::dispatcher::Dispatcher;
use crate::supervision::run_restarting;
use crate::worker::Pool;

/// A planned stream: its key, and the handlers, secondary kinds and caches that need it.
pub(super) type Plan = (StreamKey, ResourceHandlers);

impl Orchestrator {
    /// Stops the streams that are not planned, or not as they are; then starts the missing ones. The cost is proportional to the
    /// number of streams: there may be many namespaces.
    pub(super) fn adjust_streams(&mut self, plans: Vec<Plan>) {
        let known = self.streams.iter().map(|(key, (_, dispatcher))| (key, &*dispatcher.resource_handlers));
        let stale = stale_keys(known, &plans);
        let mut predecessors = Predecessors::of(&plans);
        for key in stale {
            if let Some((task, dispatcher)) = self.streams.remove(&key) {
                task.abort();
                predecessors.add(key, dispatcher);
            }
        }
        for (key, plan) in plans {
            if !self.streams.contains_key(&key) {
                let predecessor = predecessors.take(&key);
                self.start_stream(key, plan, predecessor.as_ref());
            }
        }
        for dispatcher in predecessors.into_rest() {
            dispatcher.shutdown();
        }
    }

    /// Starts a stream, which continues with the objects of its predecessor.
    fn start_stream(
        &mut self,
        key: StreamKey,
        plan: ResourceHandlers,
        predecessor: Option<&Arc<Dispatcher>>,
    ) {
        let (resource, namespace) = (Arc::clone(&plan.resource), key.1.as_deref());
        let dispatcher = Dispatcher::new(Arc::clone(&self.shared.dispatch), &Pool, Arc::new(plan), namespace);
        if let Some(predecessor) = predecessor {
            predecessor.hand_over(&dispatcher);
        }
        let mut stream = self.stream(&resource, namespace);
        stream.pause = Some(Arc::clone(&self.shared.dispatch.pause));
        stream.on_missing = Some(self.rescan_hook(&resource));
        stream.projection =
            Projection::of(&dispatcher.resource_handlers, &self.shared.base.startup_config.registry);
        stream.derived.clone_from(&dispatcher.derived);
        self.select_on_server(&mut stream, &dispatcher.resource_handlers);
        let feed = self.feed(stream, &dispatcher, predecessor.is_some());
        let task = self.tasks.spawn(run_restarting(feed));
        self.streams.insert(key, (task, dispatcher));
    }
}

/// The keys of the known streams that are not planned as they are.
fn stale_keys<'s>(
    known: impl Iterator<Item = (&'s StreamKey, &'s ResourceHandlers)>,
    plans: &[Plan],
) -> Vec<StreamKey> {
    let planned: HashMap<&StreamKey, &ResourceHandlers> =
        plans.iter().map(|(key, plan)| (key, plan)).collect();
    let is_kept = |key: &StreamKey, known: &ResourceHandlers| {
        planned.get(key).is_some_and(|plan| *plan == known && plan.resource.is_served_like(&known.resource))
    };
    known.filter(|(key, known)| !is_kept(key, known)).map(|(key, _)| key.clone()).collect()
}

/// The stopped streams, which new ones may continue: the same ones with other handlers or subresources, or those of other versions of
/// the resource.
struct Predecessors<T> {
    planned: HashSet<StreamKey>,
    same: HashMap<StreamKey, T>,
    other_versions: HashMap<VersionlessKey, Vec<T>>,
}

/// The group, the plural name, and the namespace.
type VersionlessKey = (String, String, Option<String>);

fn versionless((resource, namespace): &StreamKey) -> VersionlessKey {
    (resource.group.clone(), resource.plural.clone(), namespace.clone())
}

impl<T> Predecessors<T> {
    /// No stopped streams yet, for these plans.
    fn of(plans: &[Plan]) -> Self {
        let planned = plans.iter().map(|(key, _)| key.clone()).collect();
        Self { planned, same: HashMap::new(), other_versions: HashMap::new() }
    }

    fn add(&mut self, key: StreamKey, stopped: T) {
        if self.planned.contains(&key) {
            self.same.insert(key, stopped);
        } else {
            self.other_versions.entry(versionless(&key)).or_default().push(stopped);
        }
    }

    fn take(&mut self, key: &StreamKey) -> Option<T> {
        self.same.remove(key).or_else(|| self.other_versions.get_mut(&versionless(key))?.pop())
    }

    fn into_rest(self) -> impl Iterator<Item = T> {
        self.same.into_values().chain(self.other_versions.into_values().flatten())
    }
}

#[cfg(test)]
mod tests {
    use kopf_core::handler::registry::Registry;
    use kopf_core::resource::Resource;

    use super::*;
    use crate::testing::resource;

    fn plan(version: &str, plural: &str, namespace: usize) -> Plan {
        let resource =
            Resource { version: version.to_owned(), ..(*resource("example.com", plural, true)).clone() };
        let registry = Arc::new(Registry { handlers: vec![] });
        let handlers = registry.handlers_of(&Arc::new(resource.clone()), &|_| true);
        ((resource, Some(format!("namespace-{namespace}"))), handlers)
    }

    /// Comparisons of each stream with each plan would take minutes.
    #[test]
    fn streams_of_thousands_of_namespaces_are_compared_with_their_plans_only() {
        let kinds: Vec<String> = (0..10).map(|number| format!("kinds-{number}")).collect();
        let all = |namespaces: std::ops::Range<usize>| -> Vec<Plan> {
            kinds.iter().flat_map(|kind| namespaces.clone().map(move |it| plan("v1", kind, it))).collect()
        };
        let (known, mut plans) = (all(0..4_000), all(1..4_001));
        plans[5].1.watching.push(0);
        let changed = plans[5].0.clone();
        let stale = stale_keys(known.iter().map(|(key, plan)| (key, plan)), &plans);
        assert_eq!(stale.len(), 11, "one namespace, and one stream with other handlers");
        let mut predecessors = Predecessors::of(&plans);
        for key in stale {
            predecessors.add(key.clone(), key);
        }
        let continued: Vec<_> = plans.iter().filter_map(|(key, _)| predecessors.take(key)).collect();
        assert_eq!(continued, [changed]);
        assert_eq!(predecessors.into_rest().count(), 10);
    }

    #[test]
    fn a_stream_continues_that_of_its_own_version_or_else_of_a_version_that_is_not_served_any_more() {
        let plans = [plan("v1", "things", 1), plan("v2", "things", 1)];
        let [(first, _), (second, _)] = &plans;
        let (older, elsewhere) = (plan("v0", "things", 1).0, plan("v0", "things", 2).0);
        let take_all = |stopped: &[&StreamKey]| {
            let mut predecessors = Predecessors::of(&plans);
            for key in stopped {
                predecessors.add((*key).clone(), (*key).clone());
            }
            [predecessors.take(first), predecessors.take(second)]
        };
        assert_eq!(take_all(&[second, first]), [Some(first.clone()), Some(second.clone())]);
        assert_eq!(take_all(&[second]), [None, Some(second.clone())]);
        assert_eq!(take_all(&[second, &older]), [Some(older.clone()), Some(second.clone())]);
        assert_eq!(take_all(&[&elsewhere]), [None, None]);
    }

    #[test]
    fn a_stream_with_other_subresources_is_stale() {
        let (key, known) = plan("v1", "things", 1);
        let mut changed = known.clone();
        Arc::make_mut(&mut changed.resource).subresources.insert("status".to_owned());
        let stale = |plan: &ResourceHandlers| {
            stale_keys([(&key, &known)].into_iter(), &[(key.clone(), plan.clone())])
        };
        assert_eq!(stale(&changed), std::slice::from_ref(&key));
        assert!(stale(&known).is_empty());
    }
}
