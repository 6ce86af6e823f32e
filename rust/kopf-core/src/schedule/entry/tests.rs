//! Tables of the rules A1–A13, and the scenarios of 1.14 that one entry decides.

use super::ReconcileResult::{Cancelled, Failed, FailedPermanently, Requeued, Succeeded};
use super::*;
use crate::handler::ErrorsMode;
use crate::handling::attempt::{Attempt, CallResult};
use crate::schedule::{Delays, GrowingDelays};

fn at(seconds: f64) -> Timestamp {
    Timestamp::from_micros(0).plus(seconds)
}

/// An entry with its policy; times are in seconds, and random numbers are zero.
struct Scene {
    entry: ScheduleEntry,
    policy: SchedulePolicy,
}

impl Scene {
    fn new(policy: SchedulePolicy) -> Self {
        Self { entry: ScheduleEntry::default(), policy }
    }

    fn trigger(&mut self, priority: Priority, now: f64) -> Option<f64> {
        self.entry.trigger(priority, &self.policy, at(now));
        self.due()
    }

    fn changed(&mut self, now: f64) -> Option<f64> {
        self.trigger(Priority::Changed, now)
    }

    fn due(&self) -> Option<f64> {
        self.entry.position(&self.policy).map(|position| position.due.seconds_since(at(0.0)))
    }

    fn priority(&self) -> Option<Priority> {
        self.entry.position(&self.policy).map(|position| position.priority)
    }

    fn finish(&mut self, result: ReconcileResult, now: f64) -> Conclusion {
        self.entry.finish(result, None, &self.policy, at(now), 0.0)
    }

    /// Starts at one time and ends at another one; returns the next due time.
    fn run(&mut self, start: f64, result: ReconcileResult, end: f64) -> Option<f64> {
        assert!(self.due().is_some_and(|due| due <= start), "{:?}", self.entry);
        assert!(self.entry.start(at(start)).is_some());
        self.finish(result, end);
        self.due()
    }
}

fn plain() -> Scene {
    Scene::new(SchedulePolicy::default())
}

#[test]
fn a1_a_trigger_is_due_now_with_the_higher_priority() {
    use Priority::{Changed, Initial, Scheduled};
    for (first, second, expected) in [
        (Initial, Changed, Changed),
        (Changed, Initial, Changed),
        (Initial, Initial, Initial),
        (Scheduled, Initial, Scheduled),
    ] {
        let mut scene = plain();
        assert_eq!(scene.trigger(first, 1.0), Some(1.0));
        assert_eq!(scene.trigger(second, 2.0), Some(1.0), "A3: never later");
        assert_eq!(scene.priority(), Some(expected));
    }
}

#[test]
fn a1_triggers_within_the_window_are_merged_up_to_the_limit() {
    let mut scene = Scene::new(SchedulePolicy { debounce: 0.5, ..SchedulePolicy::default() });
    assert_eq!(scene.changed(0.0), Some(0.5));
    assert_eq!(scene.changed(0.25), Some(0.75));
    for tenth in 3..50 {
        scene.changed(f64::from(tenth) / 10.0);
    }
    assert_eq!(scene.due(), Some(5.0));
    // The initial list is not debounced, and is not postponed by later changes.
    assert_eq!(scene.trigger(Priority::Initial, 4.95), Some(4.95));
    assert_eq!((scene.changed(4.96), scene.priority()), (Some(4.95), Some(Priority::Changed)));
}

#[test]
fn s1_14_24_debouncing_is_bounded() {
    let mut scene = Scene::new(SchedulePolicy { debounce: 0.5, ..SchedulePolicy::default() });
    let mut starts = Vec::new();
    for tenth in 0..200 {
        let now = f64::from(tenth) / 10.0;
        if scene.due().is_some_and(|due| due <= now) {
            starts.push(now);
            scene.run(now, Succeeded, now);
        }
        scene.changed(now);
    }
    assert_eq!(starts, [5.0, 10.0, 15.0]);
}

