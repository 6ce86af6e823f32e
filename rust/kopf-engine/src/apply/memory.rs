//! The memory of a client between calls. It only saves requests.
//!
//! Objects are forgotten when their deletion is observed, or when a listing does not have them, and the children of an owner with it.
//! If they are not watched, the maximum number applies.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kopf_core::apply::{ChildKey, Digest, Owner};
use kopf_core::object::Object;

use super::listing::Listing;

/// The maximum number of remembered children, and of owners. Those that were not used for the longest time are forgotten.
const MAX: usize = 50_000;
/// The children of deleted owners are searched among so many children for each such owner. So the search costs the same for each
/// deletion, however many children are remembered.
const SEARCHED: usize = 1000;

/// The memory of a client.
#[derive(Default)]
pub struct Memory {
    children: Recent<ChildKey, Option<KnownChild>>,
    owners: Recent<String, OwnerState>,
    /// The uids of deleted owners whose children may still be remembered.
    deleted: Mutex<HashSet<Box<str>>>,
}

/// A child after its last apply.
#[derive(Clone, Debug)]
pub(super) struct KnownChild {
    /// The field manager.
    pub(super) manager: Arc<str>,
    /// The uid of the owner.
    pub(super) owner: Arc<str>,
    /// The name of the owner.
    pub(super) owner_key: Arc<ChildKey>,
    /// The digest of the desired object.
    pub(super) desired: Digest,
    /// The resource version in the response.
    pub(super) version: String,
    /// The digest of the owned fields in the response.
    pub(super) owned: Option<Digest>,
    /// When the manager's last effective write was executed.
    pub(super) written: String,
    /// The fields that were left out.
    pub(super) yielded: Vec<String>,
    /// The number of pauses and terms at that time; none during a pause.
    pub(super) pauses: Option<u64>,
    /// Whether it belongs to another owner, who may change the marks that the next apply repeats.
    pub(super) is_shared: bool,
    /// The response, if the newest version of the child is known without a cache.
    pub(super) response: Option<Arc<Object>>,
}

/// The owner of an `ApplySet`.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnerState {
    /// Its name.
    pub(super) key: Option<Arc<ChildKey>>,
    /// The owner in the response to our last patch of it.
    pub(super) patched: Option<Owner>,
    /// The members after the last complete pruning, and all that were planned since then.
    pub(super) members: Option<BTreeSet<ChildKey>>,
    /// The number of pauses and terms at which the members are known; none during a pause.
    pub(super) pauses: Option<u64>,
}

/// A slot that only one call uses at a time.
pub(super) type Slot<T> = Arc<tokio::sync::Mutex<T>>;

impl Memory {
    /// The slot of a child. Calls that apply the same child wait for each other.
    pub(super) fn child(&self, key: &ChildKey) -> Slot<Option<KnownChild>> {
        self.children.slot(key)
    }

    /// The slot of an owner, by its uid.
    pub(super) fn owner(&self, uid: &str) -> Slot<OwnerState> {
        self.owners.slot(&uid.to_owned())
    }

    /// A child is deleted, or does not belong to its owner any more.
    pub(super) fn forget_child(&self, key: &ChildKey) {
        self.children.remove(key);
    }

    /// An owner is deleted: forgets it and its children, the latter together with those of other owners.
    pub(super) fn forget_owner(&self, uid: &str) {
        self.owners.remove(&uid.to_owned());
        let count = self.children.len();
        if count == 0 {
            return;
        }
        let mut deleted = self.deleted.lock().unwrap_or_else(PoisonError::into_inner);
        deleted.insert(uid.into());
        if deleted.len() * SEARCHED < count {
            return;
        }
        let owners = std::mem::take(&mut *deleted);
        drop(deleted);
        self.children.retain(|_, known| known.as_ref().is_some_and(|known| !owners.contains(&*known.owner)));
    }

    /// A listing is complete: forgets the children and owners that it does not have, and the children of these owners. Some of them
    /// may exist: those that were created during the listing.
    pub(super) fn forget_unlisted(&self, listing: &Listing) {
        self.owners.retain(|uid, state| !state.key.as_ref().is_some_and(|key| listing.lacks_uid(key, uid)));
        self.children.retain(|key, known| {
            !listing.lacks(key)
                && known.as_ref().is_some_and(|known| !listing.lacks_uid(&known.owner_key, &known.owner))
        });
    }

    /// Whether nothing is remembered.
    pub(super) fn is_empty(&self) -> bool {
        self.children.len() == 0 && self.owners.len() == 0
    }
}

/// Slots with the times of their last use.
struct Recent<K, T>(Mutex<(u64, Uses<K, T>)>);

type Uses<K, T> = HashMap<K, (u64, Slot<T>)>;

impl<K, T> Default for Recent<K, T> {
    fn default() -> Self {
        Self(Mutex::new((0, HashMap::new())))
    }
}

