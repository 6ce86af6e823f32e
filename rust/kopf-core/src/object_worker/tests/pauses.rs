//! Pauses of the operator: nothing from before a pause is handled during it or after it.

use super::*;

const PAUSED: OperatorState = OperatorState { paused: true, stopping: false };

#[test]
fn a_pause_ends_the_sleep() {
    for paused_before in [true, false] {
        let mut scene = Scene::new("changing", &json!({}));
        let first = scene.start(event(1));
        scene.conclude(first, Decision { delay: Some(5.0), ..Decision::default() }, 0.0);
        if !paused_before {
            scene.next(0.0);
            scene.worker.on_pause();
        }
        assert!(matches!(scene.next_in(5.0, PAUSED).next, NextAction::Idle));
    }
}

#[test]
fn a_pause_before_the_call_of_change_handlers_ends_the_cycle_without_them() {
    for is_paused in [false, true] {
        let mut scene = Scene::new("changing", &json!({}));
        let text = r#"{"metadata": {"name": "x", "uid": "u", "resourceVersion": "1", "annotations": {
            "kopf.zalando.org/last-handled-configuration": "{\"spec\": {\"a\": 0}}"}}, "spec": {"a": 1}}"#;
        let event = QueuedEvent::of(EventType::Modified, Arc::new(Object::decode(text).unwrap()));
        let mut running = scene.open(event);
        assert!(!running.has_run());
        if is_paused {
            running.on_pause();
        }
        match running.effect() {
            Some(Effect::Run(_)) => assert!(!is_paused && running.has_run()),
            Some(Effect::Done(decision)) => {
                assert!(is_paused && !running.has_run());
                assert!(
                    decision.patch.is_empty() && decision.finalizer.is_none() && decision.delay.is_none()
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn during_a_pause_only_a_deletion_is_handled() {
    for (kind, is_handled) in [(EventType::Modified, false), (EventType::Deleted, true)] {
        for error_delay in [None, Some(2.0)] {
            let settings = json!({"queueing": {"error_delays": [error_delay.unwrap_or_default()]}});
            let mut scene = Scene::new("watching", &settings);
            let first = scene.start(event(1));
            scene.take(event(2));
            scene.take(QueuedEvent::of(kind, object(3)));
            let error = error_delay.map(|_| "boo".to_owned());
            scene.conclude(first, Decision { error, ..Decision::default() }, 0.0);
            let next = scene.next_in(2.0, PAUSED).next;
            assert_eq!(version(&next), is_handled.then_some("3"), "{kind:?}, {error_delay:?}");
            assert_eq!(matches!(next, NextAction::Idle), !is_handled);
        }
    }
}

#[test]
fn in_compat_mode_earlier_events_are_handled_during_a_pause() {
    let mut scene = Scene::new("changing", &json!({"compat": true}));
    let first = scene.start(event(1));
    scene.take(event(2));
    let write = write_of(scene.conclude(first, patch(), 0.0));
    let latest = object(3);
    scene.written(write, WriteOutcome { latest: Some(latest), ..WriteOutcome::default() }, 0.0);
    assert_eq!(version(&scene.next_in(0.0, PAUSED).next), Some("2"));
    assert_eq!(scene.await_consistency(1.0, PAUSED), Err(at(5.0)));
}

#[test]
fn a_pause_ends_the_wait_for_an_own_write() {
    let mut scene = Scene::new("changing", &json!({}));
    let first = scene.start(event(1));
    let write = write_of(scene.conclude(first, patch(), 0.0));
    let latest = object(2);
    scene.written(write, WriteOutcome { latest: Some(latest), ..WriteOutcome::default() }, 0.0);
    assert_eq!(scene.await_consistency(1.0, OperatorState::default()), Err(at(5.0)));
    assert_eq!(scene.await_consistency(9.0, PAUSED), Ok(false), "the watch event will not come");
}

#[test]
fn nothing_from_before_a_pause_is_handled_after_it() {
    let mut scene = Scene::new("watching", &json!({}));
    let first = scene.start(event(1));
    assert!(scene.worker.on_wake(object(1), PAUSED).is_none());
    scene.take(event(2));
    scene.conclude(first, Decision { delay: Some(5.0), ..Decision::default() }, 0.0);
    scene.worker.memory.invalidate();
    scene.worker.drop_outdated();
    scene.take(QueuedEvent::of(EventType::Listed, object(3)));
    assert_eq!(version(&scene.next(0.0).next), Some("3"));
    scene.conclude(event(3), Decision::default(), 0.0);
    assert!(matches!(scene.next(9.0).next, NextAction::Idle));
}

#[test]
fn blocked_events_from_before_a_pause_are_dropped_at_their_release() {
    let deleted = QueuedEvent::of(EventType::Deleted, object(2));
    for (operator, versions) in [(PAUSED, vec!["2"]), (OperatorState::default(), vec!["1", "2"])] {
        let mut scene = Scene::new("watching", &json!({}));
        scene.worker.block(event(1), true);
        scene.worker.block(deleted.clone(), true);
        assert_eq!(scene.released(operator), versions);
    }
    let mut scene = Scene::new("watching", &json!({}));
    scene.worker.block(event(1), true);
    scene.worker.block(event(2), true);
    scene.worker.mark_outdated();
    scene.worker.block(QueuedEvent::of(EventType::Listed, object(3)), true);
    assert_eq!(scene.released(OperatorState::default()), ["3"]);
    let mut scene = Scene::new("watching", &json!({"compat": true}));
    scene.worker.block(event(1), true);
    assert_eq!(scene.released(PAUSED), ["1"]);
}

#[test]
fn a_term_of_leader_election_begins_as_an_operator_does() {
    let mut scene = Scene::new("changing", &json!({}));
    scene.worker = ObjectWorker::new(EventType::Added);
    let first = scene.start(event(1));
    let write = write_of(scene.conclude(first, patch(), 0.0));
    let latest = object(2);
    scene.written(write, WriteOutcome { latest: Some(latest), ..WriteOutcome::default() }, 0.0);
    assert!(scene.worker.consistency.is_some());
    scene.worker.begin_term();
    assert!(scene.worker.memory.noticed_by_listing, "resume handlers are called");
    assert!(!scene.worker.memory.noticed && scene.worker.memory.pending_state.is_none());
    assert!(scene.worker.consistency.is_none());
}

#[test]
fn a_cycle_of_a_lost_term_is_dropped_with_the_waiting_states() {
    let mut scene = Scene::new("watching", &json!({}));
    scene.start(event(1));
    scene.take(event(2));
    scene.worker.on_term_lost();
    assert!(matches!(scene.next_in(0.0, PAUSED).next, NextAction::Idle));
    assert_eq!(scene.start(event(3)).object.resource_version(), Some("3"));
}

/// A cycle whose functions could not be applied; and neither could its patch, unless that is empty.
fn leave_functions(scene: &mut Scene, unwritten: Map<String, Value>) {
    let decision = Decision { fns: true, ..patch() };
    let write = write_of(scene.conclude(event(1), decision, 0.0));
    let failure = Some(failed(false));
    let outcome = WriteOutcome { carry: true, unwritten, failure, ..WriteOutcome::default() };
    assert!(scene.written(write, outcome, 0.0).carry);
}

/// Whether the functions of an earlier cycle are applied with the next event.
fn awaits_functions(scene: &mut Scene) -> bool {
    match scene.open_at(event(2), 9.0).effect() {
        Some(Effect::Run(activation)) => activation.remaining_fns,
        other => panic!("nothing is called: {other:?}"),
    }
}

#[test]
fn functions_are_kept_for_the_next_cycle_but_not_for_the_next_term() {
    for kind in ["watching", "indexing"] {
        let mut scene = Scene::new(kind, &json!({}));
        assert!(!awaits_functions(&mut scene));
        leave_functions(&mut scene, Map::new());
        assert!(awaits_functions(&mut scene), "{kind}");
        scene.worker.begin_term();
        assert!(!awaits_functions(&mut scene), "{kind}");
    }
}

#[test]
fn functions_are_dropped_in_a_pause_with_the_patch_of_their_handlers() {
    for is_written in [true, false] {
        let mut scene = Scene::new("watching", &json!({}));
        let unwritten = if is_written { Map::new() } else { patch().patch.0 };
        leave_functions(&mut scene, unwritten);
        scene.worker.memory.invalidate();
        scene.worker.drop_outdated();
        assert_eq!(awaits_functions(&mut scene), is_written);
    }
}
