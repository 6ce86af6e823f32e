//! The memory of a cache: its size, and the objects that are not read (2.6).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::key::CacheKey;
use super::store::{Entry, ObjectStore};
use crate::object::Object;
use crate::time::Timestamp;

impl ObjectStore {
    /// The memory that the objects take, in bytes.
    pub fn memory_size(&self) -> usize {
        let of_entry = |entry: &Entry| {
            let key = &entry.key;
            size_of::<Entry>() + 2 * (key.name.len() + key.namespace.len()) + entry.state.object.memory_size()
        };
        self.entries(None).map(of_entry).sum()
    }

    /// Objects that were not read for so many seconds, and are not compressed: at most so many.
    pub fn resting(&self, rest: f64, most: usize, now: Timestamp) -> Vec<Arc<Object>> {
        let is_resting = |entry: &&Entry| !entry.is_at_rest && now.seconds_since(entry.read) >= rest;
        let resting = self.entries(None).filter(is_resting);
        resting.take(most).map(|entry| Arc::clone(&entry.state.object)).collect()
    }

    /// Replaces an object by its compressed form, if there is one, unless it has changed meanwhile.
    pub fn put_to_rest(&mut self, object: &Arc<Object>, compressed: Option<Arc<Object>>) {
        let key = CacheKey::of(object);
        let objects = self.namespaces.get_mut(&key.namespace);
        let entry = objects.and_then(|objects| objects.get_mut(&key.name));
        if let Some(entry) = entry.filter(|entry| Arc::ptr_eq(&entry.state.object, object)) {
            entry.is_at_rest = true;
            entry.state.object = compressed.unwrap_or_else(|| Arc::clone(object));
        }
    }

    /// The stanzas of some objects with the sum of their lengths, the largest ones first.
    pub fn largest_stanzas(&self, sample: usize) -> Vec<(String, usize)> {
        let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
        for (_, object) in self.all(None).take(sample) {
            for (stanza, json) in object.stanzas() {
                *sizes.entry(stanza.to_owned()).or_default() += json.len();
            }
        }
        let mut sizes: Vec<_> = sizes.into_iter().collect();
        sizes.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
        sizes
    }
}
