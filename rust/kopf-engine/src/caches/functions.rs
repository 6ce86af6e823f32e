//! Keys that functions of the host compute (K7): a change is readable when its functions have returned.

use std::collections::HashSet;
use std::sync::Arc;

use kopf_core::caches::{CacheKey, ComputedKeys, ListId, StoredObject};
use kopf_core::object::Object;
use kopf_core::resource::Resource;

use super::Cache;
use super::state::{CacheState, Inspected};
use crate::host::caching::ComputeKeysTask;
use crate::host::{HostTask, Responder};

impl Cache {
    /// Takes a state that a stream has delivered: in a list, or by a watch.
    pub(super) fn put(self: &Arc<Self>, state: StoredObject, list: Option<ListId>, resource: &Arc<Resource>) {
        let task = self.with_state(|known, now| {
            let key = CacheKey::of(&state.object);
            if !self.declared.has_functions() || !state.is_selected {
                known.discard_inspected(&key);
                match list {
                    Some(list) => known.store.deliver_listed(state, &vec![], list, now),
                    None => known.store.deliver(state, &vec![], now),
                }
                return None;
            }
            if let Some(inspected) = known.inspected.get_mut(&key) {
                inspected.pending = Some((state, list));
                return None;
            }
            let object = Arc::clone(&state.object);
            known.inspected.insert(key, Inspected { state: Some((state, list)), pending: None });
            Some(object)
        });
        if let Some(object) = task {
            self.compute_keys(object, Arc::clone(resource));
        }
    }

    /// Takes the deletion of an object.
    pub(super) fn remove(&self, object: &Object) {
        let key = CacheKey::of(object);
        self.with_state(|state, now| {
            state.discard_inspected(&key);
            state.store.deliver_deletion(&key, object.uid().unwrap_or_default(), now);
        });
    }

    fn compute_keys(self: &Arc<Self>, object: Arc<Object>, resource: Arc<Resource>) {
        let cache = Arc::clone(self);
        let (key, of) = (CacheKey::of(&object), Arc::clone(&resource));
        let reply = Responder::new(move |computed: Option<ComputedKeys>| {
            let next =
                cache.with_state(|state, now| state.on_computed(&key, &computed.unwrap_or_default(), now));
            if let Some(next) = next {
                cache.compute_keys(next, of);
            }
        });
        let task = ComputeKeysTask { cache: self.handler, resource, object, reply };
        self.base.host.submit(HostTask::ComputeKeys(Box::new(task)));
    }
}

impl CacheState {
    /// Forgets the states of an object whose functions are being called: it is gone, or not selected any more.
    fn discard_inspected(&mut self, key: &CacheKey) {
        if let Some(inspected) = self.inspected.get_mut(key) {
            (inspected.state, inspected.pending) = (None, None);
        }
    }

    /// Forgets those of a namespace, or of all of them, that are not listed.
    pub(super) fn retain_inspected(&mut self, namespace: Option<&str>, listed: &HashSet<CacheKey>) {
        let is_covered = |key: &CacheKey| namespace.is_none() || key.namespace() == namespace;
        for (key, inspected) in &mut self.inspected {
            if is_covered(key) && !listed.contains(key) {
                (inspected.state, inspected.pending) = (None, None);
            }
        }
    }

    /// Takes the computed keys of an object. Returns its newer state, whose functions are called next.
    fn on_computed(
        &mut self,
        key: &CacheKey,
        computed: &ComputedKeys,
        now: kopf_core::time::Timestamp,
    ) -> Option<Arc<Object>> {
        let Inspected { state, pending } = self.inspected.remove(key)?;
        match state {
            Some((state, Some(list))) => self.store.deliver_listed(state, computed, list, now),
            Some((state, None)) => self.store.deliver(state, computed, now),
            None => {}
        }
        self.on_returned(key, pending.is_none());
        let (state, list) = pending?;
        let object = Arc::clone(&state.object);
        self.inspected.insert(key.clone(), Inspected { state: Some((state, list)), pending: None });
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use kopf_core::time::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::caches::{CacheStream, Caches};
    use crate::testing::{Fixture, resource};

    const NOW: Timestamp = Timestamp::from_micros(0);

    fn state_of(name: &str, version: u32) -> StoredObject {
        let metadata =
            json!({"name": name, "namespace": "x", "uid": name, "resourceVersion": version.to_string()});
        let object = Object::decode(&json!({"metadata": metadata}).to_string()).unwrap();
        StoredObject { object: Arc::new(object), owned: Arc::new([]), is_selected: true }
    }

    #[tokio::test]
    async fn k7_a_cache_is_ready_when_the_functions_of_the_listed_objects_have_returned() {
        let caching = json!({"id": "maps", "kind": "caching", "selector": {"any_name": "configmaps"},
                             "by": [["size", "function"]]});
        let fixture = Fixture::with_handlers(vec![caching], &json!({}), |_| (200, None));
        let caches = Caches::of(&fixture.shared.base, &fixture.health, None).unwrap();
        let (cache, config_maps) = (caches.get(0).unwrap(), resource("", "configmaps", true));
        let stream = || ("s".to_owned(), None, Arc::clone(&config_maps));
        let (name, namespace, resource) = stream();
        caches.require(&[CacheStream { name, namespace, resource, caches: vec![0] }], true);
        let list = cache.with_state(|state, _| state.store.start_list());
        let deliver = |name: &str, version: u32, list: Option<ListId>| {
            cache.put(state_of(name, version), list, &config_maps);
        };
        let on_returned = |name: &str| {
            let key = CacheKey::new(Some("x"), name);
            cache.with_state(|state, _| state.on_computed(&key, &ComputedKeys::default(), NOW));
        };
        deliver("a", 1, Some(list));
        deliver("b", 1, Some(list));
        // It has changed before the list was complete.
        deliver("b", 2, None);
        cache.with_state(|state, _| Cache::set_listed(state, "s"));
        on_returned("a");
        deliver("a", 3, None);
        on_returned("b");
        deliver("b", 3, None);
        assert!(!cache.is_ready(), "the list has shown a newer state");
        on_returned("b");
        assert!(cache.is_ready(), "later changes are not awaited");
    }
}
