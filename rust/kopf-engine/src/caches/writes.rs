//! Own writes: their responses are shown before the calls return (W1–W6).

use std::sync::Arc;

use kopf_core::caches::{CacheKey, StoredObject, Version, WriteResponse};
use kopf_core::json::value::Value;
use kopf_core::object::Object;
use kopf_core::resource::Resource;

use super::{Cache, Caches};
use crate::user_client::{StartedWrite, WriteObserver, WriteOutcome, WrittenObject};

/// A write of a cached object that is in progress.
struct CachedWrite {
    /// The caches of the object, each with the ticket of the write.
    caches: Vec<(Arc<Cache>, u64)>,
    resource: Arc<Resource>,
    /// None if the server makes the name.
    key: Option<CacheKey>,
    is_over: bool,
}

/// The end of a write for one cache.
enum Ended {
    Stored(Box<StoredObject>),
    Gone(Option<Box<str>>),
    Without,
    Uncertain,
}

impl WriteObserver for Caches {
    fn start(&self, write: WrittenObject<'_>) -> Option<Box<dyn StartedWrite>> {
        let key = write.name.map(|name| CacheKey::new(write.namespace, name));
        let of_object = self.by_index.values().filter(|cache| cache.holds(write.resource, write.namespace));
        let caches: Vec<_> = of_object.map(|cache| (Arc::clone(cache), self.tickets.open())).collect();
        for (cache, ticket) in &caches {
            cache.with_state(|state, _| match &key {
                Some(key) => state.store.start_write(key.clone(), *ticket),
                None => state.store.start_unnamed(),
            });
        }
        if caches.is_empty() {
            return None;
        }
        let resource = Arc::clone(write.resource);
        Some(Box::new(CachedWrite { caches, resource, key, is_over: false }))
    }
}

impl Cache {
    /// Whether the cache is for the objects of this kind and namespace.
    fn holds(&self, resource: &Resource, namespace: Option<&str>) -> bool {
        let state = self.state();
        let is_same = |own: &Arc<Resource>| {
            (&own.group, &own.version, &own.plural) == (&resource.group, &resource.version, &resource.plural)
        };
        state.resource.as_ref().is_some_and(is_same)
            && state.covers(namespace)
            && self.declared.namespaces.contains(namespace)
    }
}

impl CachedWrite {
    fn end(&mut self, ended: impl Fn(&Cache) -> Ended) {
        self.is_over = true;
        for (cache, ticket) in &self.caches {
            let timeout = cache.base.live_config.get().settings.persistence.consistency_timeout;
            let ended = ended(cache);
            cache.with_state(|state, now| {
                let Some(key) = &self.key else {
                    let created = if let Ended::Stored(state) = ended { Some(*state) } else { None };
                    return state.store.finish_unnamed(created, *ticket, timeout, now);
                };
                let known = || state.store.stored(key).and_then(|known| known.object.uid().map(Box::from));
                let response = match ended {
                    Ended::Stored(state) => WriteResponse::Written(version_of(*state)),
                    Ended::Gone(uid) => match uid.or_else(known) {
                        Some(uid) => WriteResponse::Gone(uid),
                        None => WriteResponse::Without,
                    },
                    Ended::Without => WriteResponse::Without,
                    Ended::Uncertain => WriteResponse::Uncertain,
                };
                state.store.finish_write(key, response, timeout, now);
            });
            // The next expiry may have changed.
            cache.wake.notify_one();
        }
    }
}

impl StartedWrite for CachedWrite {
    fn finish(mut self: Box<Self>, outcome: WriteOutcome<'_>) {
        let resource = Arc::clone(&self.resource);
        match outcome {
            WriteOutcome::Accepted { object, is_deletion } => {
                self.end(|cache| accepted(cache, object, is_deletion, &resource));
            }
            WriteOutcome::Rejected => self.end(|_| Ended::Without),
            WriteOutcome::Uncertain => self.end(|_| Ended::Uncertain),
        }
    }
}

impl Drop for CachedWrite {
    fn drop(&mut self) {
        if !self.is_over {
            self.end(|_| Ended::Uncertain);
        }
    }
}

/// The end of an accepted write, by its response.
fn accepted(cache: &Cache, object: Option<&Arc<Object>>, is_deletion: bool, resource: &Resource) -> Ended {
    let Some(object) = object else { return Ended::Uncertain };
    if object.kind() == Some("Status") {
        let details: Option<Value> =
            object.top_level("details").and_then(|json| serde_json::from_str(json).ok());
        let uid = details.and_then(|details| Some(details.get("uid")?.as_str()?.into()));
        return if is_deletion { Ended::Gone(uid) } else { Ended::Without };
    }
    // Some kinds return the object that they have deleted.
    let is_gone = is_deletion && (object.deletion_timestamp().is_none() || is_without_delay(object));
    if is_gone {
        return Ended::Gone(object.uid().map(Box::from));
    }
    let is_selected = cache.selects(object);
    let state =
        if is_selected { cache.kept.store(object, resource) } else { StoredObject::unselected(object) };
    Ended::Stored(Box::new(state))
}

/// Whether nothing delays the deletion of the object.
fn is_without_delay(object: &Object) -> bool {
    let grace = object.text_at(&["metadata", "deletionGracePeriodSeconds"]);
    let has_grace = matches!(grace, kopf_core::object::Found::Text(seconds) if seconds != "0");
    object.finalizers().next().is_none() && !has_grace
}

fn version_of(state: StoredObject) -> Version<StoredObject> {
    let text = |text: Option<&str>| text.unwrap_or_default().into();
    let (uid, version) = (text(state.object.uid()), text(state.object.resource_version()));
    Version { uid, version, body: state }
}
