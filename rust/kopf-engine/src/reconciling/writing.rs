//! The writes of reconcilers: patches after their calls, and finalizers.

use std::sync::Arc;

use kopf_core::backoff::Backoff;
use kopf_core::json::merge_patch::Patch;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::persistence::finalizer::Edit;
use kopf_core::request_error::RequestError;
use kopf_core::schedule::ReconcileResult;
use kopf_core::writes::{WriteFailure, WriteOutcome, WriteRequest};
use tracing::Instrument as _;

use super::Reconcilers;
use super::calls::CallPatch;
use super::effects::FinalizerEdit;
use super::write_triggers::OpenedWrite;
use crate::daemons::WRITE_RETRIES;
use crate::host::{LogRecord, RunId};
use crate::patching::Patching;
use crate::time::duration::seconds;

/// The delays before a failed edit of a finalizer is sent again.
const EDIT_RETRIES: Backoff = Backoff::endless(&[1.0, 2.0, 5.0, 10.0, 30.0]);

impl FinalizerEdit {
    /// Whether the server has accepted the edit, but its response does not contain the result.
    fn is_lost(&self, response: &Object) -> bool {
        let has_finalizer = response.has_finalizer(&self.finalizer);
        match self.edit {
            // Objects that are being deleted get no finalizers.
            Edit::Block => !has_finalizer && response.deletion_timestamp().is_none(),
            Edit::Allow => has_finalizer,
        }
    }
}

impl Reconcilers {
    /// Writes the patch of a call, and ends the call.
    pub(super) fn write(self: &Arc<Self>, run: RunId, patch: CallPatch) {
        let shared = Arc::clone(self);
        let writing = async move {
            let opened = shared.state().open_write(run).unwrap_or_default();
            let outcome = shared.apply(run, &patch).instrument(patch.span.clone()).await;
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
        let result = result_of(patch.result, written);
        if let (Some(conditions), Some(latest), None) = (&patch.conditions, &written.latest, &written.failure)
            && let Some(text) = self.pruned_conditions.warning(&patch.resource, conditions, latest)
        {
            self.base.host.log(LogRecord::local(Level::Warning, &patch.object, text));
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
    pub(super) fn edit_finalizer(self: &Arc<Self>, mut edit: FinalizerEdit) {
        let shared = Arc::clone(self);
        let editing = async move {
            let mut retries = EDIT_RETRIES.retries();
            let latest = loop {
                // Objects with the finalizer exist. If others have removed it, the resource version in the patch does not match.
                let patching = shared.patching(&edit.resource, &edit.finalizer, &|| false);
                let id = shared.base.next_id();
                let request = WriteRequest { finalizer: Some(edit.edit), ..WriteRequest::default() };
                let written = patching.apply(&edit.object, id, request).await;
                let error = match written.failure {
                    // The loss of the lease is logged.
                    Some(failure) => (!failure.is_fenced()).then(|| failure.to_string()),
                    // The watch delivers the deletion.
                    None if written.deleted => return,
                    None if written.gone || written.carry || written.must_retry => None,
                    None if written.latest.as_ref().is_some_and(|latest| edit.is_lost(latest)) => Some(
                        "the change is not in the response; an admission webhook may revert it".to_owned(),
                    ),
                    None => break written.latest,
                };
                let Some(delay) = retries.next(None, 0.0) else { break None };
                if let Some(error) = error {
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
                let Some(newest) = shared.state().editable(&edit) else { break None };
                (edit.resource, edit.object) = newest;
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

/// The result of a reconciliation whose call has had this result.
///
/// A failure of the call stays: it has its own delay, or is final.
fn result_of(call: ReconcileResult, written: &WriteOutcome) -> ReconcileResult {
    let request = written.failure.as_ref().and_then(WriteFailure::request);
    let is_incomplete = written.carry || written.failure.is_some();
    match call {
        // The lease is lost: the list of the next term starts the reconciliation again.
        _ if matches!(request, Some(RequestError::Fenced)) => ReconcileResult::Cancelled,
        ReconcileResult::Succeeded | ReconcileResult::Requeued(_) if is_incomplete => {
            ReconcileResult::Failed(None)
        }
        _ => call,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kopf_core::resource::Resource;
    use serde_json::{Value, json};

    use super::*;
    use crate::reconciling::event::{Listed, PrimaryEvent};
    use crate::testing::{Fixture, Got, resource};

    const FINALIZER: &str = "example.com/cleanup";

    fn shop() -> Value {
        json!({"metadata": {"uid": "u1", "name": "one", "namespace": "ns", "resourceVersion": "7"}})
    }

    fn event(body: &Value) -> PrimaryEvent {
        let object = Arc::new(Object::decode(&body.to_string()).unwrap());
        let resource: Arc<Resource> = resource("example.com", "shops", true);
        PrimaryEvent { feed: 1, resource, object, listed: Listed::First, cycles: None }
    }

    /// The reconcilers of a server that accepts edits without their changes. After many of them, it does not respond.
    fn reconcilers() -> (Fixture, Arc<Reconcilers>) {
        let handler = json!({
            "id": "sync", "kind": "reconciling", "selector": {"any_name": "shops"}, "deletion": true,
            "finalizer": FINALIZER,
        });
        let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let fixture = Fixture::with_handlers(vec![handler], &json!({}), move |_: &Got| {
            let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            (200, (number < 50).then(shop))
        });
        let (base, health) = (&fixture.shared.base, &fixture.health);
        let reconcilers = Reconcilers::of(base, health, &fixture.shared.pause).unwrap();
        (fixture, reconcilers)
    }

    #[tokio::test(start_paused = true)]
    async fn an_edit_whose_result_the_server_does_not_keep_is_repeated_with_delays() {
        let (fixture, reconcilers) = reconcilers();
        let observe = |body: &Value| {
            reconcilers.with_state(|state, now, effects| state.on_primary(0, event(body), now, effects));
        };
        let times = || fixture.requests().iter().map(|got| got.at).collect::<Vec<_>>();
        observe(&shop());
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(times(), [0, 1, 3, 8, 18, 48, 78]);
        let lines = fixture.lines("Cannot edit the finalizer");
        assert_eq!(lines.len(), 7);
        let text = "the change is not in the response; an admission webhook may revert it. \
                    It is repeated in 1 seconds.";
        assert!(lines[0].ends_with(text), "{lines:?}");
        // Objects that are being deleted need no finalizer.
        let mut deleted = shop();
        deleted["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
        observe(&deleted);
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(times().len(), 7);
    }

    #[test]
    fn s1_6_a_failed_write_is_a_failure_of_a_call_that_has_returned() {
        use ReconcileResult::{Cancelled, Failed, FailedPermanently, Requeued, Succeeded};
        let failed =
            |error| WriteOutcome { failure: Some(WriteFailure::Request(error)), ..Default::default() };
        let carried = || WriteOutcome { carry: true, ..Default::default() };
        let rejected = || failed(RequestError::Transport("a test".to_owned()));
        let fenced = || failed(RequestError::Fenced);
        for (call, expected) in [
            (Succeeded, Failed(None)),
            (Requeued(5.0), Failed(None)),
            (Failed(Some(600.0)), Failed(Some(600.0))),
            (Failed(None), Failed(None)),
            (FailedPermanently, FailedPermanently),
            (Cancelled, Cancelled),
        ] {
            assert_eq!(result_of(call, &WriteOutcome::default()), call);
            assert_eq!(result_of(call, &carried()), expected);
            assert_eq!(result_of(call, &rejected()), expected);
            assert_eq!(result_of(call, &fenced()), Cancelled, "the next term repeats it");
        }
    }
}
