//! The backlog: initial objects of a watch, which are handled after current changes.
//!
//! Only a limited number of listed objects is worked on concurrently. The others wait in their slots, without a task, until one
//! of those is done, or until none of them has ended for long: their handlers may never return. An object that changes meanwhile leaves the backlog and is handled at once. The waiting objects are
//! bounded in bytes, for all watches of an operator together; above that, watches with a non-empty backlog are not read. This
//! module does no I/O and does not block.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of listed objects that are worked on concurrently.
pub const WINDOW: usize = 500;
/// Bytes of waiting objects per operator above which watches are not read.
const MOST_BYTES: usize = 256 * 1024 * 1024;

/// The waiting objects of one watch.
#[derive(Debug, Default)]
pub struct Backlog {
    waiting: VecDeque<Arc<str>>,
    running: usize,
    /// How many of the running ones do not count, since none of them has ended for long.
    stalled: usize,
    /// How many have ended so far.
    ended: u64,
    bytes: usize,
    /// Bytes of the waiting objects of all watches.
    total: Arc<AtomicUsize>,
}

impl Backlog {
    /// A backlog that shares its limit of bytes with others.
    pub fn sharing(total: Arc<AtomicUsize>) -> Self {
        Self { waiting: VecDeque::new(), running: 0, stalled: 0, ended: 0, bytes: 0, total }
    }

    /// Whether further listed objects have to wait.
    pub fn is_full(&self, window: usize) -> bool {
        self.running - self.stalled >= window
    }

    /// How many objects have ended so far.
    pub fn ends(&self) -> u64 {
        self.ended
    }

    /// None of the running objects has ended for long: they do not count any more, so that others start.
    pub fn discount_running(&mut self) {
        self.stalled = self.running;
    }

    /// Whether the watch is not to be read. A watch with an empty backlog is never held by the others.
    pub fn is_heavy(&self) -> bool {
        self.bytes > 0 && self.total.load(Ordering::Relaxed) > MOST_BYTES
    }

    /// The work on a listed object has begun.
    pub fn began(&mut self) {
        self.running += 1;
    }

    /// The work on a listed object is done.
    pub fn ended(&mut self) {
        self.running = self.running.saturating_sub(1);
        self.stalled = self.stalled.min(self.running);
        self.ended = self.ended.wrapping_add(1);
    }

    /// Adds an object, with its size in bytes.
    pub fn push(&mut self, key: Arc<str>, bytes: usize) {
        self.waiting.push_back(key);
        self.bytes += bytes;
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// An object of this size has left the backlog.
    pub fn left(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.total.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The bytes of the waiting objects.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether no object waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The key of the next object; the object may have left the backlog meanwhile.
    pub fn pop(&mut self) -> Option<Arc<str>> {
        let next = self.waiting.pop_front();
        if self.waiting.is_empty() {
            self.waiting.shrink_to_fit();
        }
        next
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_that_do_not_end_are_discounted() {
        let mut backlog = Backlog::default();
        (0..3).for_each(|_| backlog.began());
        assert!(backlog.is_full(3));
        backlog.discount_running();
        assert!(!backlog.is_full(3));
        (0..3).for_each(|_| backlog.began());
        assert!(backlog.is_full(3));
        (0..4).for_each(|_| backlog.ended());
        assert_eq!((backlog.ends(), backlog.is_full(1)), (4, false));
        backlog.began();
        assert!(backlog.is_full(1));
    }

    #[test]
    fn all_watches_share_the_limit() {
        let total = Arc::new(AtomicUsize::new(0));
        let [mut first, mut second, third] = [(); 3].map(|()| Backlog::sharing(Arc::clone(&total)));
        first.push(Arc::from("a"), MOST_BYTES);
        assert!(!first.is_heavy());
        second.push(Arc::from("b"), 1);
        assert!(first.is_heavy() && second.is_heavy());
        assert!(!third.is_heavy(), "its backlog is empty");
        drop(first);
        assert!(!second.is_heavy());
        second.left(5);
        assert_eq!(total.load(Ordering::Relaxed), 0);
    }
}