#[test]
fn a2_triggers_of_a_running_entry_lead_to_one_more_reconciliation() {
    for result in [Succeeded, Requeued(300.0), Failed(None), FailedPermanently, Cancelled] {
        let mut scene = plain();
        scene.changed(0.0);
        scene.entry.start(at(0.0)).unwrap();
        for tenth in 1..50 {
            assert_eq!(scene.changed(f64::from(tenth) / 10.0), None);
        }
        scene.finish(result, 5.0);
        assert_eq!((scene.due(), scene.priority()), (Some(5.0), Some(Priority::Changed)), "{result:?}");
        assert_eq!(scene.run(5.0, Succeeded, 5.0), None, "s1.14.2: exactly one more");
    }
}

#[test]
fn a2_the_limit_counts_from_the_arrival_of_the_first_trigger() {
    let policy = SchedulePolicy { debounce: 1.0, debounce_limit: Some(2.0), ..SchedulePolicy::default() };
    let mut scene = Scene::new(policy);
    scene.changed(0.0);
    scene.entry.start(at(1.0)).unwrap();
    scene.changed(1.5);
    scene.finish(Succeeded, 3.0);
    assert_eq!(scene.due(), Some(3.5));
}

#[test]
fn a4_starts_keep_their_distance() {
    let mut scene = Scene::new(SchedulePolicy { min_interval: 10.0, ..SchedulePolicy::default() });
    scene.changed(0.0);
    assert_eq!(scene.run(0.0, Requeued(0.0), 1.0), Some(10.0));
    assert_eq!(scene.changed(2.0), Some(10.0));
    // The spacing of failures is shorter than the interval here.
    assert_eq!(scene.run(10.0, Failed(Some(0.0)), 10.0), Some(20.0));
    let mut scene = plain();
    scene.changed(0.0);
    assert_eq!(scene.run(0.0, Failed(Some(0.0)), 0.25), Some(1.0));
    let mut scene = Scene::new(SchedulePolicy { delays: Delays::Constant(0.1), ..SchedulePolicy::default() });
    scene.changed(0.0);
    assert_eq!(scene.run(0.0, Failed(None), 0.0), Some(1.0), "Decision 5");
}

#[test]
fn a5_a6_s1_14_4_the_latest_result_decides() {
    let mut scene = plain();
    scene.changed(0.0);
    assert_eq!(scene.run(0.0, Requeued(300.0), 0.0), Some(300.0));
    assert_eq!(scene.priority(), Some(Priority::Scheduled));
    assert_eq!(scene.changed(1.0), Some(1.0));
    assert_eq!(scene.run(1.0, Succeeded, 1.0), None);
    assert!(scene.entry.is_idle());
}

#[test]
fn a6_resync_is_spread_by_a_tenth() {
    for (chance, expected) in [(0.0, 90.0), (0.5, 100.0), (1.0, 110.0)] {
        let mut scene = Scene::new(SchedulePolicy { resync: Some(100.0), ..SchedulePolicy::default() });
        scene.changed(0.0);
        scene.entry.start(at(0.0)).unwrap();
        scene.entry.finish(Succeeded, None, &scene.policy, at(0.0), chance);
        assert_eq!(scene.due(), Some(expected));
        assert_eq!(scene.run(expected, Requeued(5.0), expected), Some(expected + 5.0));
    }
}

#[test]
fn a7_s1_14_5_delays_grow_with_elapsed_delays() {
    let mut scene = plain();
    scene.changed(0.0);
    let (mut now, mut delays) = (0.0, Vec::new());
    for _ in 0..11 {
        let due = scene.run(now, Failed(None), now).unwrap();
        delays.push(due - now);
        now = due;
    }
    assert_eq!(delays, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0, 300.0]);
    assert_eq!(scene.run(now, Succeeded, now), None);
    scene.changed(now);
    assert_eq!(scene.run(now, Failed(None), now), Some(now + 1.0), "a success resets them");
}

