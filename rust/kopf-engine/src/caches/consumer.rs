//! The consumer of a feed: it fills the caches of its kind.

use std::collections::HashSet;
use std::sync::Arc;

use kopf_core::caches::{CacheKey, ListId, StoredObject};
use kopf_core::cause::EventType;
use kopf_core::handler::caching::CacheOwner;
use kopf_core::object::Object;
use kopf_core::relations::{OwnerKind, is_owned, owners};
use kopf_core::resource::Resource;

use super::projection::Kept;
use super::{Cache, Caches};
use crate::feed::Consumer;
use crate::watch::WatchConsumer;

/// The consumer of one feed. When it is dropped, its objects are forgotten: the resource or the namespace is gone.
pub struct CacheConsumer {
    caches: Arc<Caches>,
    /// The caches, each with the number of this feed in it, and with the number of the current list.
    filled: Vec<(Arc<Cache>, u64, ListId)>,
    /// The name of the stream.
    name: String,
    namespace: Option<String>,
    resource: Arc<Resource>,
    /// The objects of the current list; none if there is no list.
    listed: Option<HashSet<CacheKey>>,
}

impl CacheConsumer {
    /// The consumer of the stream of this name and namespace, for these caches.
    pub fn new(
        caches: &Arc<Caches>,
        (name, namespace): (String, Option<&str>),
        resource: &Arc<Resource>,
        indices: &[usize],
    ) -> Self {
        let found: Vec<_> = indices.iter().filter_map(|index| caches.get(*index).cloned()).collect();
        let filled = found.into_iter().map(|cache| {
            let guard = caches.guard(std::slice::from_ref(&cache), &name);
            let number = cache.with_state(|state, _| {
                state.last_number += 1;
                state.feeds.insert(namespace.map(str::to_owned), state.last_number);
                let number = state.last_number;
                state.guards.extend(guard.map(|guard| (number, guard)));
                state.last_number
            });
            (cache, number, ListId(0))
        });
        Self {
            filled: filled.collect(),
            caches: Arc::clone(caches),
            name,
            namespace: namespace.map(str::to_owned),
            resource: Arc::clone(resource),
            listed: None,
        }
    }
}

impl Cache {
    /// Sets the kinds of the owners of objects.
    pub(super) fn set_owner_kinds(&self, kinds: Vec<Arc<Resource>>) {
        self.state().owner_kinds = kinds;
    }

    /// Whether the cache selects the object.
    pub(super) fn selects(&self, object: &Object) -> bool {
        self.selected.matches(object) && self.has_owner(object)
    }

    /// Whether the object has an owner, if it needs one.
    fn has_owner(&self, object: &Object) -> bool {
        let Some(CacheOwner { controller, .. }) = self.declared.owner else { return true };
        let state = self.state();
        let is_owner = |resource: &Arc<Resource>| {
            let kind = resource.kind.as_deref().unwrap_or_default();
            let of = OwnerKind { group: &resource.group, kind, is_controller: controller };
            !owners(object, of).is_empty()
        };
        if state.owner_kinds.is_empty() { is_owned(object) } else { state.owner_kinds.iter().any(is_owner) }
    }
}

impl WatchConsumer for CacheConsumer {
    fn event(&mut self, kind: EventType, object: &Arc<Object>) {
        if kind == EventType::Listed
            && let Some(listed) = &mut self.listed
        {
            listed.insert(CacheKey::of(object));
        }
        let mut stored: Option<(Kept, StoredObject)> = None;
        for (cache, _, list) in &self.filled {
            if !cache.declared.namespaces.contains(object.namespace()) {
                continue;
            }
            if kind == EventType::Deleted {
                cache.remove(object);
                continue;
            }
            // Caches usually keep the same parts of objects.
            let state = match &stored {
                _ if !cache.selects(object) => StoredObject::unselected(object),
                Some((kept, state)) if *kept == cache.kept => state.clone(),
                _ => {
                    let state = cache.kept.store(object, &self.resource);
                    stored = Some((cache.kept.clone(), state.clone()));
                    state
                }
            };
            let list = Some(*list).filter(|_| kind == EventType::Listed);
            cache.put(state, list, &self.resource);
        }
    }

