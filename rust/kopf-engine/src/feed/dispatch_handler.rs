//! The event handler of a watch that feeds a dispatcher, with backpressure.

use std::sync::Arc;

use kopf_core::cause::EventType;
use kopf_core::object::Object;

use super::backpressure::wait_for_room;
use crate::error::ApiError;
use crate::feed::indexing::GatedHandler;
use crate::object_key::key_of;
use crate::objects::dispatcher::Dispatcher;
use crate::watch::EventHandler;

/// The event handler of a watch that feeds a dispatcher.
pub struct DispatchHandler {
    /// The dispatcher that receives the events.
    pub dispatcher: Arc<Dispatcher>,
    /// Buffers the events until the index gate opens; none afterwards.
    pub gated: Option<GatedHandler>,
}

impl EventHandler for DispatchHandler {
    fn event(&mut self, kind: EventType, object: Object) {
        let Some(object) = self.dispatcher.filter_event(kind, object) else { return };
        let Some(gated) = &self.gated else { return self.dispatcher.dispatch(kind, object) };
        if let Some(object) = gated.hold(&self.dispatcher, kind, object) {
            // The index gate is open.
            self.gated = None;
            self.dispatcher.dispatch(kind, object);
        }
    }

    fn rejected(&mut self, identity: Object, deleted: bool) {
        let key = key_of(&identity);
        let mut slots = self.dispatcher.slots();
        if deleted {
            let vanished = slots.mark_removed(&key);
            drop(slots);
            self.dispatcher.terminate_daemons(vanished.into_iter().collect());
        } else {
            slots.keep_known(&key);
        }
    }

    fn on_init(&mut self) {
        let pauses = self.dispatcher.shared.pause.count();
        self.dispatcher.slots().begin_listing(pauses);
    }

    fn on_init_done(&mut self) {
        if let Some(gated) = &mut self.gated {
            gated.listed();
        }
        let vanished = self.dispatcher.slots().end_listing();
        self.dispatcher.terminate_daemons(vanished);
    }

    async fn ready(&self) {
        wait_for_room(&self.dispatcher).await;
    }

    fn retries_on(&self, _: &ApiError) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