#[test]
fn a7_s1_14_6_triggers_do_not_make_the_delays_grow() {
    let mut scene = plain();
    scene.changed(0.0);
    scene.run(0.0, Failed(None), 0.0);
    scene.run(1.0, Failed(None), 1.0);
    assert_eq!(scene.run(3.0, Failed(None), 3.0), Some(7.0));
    let mut starts = Vec::new();
    for tenth in 31..=130 {
        let now = f64::from(tenth) / 10.0;
        scene.changed(now);
        if scene.due().is_some_and(|due| due <= now) {
            starts.push(now);
            scene.run(now, Failed(None), now);
        }
    }
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 1.0 - 1e-9), "{starts:?}");
    assert_eq!(starts.len(), 10);
    let last = scene.due().unwrap();
    assert_eq!(scene.run(last, Failed(None), last), Some(last + 8.0), "not 300");
}

#[test]
fn a7_errors_and_functions_specify_their_delays() {
    let mut scene = plain();
    scene.changed(0.0);
    assert_eq!(scene.run(0.0, Failed(Some(30.0)), 0.0), Some(30.0));
    assert_eq!(scene.run(30.0, Failed(None), 30.0), Some(32.0), "a delay has elapsed");
    let mut scene = Scene::new(SchedulePolicy { delays: Delays::Computed, ..SchedulePolicy::default() });
    scene.changed(0.0);
    assert_eq!(scene.run(0.0, Failed(Some(7.0)), 0.0), Some(7.0));
}

#[test]
fn a8_s1_14_7_after_giving_up_only_triggers_wake_the_entry() {
    for (priority, expected) in
        [(Priority::Changed, Some(3600.0)), (Priority::Initial, Some(3600.0)), (Priority::Scheduled, None)]
    {
        let mut scene = Scene::new(SchedulePolicy { resync: Some(60.0), ..SchedulePolicy::default() });
        scene.changed(0.0);
        assert_eq!(scene.run(0.0, FailedPermanently, 1.0), None);
        assert!(scene.entry.has_given_up());
        assert_eq!(scene.trigger(priority, 3600.0), expected, "{priority:?}");
    }
}

#[test]
fn a8_the_limits_of_a_series() {
    let mut scene = Scene::new(SchedulePolicy { retries: Some(2), ..SchedulePolicy::default() });
    for round in [0.0, 100.0] {
        scene.changed(round);
        assert_eq!(scene.run(round, Failed(None), round), Some(round + 1.0));
        assert_eq!(scene.run(round + 1.0, Failed(None), round + 1.0), None);
    }
    let mut scene = Scene::new(SchedulePolicy { timeout: Some(2.5), ..SchedulePolicy::default() });
    scene.changed(0.0);
    // The timeout counts from the first failure, not from the start of the first reconciliation.
    assert_eq!(scene.run(0.0, Failed(None), 5.0), Some(6.0));
    assert_eq!(scene.run(6.0, Failed(None), 6.0), Some(8.0));
    assert_eq!(scene.run(8.0, Failed(None), 8.0), None);
}

#[test]
fn a9_a_start_waits_for_the_writes_of_the_previous_reconciliation() {
    let mut scene = plain();
    scene.changed(0.0);
    scene.entry.start(at(0.0)).unwrap();
    scene.changed(0.5);
    scene.entry.finish(Succeeded, Some(at(6.0)), &scene.policy, at(1.0), 0.0);
    assert_eq!(scene.due(), Some(6.0));
    scene.entry.confirm_writes();
    assert_eq!(scene.due(), Some(1.0));
}

#[test]
fn a10_a_primary_that_is_gone_is_dropped() {
    let mut scene = plain();
    scene.changed(0.0);
    scene.entry.forget();
    assert_eq!(scene.due(), None);
    assert_eq!(scene.entry.start(at(0.0)), None);
    scene.changed(1.0);
    scene.entry.start(at(1.0)).unwrap();
    scene.changed(1.5);
    scene.entry.forget();
    scene.finish(Requeued(1.0), 2.0);
    assert_eq!(scene.due(), None);
    // It matches again during the call.
    scene.changed(3.0);
    scene.entry.start(at(3.0)).unwrap();
    scene.entry.forget();
    scene.changed(3.5);
    scene.finish(Succeeded, 4.0);
    assert_eq!(scene.due(), Some(4.0));
}

