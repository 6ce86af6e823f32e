//! The daemons and timers of the dispatched objects.

use std::sync::Arc;

use kopf_core::daemon::DesiredDaemons;
use kopf_core::object::Object;
use kopf_core::persistence::memory::Accepted;
use kopf_core::resource::Resource;

use super::Dispatcher;
use crate::client::Client;
use crate::daemons::{DaemonDiffResult, ObjectOwner};
use crate::host::HostTask;
use crate::object_key::key_of;
use crate::objects::slots::Slot;

/// Seconds between the checks of an object that is being deleted and that reconcilers hold.
const HOLD_CHECK: f64 = 60.0;

impl ObjectOwner for Dispatcher {
    fn resource(&self) -> &Arc<Resource> {
        &self.resource_handlers.resource
    }

    fn client(&self) -> &Client {
        &self.client
    }

    fn wake(self: Arc<Self>, key: &Arc<str>, object: Arc<Object>) {
        Self::wake(&self, key, object);
    }

    fn record_write(&self, key: &Arc<str>, accepted: Accepted<'_>) {
        if let Some(slot) = self.slots().get(key) {
            let current = self.shared.base.live_config.get();
            return slot.worker.on_daemon_write(accepted, self.worker_context(&current));
        }
        // Until the next cycle of the object, its daemons know only this dispatcher.
        if let Some(successor) = self.successor.get() {
            successor.record_write(key, accepted);
        }
    }

    fn trusts_deletions(&self) -> bool {
        self.trusts_deletions
    }

    fn is_deleted(&self, key: &Arc<str>) -> bool {
        Self::is_deleted(self, key)
    }
}

impl Dispatcher {
    /// A new state of the object is about to be handled: passes it to the daemons and timers at once.
    pub(crate) fn refresh(&self, slot: &Slot, object: &Arc<Object>) {
        let Some(object_daemons) = &slot.object_daemons else { return };
        if let Some((runs, object)) = object_daemons.replace(object) {
            self.shared.base.host.submit(HostTask::ObjectUpdated { runs, object });
        }
    }

    /// Starts and stops daemons and timers, as far as possible without waiting.
    pub(crate) fn apply_daemon_diff(
        self: &Arc<Self>,
        slot: &mut Slot,
        object: &Arc<Object>,
        desired: &DesiredDaemons,
    ) -> DaemonDiffResult {
        let owner: Arc<dyn ObjectOwner> = Arc::<Self>::clone(self);
        let is_gone = slot.worker.gone;
        let applied = self.shared.daemons.apply_daemon_diff(
            &owner,
            (&mut slot.object_daemons, is_gone),
            object,
            desired,
        );
        let is_held = self.shared.deletion_holds.get().is_some_and(|others| others.holds(&key_of(object)));
        match applied {
            DaemonDiffResult::Done { delay, holds } => {
                // A cycle with a delay does not release the object; the end of the hold wakes it.
                let held_for = (is_held && desired.deleting).then_some(HOLD_CHECK);
                DaemonDiffResult::Done { delay: delay.or(held_for), holds: holds || is_held }
            }
            DaemonDiffResult::Stopping { object_daemons, holds } => {
                DaemonDiffResult::Stopping { object_daemons, holds: holds || is_held }
            }
        }
    }
}
