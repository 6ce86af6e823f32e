//! The writes of a worker: the decision of a cycle, and the touch annotation. Their results go to the state machine.

use std::sync::Arc;

use kopf_core::cycle::OperatorConfig;
use kopf_core::json::merge_patch::Patch;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::object_worker::{DecidedWrite, Finished, QueuedEvent, WriteFailure, WriteOutcome};

use super::Worker;
use crate::host::{CycleId, LogRecord};
use crate::patching::{PatchFailure, Patching, PatchingError, Rejection, WriteRequest, WriteResult};

impl Worker {
    /// Writes the decision of a cycle, and records the result.
    pub(super) async fn write_decision(&self, id: CycleId, mut write: DecidedWrite) -> Finished {
        let request = WriteRequest {
            cycle: id,
            patch: std::mem::take(&mut write.patch),
            final_progress: std::mem::take(&mut write.final_progress),
            finalizer: write.finalizer,
            deletion_handled: write.deletion_handled,
            functions: write.fns,
            rejected_patch: std::mem::take(&mut write.rejected_patch),
        };
        let config = self.shared().base.live_config.get();
        let result = self.apply(&config, &write, request).await;
        let (mut applied, error) = match result {
            Ok(applied) => (applied, None),
            Err(PatchFailure { applied, error }) => (*applied, Some(error)),
        };
        let object = Arc::clone(&write.object);
        let in_doubt = applied.is_in_doubt();
        let rejections = std::mem::take(&mut applied.rejections);
        let outcome = WriteOutcome { in_doubt, ..outcome_of(&mut applied, &rejections, error.as_ref()) };
        let (is_gone, current) = (outcome.gone, self.shared().base.live_config.get());
        let (context, now) = (self.dispatcher.worker_context(&current), self.shared().base.clock.now());
        let finished = {
            let mut slots = self.dispatcher.slots();
            slots
                .get(&self.key)
                .map(|slot| slot.worker.on_write_result(write, outcome, context, now))
                .unwrap_or_default()
        };
        if !is_gone {
            self.log_rejections(&object, &rejections, finished.delay);
        }
        finished
    }

    /// Applies the change. If the server rejects it repeatedly, applies the parts that it accepts.
    async fn apply(
        &self,
        config: &OperatorConfig,
        write: &DecidedWrite,
        request: WriteRequest,
    ) -> Result<WriteResult, PatchFailure> {
        let is_deleted = || self.dispatcher.is_deleted(&self.key);
        let patching = self.patching(config, &is_deleted);
        match patching.apply(&write.object, request).await {
            Err(failure)
                if write.may_be_partial
                    && failure.error.is_rejection()
                    && !failure.applied.unwritten.is_empty() =>
            {
                let persistence = &self.shared().base.startup_config.settings.persistence;
                patching.merge_part(&write.object, failure, persistence).await
            }
            result => result,
        }
    }

    fn log_rejections(&self, object: &Arc<Object>, rejections: &[Rejection], delay: Option<f64>) {
        let shared = self.shared();
        let resource = &self.dispatcher.resource_handlers.resource;
        self.dispatcher.metrics.patches.dropped.add(rejections.len());
        for rejection in rejections {
            let level = if rejection.is_denied() { shared.denials.level(resource) } else { Level::Warning };
            if shared.base.host.enabled(level) {
                shared.base.host.log(LogRecord::local(
                    level,
                    object,
                    rejection.text(object, resource, delay),
                ));
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
        let request = WriteRequest { patch, ..WriteRequest::of(self.shared().base.next_id()) };
        // If the write fails, the cycle starts without its watch event.
        let mut applied = match self.patching(&config, &|| false).apply(&event.object, request).await {
            Ok(applied) => applied,
            Err(failure) => *failure.applied,
        };
        let in_doubt = applied.is_in_doubt();
        let outcome = WriteOutcome { in_doubt, ..outcome_of(&mut applied, &[], None) };
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
        }
    }
}

/// The result of a write for the state machine.
fn outcome_of<'a>(
    applied: &'a mut WriteResult,
    rejections: &[Rejection],
    error: Option<&PatchingError>,
) -> WriteOutcome<'a> {
    let mut rejected = Patch::default();
    for rejection in rejections {
        rejected.merge(rejection.patch.clone());
    }
    WriteOutcome {
        gone: applied.gone,
        carry: applied.carry,
        functions_rejected: applied.functions_rejected,
        must_retry: applied.must_retry,
        in_doubt: false,
        merged: std::mem::take(&mut applied.merged),
        unwritten: std::mem::take(&mut applied.unwritten),
        latest: applied.latest.as_deref(),
        rejected,
        failure: error.map(|error| WriteFailure {
            text: error.to_string(),
            is_rejection: error.is_rejection(),
            is_outcome_unknown: error.is_outcome_unknown(),
            with_exception: matches!(error, PatchingError::Function(_)),
        }),
    }
}
