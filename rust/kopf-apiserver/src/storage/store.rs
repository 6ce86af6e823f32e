//! The store: every object as its JSON text, one counter of versions, and a history from which watches are fed.
//!
//! It knows nothing of HTTP, kinds or validation. Invariants: versions only grow; an event of a resource is in its history
//! before its waiters are woken, so that a watch which reads from its last version on can lose nothing; history that was
//! dropped is remembered by its version, so that readers from before it are told (410) instead of misled.

use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;

use crate::storage::encoding::ObjectEncoder;

/// How many events, and how many bytes of them, a resource's history keeps.
const HISTORY_EVENTS: usize = 10_000;
const HISTORY_BYTES: usize = 32 << 20;

/// Namespace (empty for cluster-scoped) and name, in one text: it is compared often, and the separator, which is in no name,
/// keeps the order.
type Key = Box<str>;

fn key(namespace: &str, name: &str) -> Key {
    [namespace, "\0", name].concat().into()
}

/// One version of one object.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
    pub(crate) version: u64,
    pub(crate) labels: Box<[(Box<str>, Box<str>)]>,
    /// The owners' uids.
    pub(crate) owners: Box<[Box<str>]>,
    /// Whether it has a deletion timestamp.
    pub(crate) is_deleting: bool,
    /// The object in its storage version, `apiVersion` and `kind` first.
    pub(crate) json: Bytes,
    /// Where the members after `apiVersion` and `kind` begin.
    pub(crate) body: usize,
}

impl Stored {
    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or_default()
    }
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(k, _)| &**k == key).map(|(_, v)| &**v)
    }
    /// The same content, as of another version.
    pub(crate) fn with_version(&self, version: u64) -> Self {
        NewObject::new(&self.value()).with_version(version)
    }
}

/// An object on its way into the store: all of it but its version, which is known under the lock only.
struct NewObject {
    namespace: Box<str>,
    name: Box<str>,
    uid: Box<str>,
    labels: Box<[(Box<str>, Box<str>)]>,
    owners: Box<[Box<str>]>,
    is_deleting: bool,
    encoder: ObjectEncoder,
}

impl NewObject {
    fn new(value: &Value) -> Self {
        let encoder =
            |v: Option<&Value>| -> Box<str> { v.and_then(Value::as_str).unwrap_or_default().into() };
        let meta = value.get("metadata");
        let get = |name: &str| encoder(meta.and_then(|m| m.get(name)));
        let labels = meta.and_then(|m| m.get("labels")).and_then(Value::as_object).map(|labels| {
            labels.iter().map(|(k, v)| (k.as_str().into(), v.as_str().unwrap_or_default().into())).collect()
        });
        let owners = meta.and_then(|m| m.get("ownerReferences")).and_then(Value::as_array);
        Self {
            namespace: get("namespace"),
            name: get("name"),
            uid: get("uid"),
            is_deleting: meta.is_some_and(|m| m.get("deletionTimestamp").is_some()),
            labels: labels.unwrap_or_default(),
            owners: owners
                .map(|list| list.iter().map(|o| encoder(o.get("uid"))).collect())
                .unwrap_or_default(),
            encoder: ObjectEncoder::new(value, true),
        }
    }
    fn key(&self) -> Key {
        key(&self.namespace, &self.name)
    }
    fn with_version(self, version: u64) -> Stored {
        Stored {
            json: self.encoder.with_version(version),
            body: self.encoder.body,
            namespace: self.namespace,
            name: self.name,
            uid: self.uid,
            version,
            labels: self.labels,
            owners: self.owners,
            is_deleting: self.is_deleting,
        }
    }
}

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) version: u64,
    /// The state before; `None` when it was created.
    pub(crate) before: Option<Arc<Stored>>,
    /// The state after; for a deletion the last state with the deletion's version.
    pub(crate) after: Arc<Stored>,
    pub(crate) deleted: bool,
}

/// What a reader has not yet seen of a table.
#[derive(Debug)]
pub(crate) struct EventBatch {
    pub(crate) events: Vec<Arc<Event>>,
    /// The version up to which they are complete.
    pub(crate) version: u64,
    /// Whether there are no more.
    pub(crate) is_complete: bool,
}

#[derive(Debug)]
struct Table {
    objects: BTreeMap<Key, Arc<Stored>>,
    history: VecDeque<Arc<Event>>,
    bytes: usize,
    /// Events up to this version are forgotten.
    compacted: u64,
    wake: watch::Sender<u64>,
}

impl Table {
    fn new(version: u64) -> Self {
        Self {
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            bytes: 0,
            compacted: version,
            wake: watch::channel(version).0,
        }
    }
    fn record(&mut self, event: Event) {
        self.bytes += event.after.json.len();
        let version = event.version;
        self.history.push_back(Arc::new(event));
        while self.history.len() > HISTORY_EVENTS || self.bytes > HISTORY_BYTES {
            self.drop_oldest();
        }
        self.wake.send_replace(version);
    }
    fn drop_oldest(&mut self) {
        if let Some(old) = self.history.pop_front() {
            self.bytes = self.bytes.saturating_sub(old.after.json.len());
            self.compacted = old.version;
        }
    }
}

