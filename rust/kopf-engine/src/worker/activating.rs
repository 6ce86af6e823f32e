//! The activations of a cycle: their submission to the host, and their completions.

use std::sync::Arc;

use kopf_core::activation::{Activation, Completion};
use tokio::sync::oneshot;

use super::Worker;
use crate::host::{ActivationTask, HostTask, Responder};
use crate::objects::open_cycle::OpenCycle;

impl Worker {
    /// Submits an activation and waits for its completion; none if the host drops it.
    pub(super) async fn activate(
        &self,
        running: &OpenCycle,
        activation: Activation,
        is_first: bool,
    ) -> Option<Completion> {
        if activation.change.is_some() && running.object().deletion_timestamp().is_some() {
            Box::pin(self.await_reconciliations()).await;
        }
        let (reply, receiver) = oneshot::channel();
        let span = running.activation_span(&activation);
        let submitted = self.shared().base.clock.now();
        self.dispatcher.count_calls(running, &activation, is_first, submitted);
        self.shared().base.host.submit(HostTask::Activation(ActivationTask {
            cycle: running.id,
            uid: Arc::clone(&self.key),
            resource: Arc::clone(&self.dispatcher.resource_handlers.resource),
            event: running.event().kind,
            object: Arc::clone(running.object()),
            activation,
            span: span.clone(),
            reply: Responder::through(reply),
        }));
        let waiting = (self.shared().activations.begin(submitted), self.signals.wait_outside());
        let mut completion = receiver.await.ok()?;
        drop((waiting, span));
        self.shared().base.metrics.handlers.on_completion(&completion, submitted);
        if let Some(index_pass) = running.indexing()
            && let Some(slot) = self.dispatcher.slots().get(&self.key)
        {
            let registry = &self.shared().base.startup_config.registry;
            slot.worker.record_indexing(index_pass, &mut completion, registry);
        }
        Some(completion)
    }

    /// Waits for the calls of reconcilers that began before the deletion of the object: its deletion handlers follow them.
    async fn await_reconciliations(&self) {
        if let Some(others) = self.shared().deletion_holds.get() {
            let _nap = (self.shared().sleeping(), self.signals.wait_outside());
            others.await_ordinary_calls(&self.key).await;
        }
    }
}
