//! Objects that are deleted or handed over: before the deletion event arrives, and after errors.

use super::*;

/// The worker after a write that found no object.
fn after_write(deleted: bool, settings: &Value) -> Scene {
    let mut scene = Scene::new("changing", settings);
    let first = scene.start(event(1));
    let write = write_of(scene.conclude(first, patch(), 0.0));
    scene.written(write, WriteOutcome { gone: true, deleted, ..WriteOutcome::default() }, 0.0);
    scene
}

#[test]
fn no_change_of_a_deleted_object_is_handled_even_after_the_consistency_timeout() {
    for settings in [json!({}), json!({"persistence": {"consistency_timeout": 0.0}})] {
        let mut scene = after_write(true, &settings);
        for now in [0.0, 4.0, 100.0] {
            let running = scene.open_at(event(2), now);
            assert_eq!(
                scene.await_consistency(now, OperatorState::default()),
                Ok(false),
                "{settings}: {now}"
            );
            drop(running);
        }
        let deleted = QueuedEvent::of(EventType::Deleted, object(3));
        scene.conclude(deleted, Decision::default(), 100.0);
        assert!(scene.worker.gone && !scene.worker.needs_driver());
    }
}

#[test]
fn an_object_that_may_still_exist_is_handled_after_the_consistency_timeout() {
    let mut scene = after_write(false, &json!({}));
    scene.open_at(event(2), 1.0);
    assert_eq!(scene.await_consistency(1.0, OperatorState::default()), Err(at(5.0)));
    assert_eq!(scene.await_consistency(5.0, OperatorState::default()), Ok(true));
}

#[test]
fn delayed_handlers_are_not_called_for_an_object_that_a_listing_does_not_have() {
    for now in [1.0, 60.0] {
        let mut scene = Scene::new("changing", &json!({}));
        let first = scene.start(event(1));
        scene.conclude(first, Decision { delay: Some(60.0), ..Decision::default() }, 0.0);
        assert!(matches!(scene.next(0.0).next, NextAction::Sleep { kind: SleepKind::Delay, .. }));
        assert!(!scene.worker.has_events());
        scene.worker.gone = true;
        assert!(scene.worker.has_events(), "the sleep is interrupted");
        assert!(matches!(scene.next(now).next, NextAction::Idle), "{now}");
    }
}

#[test]
fn a_failed_cycle_is_not_repeated_for_an_object_that_a_listing_does_not_have() {
    let mut scene = Scene::new("changing", &json!({"queueing": {"error_delays": [2.0]}}));
    let first = scene.start(event(1));
    let failed = Decision { error: Some("boo".to_owned()), ..Decision::default() };
    scene.conclude(first, failed, 0.0);
    assert!(matches!(scene.next(0.0).next, NextAction::Sleep { kind: SleepKind::Backoff, .. }));
    scene.worker.gone = true;
    assert!(matches!(scene.next(2.0).next, NextAction::Idle));
}

#[test]
fn change_handlers_are_not_called_for_waiting_states_of_an_object_that_a_listing_does_not_have() {
    for gone in [false, true] {
        let mut scene = Scene::new("changing", &json!({}));
        let first = scene.start(event(1));
        let text = r#"{"metadata": {"name": "x", "uid": "u", "resourceVersion": "2", "annotations": {
            "kopf.zalando.org/last-handled-configuration": "{\"spec\": {\"a\": 0}}"}}, "spec": {"a": 1}}"#;
        scene.take(QueuedEvent::of(EventType::Modified, Arc::new(Object::decode(text).unwrap())));
        scene.conclude(first, Decision::default(), 0.0);
        scene.worker.gone = gone;
        let NextAction::Start(next) = scene.next(0.0).next else { panic!("event handlers may need it") };
        let mut running = scene.open(next);
        if gone {
            assert!(matches!(running.effect(), Some(Effect::AwaitConsistency)));
            assert_eq!(scene.await_consistency(0.0, OperatorState::default()), Ok(false));
            running.on_consistency(false, at(0.0));
        }
        assert_eq!(matches!(running.effect(), Some(Effect::Run(_))), !gone);
    }
}

