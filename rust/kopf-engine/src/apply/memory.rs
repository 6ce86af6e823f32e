//! The memory of a client between calls. It only saves requests.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use kopf_core::apply::{ChildKey, Digest, Owner};
use kopf_core::object::Object;

/// The maximum number of remembered children, and of owners. Those that were not used for the longest time are forgotten.
const MAX: usize = 50_000;

/// The memory of a client.
#[derive(Default)]
pub struct Memory {
    children: Recent<ChildKey, Option<KnownChild>>,
    owners: Recent<String, OwnerState>,
}

/// A child after its last apply.
#[derive(Clone, Debug)]
pub(super) struct KnownChild {
    /// The field manager.
    pub(super) manager: String,
    /// The uid of the owner.
    pub(super) owner: String,
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
    fn slot(&self, key: &K) -> Slot<T> {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