#[derive(Debug)]
struct Inner {
    version: u64,
    tables: HashMap<Arc<str>, Table>,
    index: UidIndex,
}

/// Where an object lies: its table, and its key there.
type ObjectKey = (Arc<str>, Key);

/// Where objects lie by uids: their own, and those of their owners.
#[derive(Debug, Default)]
struct UidIndex {
    objects: HashMap<Box<str>, ObjectKey>,
    dependents: HashMap<Box<str>, BTreeSet<ObjectKey>>,
}

impl UidIndex {
    fn add(&mut self, table: &Arc<str>, key: &Key, object: &Stored) {
        let object_key = || (table.clone(), key.clone());
        self.objects.insert(object.uid.clone(), object_key());
        for owner in &object.owners {
            self.dependents.entry(owner.clone()).or_default().insert(object_key());
        }
    }
    fn remove(&mut self, table: &Arc<str>, key: &Key, object: &Stored) {
        let object_key = (table.clone(), key.clone());
        if self.objects.get(&object.uid) == Some(&object_key) {
            self.objects.remove(&object.uid);
        }
        for owner in &object.owners {
            if let Some(index) = self.dependents.get_mut(owner) {
                index.remove(&object_key);
                if index.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
    }
}

impl Inner {
    fn object(&self, (table, key): &ObjectKey) -> Option<(Arc<str>, Arc<Stored>)> {
        Some((table.clone(), self.tables.get(table)?.objects.get(key)?.clone()))
    }
}

/// All objects of one server.
#[derive(Debug)]
pub(crate) struct Store {
    inner: RwLock<Inner>,
}

/// Why a write was not made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StoreError {
    AlreadyExists,
    NotFound,
    Conflict,
}

/// Objects at one version.
pub(crate) struct Snapshot {
    pub(crate) version: u64,
    pub(crate) objects: Vec<Arc<Stored>>,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self { inner: RwLock::new(Inner { version: 1, tables: HashMap::new(), index: UidIndex::default() }) }
    }

