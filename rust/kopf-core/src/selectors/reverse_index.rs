//! A relation between objects and keys, with look-ups in both directions.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

/// The keys of each object, and the objects of each key. Objects without keys take no memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReverseIndex<O, K> {
    keys: BTreeMap<O, BTreeSet<K>>,
    objects: BTreeMap<K, BTreeSet<O>>,
}

impl<O, K> Default for ReverseIndex<O, K> {
    fn default() -> Self {
        Self { keys: BTreeMap::new(), objects: BTreeMap::new() }
    }
}

impl<O: Ord + Clone, K: Ord + Clone> ReverseIndex<O, K> {
    /// Replaces the keys of an object; with none, the object is removed.
    pub fn set(&mut self, object: O, keys: impl IntoIterator<Item = K>) {
        let keys: BTreeSet<K> = keys.into_iter().collect();
        let before = self.keys.remove(&object).unwrap_or_default();
        for key in before.difference(&keys) {
            if let Some(objects) = self.objects.get_mut(key) {
                objects.remove(&object);
                if objects.is_empty() {
                    self.objects.remove(key);
                }
            }
        }
        for key in keys.difference(&before) {
            self.objects.entry(key.clone()).or_default().insert(object.clone());
        }
        if !keys.is_empty() {
            self.keys.insert(object, keys);
        }
    }

    /// Removes an object.
    pub fn remove(&mut self, object: O) {
        self.set(object, []);
    }

    /// The objects of a key, in their order.
    pub fn objects<'s, Q: Ord + ?Sized>(&'s self, key: &Q) -> impl Iterator<Item = &'s O> + use<'s, O, K, Q>
    where
        K: Borrow<Q>,
    {
        self.objects.get(key).into_iter().flatten()
    }

    /// All keys, in their order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.objects.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_index_is_a_searched_list(changes in vec((0_u8..6, vec(0_u8..6, 0..4)), 0..40)) {
            let mut index = ReverseIndex::default();
            let mut listed: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
            for (object, keys) in changes {
                index.set(object, keys.clone());
                listed.insert(object, keys);
                for key in 0..6 {
                    let found = listed.iter().filter(|(_, keys)| keys.contains(&key)).map(|(object, _)| object);
                    prop_assert!(index.objects(&key).eq(found));
                }
                let keys: BTreeSet<_> = listed.values().flatten().collect();
                prop_assert!(index.keys().eq(keys));
                prop_assert!(index.keys.values().all(|keys| !keys.is_empty()));
            }
        }
    }

    #[test]
    fn removed_objects_leave_nothing() {
        let mut index = ReverseIndex::default();
        index.set("pod", ["a", "b", "a"]);
        assert_eq!(index.keys().count(), 2);
        index.remove("pod");
        assert_eq!(index, ReverseIndex::default());
    }
}