#[test]
fn a12_the_arguments_describe_the_series() {
    let mut scene = plain();
    scene.changed(5.0);
    let start = |scene: &mut Scene, now: f64| {
        let Start { retry, started, runtime } = scene.entry.start(at(now)).unwrap();
        (retry, started.seconds_since(at(0.0)), runtime)
    };
    assert_eq!(start(&mut scene, 5.0), (0, 5.0, 0.0));
    scene.finish(Failed(None), 6.0);
    assert_eq!(start(&mut scene, 7.0), (1, 5.0, 2.0));
    scene.finish(Requeued(1.0), 8.0);
    assert_eq!(start(&mut scene, 9.0), (0, 9.0, 0.0));
}

#[test]
fn s1_14_25_triggers_during_a_pause_are_kept_as_one() {
    let mut scene = plain();
    scene.entry.set_paused(true);
    assert_eq!((scene.changed(0.0), scene.changed(1.0)), (None, None));
    scene.entry.set_paused(false);
    scene.changed(2.0);
    assert_eq!(scene.run(2.0, Succeeded, 2.0), None);
}

#[test]
fn hot_loops_are_delayed_until_another_trigger() {
    let mut scene = plain();
    scene.entry.trigger_after(8.0, at(0.0));
    assert_eq!((scene.due(), scene.changed(1.0)), (Some(8.0), Some(1.0)));
    scene.entry.start(at(1.0)).unwrap();
    scene.entry.trigger_after(8.0, at(2.0));
    scene.finish(Succeeded, 3.0);
    assert_eq!(scene.due(), Some(10.0));
}

#[test]
fn a_cancelled_call_changes_nothing() {
    let mut scene = plain();
    scene.changed(0.0);
    scene.run(0.0, Failed(None), 0.0);
    assert_eq!(scene.run(1.0, Cancelled, 1.5), None);
    assert!(scene.entry.is_failing());
    assert_eq!(scene.finish(Succeeded, 2.0), Conclusion::Cancelled, "nothing is running");
}

#[test]
fn an_entry_is_small() {
    assert!(size_of::<ScheduleEntry>() <= 184, "{}", size_of::<ScheduleEntry>());
    let delays = GrowingDelays { first: 0.25, ..GrowingDelays::default() };
    assert!((Delays::Growing(delays).spacing() - 0.25).abs() < 1e-9);
}

#[test]
fn errors_specify_the_delay_or_leave_it_to_the_schedule() {
    use ErrorsMode::{Ignored, Permanent, Temporary};
    let message = || "boo".to_owned();
    let exception = || CallResult::Arbitrary { message: message() };
    let temporary = |delay| CallResult::Temporary { message: message(), delay };
    let rows = [
        (Temporary, exception(), false, Failed(None)),
        (Ignored, exception(), false, Succeeded),
        (Permanent, exception(), false, FailedPermanently),
        (Temporary, CallResult::Permanent { message: message() }, false, FailedPermanently),
        (Temporary, temporary(Some(5.0)), false, Failed(Some(5.0))),
        (Temporary, temporary(None), false, Failed(Some(0.0))),
        (Permanent, temporary(Some(60.0)), true, Failed(None)),
    ];
    for (errors, raised, is_timed_out, expected) in rows {
        let (label, started) = ("Reconciler 'r'".into(), at(0.0));
        let (timeout, retries, backoff) = (None, None, None);
        let attempt = Attempt { handler: 0, label, errors, timeout, retries, backoff, started, retry: 9 };
        let outcome = attempt.evaluate(&raised, at(1.0)).outcome;
        assert_eq!(ReconcileResult::of_error(&outcome, is_timed_out), expected, "{raised:?}");
    }
}
