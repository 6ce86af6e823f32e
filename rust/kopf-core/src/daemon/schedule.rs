//! The life of one daemon or timer between its start and its end: when it is called, and when again.
//!
//! Neither keeps a task or a thread while it sleeps: all that there is of it then is this.

use crate::handler::{Handler, Kind};
use crate::handling::attempt::{Attempt, Outcome};
use crate::time::Timestamp;

/// The next action of a daemon or timer.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Ask the callback for the initial delay, and tell it with [`Schedule::delayed`].
    Ask,
    /// Nothing until then; then [`Schedule::wake`].
    Sleep(Timestamp),
    /// Nothing until the object changes in its essence; then [`Schedule::wake`].
    Park,
    /// Call the function, and tell the outcome with [`Schedule::attempted`].
    Attempt(Attempt),
    /// It has ended.
    Exit,
}

/// The schedule of one daemon or timer of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    handler: usize,
    rhythm: ScheduleKind,
    /// When the attempts of this call began; several in a row if it is retried.
    started: Timestamp,
    retry: u64,
    /// The next attempt is the first one of a call.
    fresh: bool,
    /// When the last attempt began.
    began: Timestamp,
    parked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ScheduleKind {
    Daemon,
    Timer { interval: Option<f64>, sharp: bool, idle: Option<f64> },
}

impl Schedule {
    /// It starts. None if the handler is neither a daemon nor a timer.
    pub fn begin(index: usize, handler: &Handler, now: Timestamp) -> Option<(Self, Action)> {
        let (rhythm, delay, asks) = match &handler.kind {
            Kind::Daemon(daemon) => {
                (ScheduleKind::Daemon, daemon.initial_delay, daemon.initial_delay_callable)
            }
            Kind::Timer(timer) => {
                let sharp = timer.sharp == Some(true);
                let rhythm = ScheduleKind::Timer { interval: timer.interval, sharp, idle: timer.idle };
                (rhythm, timer.initial_delay, timer.initial_delay_callable)
            }
            _ => return None,
        };
        let routine =
            Self { handler: index, rhythm, started: now, retry: 0, fresh: true, began: now, parked: false };
        let first = if asks { Action::Ask } else { Action::Sleep(now.plus(delay.unwrap_or(0.0).max(0.0))) };
        Some((routine, first))
    }

    /// Which handler it is.
    pub fn handler(&self) -> usize {
        self.handler
    }

    /// The callback has told the initial delay.
    pub fn delayed(&self, delay: f64, now: Timestamp) -> Action {
        Action::Sleep(now.plus(delay.max(0.0)))
    }

    /// The sleep is over. `idle_since` is when the object has last changed in its essence.
    pub fn wake(
        &mut self,
        handler: &Handler,
        default_backoff: f64,
        now: Timestamp,
        idle_since: Timestamp,
    ) -> Action {
        self.parked = false;
        if self.fresh {
            self.started = now;
            self.retry = 0;
            self.fresh = false;
        }
        // The object must be left alone for a while first.
        if let ScheduleKind::Timer { idle: Some(idle), .. } = self.rhythm
            && now.seconds_since(idle_since) < idle
        {
            return Action::Sleep(idle_since.plus(idle));
        }
        self.began = now;
        Action::Attempt(Attempt::of(self.handler, handler, default_backoff, self.started, self.retry))
    }

    /// The function was called, and what it left behind is written.
    pub fn attempted(&mut self, outcome: &Outcome, now: Timestamp, idle_since: Timestamp) -> Action {
        self.retry = self.retry.saturating_add(1);
        if !outcome.final_ {
            let due = outcome.at.plus(outcome.delay.unwrap_or(0.0).max(0.0));
            return Action::Sleep(due.max(now));
        }
        let ScheduleKind::Timer { interval, sharp, idle } = self.rhythm else {
            return Action::Exit;
        };
        self.fresh = true;
        match (interval, idle) {
            (Some(interval), _) if sharp && interval > 0.0 => {
                let elapsed = now.seconds_since(self.began).max(0.0);
                Action::Sleep(now.plus(interval - elapsed % interval))
            }
            (Some(interval), _) => Action::Sleep(now.plus(interval.max(0.0))),
            // It has changed while the function was running.
            (None, Some(idle)) if idle_since > self.began => Action::Sleep(idle_since.plus(idle).max(now)),
            (None, Some(_)) => {
                self.parked = true;
                Action::Park
            }
            (None, None) => Action::Exit,
        }
    }

