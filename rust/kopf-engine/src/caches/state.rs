//! The state of a cache behind its lock: its objects, its streams, and the calls of its functions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kopf_core::caches::{CacheKey, ListId, ObjectStore, StoredObject};
use kopf_core::resource::Resource;

use crate::context::index_gate::IndexGateGuard;

/// The state of a cache behind its lock.
pub(super) struct CacheState {
    pub(super) store: ObjectStore,
    pub(super) resource: Option<Arc<Resource>>,
    /// The kinds of the owners, if only owned objects are kept; none if they are not served yet.
    pub(super) owner_kinds: Vec<Arc<Resource>>,
    /// The streams with their namespaces, by their names; none before the first scan of the cluster.
    pub(super) streams: Option<BTreeMap<String, Option<String>>>,
    pub(super) listed: BTreeSet<String>,
    pub(super) is_ready: bool,
    /// The newest feed of each namespace, or of all of them.
    pub(super) feeds: HashMap<Option<String>, u64>,
    pub(super) last_number: u64,
    /// The objects whose functions are being called.
    pub(super) inspected: HashMap<CacheKey, Inspected>,
    /// How often the functions of objects must return before the cache is ready; none until all streams are listed.
    pub(super) awaited: Option<HashMap<CacheKey, usize>>,
    /// Keep handlers from being called until the cache is ready: each with the number of its feed.
    pub(super) guards: Vec<(u64, IndexGateGuard)>,
}

/// An object whose functions are being called.
pub(super) struct Inspected {
    /// The state that the functions got; none if it is gone.
    pub(super) state: Option<(StoredObject, Option<ListId>)>,
    /// The newest state since then.
    pub(super) pending: Option<(StoredObject, Option<ListId>)>,
}

impl CacheState {
    /// Whether the objects can be read.
    pub(super) fn is_open(&self) -> bool {
        self.is_ready
    }

    /// Whether the objects of this namespace are listed, and the streams deliver their changes.
    pub(super) fn covers(&self, namespace: Option<&str>) -> bool {
        let streams = self.streams.iter().flatten();
        // Namespaces that are served later are listed after the cache has become ready.
        let mut listed = streams.filter(|(name, _)| self.listed.contains(*name));
        self.is_ready && listed.any(|(_, scope)| scope.is_none() || scope.as_deref() == namespace)
    }

    /// Opens the cache if all its streams are listed, and the functions of the listed objects have returned. Later changes of these
    /// objects are not awaited. Returns the guards to be dropped, if it has opened now.
    pub(super) fn check_readiness(&mut self) -> Option<Vec<(u64, IndexGateGuard)>> {
        let streams = self.streams.as_ref()?;
        let is_listed = streams.keys().all(|name| self.listed.contains(name));
        if self.is_ready || self.resource.is_none() || !is_listed {
            self.awaited = None;
            return None;
        }
        let inspected = self.inspected.iter();
        let awaited = self.awaited.get_or_insert_with(|| {
            inspected.map(|(key, it)| (key.clone(), 1 + usize::from(it.pending.is_some()))).collect()
        });
        if !awaited.is_empty() {
            return None;
        }
        self.awaited = None;
        self.is_ready = true;
        Some(std::mem::take(&mut self.guards))
    }

    /// Records that the functions of an object have returned; with `is_last`, for its newest state.
    pub(super) fn on_returned(&mut self, key: &CacheKey, is_last: bool) {
        let Some(awaited) = &mut self.awaited else { return };
        let Some(calls) = awaited.get_mut(key) else { return };
        *calls = calls.saturating_sub(1);
        if is_last || *calls == 0 {
            awaited.remove(key);
        }
    }
}
