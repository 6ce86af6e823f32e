//! The end of a stream that feeds a dispatcher: it takes what comes, and says when there is no room for more.
//!
//! Must not know: what becomes of an object.

use std::sync::Arc;

use futures::future::OptionFuture;
use kopf_core::cause::EventType;
use kopf_core::object::Object;
use tokio::sync::Notify;

use super::Dispatcher;
use crate::api::seconds;
use crate::error::ApiError;
use crate::indexing::Filling;
use crate::slots::key_of;
use crate::watch::Sink;

/// How many objects may be worked on at once, before reading of the streams is held.
const ROOM: usize = 5_000;
/// How much may wait for the other side at once: enough for it not to wait for the server, and no objects in memory that
/// could as well wait in the server's.
const BACKLOG: usize = 256;
/// Seconds between the looks, if nothing is notified.
const PAUSE: f64 = 1.0;

/// The end of a stream that feeds a dispatcher.
pub struct DispatchSink {
    /// Where the events go.
    pub dispatcher: Arc<Dispatcher>,
    /// What holds the events until the indices are filled.
    pub filling: Option<Filling>,
}

impl Sink for DispatchSink {
    fn event(&mut self, kind: EventType, object: Object) {
        let Some(object) = self.dispatcher.sift(kind, object) else { return };
        let Some(filling) = &self.filling else { return self.dispatcher.dispatch(kind, object) };
        if let Some(object) = filling.hold(&self.dispatcher, kind, object) {
            // The indices are filled.
            self.filling = None;
            self.dispatcher.dispatch(kind, object);
        }
    }

    fn rejected(&mut self, identity: Object, deleted: bool) {
        let key = key_of(&identity);
        let mut slots = self.dispatcher.slots();
        if deleted {
            let vanished = slots.vanish(&key);
            drop(slots);
            self.dispatcher.see_off(vanished.into_iter().collect());
        } else {
            slots.keep_known(&key);
        }
    }

    fn listing(&mut self) {
        let pauses = self.dispatcher.shared.pause.count();
        self.dispatcher.slots().begin_listing(pauses);
    }

    fn listed(&mut self) {
        if let Some(filling) = &mut self.filling {
            filling.listed();
        }
        let vanished = self.dispatcher.slots().end_listing();
        self.dispatcher.see_off(vanished);
    }

    async fn room(&self) {
        let shared = &self.dispatcher.shared;
        let is_full = || {
            let slots = self.dispatcher.slots();
            shared.working() > ROOM || slots.backlog.is_heavy() || slots.is_seeking_much()
        };
        while !shared.stopping.is_cancelled() {
            if shared.invoker.backlog() <= BACKLOG && !is_full() {
                return;
            }
            // They exist before it is looked at again, and know of all that is notified since then: nothing is missed.
            let freed = shared.freed.notified();
            let taken = OptionFuture::from(shared.invoker.taken().map(Notify::notified));
            if shared.invoker.backlog() <= BACKLOG && !is_full() {
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

    fn insists(&self, _: &ApiError) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
