//! Writes of another operator that are received while change handlers run; and what looks like them.

use super::*;
use crate::persistence::foreign_write::ForeignWrite;
use crate::persistence::memory::HandlingStatus;
use crate::persistence::observed_essences::ObservedEssences;

const BASE: &str = "kopf.zalando.org/last-handled-configuration";
const ESSENCE: &str = r#"{"spec":{"x":1}}"#;

/// An object of this version, with `spec.x` of 1 and these annotations.
fn annotated(version: &str, annotations: &Value) -> Value {
    let metadata = json!({"name": "x", "uid": "u", "resourceVersion": version, "annotations": annotations});
    json!({"kind": "Thing", "metadata": metadata, "spec": {"x": 1}})
}

fn new() -> Value {
    annotated("5", &json!({}))
}

/// The object after another operator has handled it.
fn handled_by_another() -> Value {
    annotated("6", &json!({BASE: ESSENCE}))
}

/// The record of a handling that has begun at this second.
fn record(second: u32) -> String {
    format!(r#"{{"started":"2026-01-01T00:00:{second:02}.000001+00:00","purpose":"create","retries":1}}"#)
}

fn with_record(version: &str, second: u32) -> Value {
    annotated(version, &json!({"kopf.zalando.org/h": record(second)}))
}

/// An object with a manager of its annotations.
fn managed(mut object: Value, manager: &str) -> Value {
    let mut keys = Map::new();
    for (key, _) in object["metadata"]["annotations"].as_object().unwrap() {
        keys.insert(format!("f:{key}"), json!({}));
    }
    let fields = json!({"f:metadata": {"f:annotations": keys}});
    object["metadata"]["managedFields"] = json!([{"manager": manager, "fieldsV1": fields}]);
    object
}

/// The handling of `before`, during which `after` is received.
struct Handling {
    scene: Scene,
    before: Value,
    after: Value,
    kind: EventType,
    status: HandlingStatus,
}

impl Handling {
    fn of(before: Value, after: Value) -> Self {
        let status = HandlingStatus::Over(ObservedEssences::default());
        Self { scene: Scene::new("changing", &json!({})), before, after, kind: EventType::Modified, status }
    }

    /// The recognised write. `meanwhile` happens to the object's worker while the handlers run.
    fn found_with(mut self, meanwhile: impl FnOnce(&mut ObjectWorker)) -> Option<ForeignWrite> {
        let event = |kind, object: &Value| {
            QueuedEvent::of(kind, Arc::new(Object::decode(&object.to_string()).unwrap()))
        };
        let first = self.scene.start(event(EventType::Modified, &self.before));
        let running = self.scene.open(first);
        self.scene.take(event(self.kind, &self.after));
        meanwhile(&mut self.scene.worker);
        let (resource_handlers, config) = self.scene.context();
        let context = WorkerContext {
            resource_handlers: &resource_handlers,
            startup_config: &config,
            live_config: &config,
        };
        let decision = Decision { handling_status: self.status, ..Decision::default() };
        self.scene.worker.foreign_write(&running, &decision, context)
    }

    fn found(self) -> Option<ForeignWrite> {
        self.found_with(|_| {})
    }
}

fn progress() -> ForeignWrite {
    ForeignWrite::Progress("h".into())
}

#[test]
fn the_progress_of_another_operator_is_recognised() {
    assert_eq!(Handling::of(new(), with_record("6", 1)).found(), Some(progress()));
    assert_eq!(Handling::of(with_record("5", 2), with_record("6", 1)).found(), Some(progress()));
    assert_eq!(Handling::of(new(), managed(with_record("6", 1), "kopf")).found(), Some(progress()));
}

#[test]
fn the_diffbase_of_another_operator_is_recognised() {
    assert_eq!(Handling::of(new(), handled_by_another()).found(), Some(ForeignWrite::DiffBase));
    let before = annotated("5", &json!({BASE: r#"{"spec":{"x":0}}"#}));
    assert_eq!(Handling::of(before, handled_by_another()).found(), Some(ForeignWrite::DiffBase));
    let mut changed = handled_by_another();
    changed["spec"]["x"] = json!(2);
    assert_eq!(
        Handling::of(new(), changed).found(),
        Some(ForeignWrite::DiffBase),
        "it has changed the object, too"
    );
}

#[test]
fn our_own_and_older_states_are_not_recognised() {
    assert_eq!(Handling::of(new(), annotated("6", &json!({}))).found(), None);
    assert_eq!(Handling::of(with_record("5", 1), with_record("6", 1)).found(), None, "the same handling");
    assert_eq!(Handling::of(with_record("5", 1), annotated("6", &json!({}))).found(), None, "removed");
    for version in ["5", "4", "abc"] {
        assert_eq!(Handling::of(new(), with_record(version, 1)).found(), None, "version {version}");
    }
    let mut old = handled_by_another();
    old["metadata"]["resourceVersion"] = json!("5");
    assert_eq!(Handling::of(old, handled_by_another()).found(), None, "no change");
}

#[test]
fn the_state_of_different_operators_is_not_recognised() {
    for key in ["kopf.zalando.org/other", "example.com/h", "example.com/last-handled-configuration"] {
        let value = if key.ends_with('h') || key.ends_with("other") { record(1) } else { ESSENCE.to_owned() };
        let after = annotated("6", &json!({key: value, "example.com/kopf-managed": "yes"}));
        assert_eq!(Handling::of(new(), after).found(), None, "{key}");
    }
}

#[test]
fn annotations_from_users_and_their_tools_are_not_recognised() {
    let stale = annotated("6", &json!({BASE: r#"{"spec":{"x":0}}"#}));
    assert_eq!(Handling::of(new(), stale).found(), None, "no operator has handled this state");
    for object in [handled_by_another(), with_record("6", 1)] {
        for manager in ["kubectl-annotate", "argocd-controller"] {
            assert_eq!(Handling::of(new(), managed(object.clone(), manager)).found(), None, "{manager}");
        }
    }
    assert_eq!(
        Handling::of(new(), annotated("6", &json!({BASE: "{", "kopf.zalando.org/h": "{"}))).found(),
        None
    );
}

#[test]
fn the_last_writes_of_the_previous_operator_are_not_recognised() {
    let listed = |after| {
        let mut handling = Handling::of(new(), after);
        handling.scene.worker = ObjectWorker::new(EventType::Listed);
        handling
    };
    assert_eq!(listed(handled_by_another()).found(), None);
    assert_eq!(listed(with_record("6", 1)).found(), None);
    let mut later = listed(with_record("6", 1));
    later.scene.worker.memory.fully_handled_once = true;
    assert_eq!(later.found(), Some(progress()), "the next handling began after the start of this operator");
}

#[test]
fn nothing_is_recognised_without_a_handling() {
    let mut unhandled = Handling::of(new(), with_record("6", 1));
    unhandled.status = HandlingStatus::Before;
    assert_eq!(unhandled.found(), None);
    let mut deleted = Handling::of(new(), with_record("6", 1));
    deleted.kind = EventType::Deleted;
    assert_eq!(deleted.found(), None);
}

#[test]
fn nothing_is_recognised_after_a_pause_of_this_operator() {
    let found = Handling::of(new(), with_record("6", 1)).found_with(|worker| {
        worker.memory.invalidate();
        worker.drop_outdated();
    });
    assert_eq!(found, None, "the other operator has worked during the pause");
}

#[test]
fn nothing_is_recognised_in_the_compatibility_mode_and_with_custom_storages() {
    let storage = json!({"type": "Custom"});
    for settings in [json!({"compat": true}), json!({"persistence": {"progress_storage": storage}})] {
        let mut handling = Handling::of(new(), with_record("6", 1));
        handling.scene = Scene::new("changing", &settings);
        assert_eq!(handling.found(), None, "{settings}");
    }
}

/// Whether a foreign write is recognised after a write of this operator with this result, at this time.
fn is_recognised_after(outcome: WriteOutcome, settings: &Value, until: f64) -> bool {
    let mut handling = Handling::of(new(), with_record("6", 1));
    let scene = &mut handling.scene;
    *scene = Scene::new("changing", settings);
    let first = scene.start(event(1));
    let write = write_of(scene.conclude(first, patch(), 0.0));
    scene.written(write, outcome, 0.0);
    if scene.worker.consistency.is_some() {
        let _ = scene.await_consistency(until, OperatorState::default());
    }
    scene.worker.release();
    scene.worker.backoff = None;
    handling.found().is_some()
}

#[test]
fn nothing_is_recognised_if_our_own_writes_are_not_all_known() {
    let written = object(3);
    let known = || WriteOutcome { latest: Some(Arc::clone(&written)), ..WriteOutcome::default() };
    assert!(is_recognised_after(known(), &json!({}), 1.0), "the write has arrived");
    assert!(!is_recognised_after(known(), &json!({}), 6.0), "the watch event has come too late");
    let without_wait = json!({"persistence": {"consistency_timeout": 0.0}});
    assert!(!is_recognised_after(known(), &without_wait, 1.0), "it is not awaited");
    let failure = || Some(failed(true));
    let rejections = vec![rejection(Map::new(), 504)];
    let lost = WriteOutcome { failure: failure(), rejections, ..WriteOutcome::default() };
    assert!(!is_recognised_after(lost, &json!({}), 6.0), "the response was lost");
    let partial =
        WriteOutcome { latest: Some(Arc::clone(&written)), failure: failure(), ..WriteOutcome::default() };
    assert!(!is_recognised_after(partial, &json!({}), 6.0), "the second response was lost");
    let conflict = WriteOutcome { must_retry: true, ..WriteOutcome::default() };
    assert!(is_recognised_after(conflict, &json!({}), 1.0), "nothing was written");
}

#[test]
fn nothing_is_recognised_after_an_internal_error_during_a_write() {
    for (may_be_written, expected) in [(false, Some(progress())), (true, None)] {
        let mut handling = Handling::of(new(), with_record("6", 1));
        let (resource_handlers, config) = handling.scene.context();
        let context = WorkerContext {
            resource_handlers: &resource_handlers,
            startup_config: &config,
            live_config: &config,
        };
        let first = handling.scene.start(event(1));
        handling.scene.worker.on_internal_error(first, String::new(), may_be_written, context, at(0.0));
        handling.scene.worker.release();
        handling.scene.worker.backoff = None;
        assert_eq!(handling.found(), expected);
    }
}
