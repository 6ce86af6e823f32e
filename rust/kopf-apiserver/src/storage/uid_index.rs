//! Index of stored objects by uid.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::storage::object::{Key, Stored};

/// Key of an object in the store: its table, and its key there.
pub(super) type ObjectKey = (Arc<str>, Key);

/// Objects by the uid of an owner.
type Dependents = HashMap<Box<str>, BTreeSet<ObjectKey>>;

/// Index of objects by uid and by owner.
#[derive(Debug, Default)]
pub(super) struct UidIndex {
    pub(super) objects: HashMap<Box<str>, ObjectKey>,
    pub(super) dependents: Dependents,
    /// The dependents that the foreground deletion of the owner waits for.
    pub(super) blocking: Dependents,
}

impl UidIndex {
    pub(super) fn add(&mut self, table: &Arc<str>, key: &Key, object: &Stored) {
        let object_key = (table.clone(), key.clone());
        self.objects.insert(object.uid.clone(), object_key.clone());
        add_to(&mut self.dependents, object.owners(), &object_key);
        add_to(&mut self.blocking, &object.blocked_owners, &object_key);
    }
    pub(super) fn remove(&mut self, table: &Arc<str>, key: &Key, object: &Stored) {
        let object_key = (table.clone(), key.clone());
        if self.objects.get(&object.uid) == Some(&object_key) {
            self.objects.remove(&object.uid);
        }
        remove_from(&mut self.dependents, object.owners(), &object_key);
        remove_from(&mut self.blocking, &object.blocked_owners, &object_key);
    }
}

fn add_to(dependents: &mut Dependents, owners: &[Box<str>], object_key: &ObjectKey) {
    for owner in owners {
        dependents.entry(owner.clone()).or_default().insert(object_key.clone());
    }
}

fn remove_from(dependents: &mut Dependents, owners: &[Box<str>], object_key: &ObjectKey) {
    for owner in owners {
        if let Some(keys) = dependents.get_mut(owner) {
            keys.remove(object_key);
            if keys.is_empty() {
                dependents.remove(owner);
            }
        }
    }
}
