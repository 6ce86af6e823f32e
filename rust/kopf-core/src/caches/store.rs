//! The objects of one cache, with own writes that the watch has not delivered yet.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::change_queue::ChangeQueue;
use super::indices::{CacheIndices, UnknownKey};
use super::key::CacheKey;
use super::overlay::{CachedObject, ListId, Version};
use super::selection::Selected;
use crate::apply::Digest;
use crate::handler::caching::{Caching, KeySource};
use crate::json::value::Value;
use crate::object::Object;
use crate::selectors::{ListPath, SelectorError};
use crate::time::Timestamp;

/// The keys that functions have computed, by the names of the declared keys.
pub type ComputedKeys = Vec<(String, Vec<Value>)>;

/// A state of an object as it is kept.
#[derive(Clone, Debug)]
pub struct StoredObject {
    /// The object, without the fields to drop.
    pub object: Arc<Object>,
    /// The digests of the fields that managers have applied. They are made before `managedFields` are dropped.
    pub owned: Arc<[(String, Digest)]>,
    /// Whether the cache selects the whole object. Others are not shown.
    pub is_selected: bool,
}

impl StoredObject {
    /// The state of an object that the cache does not select.
    pub fn unselected(object: &Arc<Object>) -> Self {
        Self { object: Arc::clone(object), owned: Arc::new([]), is_selected: false }
    }
}

/// The objects of one cache. The caller locks it, and reports every event.
#[derive(Debug)]
pub struct ObjectStore {
    /// Whether some objects are not selected.
    is_selective: bool,
    indices: CacheIndices<Arc<CacheKey>>,
    /// By namespaces, which are empty for cluster-scoped objects, and by names.
    pub(super) namespaces: BTreeMap<Box<str>, BTreeMap<Box<str>, Entry>>,
    count: usize,
    pub(super) writes: HashMap<Arc<CacheKey>, OwnWrite>,
    /// The tickets of writes that have become visible.
    pub(super) settled: Vec<u64>,
    /// The number of writes in progress whose objects have no names yet.
    pub(super) unnamed: u32,
    /// The uids of the objects that have disappeared during these writes.
    pub(super) gone: HashSet<Box<str>>,
    /// The number of lists that were started.
    pub(super) lists: u64,
    pub(super) queues: BTreeMap<u64, ChangeQueue>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Arc<CacheKey>,
    pub(super) state: StoredObject,
    pub(super) read: Timestamp,
    /// It was not read since it was compressed, or cannot be compressed.
    pub(super) is_at_rest: bool,
}

#[derive(Debug, Default)]
pub(super) struct OwnWrite {
    pub(super) cached: CachedObject<StoredObject>,
    pub(super) tickets: Vec<u64>,
}

impl ObjectStore {
    /// The empty store of a declared cache.
    pub fn new(declared: &Caching) -> Result<Self, SelectorError> {
        let path = |source: &KeySource| match source {
            KeySource::Path(path) => ListPath::parse(path),
            KeySource::Field(path) => Some(ListPath::from_field(path.clone())),
            KeySource::Function => None,
        };
        Ok(Self {
            is_selective: !Selected::of(declared)?.is_everything(),
            indices: CacheIndices::new(declared.by.iter().map(|(name, source)| (name.clone(), path(source)))),
            namespaces: BTreeMap::new(),
            count: 0,
            writes: HashMap::new(),
            settled: Vec::new(),
            unnamed: 0,
            gone: HashSet::new(),
            lists: 0,
            queues: BTreeMap::new(),
        })
    }

    // --- Events of the streams.

    /// Records a state that a watch has delivered, with its computed keys.
    pub fn deliver(&mut self, state: StoredObject, computed: &ComputedKeys, now: Timestamp) {
        self.record(state, computed, None, now);
    }

    /// Records a state in a list.
    pub fn deliver_listed(
        &mut self,
        state: StoredObject,
        computed: &ComputedKeys,
        list: ListId,
        now: Timestamp,
    ) {
        self.record(state, computed, Some(list), now);
    }

    /// Records that the object is gone, or not selected any more.
    pub fn deliver_deletion(&mut self, key: &CacheKey, uid: &str, now: Timestamp) {
        self.note_gone(uid);
        if let Some(write) = self.writes.get_mut(key) {
            write.cached.deliver_deletion(uid);
            self.settle(key, now);
        } else {
            self.show(key, None, now);
        }
    }

    /// Records that a list has started.
    pub fn start_list(&mut self) -> ListId {
        self.lists += 1;
        ListId(self.lists)
    }

