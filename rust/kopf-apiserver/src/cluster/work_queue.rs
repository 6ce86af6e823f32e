//! Queue of background work.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Item of the work queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WorkItem {
    /// An object with dependents was deleted: its uid.
    OwnerDeleted(Box<str>),
    /// A dependent was deleted, or does not block its owner any more: the uid of the owner.
    DependentReleased(Box<str>),
    /// The owner references of an object have changed.
    OwnersChanged(Arc<str>, Box<str>, Box<str>),
    /// An object was marked for deletion; its dependents may block it.
    DeletionStarted(Arc<str>, Box<str>, Box<str>),
    /// A namespace is terminating.
    NamespaceDeletion(Box<str>),
    /// A CRD is terminating.
    CrdDeletion(Box<str>),
    /// An object of a simulated controller has changed.
    Reconcile(Arc<str>, Box<str>, Box<str>),
    /// A pod may advance to its next phase.
    AdvancePod(Box<str>, Box<str>),
}

/// Work queue in order of arrival. Items that are queued already are not added again, so its size is limited by the
/// number of objects.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    pending: Mutex<Pending>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    order: VecDeque<WorkItem>,
    queued: HashSet<WorkItem>,
}

impl WorkQueue {
    pub(crate) fn add(&self, work: WorkItem) {
        let mut pending = self.lock();
        if pending.queued.insert(work.clone()) {
            pending.order.push_back(work);
            self.added.notify_one();
        }
    }
    pub(crate) fn try_next(&self) -> Option<WorkItem> {
        let mut pending = self.lock();
        let work = pending.order.pop_front()?;
        pending.queued.remove(&work);
        Some(work)
    }
    pub(crate) async fn next(&self) -> WorkItem {
        loop {
            match self.try_next() {
                Some(work) => return work,
                None => self.added.notified().await,
            }
        }
    }
    fn lock(&self) -> std::sync::MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queued_items_are_not_added_again() {
        let queue = WorkQueue::default();
        let work = |name: &str| WorkItem::NamespaceDeletion(name.into());
        for name in ["a", "b", "a"] {
            queue.add(work(name));
        }
        assert_eq!(queue.try_next(), Some(work("a")));
        // An item that is being processed can be queued again.
        queue.add(work("a"));
        assert_eq!(
            [queue.try_next(), queue.try_next(), queue.try_next()],
            [Some(work("b")), Some(work("a")), None]
        );
    }
}
