//! An object whose deletion is known from a write, before its deletion event arrives.

use super::*;

/// The worker after a write that found no object.
fn after_write(deleted: bool, settings: &Value) -> Scene {
    let mut scene = Scene::new("changing", settings);
    let first = started(scene.take(event(1)));
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
