//! Backpressure: watches are not read while too much work is in progress.

use futures::future::OptionFuture;
use tokio::sync::Notify;

use crate::objects::dispatcher::Dispatcher;
use crate::objects::worker_limit::WorkerLimit;
use crate::time::duration::seconds;

/// Number of objects with work in progress above which watches are not read. Handlers that have run for some seconds are no reason: they
/// may wait for an event. So at most so many objects are added in these seconds. Objects that wait for a permit of
/// `settings.queueing.worker_limit` only count for their own watch: the handlers of the others have other permits.
pub(super) const MAX_WORKING: usize = 5_000;
/// Number of tasks in the host's queue above which watches are not read: enough to keep Python busy, while further events stay
/// in the API server's buffers instead of our memory.
pub(super) const MAX_HOST_BACKLOG: usize = 256;
/// Seconds between the checks if no notification arrives.
const PAUSE: f64 = 1.0;

/// Whether the dispatcher can take more events of a watch.
pub(super) fn has_room(dispatcher: &Dispatcher) -> bool {
    let shared = &dispatcher.shared;
    let is_full = || {
        let slots = dispatcher.slots();
        let waiting = dispatcher.limit.as_ref().map_or(0, WorkerLimit::waiting);
        shared.working() + waiting > MAX_WORKING || slots.backlog.is_heavy() || slots.has_many_lookups()
    };
    shared.base.host.backlog() <= MAX_HOST_BACKLOG && !is_full()
}

/// Waits until the dispatcher can take more events of a watch, or until the operator stops.
pub(super) async fn wait_for_room(dispatcher: &Dispatcher) {
    let shared = &dispatcher.shared;
    while !shared.base.stopping.is_cancelled() {
        if has_room(dispatcher) {
            return;
        }
        // Both are created before the second check, so a notification after the check is not missed.
        let freed = shared.freed.notified();
        let taken = OptionFuture::from(shared.base.host.taken().map(Notify::notified));
        if has_room(dispatcher) {
            return;
        }
        tokio::select! {
            () = freed => {}
            Some(()) = taken => {}
            () = shared.base.stopping.cancelled() => {}
            // For hosts without notifications.
            () = tokio::time::sleep(seconds(PAUSE)) => {}
        }
    }
}

#[cfg(test)]
mod tests;
