//! The rules of deletion with the schedule entry, and the scenarios of 1.14 that they decide.

use super::*;

fn at(seconds: f64) -> Timestamp {
    Timestamp::from_micros(0).plus(seconds)
}

const POLICY: SchedulePolicy = SchedulePolicy {
    delays: crate::schedule::Delays::Constant(1.0),
    debounce: 0.0,
    debounce_limit: None,
    min_interval: 0.0,
    resync: None,
    retries: Some(2),
    timeout: None,
};

/// A primary of a reconciler with `deletion=True`.
#[derive(Default)]
struct Scene {
    primary: PrimarySchedule,
}

impl Scene {
    fn observe(&mut self, trigger: Option<Priority>, is_deleting: bool, has_finalizer: bool) -> Next {
        let state = PrimaryState { matches: true, is_deleting, has_finalizer };
        self.primary.observe(state, trigger, true, &POLICY, at(0.0));
        self.next()
    }

    fn next(&self) -> Next {
        self.primary.next(true, &POLICY)
    }

    fn start(&mut self, now: f64) -> Option<Call> {
        self.primary.start(true, at(now)).map(|(call, _)| call)
    }

    fn finish(&mut self, result: ReconcileResult, now: f64) -> Next {
        self.primary.finish(result, None, &POLICY, at(now), 0.0);
        self.next()
    }

    /// A primary that was reconciled once and is idle.
    fn idle() -> Self {
        let mut scene = Self::default();
        scene.observe(Some(Priority::Initial), false, true);
        assert_eq!(scene.start(0.0), Some(Call::Ordinary));
        assert_eq!(scene.finish(ReconcileResult::Succeeded, 0.0), Next::default());
        scene
    }
}

fn due(next: Next) -> Option<Priority> {
    next.position.map(|position| position.priority)
}

#[test]
fn s1_14_14_the_order_of_creation_and_deletion() {
    let mut scene = Scene::default();
    let next = scene.observe(Some(Priority::Changed), false, false);
    assert_eq!((next.edit, due(next)), (Some(Edit::Block), None), "F1");
    assert_eq!(scene.start(0.0), None, "F1");
    let next = scene.observe(None, false, true);
    assert_eq!((next.edit, due(next)), (None, Some(Priority::Changed)), "the trigger is kept");
    assert_eq!(scene.start(0.0), Some(Call::Ordinary));
    scene.finish(ReconcileResult::Succeeded, 0.0);
    let next = scene.observe(None, true, true);
    assert_eq!((next.edit, due(next)), (None, Some(Priority::Changed)), "the mark is a trigger");
    assert_eq!(scene.start(1.0), Some(Call::Deleting));
    scene.primary.trigger(Priority::Changed, true, &POLICY, at(1.0));
    let next = scene.finish(ReconcileResult::Succeeded, 2.0);
    assert_eq!((next.edit, due(next)), (Some(Edit::Allow), None), "F3");
    scene.primary.trigger(Priority::Changed, true, &POLICY, at(2.0));
    assert_eq!(due(scene.next()), None);
    assert_eq!(
        scene.observe(Some(Priority::Changed), true, false),
        Next::default(),
        "a foreign finalizer remains"
    );
    scene.primary.remove();
    assert!(scene.next().is_over);
}

#[test]
fn f1_the_finalizer_is_added_without_any_trigger() {
    let next = Scene::default().observe(None, false, false);
    assert_eq!((next.edit, due(next)), (Some(Edit::Block), None));
}

#[test]
fn f2_an_older_state_is_not_reconciled_after_a_deleting_call() {
    let mut scene = Scene::idle();
    scene.observe(None, true, true);
    assert_eq!(scene.start(0.0), Some(Call::Deleting));
    scene.finish(ReconcileResult::Requeued(5.0), 0.0);
    assert_eq!(due(scene.observe(Some(Priority::Changed), false, true)), None);
    assert_eq!(scene.start(9.0), None);
    assert_eq!(due(scene.observe(None, true, true)), Some(Priority::Changed));
}

#[test]
fn f4_a_deleting_call_that_gives_up_releases_the_object() {
    let mut scene = Scene::idle();
    scene.observe(None, true, true);
    scene.start(0.0);
    assert_eq!(scene.finish(ReconcileResult::Failed(None), 0.0).edit, None);
    scene.start(1.0);
    assert_eq!(scene.finish(ReconcileResult::Failed(None), 1.0).edit, Some(Edit::Allow));
}

#[test]
fn f4_failures_before_the_deletion_do_not_count() {
    let mut scene = Scene::default();
    scene.observe(Some(Priority::Initial), false, true);
    scene.start(0.0);
    let next = scene.observe(None, true, true);
    assert!(next.stop && next.position.is_none());
    let next = scene.finish(ReconcileResult::Failed(None), 0.0);
    assert_eq!((due(next), next.stop), (Some(Priority::Changed), false));
    assert_eq!(scene.start(0.0), Some(Call::Deleting));
    assert_eq!(scene.finish(ReconcileResult::Failed(None), 0.0).edit, None, "the first of two failures");
}

