//! What was there already when a stream began: it waits behind what happens now.
//!
//! Only so many objects of a listing are worked on at once. The others wait in their slots, with no task, until one of those
//! has had its turn; unless they change, which makes them as urgent as any other change. What waits is bounded in bytes, for
//! all streams of an operator together: then the streams that have a part in it are held. Nothing here waits or talks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many objects of a listing are worked on at once.
pub const WINDOW: usize = 500;
/// How many bytes of objects may wait in an operator, before reading of the streams is held.
const MOST_BYTES: usize = 256 * 1024 * 1024;

/// The objects of one stream that wait for their turn.
#[derive(Debug, Default)]
pub struct Backlog {
    waiting: VecDeque<Arc<str>>,
    running: usize,
    bytes: usize,
    /// The bytes of all streams.
    total: Arc<AtomicUsize>,
}

impl Backlog {
    /// One of several that share their limit.
    pub fn sharing(total: Arc<AtomicUsize>) -> Self {
        Self { waiting: VecDeque::new(), running: 0, bytes: 0, total }
    }

    /// Whether another one has to wait.
    pub fn is_full(&self, window: usize) -> bool {
        self.running >= window
    }

    /// Whether too much is kept to read on. A stream of which nothing waits is never held by the others.
    pub fn is_heavy(&self) -> bool {
        self.bytes > 0 && self.total.load(Ordering::Relaxed) > MOST_BYTES
    }

    /// One of a listing is worked on.
    pub fn began(&mut self) {
        self.running += 1;
    }

    /// One of them has had its turn.
    pub fn ended(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// One waits, with so many bytes.
    pub fn park(&mut self, key: Arc<str>, bytes: usize) {
        self.waiting.push_back(key);
        self.bytes += bytes;
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// One of those that wait does not do so any longer.
    pub fn left(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.total.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next one; it may have left meanwhile.
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
    fn all_streams_share_the_limit() {
        let total = Arc::new(AtomicUsize::new(0));
        let [mut first, mut second, third] = [(); 3].map(|()| Backlog::sharing(Arc::clone(&total)));
        first.park(Arc::from("a"), MOST_BYTES);
        assert!(!first.is_heavy());
        second.park(Arc::from("b"), 1);
        assert!(first.is_heavy() && second.is_heavy());
        assert!(!third.is_heavy(), "nothing of it waits");
        drop(first);
        assert!(!second.is_heavy());
        second.left(5);
        assert_eq!(total.load(Ordering::Relaxed), 0);
    }
}