    fn read<T>(&self, f: impl FnOnce(&Inner) -> T) -> T {
        f(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }
    fn write<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        f(&mut self.inner.write().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn version(&self) -> u64 {
        self.read(|inner| inner.version)
    }

    pub(crate) fn get(&self, table: &str, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        self.read(|inner| inner.tables.get(table)?.objects.get(&key(namespace, name)).cloned())
    }

    /// Objects of one namespace, or of all, in order.
    pub(crate) fn list(&self, table: &str, namespace: Option<&str>) -> Snapshot {
        self.read(|inner| {
            let objects =
                inner.tables.get(table).map(|t| in_namespace(&t.objects, namespace)).unwrap_or_default();
            Snapshot { version: inner.version, objects }
        })
    }

    /// The same as of an earlier version; `Err` with the oldest version that is still known when it is forgotten.
    pub(crate) fn list_at(
        &self,
        table: &str,
        namespace: Option<&str>,
        version: u64,
    ) -> Result<Snapshot, u64> {
        self.read(|inner| {
            let Some(found) = inner.tables.get(table) else {
                return Ok(Snapshot { version, objects: Vec::new() });
            };
            if version < found.compacted {
                return Err(found.compacted);
            }
            let newer = found.history.partition_point(|e| e.version <= version);
            if newer == found.history.len() {
                return Ok(Snapshot { version, objects: in_namespace(&found.objects, namespace) });
            }
            let mut objects = found.objects.clone();
            for event in found.history.iter().skip(newer).rev() {
                let key = key(&event.after.namespace, &event.after.name);
                match &event.before {
                    Some(before) => objects.insert(key, before.clone()),
                    None => objects.remove(&key),
                };
            }
            Ok(Snapshot { version, objects: in_namespace(&objects, namespace) })
        })
    }

    /// Events after a version, up to about so many bytes of them; `Err` with the oldest known version when some of them are
    /// forgotten.
    pub(crate) fn events_since(&self, table: &str, version: u64, bytes: usize) -> Result<EventBatch, u64> {
        self.read(|inner| {
            let Some(found) = inner.tables.get(table) else {
                return Ok(EventBatch { events: Vec::new(), version: inner.version, is_complete: true });
            };
            if version < found.compacted {
                return Err(found.compacted);
            }
            // From the end: readers are rarely far behind.
            let new = found.history.iter().rev().take_while(|e| e.version > version).count();
            let known = found.history.len().saturating_sub(new);
            let mut left = bytes;
            let mut events = Vec::new();
            for event in found.history.range(known..) {
                if left == 0 {
                    let version = events.last().map_or(version, |event: &Arc<Event>| event.version);
                    return Ok(EventBatch { events, version, is_complete: false });
                }
                left = left.saturating_sub(event.after.json.len().max(1));
                events.push(event.clone());
            }
            Ok(EventBatch { events, version: inner.version, is_complete: true })
        })
    }

    /// A receiver that wakes when a table changes.
    pub(crate) fn subscribe(&self, table: &Arc<str>) -> watch::Receiver<u64> {
        self.write(|inner| {
            // A table without history begins at the beginning: nothing of it was forgotten.
            inner.tables.entry(table.clone()).or_insert_with(|| Table::new(0)).wake.subscribe()
        })
    }

    /// Stores a new object.
    pub(crate) fn insert(&self, table: &Arc<str>, value: &Value) -> Result<Arc<Stored>, StoreError> {
        let object = NewObject::new(value);
        let key = object.key();
        self.write(|inner| {
            let version = inner.version + 1;
            let found = inner.tables.entry(table.clone()).or_insert_with(|| Table::new(0));
            let Entry::Vacant(object_key) = found.objects.entry(key.clone()) else {
                return Err(StoreError::AlreadyExists);
            };
            let after = Arc::new(object.with_version(version));
            inner.version = version;
            object_key.insert(after.clone());
            found.record(Event { version, before: None, after: after.clone(), deleted: false });
            inner.index.add(table, &key, &after);
            Ok(after)
        })
    }

    /// Replaces an object if it still is at the version that the change was made for.
    pub(crate) fn replace(
        &self,
        table: &Arc<str>,
        expected: u64,
        value: &Value,
    ) -> Result<Arc<Stored>, StoreError> {
        self.commit(table, expected, value, false)
    }

    /// Removes an object if it still is at the version that the decision was made for; `last` is its final state.
    pub(crate) fn remove(
        &self,
        table: &Arc<str>,
        expected: u64,
        last: &Value,
    ) -> Result<Arc<Stored>, StoreError> {
        self.commit(table, expected, last, true)
    }

    fn commit(
        &self,
        table: &Arc<str>,
        expected: u64,
        value: &Value,
        deleted: bool,
    ) -> Result<Arc<Stored>, StoreError> {
        let object = NewObject::new(value);
        let key = object.key();
        self.write(|inner| {
            let version = inner.version + 1;
            let found = inner.tables.get_mut(table).ok_or(StoreError::NotFound)?;
            let object_key = found.objects.get_mut(&key).ok_or(StoreError::NotFound)?;
            if object_key.version != expected {
                return Err(StoreError::Conflict);
            }
            let after = Arc::new(object.with_version(version));
            inner.version = version;
            let before = std::mem::replace(object_key, after.clone());
            if deleted {
                found.objects.remove(&key);
                inner.index.remove(table, &key, &before);
            } else if before.owners != after.owners || before.uid != after.uid {
                inner.index.remove(table, &key, &before);
                inner.index.add(table, &key, &after);
            }
            found.record(Event { version, before: Some(before), after: after.clone(), deleted });
            Ok(after)
        })
    }

    /// The object with this uid, and its table.
    pub(crate) fn find_by_uid(&self, uid: &str) -> Option<(Arc<str>, Arc<Stored>)> {
        self.read(|inner| inner.object(inner.index.objects.get(uid)?))
    }

    /// Whether there is an object with this uid.
    pub(crate) fn exists(&self, uid: &str) -> bool {
        self.read(|inner| inner.index.objects.contains_key(uid))
    }

    /// Whether an object names this uid as an owner.
    pub(crate) fn has_dependents(&self, uid: &str) -> bool {
        self.read(|inner| inner.index.dependents.contains_key(uid))
    }

    /// Objects anywhere that name this uid as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<(Arc<str>, Arc<Stored>)> {
        self.read(|inner| {
            let index = inner.index.dependents.get(uid).into_iter().flatten();
            index.filter_map(|object_key| inner.object(object_key)).collect()
        })
    }

    /// Everything in one namespace, by table.
    pub(crate) fn namespace_contents(&self, namespace: &str) -> Vec<(Arc<str>, Vec<Arc<Stored>>)> {
        self.read(|inner| {
            let tables =
                inner.tables.iter().map(|(n, t)| (n.clone(), in_namespace(&t.objects, Some(namespace))));
            tables.filter(|(_, objects)| !objects.is_empty()).collect()
        })
    }

    /// Forgets all history, as a real server's compaction does: readers from before now get 410.
    pub(crate) fn compact(&self) {
        self.write(|inner| {
            // The jump makes sure that a reader at the newest version is told as well.
            inner.version += 1;
            let version = inner.version;
            for table in inner.tables.values_mut() {
                table.history.clear();
                table.bytes = 0;
                table.compacted = version;
                table.wake.send_replace(version);
            }
        });
    }

    /// Drops a table's objects and closes its history: the kind is gone.
    pub(crate) fn drop_table(&self, table: &str) {
        self.write(|inner| {
            if let Some((name, found)) = inner.tables.remove_entry(table) {
                found.objects.iter().for_each(|(key, object)| inner.index.remove(&name, key, object));
            }
        });
    }
}

fn in_namespace(objects: &BTreeMap<Key, Arc<Stored>>, namespace: Option<&str>) -> Vec<Arc<Stored>> {
    match namespace {
        None => objects.values().cloned().collect(),
        Some(ns) => objects
            .range((Bound::Included(key(ns, "")), Bound::Unbounded))
            .map(|(_, object)| object)
            .take_while(|object| &*object.namespace == ns)
            .cloned()
            .collect(),
    }
}
