//! Store: objects as JSON, one resource version counter, and a history for watches.
//!
//! Invariants: versions only grow; an event is in the history before its watches are notified, so a watch that
//! continues from its last version loses no event; the version of compaction is known, so earlier readers get 410.

use std::collections::HashMap;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;
use tokio::sync::watch;

use crate::storage::history::History;
use crate::storage::object::{Event, Key, NewObject, Stored, key};
use crate::storage::uid_index::{ObjectKey, UidIndex};

/// Receiver that is notified of changes of a table, with the rest of its history once the watches of the table have ended.
pub(crate) type TableWatch = watch::Receiver<Option<History>>;

/// Events after a version.
#[derive(Debug)]
pub(crate) struct EventBatch {
    pub(crate) events: Vec<Arc<Event>>,
    /// Version up to which the events are complete.
    pub(crate) version: u64,
    /// Whether there are no further events.
    pub(crate) is_complete: bool,
}

#[derive(Debug)]
struct Table {
    objects: BTreeMap<Key, Arc<Stored>>,
    history: History,
    wake: watch::Sender<Option<History>>,
}

impl Table {
    /// A new table has no compacted events.
    fn new() -> Self {
        Self { objects: BTreeMap::new(), history: History::new(0), wake: watch::Sender::new(None) }
    }
    fn record(&mut self, event: Event) {
        self.history.record(event);
        self.wake.send_replace(None);
    }
    /// Ends the open watches after the events so far. Later ones have no events up to this version.
    fn end_watches(&mut self, version: u64) {
        let rest = std::mem::replace(&mut self.history, History::new(version));
        std::mem::replace(&mut self.wake, watch::Sender::new(None)).send_replace(Some(rest));
    }
}

#[derive(Debug)]
struct Inner {
    version: u64,
    tables: HashMap<Arc<str>, Table>,
    index: UidIndex,
}

impl Inner {
    fn object(&self, (table, key): &ObjectKey) -> Option<(Arc<str>, Arc<Stored>)> {
        Some((table.clone(), self.tables.get(table)?.objects.get(key)?.clone()))
    }
}

/// Objects of one server.
#[derive(Debug)]
pub(crate) struct Store {
    inner: RwLock<Inner>,
}

