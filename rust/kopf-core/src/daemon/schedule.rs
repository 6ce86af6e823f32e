//! The schedule of one daemon or timer, from its start to its exit: when it is called first, and when again.
//!
//! A sleeping daemon or timer needs no task and no thread: its schedule is its only state.

use crate::handler::{Handler, Kind};
use crate::handling::attempt::{Attempt, Outcome};
use crate::time::Timestamp;

/// The next action of a daemon or timer.
#[derive(Clone, Debug, PartialEq)]
pub enum DaemonAction {
    /// Call the callback for the initial delay, and pass its result to [`Schedule::delayed`].
    Ask,
    /// Sleep until this time; then call [`Schedule::wake`].
    Sleep(Timestamp),
    /// Wait for a change of the essence; then call [`Schedule::changed`].
    Park,
    /// Call the function, and pass its outcome to [`Schedule::attempted`].
    Attempt(Attempt),
    /// Remove the daemon or timer: it has exited.
    Exit,
}

/// The schedule of one daemon or timer of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    handler: usize,
    kind: ScheduleKind,
    /// The start of the first attempt of this call; a retried call has several attempts.
    started: Timestamp,
    retry: u64,
    /// Whether the next attempt is the first one of a call.
    fresh: bool,
    /// The start of the last attempt.
    began: Timestamp,
    parked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ScheduleKind {
    Daemon,
    Timer { interval: Option<f64>, sharp: bool, idle: Option<f64> },
}

impl Schedule {
    /// The schedule with its first action; none if the handler is neither a daemon nor a timer.
    pub fn begin(index: usize, handler: &Handler, now: Timestamp) -> Option<(Self, DaemonAction)> {
        let (kind, delay, asks) = match &handler.kind {
            Kind::Daemon(daemon) => {
                (ScheduleKind::Daemon, daemon.initial_delay, daemon.initial_delay_callable)
            }
            Kind::Timer(timer) => {
                let sharp = timer.sharp == Some(true);
                let kind = ScheduleKind::Timer { interval: timer.interval, sharp, idle: timer.idle };
                (kind, timer.initial_delay, timer.initial_delay_callable)
            }
            _ => return None,
        };
        let schedule =
            Self { handler: index, kind, started: now, retry: 0, fresh: true, began: now, parked: false };
        let first = if asks {
            DaemonAction::Ask
        } else {
            DaemonAction::Sleep(now.plus(delay.unwrap_or(0.0).max(0.0)))
        };
        Some((schedule, first))
    }

    /// The index of the handler in the registry.
    pub fn handler(&self) -> usize {
        self.handler
    }

    /// The start of the last attempt.
    pub fn began(&self) -> Timestamp {
        self.began
    }

    /// Continues with the result of the callback for the initial delay, in seconds.
    pub fn delayed(&self, delay: f64, now: Timestamp) -> DaemonAction {
        DaemonAction::Sleep(now.plus(delay.max(0.0)))
    }

    /// Continues after a sleep. `idle_since` is the time of the last change of the essence.
    pub fn wake(
        &mut self,
        handler: &Handler,
        default_backoff: f64,
        now: Timestamp,
        idle_since: Timestamp,
    ) -> DaemonAction {
        self.parked = false;
        if self.fresh {
            self.started = now;
            self.retry = 0;
            self.fresh = false;
        }
        // The object must be unchanged for the idle time first.
        if let ScheduleKind::Timer { idle: Some(idle), .. } = self.kind
            && now.seconds_since(idle_since) < idle
        {
            return DaemonAction::Sleep(idle_since.plus(idle));
        }
        self.began = now;
        DaemonAction::Attempt(Attempt::of(self.handler, handler, default_backoff, self.started, self.retry))
    }

