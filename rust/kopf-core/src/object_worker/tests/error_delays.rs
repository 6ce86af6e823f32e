//! Errors without a delay in the settings: the object is not throttled, and not handled again and again.

use super::*;

/// Settings without delays, or with a delay of zero.
fn unthrottled() -> [Value; 2] {
    [json!([]), json!([0.0])].map(|delays| json!({"queueing": {"error_delays": delays}}))
}

/// The end of the sleep that follows now.
fn slept_until(scene: &mut Scene, now: f64) -> Timestamp {
    match scene.next(now).next {
        NextAction::Sleep { until, kind: SleepKind::Delay } => until,
        other => panic!("no sleep: {other:?}"),
    }
}

#[test]
fn a_failed_state_is_handled_again_after_a_minute() {
    for settings in unthrottled() {
        let mut scene = Scene::new("changing", &settings);
        let first = scene.start(event(1));
        let failed = Decision { error: Some("boo".to_owned()), ..Decision::default() };
        scene.conclude(first, failed, 0.0);
        assert!(scene.worker.needs_driver());
        assert_eq!(slept_until(&mut scene, 0.0), at(60.0), "{settings}");
        let NextAction::Start(again) = scene.next(60.0).next else { panic!("the sleep is over") };
        assert!(again.requeued && again.object.resource_version() == Some("1"));
    }
}

#[test]
fn a_failed_write_is_repeated_after_a_minute() {
    for settings in unthrottled() {
        let mut scene = Scene::new("changing", &settings);
        let first = scene.start(event(1));
        let write = write_of(scene.conclude(first, patch(), 0.0));
        let unwritten = write.request.patch.0.clone();
        let failure = Some(failed(false));
        scene.written(write, WriteOutcome { unwritten, failure, ..WriteOutcome::default() }, 0.0);
        assert_eq!(slept_until(&mut scene, 0.0), at(60.0), "{settings}");
    }
}

#[test]
fn new_events_are_handled_at_once() {
    for settings in unthrottled() {
        for arrives_before in [true, false] {
            let mut scene = Scene::new("changing", &settings);
            let first = scene.start(event(1));
            if arrives_before {
                scene.take(event(2));
            }
            let failed = Decision { error: Some("boo".to_owned()), ..Decision::default() };
            scene.conclude(first, failed, 0.0);
            if !arrives_before {
                slept_until(&mut scene, 0.0);
                scene.take(event(2));
            }
            assert_eq!(version(&scene.next(1.0).next), Some("2"), "{settings}, {arrives_before}");
            scene.conclude(event(2), Decision::default(), 1.0);
            assert!(matches!(scene.next(1.0).next, NextAction::Idle), "nothing else is repeated");
        }
    }
}

#[test]
fn a_cycle_with_an_internal_error_is_repeated_after_a_minute_unless_the_object_is_deleted() {
    for (kind, is_repeated) in [(EventType::Modified, true), (EventType::Deleted, false)] {
        for settings in unthrottled() {
            let mut scene = Scene::new("changing", &settings);
            let first = scene.start(QueuedEvent::of(kind, object(1)));
            let (resource_handlers, config) = scene.context();
            let context = WorkerContext {
                resource_handlers: &resource_handlers,
                startup_config: &config,
                live_config: &config,
            };
            scene.worker.on_internal_error(first, "boo".to_owned(), false, context, at(0.0));
            assert_eq!(scene.worker.needs_driver(), is_repeated, "{settings}");
            assert_eq!(scene.worker.gone, !is_repeated, "nothing of a deleted object is kept: {settings}");
            if is_repeated {
                assert_eq!(slept_until(&mut scene, 0.0), at(60.0));
            }
        }
    }
}
