//! The writes of reconcilers: patches after their calls, and finalizers.

use std::sync::Arc;

use kopf_core::backoff::Backoff;
use kopf_core::json::merge_patch::Patch;
use kopf_core::log_level::Level;
use kopf_core::schedule::ReconcileResult;
use kopf_core::writes::{WriteOutcome, WriteRequest};

use super::Reconcilers;
use super::calls::CallPatch;
use super::effects::FinalizerEdit;
use super::write_triggers::OpenedWrite;
use crate::daemons::WRITE_RETRIES;
use crate::host::{LogRecord, RunId};
use crate::patching::Patching;
use crate::time::duration::seconds;

/// The delays before a failed edit of a finalizer is sent again.
const EDIT_RETRIES: Backoff = Backoff::limited(&[1.0, 2.0, 5.0, 10.0, 30.0]);

impl Reconcilers {
    /// Writes the patch of a call, and ends the call.
    pub(super) fn write(self: &Arc<Self>, run: RunId, patch: CallPatch) {
        let shared = Arc::clone(self);
        let writing = async move {
            let opened = shared.state().open_write(run).unwrap_or_default();
            let outcome = shared.apply(run, &patch).await;
            shared.on_written(run, &patch, &opened, &outcome);
        };
        self.spawn("The patching after a reconciler", writing);
    }

    /// Sends the patch; rejected parts are repeated as for daemons.
    async fn apply(&self, run: RunId, patch: &CallPatch) -> WriteOutcome {
        let base = &self.base;
        let finalizer = &base.live_config.get().settings.persistence.finalizer;
        let is_deleted = || self.state().is_gone(patch.reconciler, &patch.uid);
        let conditions = patch.conditions.as_ref();
        let patching = Patching { conditions, ..self.patching(&patch.resource, finalizer, &is_deleted) };
        let (mut left, functions) = (Patch(patch.patch.clone()), patch.fns || conditions.is_some());
        let (mut retries, ending) = (WRITE_RETRIES.retries(), base.term.ending());
        loop {
            let request = WriteRequest { patch: left, functions, ..WriteRequest::default() };
            let written = patching.apply(&patch.object, run, request).await.failing_with_rejections();
            let Some((rest, delay)) = written.left().zip(retries.next(None, 0.0)) else { return written };
            tokio::select! {
                () = base.clock.sleep(seconds(delay.seconds)) => {}
                () = base.stopping.cancelled() => {}
                () = ending.cancelled() => {}
            }
            left = rest;
        }
    }

    fn on_written(
        self: &Arc<Self>,
        run: RunId,
        patch: &CallPatch,
        opened: &OpenedWrite,
        written: &WriteOutcome,
    ) {
        let mut result = patch.result;
        if written.carry || written.failure.is_some() {
            result = ReconcileResult::Failed(None);
        }
        let cycles = self.with_state(|state, now, effects| {
            let reconciler = &state.reconcilers[patch.reconciler];
            // The loss of the lease is logged.
            if let Some(failure) = written.failure.as_ref().filter(|failure| !failure.is_fenced()) {
                let text = format!("{} has failed to patch the object: {failure}", reconciler.label);
                let record = LogRecord::posted(Level::Error, &patch.object, text);
                let has_traceback = failure.is_exception();
                effects.records.push(if has_traceback { record.with_exception_of(run) } else { record });
            }
            state.end_patch((opened, &patch.patch), written.latest.as_deref(), now, effects);
            let reconciler = &state.reconcilers[patch.reconciler];
            let cycles = reconciler.primaries.get(&patch.uid).and_then(|primary| primary.cycles.clone());
            state.finish(run, result, written.latest.as_ref(), now, effects);
            cycles
        });
        // The handling cycles of the object wait for the watch event of this write.
        if let Some(cycles) = cycles {
            cycles.owner.record_write(&patch.uid, written.accepted());
        }
    }

    /// Edits the finalizer of a primary, and repeats that until it succeeds or is not needed any more, but not at the exit.
    pub(super) fn edit_finalizer(self: &Arc<Self>, edit: FinalizerEdit) {
        let shared = Arc::clone(self);
        let editing = async move {
            // Objects with the finalizer exist. If others have removed it, the resource version in the patch does not match.
            let patching = shared.patching(&edit.resource, &edit.finalizer, &|| false);
            let mut retries = EDIT_RETRIES.retries();
            let latest = loop {
                let id = shared.base.next_id();
                let request = WriteRequest { finalizer: Some(edit.edit), ..WriteRequest::default() };
                let written = patching.apply(&edit.object, id, request).await;
                let error = match written.failure {
                    Some(failure) => Some(failure),
                    // The watch delivers the deletion.
                    None if written.deleted => return,
                    None if written.gone || written.carry || written.must_retry => None,
                    None => break written.latest,
                };
                let Some(delay) = retries.next(None, 0.0) else { break None };
                // The loss of the lease is logged.
                if let Some(error) = error.filter(|error| !error.is_fenced()) {
                    let repetition = if shared.base.stopping.is_cancelled() {
                        "after the next start".to_owned()
                    } else {
                        format!("in {} seconds", delay.seconds)
                    };
                    let text = format!(
                        "Cannot edit the finalizer {:?}: {error}. It is repeated {repetition}.",
                        edit.finalizer
                    );
                    shared.base.host.log(LogRecord::local(Level::Error, &edit.object, text));
                }
                tokio::select! {
                    () = shared.base.clock.sleep(seconds(delay.seconds)) => {}
                    () = shared.base.stopping.cancelled() => return,
                }
                if shared.pause.is_standby() {
                    break None;
                }
            };
            shared.with_state(|state, now, effects| {
                state.on_edited(&edit.uid, &edit.finalizer, latest.as_ref(), now, effects);
            });
        };
        self.spawn("The edit of a finalizer", editing);
    }

    fn patching<'a>(
        &'a self,
        resource: &'a kopf_core::resource::Resource,
        finalizer: &'a str,
        is_deleted: &'a (dyn Fn() -> bool + Send + Sync),
    ) -> Patching<'a> {
        Patching {
            client: &self.base.client,
            host: &self.base.host,
            resource,
            finalizer,
            compat: false,
            is_versioned: self.base.startup_config.settings.has_preconditions(),
            is_deleted,
            release_cleanup: None,
            handling: None,
            partial: None,
            conditions: None,
        }
    }

    /// Spawns a task that writes. It may be called in threads of the host.
    fn spawn(self: &Arc<Self>, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let giving_up = self.giving_up.clone();
        let task = async move {
            let _cancelled = giving_up.run_until_cancelled(task).await;
        };
        self.writers.spawn_on(self.base.failing.guard(name, task), &self.runtime);
    }
}
