//! The end of a dispatcher: its objects are handed over to a successor, or removed.

use std::sync::Arc;

use kopf_core::daemon::StopReasons;
use tokio::runtime::Handle;

use super::Dispatcher;
use super::events::Effect;
use crate::host::HostTask;
use crate::objects::slots::{RemovedObject, Slot};

impl Dispatcher {
    /// The watch has ended, and a successor continues with the same objects. Busy objects are handed over when their work is
    /// done; until then, their events wait in the successor. If the successor only fills caches, the objects are removed.
    pub fn hand_over(self: &Arc<Self>, successor: &Arc<Self>) {
        if !successor.resource_handlers.has_cycles() {
            return self.shutdown();
        }
        drop(self.take_gate_guard());
        let mut slots = self.slots();
        // Cycles that end from now on hand over by themselves. With the lock, each of them has a waiting slot in the successor.
        let _only = self.successor.set(Arc::clone(successor));
        slots.hand_over(&mut successor.slots());
    }

    /// Takes over an object of a predecessor.
    pub(super) fn adopt(self: &Arc<Self>, key: &Arc<str>, slot: Slot) {
        if let Some(next) = self.successor.get() {
            drop(self.slots().take(key));
            return next.adopt(key, slot);
        }
        self.with_slots(|slots, effects| {
            let (vanished, pending) = slots.adopt(key, slot);
            // Before the host receives anything about an object that is here again, it drops its state.
            if let Some(removed) = vanished {
                effects.push(Effect::Remove(removed));
            }
            self.enqueue_all(slots, key, pending, effects);
        });
    }

    /// Takes over an object of a predecessor, in a task: the calling thread is the host's, and must not wait for the engine.
    pub(super) fn adopt_soon(self: &Arc<Self>, key: &Arc<str>, slot: Box<Slot>, runtime: &Handle) {
        let (dispatcher, key) = (Arc::clone(self), Arc::clone(key));
        let adoption = async move { dispatcher.adopt(&key, *slot) };
        let adoption = self.shared.base.failing.guard("The hand-over of an object", adoption);
        self.shared.workers.spawn_on(adoption, runtime);
    }

    /// Whether the slot of the object is removed, and not handed over.
    pub(crate) fn is_removed(&self, key: &str) -> bool {
        self.successor.get().is_none() && self.slots().get(key).is_none()
    }

    /// The watch has ended for good: all slots are removed.
    pub fn shutdown(self: &Arc<Self>) {
        self.end_lookups();
        drop(self.take_gate_guard());
        let vanished = self.slots().end();
        self.terminate_daemons(vanished);
    }

    /// Stops the daemons and timers of removed objects. For those without a slot, the host drops its state.
    pub(crate) fn terminate_daemons(&self, vanished: Vec<RemovedObject>) {
        for RemovedObject { key, object_daemons, is_deleted, forgotten } in vanished {
            if let Some(object_daemons) =
                object_daemons.as_ref().filter(|_| is_deleted && self.trusts_deletions)
            {
                object_daemons.mark_deleted();
            }
            self.shared
                .daemons
                .terminate_daemons(object_daemons.into_iter().collect(), StopReasons::RESOURCE_DELETED);
            if forgotten {
                self.shared.base.host.submit(HostTask::ObjectDeleted(key));
            }
        }
    }
}
