//! The permit of a worker, if the number of the workers of a watch is limited.

use tokio::sync::SemaphorePermit;

use crate::context::DispatchContext;
use crate::objects::worker_limit::WorkerLimit;
use crate::objects::worker_signals::WorkerSignals;

/// The permit of one worker. It can be released while the worker sleeps.
pub(super) struct WorkerPermit<'a> {
    /// None without a limit.
    limit: Option<&'a WorkerLimit>,
    shared: &'a DispatchContext,
    signals: &'a WorkerSignals,
    permit: Option<SemaphorePermit<'a>>,
}

impl<'a> WorkerPermit<'a> {
    /// The permit of a worker, not acquired yet.
    pub(super) fn new(
        limit: Option<&'a WorkerLimit>,
        shared: &'a DispatchContext,
        signals: &'a WorkerSignals,
    ) -> Self {
        Self { limit, shared, signals, permit: None }
    }

    /// Waits for the permit, unless it is held already.
    pub(super) async fn acquire(&mut self) {
        if let (Some(limit), None) = (self.limit, &self.permit) {
            let _outside = self.signals.wait_outside();
            self.permit = limit.acquire(self.shared).await;
        }
    }

    /// Releases the permit: another worker may run.
    pub(super) fn release(&mut self) {
        self.permit = None;
    }
}
