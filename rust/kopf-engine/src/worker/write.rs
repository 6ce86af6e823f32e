//! The writes of a worker: the decision of a cycle, and the touch annotation. Their results go to the state machine.

use std::sync::Arc;

use kopf_core::cycle::OperatorConfig;
use kopf_core::handling::cause_id::Handling;
use kopf_core::json::merge_patch::Patch;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::object_worker::{DecidedWrite, Finished, QueuedEvent};
use kopf_core::writes::WriteRequest;

use super::Worker;
use crate::host::{CycleId, LogRecord};
use crate::objects::dispatcher::CycleSummary;
use crate::patching::Patching;

impl Worker {
    /// Writes the decision of a cycle, records the result, and closes the cycle. `end` is its id, and whether the host has closed it.
    pub(super) async fn write(&self, end: (CycleId, bool), summary: CycleSummary, write: Box<DecidedWrite>) {
        self.signals.set_cycle(Some(summary.opened));
        // Requests have their own timeouts, and problems of the API server are none of the engine.
        let outside = self.signals.wait_outside();
        let finished = Box::pin(self.write_decision(end.0, *write)).await;
        drop(outside);
        self.dispatcher.count_cycle(summary, true);
        self.dispatcher.close_cycle(end, finished);
    }

    /// Writes the decision of a cycle, and records the result.
    async fn write_decision(&self, id: CycleId, mut write: DecidedWrite) -> Finished {
        let config = self.shared().base.live_config.get();
        let is_deleted = || self.dispatcher.is_deleted(&self.key);
        let patching = Patching {
            partial: write.may_be_partial.then_some(&self.shared().base.startup_config.settings.persistence),
            handling: write.handling,
            conditions: None,
            ..self.patching(&config, &is_deleted)
        };
        let request = std::mem::take(&mut write.request);
        let outcome = patching.apply(&write.object, id, request).await;
        let (object, handling) = (Arc::clone(&write.object), write.handling);
        let current = self.shared().base.live_config.get();
        let (context, now) = (self.dispatcher.worker_context(&current), self.shared().base.clock.now());
        let finished = {
            let mut slots = self.dispatcher.slots();
            slots
                .get(&self.key)
                .map(|slot| slot.worker.on_write_result(write, outcome, context, now))
                .unwrap_or_default()
        };
        self.log_rejections(&object, handling, &finished);
        finished
    }

    fn log_rejections(&self, object: &Arc<Object>, handling: Option<Handling>, finished: &Finished) {
        let Finished { rejections, delay, .. } = finished;
        let shared = self.shared();
        let resource = &self.dispatcher.resource_handlers.resource;
        self.dispatcher.metrics.patches.dropped.add(rejections.len());
        for rejection in rejections {
            let level = if rejection.is_denied() { shared.denials.level(resource) } else { Level::Warning };
            if shared.base.host.enabled(level) {
                let text = rejection.text(object, resource, *delay);
                shared.base.host.log(LogRecord::local(level, object, text).of(handling));
            }
        }
    }

    /// Patches the object with Kopf's touch annotation, as Kopf 1.45 does.
    pub(super) async fn touch(&self, event: &QueuedEvent) {
        let now = self.shared().base.clock.now().to_string();
        let config = self.shared().base.live_config.get();
        let storage = &config.settings.persistence.progress_storage;
        let mut patch = Patch::default();
        storage.touch(&event.object, &mut patch, Some(&now));
        let request = WriteRequest { patch, ..WriteRequest::default() };
        // If the write fails, the cycle starts without its watch event.
        let id = self.shared().base.next_id();
        let outcome = self.patching(&config, &|| false).apply(&event.object, id, request).await;
        let context = self.dispatcher.worker_context(&config);
        let now = self.shared().base.clock.now();
        if let Some(slot) = self.dispatcher.slots().get(&self.key) {
            slot.worker.on_touched(&event.object, &outcome, context, now);
        }
    }

    fn patching<'a>(
        &'a self,
        config: &'a OperatorConfig,
        is_deleted: &'a (dyn Fn() -> bool + Send + Sync),
    ) -> Patching<'a> {
        let shared = self.shared();
        Patching {
            client: &self.dispatcher.client,
            host: &shared.base.host,
            resource: &self.dispatcher.resource_handlers.resource,
            finalizer: &config.settings.persistence.finalizer,
            compat: shared.base.startup_config.settings.compat,
            is_versioned: shared.base.startup_config.settings.has_preconditions(),
            is_deleted,
            release_cleanup: (!shared.base.startup_config.settings.compat
                && !config.settings.persistence.has_custom_storage())
            .then_some((&*self.dispatcher.resource_handlers, &config.settings.persistence)),
            handling: None,
            partial: None,
            conditions: None,
        }
    }
}
