//! What was there already when a stream began: it waits behind what happens now.
//!
//! Only so many objects of a listing are worked on at once. The others wait in their slots, with no task, until one of those
//! has had its turn; unless they change, which makes them as urgent as any other change. What waits is bounded in bytes: then
//! the stream is held. Nothing here waits or talks.

use std::collections::VecDeque;
use std::sync::Arc;

/// How many objects of a listing are worked on at once.
pub const WINDOW: usize = 500;
/// How many bytes of objects may wait, before reading of the stream is held.
const MOST_BYTES: usize = 256 * 1024 * 1024;

/// The objects of one stream that wait for their turn.
#[derive(Debug, Default)]
pub struct Backlog {
    waiting: VecDeque<Arc<str>>,
    running: usize,
    bytes: usize,
}

impl Backlog {
    /// Whether another one has to wait.
    pub fn is_full(&self, window: usize) -> bool {
        self.running >= window
    }

    /// Whether too much is kept here to read on.
    pub fn is_heavy(&self) -> bool {
        self.bytes > MOST_BYTES
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
    }

    /// One of those that wait does not do so any longer.
    pub fn left(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
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
