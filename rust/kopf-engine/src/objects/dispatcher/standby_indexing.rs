//! The indexing by a replica that does not lead: its indices follow the cluster, although it calls no other handlers.
//!
//! While an object is indexed, its slot is gated, as during the initial indexing: a newer state waits there, and is indexed next. So
//! a takeover cannot overtake an index function.

use std::sync::Arc;

use kopf_core::activation::{Activation, Command};
use kopf_core::cause::EventType;
use kopf_core::indexing::IndexPass;
use kopf_core::object_worker::QueuedEvent;
use tokio::sync::oneshot;

use super::Dispatcher;
use crate::host::{ActivationTask, HostTask, Responder};
use crate::spans::indexing_span;

impl Dispatcher {
    /// Whether states of objects are only indexed: the replica does not lead, and there are indices of the resource.
    pub(super) fn only_indexes(&self) -> bool {
        !self.resource_handlers.indexing.is_empty() && self.shared.pause.is_standby()
    }

    /// Starts the indexing of an object, until it has no newer state.
    pub(super) fn start_standby_indexing(self: &Arc<Self>, key: Arc<str>) {
        let indexing = Arc::clone(self).index_in_standby(key);
        let indexing = self.shared.base.failing.guard("The indexing of a standby", indexing);
        self.shared.workers.spawn(indexing);
    }

    async fn index_in_standby(self: Arc<Self>, key: Arc<str>) {
        while let Some((event, index_pass)) = self.next_to_index(&key) {
            let host = &self.shared.base.host;
            let cycle = self.shared.base.next_id();
            let (sender, reply) = oneshot::channel();
            let commands = vec![Command::CallIndexers(index_pass.clone())];
            host.submit(HostTask::Activation(ActivationTask {
                cycle,
                uid: Arc::clone(&key),
                resource: Arc::clone(&self.resource_handlers.resource),
                event: event.kind,
                span: indexing_span(cycle, &self.resource_handlers.resource, &event.object),
                object: event.object,
                activation: Activation { commands, ..Activation::default() },
                reply: Responder::through(sender),
            }));
            let completion = tokio::select! {
                completion = reply => completion,
                () = self.shared.force_stopping.cancelled() => return drop(self.shared.base.cancel_cycle(cycle)),
            };
            host.submit(HostTask::CycleClosed { cycle, keep_fns: false });
            if self.is_removed(&key) {
                // It was deleted meanwhile, but its values may have been stored just now.
                return host.submit(HostTask::ObjectDeleted(key));
            }
            let registry = &self.shared.base.startup_config.registry;
            if let (Ok(mut completion), Some(slot)) = (completion, self.slots().get(&key)) {
                slot.worker.record_indexing(&index_pass, &mut completion, registry);
            }
        }
        self.release(&key);
        self.shared.freed.notify_waiters();
    }

    /// The newest state of a gated object, with its index commands; none if it needs no indexing, or the replica leads now.
    fn next_to_index(&self, key: &Arc<str>) -> Option<(QueuedEvent, IndexPass)> {
        let current = self.shared.base.live_config.get();
        let mut slots = self.slots();
        let slot = slots.get(key)?;
        if !self.only_indexes() {
            return None;
        }
        let event = slot.take_newest_gated().filter(|event| event.kind != EventType::Deleted)?;
        let index_pass =
            slot.worker.index_pass(&event, self.worker_context(&current), self.shared.base.clock.now())?;
        Some((event, index_pass))
    }
}
