//! The queue of background work.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// One piece of work.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    /// An object with dependents is gone: its uid.
    Removed(Box<str>),
    /// A dependent is gone: its owner's uid.
    Owner(Box<str>),
    /// An object has new owners: do they exist?
    Owned(Arc<str>, Box<str>, Box<str>),
    /// An object was marked for deletion and may wait for its dependents.
    Deleting(Arc<str>, Box<str>, Box<str>),
    /// A namespace ends.
    Namespace(Box<str>),
    /// A declared kind ends.
    Definition(Box<str>),
    /// A controller has to look at an object.
    Control(Arc<str>, Box<str>, Box<str>),
    /// The same later, when time has passed.
    Pod(Box<str>, Box<str>),
}

/// The work that waits, in order. What waits already is not added again, so that the number of objects limits it.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    order: VecDeque<Work>,
    known: HashSet<Work>,
}

impl Queue {
    pub(crate) fn add(&self, work: Work) {
        let mut waiting = self.lock();
        if waiting.known.insert(work.clone()) {
            waiting.order.push_back(work);
            self.added.notify_one();
        }
    }
    pub(crate) fn try_next(&self) -> Option<Work> {
        let mut waiting = self.lock();
        let work = waiting.order.pop_front()?;
        waiting.known.remove(&work);
        Some(work)
    }
    pub(crate) async fn next(&self) -> Work {
        loop {
            match self.try_next() {
                Some(work) => return work,
                None => self.added.notified().await,
            }
        }
    }
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_waits_is_not_added_again() {
        let queue = Queue::default();
        let work = |name: &str| Work::Namespace(name.into());
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
