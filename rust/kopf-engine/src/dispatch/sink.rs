//! The end of a stream that feeds a dispatcher: it takes what comes, and says when there is no room for more.
//!
//! Must not know: what becomes of an object.

use std::sync::Arc;

use kopf_core::cause::EventType;
use kopf_core::object::Object;

use super::Dispatcher;
use crate::api::seconds;
use crate::error::ApiError;
use crate::indexing::Filling;
use crate::watch::Sink;

/// How many objects may be worked on at once, before reading of the streams is held.
const ROOM: usize = 5_000;
/// How much may wait for the other side at once: enough for it not to wait for the server, and no objects in memory that
/// could as well wait in the server's.
const BACKLOG: usize = 256;
/// Seconds between the looks at it.
const PAUSE: f64 = 0.003;

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
            // It is taken in batches, in no time; and nobody tells.
            if shared.invoker.backlog() > BACKLOG {
                tokio::time::sleep(seconds(PAUSE)).await;
            } else if is_full() {
                // The timeout is a safety net only: the notification is the rule.
                let _ = tokio::time::timeout(seconds(1.0), shared.freed.notified()).await;
            } else {
                return;
            }
        }
    }

    fn insists(&self, _: &ApiError) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
