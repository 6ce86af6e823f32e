//! The queue of background work.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// One piece of work.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WorkItem {
    /// An object with dependents is gone: its uid.
    OwnerDeleted(Box<str>),
    /// A dependent is gone: its owner's uid.
    DependentDeleted(Box<str>),
    /// An object has new owners: do they exist?
    OwnersChanged(Arc<str>, Box<str>, Box<str>),
    /// An object was marked for deletion and may wait for its dependents.
    DeletionStarted(Arc<str>, Box<str>, Box<str>),
    /// A namespace ends.
    NamespaceDeletion(Box<str>),
    /// A declared kind ends.
    CrdDeletion(Box<str>),
    /// A controller has to look at an object.
    Reconcile(Arc<str>, Box<str>, Box<str>),
    /// The same later, when time has passed.
    AdvancePod(Box<str>, Box<str>),
}

/// The work that waits, in order. What waits already is not added again, so that the number of objects limits it.
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
    fn work_that_waits_is_not_added_again() {
        let queue = WorkQueue::default();
        let work = |name: &str| WorkItem::NamespaceDeletion(name.into());
        for name in ["a", "b", "a"] {
            queue.add(work(name));
        }
        assert_eq!(queue.try_next(), Some(work("a")));
        // It is being done now: what happens meanwhile is looked at later.
        queue.add(work("a"));
        assert_eq!(
            [queue.try_next(), queue.try_next(), queue.try_next()],
            [Some(work("b")), Some(work("a")), None]
        );
    }
}