#[test]
fn f4_an_ordinary_call_that_gives_up_keeps_the_finalizer() {
    let mut scene = Scene::idle();
    scene.observe(Some(Priority::Changed), false, true);
    scene.start(0.0);
    assert_eq!(scene.finish(ReconcileResult::FailedPermanently, 0.0), Next::default());
    assert_eq!(due(scene.observe(None, true, true)), Some(Priority::Changed));
}

#[test]
fn f7_an_object_that_stops_matching_is_released_after_the_call() {
    let mut scene = Scene::idle();
    scene.observe(Some(Priority::Changed), false, true);
    scene.start(0.0);
    let gone = PrimaryState { matches: false, is_deleting: false, has_finalizer: true };
    scene.primary.observe(gone, None, true, &POLICY, at(0.0));
    assert_eq!(scene.next(), Next::default());
    assert!(scene.primary.needs_finalizer(true));
    assert_eq!(scene.finish(ReconcileResult::Requeued(1.0), 0.0).edit, Some(Edit::Allow));
    assert!(!scene.primary.needs_finalizer(true));
    // It matches again: this is a trigger, and the finalizer is added first.
    let next = scene.observe(None, false, false);
    assert_eq!(next.edit, Some(Edit::Block));
    assert_eq!(due(scene.observe(None, false, true)), Some(Priority::Changed));
}

#[test]
fn f9_a_primary_that_disappears_lets_its_call_end() {
    let mut scene = Scene::idle();
    scene.observe(Some(Priority::Changed), false, true);
    scene.start(0.0);
    scene.primary.remove();
    assert!(scene.next().stop && !scene.next().is_over);
    let next = scene.finish(ReconcileResult::Requeued(1.0), 0.0);
    assert!(next.is_over && next.position.is_none());
}

#[test]
fn s1_11_3_unfinished_deletions_always_have_a_trigger() {
    let mut scene = Scene::default();
    assert_eq!(due(scene.observe(None, true, true)), Some(Priority::Initial));
    assert_eq!(Scene::default().observe(None, true, false), Next::default(), "F7");
    assert_eq!(Scene::default().observe(None, false, true), Next::default(), "initial=False");
}

#[test]
fn without_deletion_a_marked_primary_is_not_reconciled() {
    let mut primary = PrimarySchedule::default();
    let state = PrimaryState { matches: true, is_deleting: false, has_finalizer: false };
    primary.observe(state, Some(Priority::Initial), false, &POLICY, at(0.0));
    assert_eq!(primary.start(false, at(0.0)).map(|(call, _)| call), Some(Call::Ordinary));
    primary.observe(PrimaryState { is_deleting: true, ..state }, None, false, &POLICY, at(1.0));
    assert!(primary.next(false, &POLICY).stop);
    primary.trigger(Priority::Changed, false, &POLICY, at(1.0));
    primary.finish(ReconcileResult::Requeued(1.0), None, &POLICY, at(2.0), 0.0);
    assert_eq!(primary.next(false, &POLICY), Next::default());
}

#[test]
fn the_end_of_the_pause_annotation_is_a_trigger() {
    let mut scene = Scene::idle();
    scene.primary.set_paused(true, true, &POLICY, at(0.0));
    assert_eq!(due(scene.observe(Some(Priority::Changed), false, true)), None);
    assert_eq!(scene.start(0.0), None);
    scene.primary.set_paused(false, true, &POLICY, at(1.0));
    assert_eq!(scene.start(1.0), Some(Call::Ordinary));
    assert_eq!(due(scene.finish(ReconcileResult::Succeeded, 1.0)), None, "one reconciliation");
}

#[test]
fn f10_ordinary_calls_wait_for_the_finalizer_of_deletion_handlers() {
    for has_deletion in [false, true] {
        let mut primary = PrimarySchedule::default();
        let state = PrimaryState { matches: true, is_deleting: false, has_finalizer: has_deletion };
        primary.await_finalizer(true);
        primary.observe(state, Some(Priority::Initial), has_deletion, &POLICY, at(0.0));
        assert_eq!(primary.next(has_deletion, &POLICY), Next::default());
        assert_eq!(primary.start(has_deletion, at(0.0)), None);
        assert_eq!(primary.needs_finalizer(has_deletion), has_deletion, "that of the reconciler");
        primary.await_finalizer(false);
        assert_eq!(due(primary.next(has_deletion, &POLICY)), Some(Priority::Initial), "the trigger is kept");
        assert_eq!(primary.start(has_deletion, at(1.0)).map(|(call, _)| call), Some(Call::Ordinary));
    }
    let mut scene = Scene::idle();
    scene.primary.await_finalizer(true);
    assert_eq!(
        due(scene.observe(None, true, true)),
        Some(Priority::Changed),
        "calls of the deletion do not wait"
    );
}