    fn rejected(&mut self, identity: &Arc<Object>, deleted: bool) {
        if deleted {
            self.event(EventType::Deleted, identity);
        } else if let Some(listed) = &mut self.listed {
            listed.insert(CacheKey::of(identity));
        }
    }

    fn on_init(&mut self) {
        self.listed = Some(HashSet::new());
        for (cache, _, list) in &mut self.filled {
            *list = cache.with_state(|state, _| state.store.start_list());
        }
    }

    fn on_init_done(&mut self) {
        let listed = self.listed.take().unwrap_or_default();
        for (cache, _, list) in &self.filled {
            cache.with_state(|state, now| {
                state.retain_inspected(self.namespace.as_deref(), &listed);
                state.store.finish_list(self.namespace.as_deref(), *list, &listed, now);
                Cache::set_listed(state, &self.name);
            });
        }
    }
}

impl Consumer for CacheConsumer {}

impl Drop for CacheConsumer {
    fn drop(&mut self) {
        // During the shutdown, handlers still read.
        if self.caches.base.stopping.is_cancelled() {
            return;
        }
        for (cache, number, _) in &self.filled {
            cache.with_state(|state, now| {
                // The kind or the namespace does not exist any more: handlers do not wait for it.
                state.guards.retain(|(of, _)| of != number);
                // Another feed may have taken over: of another version of the resource.
                if state.feeds.get(&self.namespace) == Some(number) {
                    state.feeds.remove(&self.namespace);
                    state.retain_inspected(self.namespace.as_deref(), &HashSet::new());
                    state.store.forget(self.namespace.as_deref(), now);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::caches::CacheStream;
    use crate::testing::{Fixture, resource};
    use crate::user_client::{WriteObserver, WriteOutcome, WrittenObject};

    fn config_map(version: &str, has_owner: bool) -> Arc<Object> {
        let owner = json!({"apiVersion": "example.com/v1", "kind": "Shop", "name": "shop", "uid": "u1"});
        let owners = if has_owner { json!([owner]) } else { json!([]) };
        let metadata = json!({"name": "cm", "namespace": "x", "uid": "u2", "resourceVersion": version,
                              "ownerReferences": owners});
        Arc::new(Object::decode(&json!({"metadata": metadata}).to_string()).unwrap())
    }

    #[tokio::test]
    async fn w1_an_event_from_before_an_adoption_does_not_hide_the_child() {
        let owner = json!({"reconciler": 0, "controller": false});
        let selector = json!({"any_name": "configmaps"});
        let caching = json!({"id": "children", "kind": "caching", "selector": selector, "owner": owner});
        let reconciling = json!({"id": "sync", "kind": "reconciling", "selector": {"any_name": "shops"}});
        let fixture = Fixture::with_handlers(vec![reconciling, caching], &json!({}), |_| (200, None));
        let health = Arc::clone(&fixture.health);
        let caches = Caches::of(&fixture.shared.base, &health, None).unwrap();
        let (cache, config_maps) = (caches.get(1).unwrap(), resource("", "configmaps", true));
        let resource = Arc::clone(&config_maps);
        caches.require(
            &[CacheStream { name: "s".to_owned(), namespace: None, resource, caches: vec![1] }],
            true,
        );
        let mut consumer = CacheConsumer::new(&caches, ("s".to_owned(), None), &config_maps, &[1]);
        consumer.on_init();
        consumer.event(EventType::Listed, &config_map("1", false));
        consumer.on_init_done();
        let is_shown = || cache.get(Some("x"), "cm").unwrap().is_some();
        assert!(!is_shown(), "it has no owner yet");
        let write = WrittenObject {
            resource: &config_maps,
            namespace: Some("x"),
            name: Some("cm"),
            manager: None,
            body: None,
            run: None,
        };
        let adoption = caches.start(write).unwrap();
        adoption.finish(WriteOutcome::Accepted { object: Some(&config_map("3", true)), is_deletion: false });
        assert!(is_shown());
        consumer.event(EventType::Modified, &config_map("2", false));
        assert!(is_shown(), "the event is older than the adoption");
        consumer.event(EventType::Modified, &config_map("4", false));
        assert!(!is_shown(), "another client has removed the owner");
    }
}
