//! The journal: every request that was served, for assertions of tests.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use bytes::Bytes;

/// How many requests are remembered.
const REQUEST_LIMIT: usize = 10_000;
/// How much of a body is remembered.
const BODY_LIMIT: usize = 64 * 1024;
/// How much of all bodies is remembered: the oldest requests are forgotten for newer ones.
const TOTAL_BODY_LIMIT: usize = 64 * 1024 * 1024;

/// One request that was served.
#[derive(Clone, Debug)]
pub struct LoggedRequest {
    /// Since the server's start.
    pub at: Duration,
    /// The HTTP method.
    pub method: String,
    /// The path without the query.
    pub path: String,
    /// The raw query.
    pub query: String,
    /// `content-type` of the request.
    pub content_type: String,
    /// `accept` of the request.
    pub accept: String,
    /// `user-agent` of the request.
    pub user_agent: String,
    /// The body; longer ones are cut.
    pub body: Bytes,
    /// The answer's code; 0 when the connection was reset.
    pub code: u16,
    /// The user's name.
    pub user: String,
}

/// The requests of one server, oldest first.
#[derive(Debug)]
pub struct RequestLog {
    start: Instant,
    entries: Mutex<Requests>,
    /// How many there have been, also those that are forgotten.
    count: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Requests {
    requests: VecDeque<LoggedRequest>,
    /// The length of all bodies.
    bytes: usize,
}

impl Default for RequestLog {
    fn default() -> Self {
        Self { start: Instant::now(), entries: Mutex::default(), count: watch::Sender::new(0) }
    }
}

impl RequestLog {
    fn lock(&self) -> std::sync::MutexGuard<'_, Requests> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// What was served so far.
    pub fn entries(&self) -> Vec<LoggedRequest> {
        self.lock().requests.iter().cloned().collect()
    }
    /// How many were served so far, and those after the first so many, as far as they are still known.
    pub fn since(&self, count: u64) -> (u64, Vec<LoggedRequest>) {
        let entries = &self.lock().requests;
        let total = *self.count.borrow();
        let new = usize::try_from(total.saturating_sub(count)).unwrap_or(usize::MAX);
        let skipped = entries.len().saturating_sub(new);
        (total, entries.iter().skip(skipped).cloned().collect())
    }
    /// How many requests were served so far, and the news of that: when it is told, what they have changed is there.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }
    /// Forgets everything.
    pub fn clear(&self) {
        *self.lock() = Requests::default();
    }
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
    pub(crate) fn record(&self, mut entry: LoggedRequest) {
        if entry.body.len() > BODY_LIMIT {
            entry.body = Bytes::copy_from_slice(entry.body.get(..BODY_LIMIT).unwrap_or_default());
        }
        let mut entries = self.lock();
        entries.bytes += entry.body.len();
        entries.requests.push_back(entry);
        while entries.requests.len() > REQUEST_LIMIT || entries.bytes > TOTAL_BODY_LIMIT {
            let dropped = entries.requests.pop_front();
            entries.bytes -= dropped.map_or(0, |entry| entry.body.len());
        }
        // Under the lock: so whoever reads both, reads what belongs together.
        self.count.send_modify(|count| *count += 1);
    }
}
