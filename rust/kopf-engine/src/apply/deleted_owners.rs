//! The owners whose deletion was observed: nothing is applied for them, and nothing is remembered of their children.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kopf_core::apply::ChildKey;

use super::listing::Listing;
use super::memory::Memory;

/// The number of remembered deletions. Calls for an owner end soon after its deletion.
const MAX: usize = 1000;

/// The uids of the objects whose deletion was observed last. It only saves requests: the garbage collector deletes what is applied
/// for objects that are gone.
#[derive(Debug, Default)]
pub struct DeletedOwners {
    uids: Mutex<VecDeque<Box<str>>>,
    /// The memories of the clients of the operator.
    memories: Mutex<Vec<Weak<Memory>>>,
}

impl DeletedOwners {
    fn uids(&self) -> MutexGuard<'_, VecDeque<Box<str>>> {
        self.uids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the memory of a client: it forgets objects that are deleted from now on.
    pub fn register(&self, memory: &Arc<Memory>) {
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        memories.retain(|known| known.strong_count() > 0);
        memories.push(Arc::downgrade(memory));
    }

    fn memories(&self) -> Vec<Arc<Memory>> {
        let memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        memories.iter().filter_map(Weak::upgrade).collect()
    }

    /// Records the deletion of an object.
    pub(super) fn add(&self, uid: &str) {
        let mut uids = self.uids();
        if uids.len() == MAX {
            uids.pop_front();
        }
        uids.push_back(uid.into());
        drop(uids);
        for memory in self.memories() {
            memory.forget_owner(uid);
        }
    }

    /// An object is deleted, or not watched any more: as a child, it is forgotten.
    pub(super) fn forget_child(&self, key: &ChildKey) {
        for memory in self.memories() {
            memory.forget_child(key);
        }
    }

    /// Whether nothing is remembered of any object.
    pub(super) fn has_no_memory(&self) -> bool {
        self.memories().iter().all(|memory| memory.is_empty())
    }

    /// A listing is complete: the objects that it does not have are forgotten.
    pub(super) fn forget_unlisted(&self, listing: &Listing) {
        for memory in self.memories() {
            memory.forget_unlisted(listing);
        }
    }

    /// Whether the deletion of the object was observed.
    pub(super) fn has(&self, uid: &str) -> bool {
        self.uids().iter().any(|known| **known == *uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_deletions_are_remembered() {
        let owners = DeletedOwners::default();
        for number in 0..=MAX {
            owners.add(&number.to_string());
        }
        assert!(owners.has("1") && owners.has(&MAX.to_string()) && !owners.has("0"));
    }
}