    /// The object has changed in its essence: whoever waited for that, wakes up after its idle time.
    pub fn changed(&mut self, now: Timestamp) -> Option<Action> {
        let ScheduleKind::Timer { idle: Some(idle), .. } = self.rhythm else { return None };
        std::mem::take(&mut self.parked).then(|| Action::Sleep(now.plus(idle)))
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

    struct Life {
        handler: Handler,
        routine: Schedule,
        idle_since: Timestamp,
    }

    impl Life {
        fn begin(kind: &str, declared: Value) -> (Self, Action) {
            let handler = handler(kind, declared);
            let (routine, first) = Schedule::begin(7, &handler, at(0.0)).unwrap();
            (Self { handler, routine, idle_since: at(0.0) }, first)
        }

        fn wake(&mut self, now: f64) -> Action {
            self.routine.wake(&self.handler, 60.0, at(now), self.idle_since)
        }

        /// The number of the attempt, and when the first of its row was.
        fn call(&mut self, now: f64) -> (u64, f64) {
            match self.wake(now) {
                Action::Attempt(attempt) => (attempt.retry, attempt.started.seconds_since(at(0.0))),
                other => panic!("{other:?}"),
            }
        }

        fn ends(&mut self, now: f64, final_: bool, delay: Option<f64>) -> Action {
            let (at, message, subrefs) = (at(now), None, Vec::new());
            let outcome = Outcome { handler: 7, at, final_, failed: !final_, delay, message, subrefs };
            self.routine.attempted(&outcome, at, self.idle_since)
        }
    }

    #[test]
    fn a_daemon_is_called_until_it_is_done() {
        let (mut life, first) = Life::begin("daemon", json!({}));
        assert_eq!(first, Action::Sleep(at(0.0)));
        assert_eq!(life.call(0.0), (0, 0.0));
        assert_eq!(life.ends(5.0, false, Some(2.0)), Action::Sleep(at(7.0)));
        assert_eq!(life.call(7.0), (1, 0.0));
        assert_eq!(life.ends(8.0, false, None), Action::Sleep(at(8.0)));
        assert_eq!(life.call(8.0), (2, 0.0));
        assert_eq!(life.ends(9.0, true, None), Action::Exit);
    }

    #[test]
    fn the_initial_delay_is_not_a_part_of_the_attempts() {
        let (mut life, first) = Life::begin("daemon", json!({"initial_delay": 3}));
        assert_eq!(first, Action::Sleep(at(3.0)));
        assert_eq!(life.call(3.0), (0, 3.0));
        let (life, first) = Life::begin("timer", json!({"initial_delay_callable": true}));
        assert_eq!(first, Action::Ask);
        assert_eq!(life.routine.delayed(1.5, at(2.0)), Action::Sleep(at(3.5)));
        assert_eq!(life.routine.delayed(-1.0, at(2.0)), Action::Sleep(at(2.0)));
    }

    #[test]
    fn an_interval_counts_from_the_end() {
        let (mut life, _) = Life::begin("timer", json!({"interval": 10}));
        assert_eq!(life.call(0.0), (0, 0.0));
        assert_eq!(life.ends(3.0, true, None), Action::Sleep(at(13.0)));
        assert_eq!(life.call(13.0), (0, 13.0));
    }

    #[test]
    fn a_sharp_interval_counts_from_the_start_and_skips_what_is_missed() {
        let (mut life, _) = Life::begin("timer", json!({"interval": 10, "sharp": true}));
        life.call(0.0);
        assert_eq!(life.ends(3.0, true, None), Action::Sleep(at(10.0)));
        life.call(10.0);
        assert_eq!(life.ends(35.0, true, None), Action::Sleep(at(40.0)));
    }

    #[test]
    fn delays_of_retries_override_the_schedule_and_then_it_begins_anew() {
        let (mut life, _) = Life::begin("timer", json!({"interval": 10}));
        life.call(0.0);
        assert_eq!(life.ends(1.0, false, Some(2.0)), Action::Sleep(at(3.0)));
        assert_eq!(life.call(3.0), (1, 0.0));
        // Even a permanent failure: a timer goes on.
        assert_eq!(life.ends(4.0, true, None), Action::Sleep(at(14.0)));
        assert_eq!(life.call(14.0), (0, 14.0));
    }

    #[test]
    fn without_an_interval_it_is_called_once() {
        let (mut life, _) = Life::begin("timer", json!({}));
        life.call(0.0);
        assert_eq!(life.ends(0.0, true, None), Action::Exit);
    }

    #[test]
    fn a_zero_interval_is_an_interval() {
        for sharp in [false, true] {
            let (mut life, _) = Life::begin("timer", json!({"interval": 0, "sharp": sharp}));
            life.call(0.0);
            assert_eq!(life.ends(1.0, true, None), Action::Sleep(at(1.0)));
        }
    }

    #[test]
    fn an_idle_timer_waits_for_the_object_to_be_left_alone() {
        let (mut life, _) = Life::begin("timer", json!({"idle": 10, "interval": 1}));
        assert_eq!(life.wake(0.0), Action::Sleep(at(10.0)));
        life.idle_since = at(5.0);
        assert_eq!(life.wake(10.0), Action::Sleep(at(15.0)));
        assert_eq!(life.call(15.0), (0, 0.0));
        assert_eq!(life.ends(15.0, true, None), Action::Sleep(at(16.0)));
        life.idle_since = at(15.5);
        assert_eq!(life.wake(16.0), Action::Sleep(at(25.5)));
    }

    #[test]
    fn with_idleness_only_it_is_called_once_per_change() {
        let (mut life, _) = Life::begin("timer", json!({"idle": 10}));
        assert_eq!(life.wake(0.0), Action::Sleep(at(10.0)));
        life.call(10.0);
        assert_eq!(life.ends(11.0, true, None), Action::Park);
        assert_eq!(life.routine.changed(at(50.0)), Some(Action::Sleep(at(60.0))));
        assert_eq!(life.routine.changed(at(51.0)), None);
        life.idle_since = at(51.0);
        assert_eq!(life.wake(60.0), Action::Sleep(at(61.0)));
        life.call(61.0);
        life.idle_since = at(62.0);
        assert_eq!(life.ends(63.0, true, None), Action::Sleep(at(72.0)));
    }

    #[test]
    fn other_handlers_have_no_routine() {
        assert_eq!(Schedule::begin(0, &handler("watching", json!({})), at(0.0)), None);
    }
}
