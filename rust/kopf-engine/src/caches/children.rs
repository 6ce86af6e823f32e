//! Caches as the source of the present states of children for `kopf.apply` (6.3).

use kopf_core::caches::CacheKey;
use kopf_core::resource::Resource;

use super::Caches;
use crate::apply::{CachedChild, ChildCache};

impl ChildCache for Caches {
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
