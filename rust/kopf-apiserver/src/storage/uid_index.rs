//! Index of stored objects by uid.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::storage::object::{Key, Stored};

/// Key of an object in the store: its table, and its key there.
pub(super) type ObjectKey = (Arc<str>, Key);

/// Index of objects by uid and by owner.
#[derive(Debug, Default)]
pub(super) struct UidIndex {
    pub(super) objects: HashMap<Box<str>, ObjectKey>,
    pub(super) dependents: HashMap<Box<str>, BTreeSet<ObjectKey>>,
}

impl UidIndex {
    pub(super) fn add(&mut self, table: &Arc<str>, key: &Key, object: &Stored) {
        let object_key = || (table.clone(), key.clone());
        self.objects.insert(object.uid.clone(), object_key());
        for owner in object.owners() {
            self.dependents.entry(owner.clone()).or_default().insert(object_key());
        }
    }
    pub(super) fn remove(&mut self, table: &Arc<str>, key: &Key, object: &Stored) {
        let object_key = (table.clone(), key.clone());
        if self.objects.get(&object.uid) == Some(&object_key) {
            self.objects.remove(&object.uid);
        }
        for owner in object.owners() {
            if let Some(keys) = self.dependents.get_mut(owner) {
                keys.remove(&object_key);
                if keys.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
    }
}