impl<K: Clone + Eq + Hash, T: Default> Recent<K, T> {
    fn guard(&self) -> MutexGuard<'_, (u64, Uses<K, T>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn len(&self) -> usize {
        self.guard().1.len()
    }

    /// Removes a slot, unless it is in use.
    fn remove(&self, key: &K) {
        let (_, slots) = &mut *self.guard();
        if slots.get(key).is_some_and(|(_, slot)| Arc::strong_count(slot) == 1) {
            slots.remove(key);
        }
    }

    /// Removes the slots that are not to be kept, unless they are in use.
    fn retain(&self, is_kept: impl Fn(&K, &T) -> bool) {
        let (_, slots) = &mut *self.guard();
        slots.retain(|key, (_, slot)| {
            Arc::strong_count(slot) > 1 || slot.try_lock().map_or(true, |value| is_kept(key, &value))
        });
        slots.shrink_to(slots.len() * 2);
    }

    fn slot(&self, key: &K) -> Slot<T> {
        let mut guard = self.guard();
        let (time, slots) = &mut *guard;
        *time += 1;
        let now = *time;
        if slots.len() >= MAX && !slots.contains_key(key) {
            let mut uses: Vec<u64> = slots.values().map(|(used, _)| *used).collect();
            let (_, median, _) = uses.select_nth_unstable(MAX / 2);
            let median = *median;
            // Slots in use are kept, so that their locks are effective.
            slots.retain(|_, (used, slot)| *used > median || Arc::strong_count(slot) > 1);
        }
        let (used, slot) = slots.entry(key.clone()).or_default();
        *used = now;
        Arc::clone(slot)
    }
}

#[cfg(test)]
impl Memory {
    /// The number of remembered children, and of owners.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.children.len(), self.owners.len())
    }
}

#[cfg(test)]
mod tests {
    use kopf_core::resource::Resource;

    use super::*;
    use crate::testing::resource;

    fn key(name: &str) -> ChildKey {
        ChildKey {
            group: String::new(),
            kind: "ConfigMap".to_owned(),
            namespace: None,
            name: name.to_owned(),
        }
    }

    /// Remembers a child of the owner, which is of the kind `Owner` and has its uid as its name.
    fn remember(memory: &Memory, name: &str, owner: &str) {
        let owner_key = Arc::new(ChildKey { kind: "Owner".to_owned(), ..key(owner) });
        let known = KnownChild {
            manager: "me".into(),
            owner: owner.into(),
            owner_key: Arc::clone(&owner_key),
            desired: Digest::of(&kopf_core::json::value::Value::Null),
            version: "1".to_owned(),
            owned: None,
            written: String::new(),
            yielded: vec![],
            pauses: None,
            is_shared: false,
            response: None,
        };
        *memory.child(&key(name)).try_lock().unwrap() = Some(known);
        memory.owner(owner).try_lock().unwrap().key = Some(owner_key);
    }

    /// A listing with an object of this name and uid.
    fn listing(kind: &str, namespace: Option<&str>, (name, uid): (&str, &str)) -> Listing {
        let resource = Resource {
            group: String::new(),
            kind: Some(kind.to_owned()),
            ..(*resource("example.com", "things", true)).clone()
        };
        let mut listing = Listing::new(Arc::new(resource), namespace.map(str::to_owned));
        let text = format!(r#"{{"metadata": {{"name": "{name}", "uid": "{uid}"}}}}"#);
        listing.add(&Object::decode(&text).unwrap());
        listing
    }

    #[test]
    fn a_listing_without_an_object_forgets_it_and_its_children() {
        let counts = |listing: Listing| {
            let memory = Memory::default();
            for (name, owner) in [("a", "x"), ("b", "x"), ("c", "y")] {
                remember(&memory, name, owner);
            }
            memory.forget_unlisted(&listing);
            memory.counts()
        };
        assert_eq!(counts(listing("Owner", None, ("x", "x"))), (2, 1));
        assert_eq!(counts(listing("Owner", None, ("x", "another object of this name"))), (0, 0));
        assert_eq!(counts(listing("ConfigMap", None, ("a", "of a"))), (1, 2));
        for (kind, namespace) in [("Other", None), ("Owner", Some("ns")), ("ConfigMap", Some("ns"))] {
            assert_eq!(counts(listing(kind, namespace, ("a", "of a"))), (3, 2), "{kind} {namespace:?}");
        }
    }

    #[test]
    fn deleted_children_and_those_of_deleted_owners_are_forgotten() {
        let memory = Memory::default();
        memory.forget_owner("x");
        for (name, owner) in [("a", "x"), ("b", "x"), ("c", "y")] {
            remember(&memory, name, owner);
        }
        memory.forget_child(&key("c"));
        assert_eq!(memory.counts(), (2, 2));
        memory.forget_owner("z");
        assert_eq!(memory.counts(), (2, 2));
        memory.forget_owner("x");
        assert_eq!(memory.counts(), (0, 1));
    }

    #[test]
    fn slots_in_use_are_kept() {
        let memory = Memory::default();
        remember(&memory, "a", "x");
        let slot = memory.child(&key("a"));
        memory.forget_owner("x");
        memory.forget_child(&key("a"));
        assert!(Arc::ptr_eq(&slot, &memory.child(&key("a"))));
    }

    #[test]
    fn the_children_of_many_owners_are_searched_together() {
        let memory = Memory::default();
        for number in 0..3 * SEARCHED {
            remember(&memory, &number.to_string(), &format!("owner of {number}"));
        }
        for (number, count) in [(0, 3 * SEARCHED), (1, 3 * SEARCHED), (2, 3 * SEARCHED - 3)] {
            memory.forget_owner(&format!("owner of {number}"));
            assert_eq!(memory.counts().0, count);
        }
    }
}