    /// Continues after an attempt, when the patch of the handler is written.
    pub fn attempted(&mut self, outcome: &Outcome, now: Timestamp, idle_since: Timestamp) -> DaemonAction {
        self.retry = self.retry.saturating_add(1);
        if !outcome.final_ {
            let due = outcome.at.plus(outcome.delay.unwrap_or(0.0).max(0.0));
            return DaemonAction::Sleep(due.max(now));
        }
        let ScheduleKind::Timer { interval, sharp, idle } = self.kind else {
            return DaemonAction::Exit;
        };
        self.fresh = true;
        match (interval, idle) {
            (Some(interval), _) if sharp && interval > 0.0 => {
                let elapsed = now.seconds_since(self.began).max(0.0);
                DaemonAction::Sleep(now.plus(interval - elapsed % interval))
            }
            (Some(interval), _) => DaemonAction::Sleep(now.plus(interval.max(0.0))),
            // The essence has changed while the function was running.
            (None, Some(idle)) if idle_since > self.began => {
                DaemonAction::Sleep(idle_since.plus(idle).max(now))
            }
            (None, Some(_)) => {
                self.parked = true;
                DaemonAction::Park
            }
            (None, None) => DaemonAction::Exit,
        }
    }

    /// Continues after a change of the essence: a timer that waits for the change wakes up after its idle time.
    pub fn changed(&mut self, now: Timestamp) -> Option<DaemonAction> {
        let ScheduleKind::Timer { idle: Some(idle), .. } = self.kind else { return None };
        std::mem::take(&mut self.parked).then(|| DaemonAction::Sleep(now.plus(idle)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_micros(0).plus(seconds)
    }

    fn handler(kind: &str, mut declared: Value) -> Handler {
        declared["id"] = json!("h");
        declared["kind"] = json!(kind);
        serde_json::from_value(declared).unwrap()
    }

    struct Run {
        handler: Handler,
        schedule: Schedule,
        idle_since: Timestamp,
    }

    impl Run {
        fn begin(kind: &str, declared: Value) -> (Self, DaemonAction) {
            let handler = handler(kind, declared);
            let (schedule, first) = Schedule::begin(7, &handler, at(0.0)).unwrap();
            (Self { handler, schedule, idle_since: at(0.0) }, first)
        }

        fn wake(&mut self, now: f64) -> DaemonAction {
            self.schedule.wake(&self.handler, 60.0, at(now), self.idle_since)
        }

        /// The number of the attempt, and the start of the first attempt of this call.
        fn call(&mut self, now: f64) -> (u64, f64) {
            match self.wake(now) {
                DaemonAction::Attempt(attempt) => (attempt.retry, attempt.started.seconds_since(at(0.0))),
                other => panic!("{other:?}"),
            }
        }

        fn ends(&mut self, now: f64, final_: bool, delay: Option<f64>) -> DaemonAction {
            let (at, message, subrefs) = (at(now), None, Vec::new());
            let is_exception = false;
            let outcome =
                Outcome { handler: 7, at, final_, failed: !final_, delay, message, subrefs, is_exception };
            self.schedule.attempted(&outcome, at, self.idle_since)
        }
    }

    // contract: engine 9.7
    #[test]
    fn a_daemon_is_called_until_it_is_done() {
        let (mut run, first) = Run::begin("daemon", json!({}));
        assert_eq!(first, DaemonAction::Sleep(at(0.0)));
        assert_eq!(run.call(0.0), (0, 0.0));
        assert_eq!(run.ends(5.0, false, Some(2.0)), DaemonAction::Sleep(at(7.0)));
        assert_eq!(run.call(7.0), (1, 0.0));
        assert_eq!(run.ends(8.0, false, None), DaemonAction::Sleep(at(8.0)));
        assert_eq!(run.call(8.0), (2, 0.0));
        assert_eq!(run.ends(9.0, true, None), DaemonAction::Exit);
    }

    // contract: engine 9.7
    #[test]
    fn the_initial_delay_is_not_a_part_of_the_attempts() {
        let (mut run, first) = Run::begin("daemon", json!({"initial_delay": 3}));
        assert_eq!(first, DaemonAction::Sleep(at(3.0)));
        assert_eq!(run.call(3.0), (0, 3.0));
        let (run, first) = Run::begin("timer", json!({"initial_delay_callable": true}));
        assert_eq!(first, DaemonAction::Ask);
        assert_eq!(run.schedule.delayed(1.5, at(2.0)), DaemonAction::Sleep(at(3.5)));
        assert_eq!(run.schedule.delayed(-1.0, at(2.0)), DaemonAction::Sleep(at(2.0)));
    }

    // contract: engine 9.8
    #[test]
    fn an_interval_counts_from_the_end() {
        let (mut run, _) = Run::begin("timer", json!({"interval": 10}));
        assert_eq!(run.call(0.0), (0, 0.0));
        assert_eq!(run.ends(3.0, true, None), DaemonAction::Sleep(at(13.0)));
        assert_eq!(run.call(13.0), (0, 13.0));
    }

    // contract: engine 9.8
    #[test]
    fn a_sharp_interval_counts_from_the_start_and_skips_missed_calls() {
        let (mut run, _) = Run::begin("timer", json!({"interval": 10, "sharp": true}));
        run.call(0.0);
        assert_eq!(run.ends(3.0, true, None), DaemonAction::Sleep(at(10.0)));
        run.call(10.0);
        assert_eq!(run.ends(35.0, true, None), DaemonAction::Sleep(at(40.0)));
    }

    // contract: api B
    #[test]
    fn retry_delays_override_the_interval_until_the_call_is_finished() {
        let (mut run, _) = Run::begin("timer", json!({"interval": 10}));
        run.call(0.0);
        assert_eq!(run.ends(1.0, false, Some(2.0)), DaemonAction::Sleep(at(3.0)));
        assert_eq!(run.call(3.0), (1, 0.0));
        // A timer continues even after a permanent error.
        assert_eq!(run.ends(4.0, true, None), DaemonAction::Sleep(at(14.0)));
        assert_eq!(run.call(14.0), (0, 14.0));
    }

    #[test]
    fn a_timer_without_an_interval_is_called_once() {
        let (mut run, _) = Run::begin("timer", json!({}));
        run.call(0.0);
        assert_eq!(run.ends(0.0, true, None), DaemonAction::Exit);
    }

    #[test]
    fn a_zero_interval_is_an_interval() {
        for sharp in [false, true] {
            let (mut run, _) = Run::begin("timer", json!({"interval": 0, "sharp": sharp}));
            run.call(0.0);
            assert_eq!(run.ends(1.0, true, None), DaemonAction::Sleep(at(1.0)));
        }
    }

    #[test]
    fn an_idle_timer_waits_until_the_object_is_unchanged() {
        let (mut run, _) = Run::begin("timer", json!({"idle": 10, "interval": 1}));
        assert_eq!(run.wake(0.0), DaemonAction::Sleep(at(10.0)));
        run.idle_since = at(5.0);
        assert_eq!(run.wake(10.0), DaemonAction::Sleep(at(15.0)));
        assert_eq!(run.call(15.0), (0, 0.0));
        assert_eq!(run.ends(15.0, true, None), DaemonAction::Sleep(at(16.0)));
        run.idle_since = at(15.5);
        assert_eq!(run.wake(16.0), DaemonAction::Sleep(at(25.5)));
    }

    // contract: engine 9.8
    #[test]
    fn a_timer_with_idle_only_is_called_once_per_change() {
        let (mut run, _) = Run::begin("timer", json!({"idle": 10}));
        assert_eq!(run.wake(0.0), DaemonAction::Sleep(at(10.0)));
        run.call(10.0);
        assert_eq!(run.ends(11.0, true, None), DaemonAction::Park);
        assert_eq!(run.schedule.changed(at(50.0)), Some(DaemonAction::Sleep(at(60.0))));
        assert_eq!(run.schedule.changed(at(51.0)), None);
        run.idle_since = at(51.0);
        assert_eq!(run.wake(60.0), DaemonAction::Sleep(at(61.0)));
        run.call(61.0);
        run.idle_since = at(62.0);
        assert_eq!(run.ends(63.0, true, None), DaemonAction::Sleep(at(72.0)));
    }

    #[test]
    fn other_handlers_have_no_schedule() {
        assert_eq!(Schedule::begin(0, &handler("watching", json!({})), at(0.0)), None);
    }
}
