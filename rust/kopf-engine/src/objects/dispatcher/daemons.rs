//! The daemons and timers of the dispatched objects.

use std::sync::Arc;

use kopf_core::daemon::DesiredDaemons;
use kopf_core::object::Object;
use kopf_core::persistence::memory::Accepted;
use kopf_core::resource::Resource;

use super::Dispatcher;
use crate::daemons::{ObjectOwner, Reconciled};
use crate::host::HostTask;
use crate::objects::slots::Slot;

impl ObjectOwner for Dispatcher {
    fn resource(&self) -> &Arc<Resource> {
        &self.plan.resource
    }

    fn wake(self: Arc<Self>, key: &Arc<str>, object: Arc<Object>) {
        Self::wake(&self, key, object);
    }

    fn record_write(&self, key: &Arc<str>, accepted: Accepted<'_>) {
        if let Some(slot) = self.slots().get(key) {
            let current = self.shared.current.get();
            slot.worker.on_daemon_write(accepted, self.worker_context(&current));
        }
    }
}

impl Dispatcher {
    /// A new state of the object is about to be handled: passes it to the daemons and timers at once.
    pub(crate) fn refresh(&self, slot: &Slot, object: &Arc<Object>) {
        let Some(object_daemons) = &slot.object_daemons else { return };
        if let Some((runs, object)) = object_daemons.replace(object) {
            self.shared.host.submit(HostTask::Refresh { runs, object });
        }
    }

    /// Starts and stops daemons and timers, as far as possible without waiting.
    pub(crate) fn reconcile_daemons(
        self: &Arc<Self>,
        slot: &mut Slot,
        object: &Arc<Object>,
        desired: &DesiredDaemons,
    ) -> Reconciled {
        let owner: Arc<dyn ObjectOwner> = Arc::<Self>::clone(self);
        self.shared.daemons.reconcile_daemons(
            &owner,
            (&mut slot.object_daemons, slot.worker.gone),
            object,
            desired,
        )
    }
}
