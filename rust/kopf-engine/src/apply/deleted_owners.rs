//! The owners whose deletion was observed: nothing is applied for them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of remembered deletions. Calls for an owner end soon after its deletion.
const MAX: usize = 1000;

/// The uids of the objects whose deletion was observed last. It only saves requests: the garbage collector deletes what is applied
/// for objects that are gone.
#[derive(Debug, Default)]
pub struct DeletedOwners(Mutex<VecDeque<Box<str>>>);

impl DeletedOwners {
    fn uids(&self) -> MutexGuard<'_, VecDeque<Box<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the deletion of an object.
    pub(super) fn add(&self, uid: &str) {
        let mut uids = self.uids();
        if uids.len() == MAX {
            uids.pop_front();
        }
        uids.push_back(uid.into());
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
