//! Objects that a derived label selector does not match any more.
//!
//! The watch reports such an object as deleted, and a list does not contain it; a deletion looks the same. So the object is
//! looked up. If it exists, its new state is handled as a change, and it is forgotten when nothing is left to do. The watch does
//! not report its changes, so it is looked up again after each write of ours. If it does not exist, it was deleted. The
//! selectors are derived in `kopf_core::handler::label_selector`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use kopf_core::handler::label_selector::DerivedSelector;
use kopf_core::object::Object;
use tokio::sync::Notify;

/// If so many are to be asked for, the stream is not read any further.
pub(crate) const MAX_LOOKUPS: usize = 500;

/// Whether the derived selector of the watch matches an object.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Membership {
    /// The stream tells of it.
    #[default]
    Selected,
    /// The stream does not tell of it any more.
    Deselected,
    /// The same, and it is not now as the server has last told it.
    Stale,
}

/// The objects of one watch that its derived selector does not match any more.
#[derive(Debug)]
pub struct MembershipTracker {
    pub(crate) selector: DerivedSelector,
    /// Where the known objects are to be asked for: namespaces and names by keys.
    pub(crate) addresses: HashMap<Arc<str>, Box<str>>,
    pub(crate) lookups: HashMap<Arc<str>, PendingLookup>,
    pub(crate) queue: VecDeque<(Arc<str>, u64)>,
    pub(crate) tickets: u64,
    pub(crate) news: Arc<Notify>,
    pub(crate) listed: Arc<Notify>,
}

/// An object whose current state is looked up.
#[derive(Debug)]
pub(crate) struct PendingLookup {
    /// What the answer must be for, to be of any use.
    pub(crate) ticket: u64,
    /// What the stream has told of its deletion; nothing if a listing did not have it.
    pub(crate) last: Option<Arc<Object>>,
}

impl MembershipTracker {
    /// From a stream with this selector.
    pub fn from(selector: DerivedSelector) -> Self {
        Self {
            selector,
            addresses: HashMap::new(),
            lookups: HashMap::new(),
            queue: VecDeque::new(),
            tickets: 0,
            news: Arc::default(),
            listed: Arc::default(),
        }
    }

    /// The stream tells of the object: whoever looks for it may stop.
    pub(crate) fn arrived(&mut self, key: &Arc<str>, object: &Object) {
        self.lookups.remove(key);
        self.note(key, object);
    }

    pub(crate) fn note(&mut self, key: &Arc<str>, object: &Object) {
        let address =
            || [object.namespace().unwrap_or_default(), object.name().unwrap_or_default()].join("/");
        self.addresses.entry(Arc::clone(key)).or_insert_with(|| address().into_boxed_str());
    }

    /// Has the server asked for an object; false if it is not known where that is.
    pub(crate) fn enqueue_lookup(&mut self, key: &Arc<str>, last: Option<Arc<Object>>) -> bool {
        if !self.addresses.contains_key(key) {
            return false;
        }
        if last.is_some() || !self.lookups.contains_key(key) {
            self.tickets += 1;
            self.lookups.insert(Arc::clone(key), PendingLookup { ticket: self.tickets, last });
            self.queue.push_back((Arc::clone(key), self.tickets));
            self.news.notify_one();
        }
        true
    }

    pub(crate) fn is_looked_up(&self, key: &str, ticket: u64) -> bool {
        self.lookups.get(key).is_some_and(|lookups| lookups.ticket == ticket)
    }

    /// The next object to ask for, where it is, and the ticket.
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

    /// The task that asks has ended, though there may be something to ask for: starts it again.
    pub(crate) fn restart(&mut self) {
        let mut tickets: Vec<_> =
            self.lookups.iter().map(|(key, lookups)| (Arc::clone(key), lookups.ticket)).collect();
        tickets.sort_unstable_by_key(|(_, ticket)| *ticket);
        self.queue = tickets.into();
    }

    /// An object is forgotten.
    pub(crate) fn forget(&mut self, key: &str) {
        self.addresses.remove(key);
        self.lookups.remove(key);
    }

    /// Takes over what another stream has left of the same objects.
    pub fn inherit(&mut self, other: Self) {
        self.addresses.extend(other.addresses);
        for (key, lookups) in other.lookups {
            self.enqueue_lookup(&key, lookups.last);
        }
    }
}
