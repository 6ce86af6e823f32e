//! The consumer of the watch of the peering objects: selects the states of the one in which this operator takes part.

use std::sync::Arc;

use kopf_core::cause::EventType;
use kopf_core::object::Object;
use tokio::sync::{Notify, watch};

use super::{Seen, status_of};
use crate::feed::Consumer;
use crate::watch::WatchConsumer;

/// Selects the states of the peering object in the watch of all of them.
pub(super) struct PeeringConsumer {
    pub(super) name: String,
    pub(super) seen: watch::Sender<Seen>,
    /// A listing has delivered the object.
    pub(super) present: bool,
    /// The uid of the last object of the name.
    pub(super) uid: Option<String>,
    /// Requests a keep-alive before its time.
    pub(super) renew: Arc<Notify>,
}

impl Consumer for PeeringConsumer {}

impl WatchConsumer for PeeringConsumer {
    fn event(&mut self, kind: EventType, object: &Arc<Object>) {
        if object.name() != Some(self.name.as_str()) {
            return;
        }
        if kind == EventType::Deleted {
            self.seen.send_replace(Seen::Absent);
            return;
        }
        self.present = true;
        // A listing delivers an object that was created while the watch was interrupted.
        let is_other = self.uid.as_deref().is_some_and(|known| object.uid().is_some_and(|uid| uid != known));
        let before = self.seen.send_replace(status_of(object));
        self.uid = object.uid().map(str::to_owned);
        if kind == EventType::Added || before == Seen::Absent || is_other {
            self.renew.notify_one();
        }
    }

    fn rejected(&mut self, identity: &Arc<Object>, deleted: bool) {
        if identity.name() != Some(self.name.as_str()) {
            return;
        }
        self.present = !deleted;
        if deleted {
            self.seen.send_replace(Seen::Absent);
        }
    }

    fn on_init(&mut self) {
        self.present = false;
    }

    fn on_init_done(&mut self) {
        if !self.present {
            self.seen.send_if_modified(|seen| {
                let is_changed = *seen != Seen::Absent;
                *seen = Seen::Absent;
                is_changed
            });
        }
    }
}
