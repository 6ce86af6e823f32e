//! Backpressure: reading of a watch is held while too much is in progress.

use futures::future::OptionFuture;
use tokio::sync::Notify;

use crate::objects::dispatcher::Dispatcher;
use crate::time::duration::seconds;

/// How many objects may be worked on at once, before reading of the streams is held.
pub(super) const MAX_WORKING: usize = 5_000;
/// How much may wait for the other side at once: enough for it not to wait for the server, and no objects in memory that
/// could as well wait in the server's.
pub(super) const MAX_HOST_BACKLOG: usize = 256;
/// Seconds between the looks, if nothing is notified.
const PAUSE: f64 = 1.0;

/// Waits until there is room for more events of a stream.
pub(super) async fn wait_for_room(dispatcher: &Dispatcher) {
    let shared = &dispatcher.shared;
    let is_full = || {
        let slots = dispatcher.slots();
        shared.working() > MAX_WORKING || slots.backlog.is_heavy() || slots.has_many_lookups()
    };
    while !shared.stopping.is_cancelled() {
        if shared.host.backlog() <= MAX_HOST_BACKLOG && !is_full() {
            return;
        }
        // They exist before it is looked at again, and know of all that is notified since then: nothing is missed.
        let freed = shared.freed.notified();
        let taken = OptionFuture::from(shared.host.taken().map(Notify::notified));
        if shared.host.backlog() <= MAX_HOST_BACKLOG && !is_full() {
            return;
        }
        tokio::select! {
            () = freed => {}
            Some(()) = taken => {}
            () = shared.stopping.cancelled() => {}
            // For an other side that does not notify.
            () = tokio::time::sleep(seconds(PAUSE)) => {}
        }
    }
}