    /// Records that a list of a namespace, or of all of them, is complete: objects that it does not contain are gone.
    pub fn finish_list(
        &mut self,
        scope: Option<&str>,
        list: ListId,
        listed: &HashSet<CacheKey>,
        now: Timestamp,
    ) {
        // The version of a list is not lower than those of its objects. Own writes can be newer.
        let versions = listed.iter().filter_map(|key| self.delivered_version(key)?.parse::<u64>().ok());
        let version = versions.max().unwrap_or_default().to_string();
        let is_missing = |key: &Arc<CacheKey>| {
            !listed.contains(&**key) && scope.is_none_or(|scope| key.namespace() == Some(scope))
        };
        let present = self.all(scope).map(|(key, _)| key);
        let missing: HashSet<Arc<CacheKey>> =
            present.chain(self.writes.keys()).filter(|key| is_missing(key)).cloned().collect();
        for key in missing {
            if let Some(uid) = self.shown(&key).and_then(|object| object.uid().map(str::to_owned)) {
                self.note_gone(&uid);
            }
            if let Some(write) = self.writes.get_mut(&key) {
                write.cached.deliver_list(None, list, &version);
                self.settle(&key, now);
            } else {
                self.show(&key, None, now);
            }
        }
    }

    /// Forgets the objects of a namespace, or of all of them: their stream has ended for good.
    pub fn forget(&mut self, scope: Option<&str>, now: Timestamp) {
        let list = self.start_list();
        self.finish_list(scope, list, &HashSet::new(), now);
    }

    fn record(&mut self, state: StoredObject, computed: &ComputedKeys, list: Option<ListId>, now: Timestamp) {
        let key = CacheKey::of(&state.object);
        if let Some(write) = self.writes.get_mut(&key) {
            let version = versioned(state);
            match list {
                Some(list) => {
                    let number = version.version.to_string();
                    write.cached.deliver_list(Some(version), list, &number);
                }
                None => write.cached.deliver(version),
            }
            self.settle(&key, now);
        } else {
            if self.shown(&key).is_some_and(|known| is_older(&state.object, known)) {
                return;
            }
            self.show(&key, Some(state).filter(|state| state.is_selected), now);
        }
        if let Some(entry) = self.entry(&key) {
            let key = Arc::clone(&entry.key);
            for (name, values) in computed {
                // The names are declared.
                let _known = self.indices.set_computed(name, &key, values);
            }
        }
    }

    /// The resource version of the newest state that a stream has delivered.
    fn delivered_version(&self, key: &CacheKey) -> Option<&str> {
        match self.writes.get(key) {
            Some(write) => write.cached.delivered().map(|state| &*state.version),
            None => self.shown(key)?.resource_version(),
        }
    }

    fn note_gone(&mut self, uid: &str) {
        if self.unnamed > 0 {
            self.gone.insert(uid.into());
        }
    }

    // --- The shown states.

    /// Shows the present state of an object with own writes.
    pub(super) fn settle(&mut self, key: &CacheKey, now: Timestamp) {
        let Some(write) = self.writes.get(key) else { return };
        let state = write.cached.read().map(|version| version.body.clone());
        let is_settled = write.cached.is_settled();
        let state = state.filter(|state| state.is_selected);
        let is_hidden = state.is_none();
        self.show(key, state, now);
        if is_settled {
            self.settled.extend(self.writes.remove(key).into_iter().flat_map(|write| write.tickets));
        } else if is_hidden
            && self.is_selective
            && let Some(write) = self.writes.get_mut(key).filter(|write| write.cached.is_undelivered())
        {
            // The stream delivers no event of an object that the server has never selected.
            self.settled.append(&mut write.tickets);
        }
    }

    pub(super) fn show(&mut self, key: &CacheKey, state: Option<StoredObject>, now: Timestamp) {
        let Some(state) = state else { return self.hide(key) };
        let objects = self.namespaces.entry(key.namespace.clone()).or_default();
        let key = match objects.get_mut(&key.name) {
            Some(entry) if Arc::ptr_eq(&entry.state.object, &state.object) => return,
            Some(entry) => {
                entry.state = state.clone();
                // Changes count as reads: what changes often is not compressed.
                (entry.read, entry.is_at_rest) = (now, false);
                Arc::clone(&entry.key)
            }
            None => {
                let key = Arc::new(key.clone());
                let entry =
                    Entry { key: Arc::clone(&key), state: state.clone(), read: now, is_at_rest: false };
                objects.insert(key.name.clone(), entry);
                self.count += 1;
                key
            }
        };
        self.indices.observe(&key, &state.object);
        self.queues.values_mut().for_each(|queue| queue.put(&key, Some(&state.object)));
    }

