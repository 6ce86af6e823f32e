//! History of a table: its latest events, which watches read.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::storage::object::Event;

/// Maximum number of events, and of their bytes, in the history of a table.
const MAX_EVENTS: usize = 10_000;
const MAX_BYTES: usize = 32 << 20;

/// The latest events of a table.
#[derive(Debug)]
pub(crate) struct History {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// Version of compaction: events up to it are dropped.
    compacted: u64,
}

impl History {
    /// An empty history after this version.
    pub(super) fn new(version: u64) -> Self {
        Self { events: VecDeque::new(), bytes: 0, compacted: version }
    }

    pub(super) fn record(&mut self, event: Event) {
        self.bytes += event.after.json.len();
        self.events.push_back(Arc::new(event));
        while self.events.len() > MAX_EVENTS || self.bytes > MAX_BYTES {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(old) = self.events.pop_front() {
            self.bytes = self.bytes.saturating_sub(old.after.json.len());
            self.compacted = old.version;
        }
    }

    /// Events after a version, the newest first. `Err` is the version of compaction, if that is later.
    pub(super) fn newest_since(&self, version: u64) -> Result<impl Iterator<Item = &Arc<Event>>, u64> {
        if version < self.compacted {
            return Err(self.compacted);
        }
        // From the end: readers are rarely far behind.
        Ok(self.events.iter().rev().take_while(move |event| event.version > version))
    }

    /// Events after a version, up to about this number of bytes, and whether there are no further events. `Err` is the
    /// version of compaction, if that is later.
    pub(super) fn since(&self, version: u64, bytes: usize) -> Result<(Vec<Arc<Event>>, bool), u64> {
        let new = self.newest_since(version)?.count();
        let known = self.events.len().saturating_sub(new);
        let mut left = bytes;
        let mut events = Vec::new();
        for event in self.events.range(known..) {
            if left == 0 {
                return Ok((events, false));
            }
            left = left.saturating_sub(event.after.json.len().max(1));
            events.push(event.clone());
        }
        Ok((events, true))
    }
}
