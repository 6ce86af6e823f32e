//! Objects that a derived label selector does not match any more.
//!
//! The watch reports such an object as deleted, and a list does not contain it, as after a deletion. So the object is looked
//! up. If it does not exist, it was deleted. If it exists, its new state is handled as a change, and its slot is removed when
//! nothing is left to do. The watch does not report its further changes, so it is looked up again after each of our writes. The
//! selectors are derived in `kopf_core::handler::label_selector`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use kopf_core::handler::label_selector::DerivedSelector;
use kopf_core::object::Object;
use tokio::sync::Notify;

/// Number of pending lookups above which the watch is not read.
pub(crate) const MAX_LOOKUPS: usize = 500;

/// The objects of one watch that its derived selector does not match any more.
#[derive(Debug)]
pub struct SelectorMatchTracker {
    pub(crate) selector: DerivedSelector,
    /// Namespaces and names of the known objects, by their keys: for lookups.
    pub(crate) addresses: HashMap<Arc<str>, Box<str>>,
    pub(crate) lookups: HashMap<Arc<str>, PendingLookup>,
    pub(crate) queue: VecDeque<(Arc<str>, u64)>,
    pub(crate) tickets: u64,
    pub(crate) lookup_requested: Arc<Notify>,
    pub(crate) listed: Arc<Notify>,
}

/// An object whose current state is looked up.
#[derive(Debug)]
pub(crate) struct PendingLookup {
    /// Identifies this lookup; responses to earlier ones are ignored.
    pub(crate) ticket: u64,
    /// The object of the deletion event; none if a listing did not contain the object.
    pub(crate) last: Option<Arc<Object>>,
}

impl SelectorMatchTracker {
    /// A tracker for a watch with this selector.
    pub fn from(selector: DerivedSelector) -> Self {
        Self {
            selector,
            addresses: HashMap::new(),
            lookups: HashMap::new(),
            queue: VecDeque::new(),
            tickets: 0,
            lookup_requested: Arc::default(),
            listed: Arc::default(),
        }
    }

    /// The watch delivers the object: a pending lookup is cancelled.
    pub(crate) fn on_selected(&mut self, key: &Arc<str>, object: &Object) {
        self.lookups.remove(key);
        self.record_address(key, object);
    }

    pub(crate) fn record_address(&mut self, key: &Arc<str>, object: &Object) {
        let address =
            || [object.namespace().unwrap_or_default(), object.name().unwrap_or_default()].join("/");
        self.addresses.entry(Arc::clone(key)).or_insert_with(|| address().into_boxed_str());
    }

    /// Requests a lookup of an object; false if its address is unknown.
    pub(crate) fn enqueue_lookup(&mut self, key: &Arc<str>, last: Option<Arc<Object>>) -> bool {
        if !self.addresses.contains_key(key) {
            return false;
        }
        if last.is_some() || !self.lookups.contains_key(key) {
            self.tickets += 1;
            self.lookups.insert(Arc::clone(key), PendingLookup { ticket: self.tickets, last });
            self.queue.push_back((Arc::clone(key), self.tickets));
            self.lookup_requested.notify_one();
        }
        true
    }

    pub(crate) fn is_looked_up(&self, key: &str, ticket: u64) -> bool {
        self.lookups.get(key).is_some_and(|lookups| lookups.ticket == ticket)
    }

    /// The next object to look up, its address, and the ticket.
    pub(crate) fn next(&mut self) -> Option<(Arc<str>, Box<str>, u64)> {
        while let Some((key, ticket)) = self.queue.pop_front() {
            if self.is_looked_up(&key, ticket)
                && let Some(address) = self.addresses.get(&key)
            {
                let address = address.clone();
                return Some((key, address, ticket));
            }
        }
        None
    }

    /// The lookup task has ended although lookups may be pending: starts it again.
    pub(crate) fn restart(&mut self) {
        let mut tickets: Vec<_> =
            self.lookups.iter().map(|(key, lookups)| (Arc::clone(key), lookups.ticket)).collect();
        tickets.sort_unstable_by_key(|(_, ticket)| *ticket);
        self.queue = tickets.into();
    }

    /// Removes an object.
    pub(crate) fn forget(&mut self, key: &str) {
        self.addresses.remove(key);
        self.lookups.remove(key);
    }

    /// Takes over the state of the previous watch of the same objects.
    pub fn inherit(&mut self, other: Self) {
        self.addresses.extend(other.addresses);
        for (key, lookups) in other.lookups {
            self.enqueue_lookup(&key, lookups.last);
        }
    }
}