/// A worker that is held after an error, for three seconds from zero.
fn held(kind: &str, compat: bool) -> Scene {
    let mut scene = Scene::new(kind, &json!({"compat": compat, "queueing": {"error_delays": [3.0]}}));
    let first = scene.start(event(1));
    scene.conclude(first, Decision { error: Some("boo".to_owned()), ..Decision::default() }, 0.0);
    scene.next(0.0);
    assert!(scene.worker.is_held(at(1.0)) && !scene.worker.is_held(at(3.0)));
    scene
}

#[test]
fn a_deletion_event_ends_the_error_back_off() {
    for compat in [false, true] {
        let mut scene = held("watching", compat);
        scene.take(event(2));
        scene.take(QueuedEvent::of(EventType::Deleted, object(3)));
        // Kopf 1.45 handles it after the back-off.
        assert_eq!(scene.worker.is_held(at(1.0)), compat);
        let step = scene.next(if compat { 3.0 } else { 1.0 });
        assert_eq!((version(&step.next), messages(&step)), (Some("3"), vec![WorkerMessage::BackoffOver]));
    }
}

#[test]
fn an_object_that_a_listing_does_not_have_is_not_held_after_an_error() {
    let mut scene = held("watching", false);
    scene.take(event(2));
    scene.worker.gone = true;
    assert!(!scene.worker.is_held(at(1.0)) && scene.worker.waits_for(at(1.0)).is_none());
    let NextAction::Start(last) = scene.next(1.0).next else { panic!("event handlers get the last state") };
    // Its cycle fails, too.
    scene.conclude(last, Decision { error: Some("boo".to_owned()), ..Decision::default() }, 1.0);
    assert!(matches!(scene.next(1.0).next, NextAction::Idle));
}

#[test]
fn a_cycle_that_fails_after_the_deletion_of_its_object_is_followed_by_the_deletion_at_once() {
    for compat in [false, true] {
        let settings = json!({"compat": compat, "queueing": {"error_delays": [3.0]}});
        let mut scene = Scene::new("watching", &settings);
        let first = scene.start(event(1));
        scene.take(QueuedEvent::of(EventType::Deleted, object(2)));
        scene.conclude(first, Decision { error: Some("boo".to_owned()), ..Decision::default() }, 0.0);
        assert_eq!(version(&scene.next(0.0).next), (!compat).then_some("2"));
    }
}

#[test]
fn a_panic_in_the_cycle_of_a_deletion_is_followed_by_the_back_off() {
    let mut scene = Scene::new("watching", &json!({"queueing": {"error_delays": [3.0]}}));
    let deleted = scene.start(QueuedEvent::of(EventType::Deleted, object(1)));
    let (resource_handlers, config) = scene.context();
    let context = WorkerContext {
        resource_handlers: &resource_handlers,
        startup_config: &config,
        live_config: &config,
    };
    scene.worker.on_internal_error(deleted, "boo".to_owned(), false, context, at(0.0));
    assert!(matches!(scene.next(0.0).next, NextAction::Sleep { kind: SleepKind::Backoff, .. }));
    assert_eq!(version(&scene.next(3.0).next), Some("1"));
}

#[test]
fn the_next_worker_waits_for_the_rest_of_the_error_back_off() {
    let mut scene = held("changing", false);
    scene.worker.leave();
    assert!(!scene.worker.is_held(at(1.0)), "the sleep is interrupted");
    assert!(matches!(scene.next(1.0).next, NextAction::Idle) && scene.worker.is_throttled());
    scene.take(event(2));
    assert!(matches!(scene.next(1.0).next, NextAction::Sleep { until, .. } if until == at(3.0)));
    assert_eq!(version(&scene.next(3.0).next), Some("2"));
}
