//! States from before our last write, after a write of which only a part has reached the API server.

use super::*;
use crate::persistence::essence::essence;
use crate::writes::{Rejection, WriteContext, Writing};

fn with_labels(version: u64, labels: &Value) -> Arc<Object> {
    let body = json!({"metadata": {"name": "x", "uid": "u", "resourceVersion": version.to_string(), "labels": labels}});
    Arc::new(Object::decode(&body.to_string()).unwrap())
}

/// The decision of the next cycle, which calls no handlers. Another event ends its wait for our last write.
fn decided(scene: &mut Scene, event: QueuedEvent, now: f64) -> Decision {
    let (resource_handlers, config) = scene.context();
    let context = WorkerContext {
        resource_handlers: &resource_handlers,
        startup_config: &config,
        live_config: &config,
    };
    let start = scene.worker.prepare(event, context, at(now));
    let mut running = Cycle::open(start, Arc::clone(&resource_handlers), config, 1, at(now));
    let mut effect = running.effect();
    if let Some(Effect::AwaitConsistency) = effect {
        running.on_consistency(false, at(now));
        effect = running.effect();
    }
    match effect {
        Some(Effect::Done(decision)) => *decision,
        other => panic!("no decision: {other:?}"),
    }
}

#[test]
fn a_state_from_before_our_last_write_does_not_confirm_the_failed_part_of_the_next_one() {
    for is_outcome_unknown in [false, true] {
        let mut scene = Scene::new("changing", &json!({"queueing": {"error_delays": [2.0]}}));
        let old = QueuedEvent::of(EventType::Modified, with_labels(1, &json!({})));
        // The first write adds a label and a status.
        let write = write_of(scene.conclude(old.clone(), patch(), 0.0));
        let first = with_labels(2, &json!({"a": "1"}));
        let merged = write.request.patch.0.clone();
        scene.written(write, WriteOutcome { latest: Some(first), merged, ..WriteOutcome::default() }, 0.0);
        // The second one removes the label again: only its request for the status succeeds.
        let both = json!({"metadata": {"labels": {"a": null}}, "status": {"b": 1}});
        let both = crate::json::merge_patch::Patch(both.as_object().cloned().unwrap());
        let decision = Decision { patch: both.clone(), ..Decision::default() };
        let write = write_of(scene.conclude(old, decision, 0.0));
        let latest = with_labels(3, &json!({"a": "1"}));
        let failure = Some(failed(is_outcome_unknown));
        let (unwritten, latest) = (write.request.patch.0.clone(), Some(latest));
        scene.written(write, WriteOutcome { latest, unwritten, failure, ..WriteOutcome::default() }, 0.0);
        // The listing of a replaced watch can be older than both.
        let mut body = with_labels(1, &json!({})).to_value();
        body["status"] = json!({"b": 1});
        let listed = Arc::new(Object::decode(&body.to_string()).unwrap());
        let decision = decided(&mut scene, QueuedEvent::of(EventType::Listed, listed), 2.0);
        assert_eq!(decision.patch, both, "the label is still to be removed");
        // A later state without the label confirms the patch.
        let mut body = with_labels(4, &json!({})).to_value();
        body["status"] = json!({"b": 1});
        let current = Arc::new(Object::decode(&body.to_string()).unwrap());
        let decision = decided(&mut scene, QueuedEvent::of(EventType::Modified, current), 2.0);
        let is_repeated = |keys: &[&str]| decision.patch.get(keys).is_some();
        assert!(!is_repeated(&["metadata", "labels"]) && !is_repeated(&["status"]), "{:?}", decision.patch);
    }
}

#[test]
fn the_final_progress_of_a_failed_write_is_written_with_its_repetition() {
    let mut scene = Scene::new("changing", &json!({"queueing": {"error_delays": [2.0]}}));
    let record = json!({"success": true}).to_string();
    let annotations = |record: Value| json!({"metadata": {"annotations": {"kopf.zalando.org/h": record}}});
    let of = |value: Value| crate::json::merge_patch::Patch(value.as_object().cloned().unwrap());
    let mut patch = annotations(Value::Null);
    let handled = essence(&object(1), &scene.config.settings.persistence, &[]).to_string();
    patch["metadata"]["annotations"]["kopf.zalando.org/last-handled-configuration"] = json!(handled);
    let final_progress = of(annotations(record.into()));
    let decision =
        Decision { patch: of(patch), final_progress: final_progress.clone(), ..Decision::default() };
    let first = scene.start(event(1));
    let mut write = write_of(scene.conclude(first, decision, 0.0));
    let (resource_handlers, config) = scene.context();
    let rules = WriteContext {
        resource: &resource_handlers.resource,
        finalizer: "f",
        compat: false,
        is_versioned: false,
        release_cleanup: Some((&resource_handlers, &config.settings.persistence)),
        partial: None,
        is_deleted: &|| false,
        is_verbose: false,
    };
    let mut writing = Writing::new(Arc::clone(&write.object), std::mem::take(&mut write.request), &rules);
    while writing.next(&rules).is_some() {
        writing.on_response(Err(error(503)), &rules);
    }
    scene.written(write, writing.finish(), 0.0);
    let decision = decided(&mut scene, event(1), 2.0);
    assert_eq!(decision.final_progress, final_progress);
}

#[test]
fn a_part_that_is_rejected_when_a_failed_patch_is_repeated_is_not_stored() {
    let mut scene = Scene::new("changing", &json!({"queueing": {"error_delays": [2.0]}}));
    let progress = json!({"metadata": {"annotations": {"kopf.zalando.org/h": "{}"}}});
    let mut patch = crate::json::merge_patch::Patch(progress.as_object().cloned().unwrap());
    patch.set(&["spec", "x"], json!(1));
    let first = scene.start(event(1));
    let decision = Decision { patch: patch.clone(), ..Decision::default() };
    let write = write_of(scene.conclude(first, decision, 0.0));
    let unwritten = write.request.patch.0.clone();
    let failure = Some(failed(false));
    scene.written(write, WriteOutcome { unwritten, failure, ..WriteOutcome::default() }, 0.0);
    let write = write_of(scene.conclude(event(1), Decision { patch, ..Decision::default() }, 2.0));
    let rejected = progress.as_object().cloned().unwrap();
    let merged = json!({"spec": {"x": 1}}).as_object().cloned().unwrap();
    let rejection = Rejection { patch: rejected.clone(), is_status: false, error: error(422) };
    let (latest, rejections) = (Some(object(2)), vec![rejection]);
    scene.written(write, WriteOutcome { latest, merged, rejections, ..WriteOutcome::default() }, 2.0);
    let pending_state = scene.worker.memory.pending_state.as_ref().unwrap();
    assert_eq!(pending_state.rejected_patch().patch(), &rejected);
    assert!(pending_state.progress().is_empty(), "it is not on the object: {:?}", pending_state.progress());
}

#[test]
fn a_patch_is_kept_if_its_404_does_not_prove_that_the_object_is_deleted() {
    for deleted in [false, true] {
        let mut scene = Scene::new("changing", &json!({}));
        let first = scene.start(event(1));
        let write = write_of(scene.conclude(first, patch(), 0.0));
        let unwritten = write.request.patch.0.clone();
        let outcome = WriteOutcome { gone: true, deleted, unwritten, ..WriteOutcome::default() };
        scene.written(write, outcome, 0.0);
        assert_eq!(scene.worker.memory.pending_state.is_some(), !deleted);
    }
}