/// Error of a write.
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

    /// Objects at an earlier version. `Err` is the version of compaction, if that is later.
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
            let mut newer = found.history.newest_since(version)?.peekable();
            if newer.peek().is_none() {
                return Ok(Snapshot { version, objects: in_namespace(&found.objects, namespace) });
            }
            let mut objects = found.objects.clone();
            for event in newer {
                let key = key(&event.after.namespace, &event.after.name);
                match &event.before {
                    Some(before) => objects.insert(key, before.clone()),
                    None => objects.remove(&key),
                };
            }
            Ok(Snapshot { version, objects: in_namespace(&objects, namespace) })
        })
    }

    /// Events for a watch after a version, up to about this number of bytes. `Err` is the version of compaction, if that is
    /// later.
    pub(crate) fn events_since(
        &self,
        table: &str,
        watch: &TableWatch,
        version: u64,
        bytes: usize,
    ) -> Result<EventBatch, u64> {
        self.read(|inner| {
            let rest = watch.borrow();
            let found = rest.as_ref().or_else(|| inner.tables.get(table).map(|found| &found.history));
            let (events, is_complete) = match found {
                Some(history) => history.since(version, bytes)?,
                None => (Vec::new(), true),
            };
            let last = events.last().map_or(version, |event| event.version);
            Ok(EventBatch { events, version: if is_complete { inner.version } else { last }, is_complete })
        })
    }

    /// Receiver that is notified of changes of a table.
    pub(crate) fn subscribe(&self, table: &Arc<str>) -> TableWatch {
        self.write(|inner| inner.tables.entry(table.clone()).or_insert_with(Table::new).wake.subscribe())
    }

    /// Ends the open watches of a table. Each one still gets the events so far.
    pub(crate) fn end_watches(&self, table: &str) {
        self.write(|inner| {
            if let Some(found) = inner.tables.get_mut(table) {
                found.end_watches(inner.version);
            }
        });
    }

    /// Inserts an object.
    pub(crate) fn insert(&self, table: &Arc<str>, value: &Value) -> Result<Arc<Stored>, StoreError> {
        let object = NewObject::new(value);
        let key = object.key();
        self.write(|inner| {
            let version = inner.version + 1;
            let found = inner.tables.entry(table.clone()).or_insert_with(Table::new);
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

    /// Replaces an object that is at the expected version.
    pub(crate) fn replace(
        &self,
        table: &Arc<str>,
        expected: u64,
        value: &Value,
    ) -> Result<Arc<Stored>, StoreError> {
        self.commit(table, expected, value, false)
    }

    /// Removes an object that is at the expected version. `last` is its final state.
    pub(crate) fn remove(
        &self,
        table: &Arc<str>,
        expected: u64,
        last: &Value,
    ) -> Result<Arc<Stored>, StoreError> {
        self.commit(table, expected, last, true)
    }

    /// Changes objects of a table in place: their versions stay, and there are no events. `change` returns whether it has
    /// changed an object.
    pub(crate) fn rewrite(&self, table: &str, change: impl Fn(&mut Value) -> bool) {
        for stored in self.list(table, None).objects {
            let mut value = stored.value();
            if !change(&mut value) {
                continue;
            }
            let object = NewObject::new(&value);
            let key = object.key();
            self.write(|inner| {
                let found = inner.tables.get_mut(table).and_then(|found| found.objects.get_mut(&key));
                // An object that was written in the meantime has the new form already.
                if let Some(current) = found.filter(|current| current.version == stored.version) {
                    *current = Arc::new(object.with_version(stored.version));
                }
            });
        }
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
            } else if before.owners() != after.owners()
                || before.blocked_owners != after.blocked_owners
                || before.uid != after.uid
            {
                inner.index.remove(table, &key, &before);
                inner.index.add(table, &key, &after);
            }
            found.record(Event { version, before: Some(before), after: after.clone(), deleted });
            Ok(after)
        })
    }

    /// Object by uid, with its table.
    pub(crate) fn find_by_uid(&self, uid: &str) -> Option<(Arc<str>, Arc<Stored>)> {
        self.read(|inner| inner.object(inner.index.objects.get(uid)?))
    }

    /// Whether an object has an owner with this uid.
    pub(crate) fn has_dependents(&self, uid: &str) -> bool {
        self.read(|inner| inner.index.dependents.contains_key(uid))
    }

    /// Whether the foreground deletion of the object with this uid waits for a dependent.
    pub(crate) fn is_blocked(&self, uid: &str) -> bool {
        self.read(|inner| inner.index.blocking.contains_key(uid))
    }

    /// Objects that have an owner with this uid.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<(Arc<str>, Arc<Stored>)> {
        self.read(|inner| {
            let index = inner.index.dependents.get(uid).into_iter().flatten();
            index.filter_map(|object_key| inner.object(object_key)).collect()
        })
    }

    /// Objects of a namespace by table.
    pub(crate) fn namespace_contents(&self, namespace: &str) -> Vec<(Arc<str>, Vec<Arc<Stored>>)> {
        self.read(|inner| {
            let tables =
                inner.tables.iter().map(|(n, t)| (n.clone(), in_namespace(&t.objects, Some(namespace))));
            tables.filter(|(_, objects)| !objects.is_empty()).collect()
        })
    }

    /// Compacts the history: earlier readers get 410.
    pub(crate) fn compact(&self) {
        self.write(|inner| {
            // A new version, so that readers at the newest one get 410 as well.
            inner.version += 1;
            let version = inner.version;
            for table in inner.tables.values_mut() {
                table.history = History::new(version);
                table.wake.send_replace(None);
            }
        });
    }

    /// Drops the objects of a table without events, and ends its watches.
    pub(crate) fn drop_table(&self, table: &str) {
        self.write(|inner| {
            if let Some((name, mut found)) = inner.tables.remove_entry(table) {
                found.objects.iter().for_each(|(key, object)| inner.index.remove(&name, key, object));
                found.objects.clear();
                found.end_watches(inner.version);
                inner.tables.insert(name, found);
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
