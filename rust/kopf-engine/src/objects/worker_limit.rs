//! The limit of concurrent workers of one watch, and how many of them wait for a permit.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::context::DispatchContext;

/// The limit of concurrent workers of one watch.
#[derive(Debug)]
pub struct WorkerLimit {
    permits: Semaphore,
    waiting: AtomicUsize,
}

/// A worker that waits for a permit, until it is dropped.
struct WaitingGuard<'a>(&'a AtomicUsize);

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl WorkerLimit {
    /// A limit of so many workers, at least one.
    pub fn new(limit: usize) -> Self {
        Self { permits: Semaphore::new(limit.max(1)), waiting: AtomicUsize::new(0) }
    }

    /// Waits for a permit. Meanwhile, the worker only counts for the backpressure of this watch, not for that of the others: they have
    /// other permits.
    pub async fn acquire(&self, shared: &DispatchContext) -> Option<SemaphorePermit<'_>> {
        if let Ok(permit) = self.permits.try_acquire() {
            return Some(permit);
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = (WaitingGuard(&self.waiting), shared.sleeping());
        // The semaphore is never closed.
        self.permits.acquire().await.ok()
    }

    /// How many workers wait for a permit.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}
