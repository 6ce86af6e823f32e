//! The present states of children for `kopf.apply` (6.3): from caches, and from the watches of owned kinds.

use std::sync::Arc;

use kopf_core::caches::CacheKey;
use kopf_core::object::Object;
use kopf_core::resource::Resource;

use super::Caches;
use crate::apply::{CachedChild, ChildCache};
use crate::operator_pause::Pause;
use crate::reconciling::Reconcilers;

/// The caches and the reconcilers of an operator, if there are any.
pub struct OperatorChildren {
    /// The caches.
    pub caches: Option<Arc<Caches>>,
    /// The reconcilers.
    pub reconcilers: Option<Arc<Reconcilers>>,
    /// The pause.
    pub pause: Option<Arc<Pause>>,
}

impl ChildCache for OperatorChildren {
    fn cached(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
        manager: &str,
    ) -> Option<CachedChild> {
        self.caches.as_ref()?.cached(resource, namespace, name, manager)
    }

    fn pauses(&self) -> Option<u64> {
        let pause = self.pause.as_ref()?;
        // The number first: if a pause begins meanwhile, there is none.
        let count = pause.count();
        (!pause.is_on()).then_some(count)
    }

    fn knows_versions(&self, resource: &Resource) -> bool {
        self.reconcilers.as_ref().is_some_and(|reconcilers| reconcilers.knows_versions(resource))
    }

    fn is_newest(&self, child: &Object) -> bool {
        self.reconcilers.as_ref().is_some_and(|reconcilers| reconcilers.is_newest_child(child))
    }
}

impl Caches {
    fn cached(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
        manager: &str,
    ) -> Option<CachedChild> {
        let key = CacheKey::new(namespace, name);
        let mut is_absent = false;
        for cache in self.by_index.values() {
            let state = cache.state();
            let is_same = state.resource.as_deref().is_some_and(|own| {
                (&own.group, &own.version, &own.plural)
                    == (&resource.group, &resource.version, &resource.plural)
            });
            if !is_same || !state.covers(namespace) {
                continue;
            }
            if let Some(stored) = state.store.stored(&key) {
                let owned = stored.owned.iter().find(|(of, _)| of == manager).map(|(_, digest)| *digest);
                let owned = owned.filter(|_| !cache.kept.metadata_only);
                return Some(CachedChild::Present { object: stored.object.clone(), owned });
            }
            is_absent |= cache.is_complete();
        }
        is_absent.then_some(CachedChild::Absent)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::caches::{CacheConsumer, CacheStream};
    use crate::testing::{Fixture, resource};
    use crate::watch::WatchConsumer as _;

    #[tokio::test]
    async fn children_in_a_new_namespace_are_unknown_until_it_is_listed() {
        let caching = json!({"id": "maps", "kind": "caching", "selector": {"any_name": "configmaps"}});
        let fixture = Fixture::with_handlers(vec![caching], &json!({}), |_| (200, None));
        let caches = Caches::of(&fixture.shared.base, &fixture.health, None).unwrap();
        let config_maps = resource("", "configmaps", true);
        let require = |namespaces: &[&str]| {
            let streams = namespaces.iter().map(|namespace| CacheStream {
                name: format!("in {namespace}"),
                namespace: Some((*namespace).to_owned()),
                resource: Arc::clone(&config_maps),
                caches: vec![0],
            });
            caches.require(&streams.collect::<Vec<_>>(), true);
        };
        let list = |namespace: &str| {
            let stream = (format!("in {namespace}"), Some(namespace));
            let mut consumer = CacheConsumer::new(&caches, stream, &config_maps, &[0]);
            consumer.on_init();
            consumer.on_init_done();
            consumer
        };
        let is_absent = |namespace: &str| {
            matches!(caches.cached(&config_maps, Some(namespace), "one", "me"), Some(CachedChild::Absent))
        };
        require(&["a"]);
        let _first = list("a");
        require(&["a", "b"]);
        assert!(is_absent("a") && !is_absent("b"));
        let _second = list("b");
        assert!(is_absent("b"));
    }
}