    fn hide(&mut self, key: &CacheKey) {
        let Some(objects) = self.namespaces.get_mut(&key.namespace) else { return };
        let Some(entry) = objects.remove(&key.name) else { return };
        if objects.is_empty() {
            self.namespaces.remove(&key.namespace);
        }
        self.count -= 1;
        self.indices.remove(&entry.key);
        self.queues.values_mut().for_each(|queue| queue.put(&entry.key, None));
    }

    pub(super) fn entry(&self, key: &CacheKey) -> Option<&Entry> {
        self.namespaces.get(&key.namespace)?.get(&key.name)
    }

    pub(super) fn entries(&self, namespace: Option<&str>) -> impl Iterator<Item = &Entry> {
        let selected =
            self.namespaces.iter().filter(move |(of, _)| namespace.is_none_or(|one| one == &***of));
        selected.flat_map(|(_, objects)| objects.values())
    }

    // --- Reading.

    /// The object of this name, which counts as read.
    pub fn get(&mut self, namespace: Option<&str>, name: &str, now: Timestamp) -> Option<Arc<Object>> {
        let objects = self.namespaces.get_mut(namespace.unwrap_or_default())?;
        let entry = objects.get_mut(name)?;
        (entry.read, entry.is_at_rest) = (now, false);
        Some(Arc::clone(&entry.state.object))
    }

    /// The namespaces that have an object of this name; empty for a cluster-scoped one (K1).
    pub fn namespaces_of(&self, name: &str) -> Vec<&str> {
        let having = self.namespaces.iter().filter(|(_, objects)| objects.contains_key(name));
        having.map(|(namespace, _)| &**namespace).collect()
    }

    /// The state as it is kept, with the digests of applied fields.
    pub fn stored(&self, key: &CacheKey) -> Option<&StoredObject> {
        self.entry(key).map(|entry| &entry.state)
    }

    /// The present values of a declared key, as JSON texts.
    pub fn keys(&self, by: &str) -> Result<Vec<String>, UnknownKey> {
        Ok(self.indices.keys(by)?.map(str::to_owned).collect())
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn indices(&self) -> &CacheIndices<Arc<CacheKey>> {
        &self.indices
    }

    pub(super) fn shown(&self, key: &CacheKey) -> Option<&Object> {
        self.entry(key).map(|entry| &*entry.state.object)
    }

    /// All objects of a namespace or of all of them, in their order.
    pub(super) fn all(
        &self,
        namespace: Option<&str>,
    ) -> impl Iterator<Item = (&Arc<CacheKey>, &Arc<Object>)> {
        self.entries(namespace).map(|entry| (&entry.key, &entry.state.object))
    }

    pub(super) fn read(&mut self, key: &CacheKey, now: Timestamp) -> Option<Arc<Object>> {
        self.get(key.namespace(), key.name(), now)
    }

    // --- Consumers of changes.

    /// Adds a queue of changes, by its number, which starts with the present objects unless it is silent.
    pub fn subscribe(&mut self, number: u64, is_silent: bool) {
        let queue = ChangeQueue::starting_with(self.all(None), is_silent);
        self.queues.insert(number, queue);
    }

    /// The queue of this number.
    pub fn queue(&mut self, number: u64) -> Option<&mut ChangeQueue> {
        self.queues.get_mut(&number)
    }

    /// Removes a queue.
    pub fn unsubscribe(&mut self, number: u64) {
        self.queues.remove(&number);
    }

    /// Whether changes are waiting for a consumer.
    pub fn has_changes(&self) -> bool {
        self.queues.values().any(|queue| !queue.is_empty())
    }
}

/// A state with its identity, as the rules of own writes need it.
pub(super) fn versioned(state: StoredObject) -> Version<StoredObject> {
    let text = |text: Option<&str>| text.unwrap_or_default().into();
    let (uid, version) = (text(state.object.uid()), text(state.object.resource_version()));
    Version { uid, version, body: state }
}

/// Whether the state is an earlier one of the same object.
fn is_older(state: &Object, known: &Object) -> bool {
    let number = |object: &Object| object.resource_version()?.parse::<u64>().ok();
    state.uid() == known.uid() && number(state).zip(number(known)).is_some_and(|(its, newest)| its < newest)
}

#[cfg(test)]
mod tests;
