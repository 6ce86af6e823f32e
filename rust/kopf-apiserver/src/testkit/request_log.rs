//! Log of handled requests, for assertions of tests.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use bytes::Bytes;

/// Maximum number of requests.
const REQUEST_LIMIT: usize = 10_000;
/// Maximum size of a logged body, in bytes.
const BODY_LIMIT: usize = 64 * 1024;
/// Maximum size of all logged bodies, in bytes. The oldest requests are dropped.
const TOTAL_BODY_LIMIT: usize = 64 * 1024 * 1024;

/// A handled request.
#[derive(Clone, Debug)]
pub struct LoggedRequest {
    /// Time since the start of the server.
    pub at: Duration,
    /// The HTTP method.
    pub method: String,
    /// Path without query.
    pub path: String,
    /// Raw query.
    pub query: String,
    /// `content-type` of the request.
    pub content_type: String,
    /// `accept` of the request.
    pub accept: String,
    /// `user-agent` of the request.
    pub user_agent: String,
    /// Body; truncated if it is long.
    pub body: Bytes,
    /// Status code of the response; 0 if the connection was reset.
    pub code: u16,
    /// Name of the user.
    pub user: String,
}

/// Log of requests, oldest first.
#[derive(Debug)]
pub struct RequestLog {
    start: Instant,
    entries: Mutex<Requests>,
    /// Number of all requests, including dropped ones.
    count: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Requests {
    requests: VecDeque<LoggedRequest>,
    /// Size of all bodies.
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
    /// Logged requests.
    pub fn entries(&self) -> Vec<LoggedRequest> {
        self.lock().requests.iter().cloned().collect()
    }
    /// Number of all requests, and the logged ones after the first `count`.
    pub fn since(&self, count: u64) -> (u64, Vec<LoggedRequest>) {
        let entries = &self.lock().requests;
        let total = *self.count.borrow();
        let new = usize::try_from(total.saturating_sub(count)).unwrap_or(usize::MAX);
        let skipped = entries.len().saturating_sub(new);
        (total, entries.iter().skip(skipped).cloned().collect())
    }
    /// Number of all requests, with notification. Effects of a request are visible before it is counted.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }
    /// Removes all entries.
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
        // Under the lock, so that the count and the entries are consistent.
        self.count.send_modify(|count| *count += 1);
    }
}
