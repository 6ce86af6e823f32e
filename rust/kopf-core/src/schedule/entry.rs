//! The schedule entry: the state machine of one (reconciler, primary object), rules A1–A13.

use crate::handling::attempt::Outcome;
use crate::schedule::Priority;
use crate::schedule::policy::{SchedulePolicy, sane};
use crate::time::Timestamp;

/// The state of a reconciler for one primary: idle, queued, or running.
///
/// Each method reports one event; after it, [`ScheduleEntry::position`] is the position of the entry in the work queue. The
/// same [`SchedulePolicy`] must be passed each time. All methods are called by one task at a time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScheduleEntry {
    state: State,
    /// The failures since the last success.
    series: Option<FailureSeries>,
    /// The start of the last reconciliation.
    last_start: Option<Timestamp>,
    /// The first trigger of priority `changed` since the last reconciliation started: `first` of A1.
    first_change: Option<Timestamp>,
    /// The latest time at which the writes of the last reconciliation are taken for visible, while they are not (A9).
    writes_deadline: Option<Timestamp>,
    has_given_up: bool,
    is_paused: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
enum State {
    #[default]
    Idle,
    Queued(Pending),
    Running(Running),
}

/// The due time of a queued entry before the lower bounds of A4 and A9.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pending {
    priority: Priority,
    /// The earliest time of time requests and of triggers that are not debounced.
    requested: Option<Timestamp>,
    /// The end of the window of debounced triggers.
    debounced: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq)]
struct Running {
    since: Timestamp,
    /// The highest priority of the triggers that have arrived meanwhile (A2).
    dirty: Option<Priority>,
    /// The earliest delayed trigger that has arrived meanwhile.
    delayed: Option<Timestamp>,
    /// The primary is gone or does not match (A10).
    is_gone: bool,
}

/// Consecutive failures since the last success.
#[derive(Clone, Copy, Debug, PartialEq)]
struct FailureSeries {
    /// The start of the first reconciliation that failed.
    started: Timestamp,
    /// The end of the first reconciliation that failed.
    first_failed: Timestamp,
    failures: u32,
    /// The number of delays that have fully elapsed: `n` of A7.
    elapsed: u32,
    /// The end of the current delay.
    delay_ends: Timestamp,
}

/// The position of a queued entry in the work queue of its reconciler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The time from which the reconciliation may start.
    pub due: Timestamp,
    /// The highest priority of its triggers.
    pub priority: Priority,
}

/// The arguments of a call that describe the failure series (A12).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Start {
    /// The number of failures since the last success.
    pub retry: u32,
    /// The start of the first failed reconciliation of the series; now, if there is none.
    pub started: Timestamp,
    /// The seconds since then.
    pub runtime: f64,
}

/// The result of a reconciliation, after its writes (1.6).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReconcileResult {
    /// The function has returned.
    Succeeded,
    /// The function has returned or raised `Requeue`, with its delay in seconds.
    Requeued(f64),
    /// The function has failed. The delay in seconds, if the error or the `backoff` function specifies it.
    Failed(Option<f64>),
    /// The function has failed permanently.
    FailedPermanently,
    /// The operator has cancelled the call, or the process that made it has ended.
    Cancelled,
}

impl ReconcileResult {
    /// The result of a call that has raised an error, by the outcome of that error. The schedule computes the delay after
    /// timeouts and arbitrary exceptions.
    pub fn of_error(outcome: &Outcome, is_timed_out: bool) -> Self {
        match (outcome.final_, outcome.failed) {
            (true, true) => Self::FailedPermanently,
            (true, false) => Self::Succeeded,
            (false, _) if is_timed_out || outcome.is_exception => Self::Failed(None),
            (false, _) => Self::Failed(Some(outcome.delay.unwrap_or(0.0))),
        }
    }
}

/// The effect of a result on the failure series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Conclusion {
    /// The call has returned without an error; with `is_final`, without `Requeue`.
    Succeeded {
        /// Whether the call has not requested another one.
        is_final: bool,
    },
    /// The reconciliation is retried after this delay in seconds.
    Retried(f64),
    /// The reconciler has given up (A8).
    GaveUp,
    /// The call was cancelled.
    Cancelled,
}

impl ScheduleEntry {
    /// Records a trigger (A1, A2, A3, A8).
    pub fn trigger(&mut self, priority: Priority, policy: &SchedulePolicy, now: Timestamp) {
        if priority == Priority::Changed {
            self.first_change.get_or_insert(now);
        }
        if let State::Running(running) = &mut self.state {
            running.dirty = running.dirty.max(Some(priority));
            running.is_gone = false;
            return;
        }
        if self.has_given_up && priority == Priority::Scheduled {
            return;
        }
        self.has_given_up = false;
        let pending = self.pending(priority);
        if priority == Priority::Changed && policy.debounce > 0.0 {
            let first = self.first_change.unwrap_or(now);
            let window = now.plus(policy.debounce).min(first.plus(policy.limit())).max(now);
            self.state = State::Queued(Pending { debounced: Some(window), ..pending });
        } else {
            self.state =
                State::Queued(Pending { requested: Some(earlier(pending.requested, now)), ..pending });
        }
    }

    /// Records a trigger that must wait for `delay` seconds: one of a hot loop (1.7). Triggers and time requests that are due
    /// earlier are not affected.
    pub fn trigger_after(&mut self, delay: f64, now: Timestamp) {
        let at = now.plus(sane(delay));
        if let State::Running(running) = &mut self.state {
            running.delayed = Some(earlier(running.delayed, at));
        } else {
            self.has_given_up = false;
            self.request(at);
        }
    }

    /// Records the removal of the primary, or that it does not match any more (A10). A running call is not affected, but its
    /// result schedules nothing.
    pub fn forget(&mut self) {
        match &mut self.state {
            State::Running(running) => {
                running.is_gone = true;
                (running.dirty, running.delayed) = (None, None);
            }
            State::Idle | State::Queued(_) => *self = self.forgotten(),
        }
    }

    /// Pauses the primary or ends its pause. Triggers are kept meanwhile (1.2). The end of the pause is a trigger, which the
    /// caller reports.
    pub fn set_paused(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// Records that the writes of the last reconciliation are visible (A9).
    pub fn confirm_writes(&mut self) {
        self.writes_deadline = None;
    }

    /// Begins a new failure series with the next failure: for the first call of a deletion.
    pub fn restart_series(&mut self) {
        self.series = None;
    }

    /// The position in the work queue; none if the entry is idle, running, or paused.
    pub fn position(&self, policy: &SchedulePolicy) -> Option<Position> {
        let State::Queued(pending) = &self.state else { return None };
        let due = match (pending.requested, pending.debounced) {
            (Some(requested), Some(debounced)) => requested.min(debounced),
            (requested, debounced) => requested.or(debounced)?,
        };
        let spacing = policy.spacing(self.series.is_some());
        let spaced = self.last_start.map(|start| start.plus(spacing));
        let bounds = [spaced, self.writes_deadline];
        let due = bounds.into_iter().flatten().fold(due, Timestamp::max);
        (!self.is_paused).then_some(Position { due, priority: pending.priority })
    }

    /// Starts a reconciliation: consumes all triggers and time requests (A5). None if the entry is not queued.
    pub fn start(&mut self, now: Timestamp) -> Option<Start> {
        if !matches!(self.state, State::Queued(_)) {
            return None;
        }
        self.state = State::Running(Running { since: now, dirty: None, delayed: None, is_gone: false });
        (self.last_start, self.first_change, self.writes_deadline) = (Some(now), None, None);
        let (retry, started) = self.series.map_or((0, now), |series| (series.failures, series.started));
        Some(Start { retry, started, runtime: now.seconds_since(started) })
    }

    /// Ends the running reconciliation (A2, A6, A7, A8). Does nothing if none is running.
    ///
    /// `writes_deadline` is the end of the wait for its writes (A9); none if it has written nothing, or if all is visible.
    /// `chance` is a random number from 0 to 1, for jitter.
    pub fn finish(
        &mut self,
        result: ReconcileResult,
        writes_deadline: Option<Timestamp>,
        policy: &SchedulePolicy,
        now: Timestamp,
        chance: f64,
    ) -> Conclusion {
        let State::Running(running) = std::mem::take(&mut self.state) else { return Conclusion::Cancelled };
        let conclusion = self.conclude(result, running.since, policy, now, chance);
        self.writes_deadline = writes_deadline.filter(|deadline| *deadline > now);
        if running.is_gone {
            *self = self.forgotten();
            return conclusion;
        }
        match (conclusion, result, policy.resync) {
            (_, ReconcileResult::Requeued(after), _) => self.request(now.plus(sane(after))),
            (Conclusion::Succeeded { .. }, _, Some(resync)) => {
                self.request(now.plus(sane(resync) * (0.9 + 0.2 * chance.clamp(0.0, 1.0))));
            }
            (Conclusion::Retried(delay), ..) => self.request(now.plus(delay)),
            _ => {}
        }
        if let Some(priority) = running.dirty {
            self.trigger(priority, policy, now);
        }
        if let Some(at) = running.delayed {
            self.has_given_up = false;
            self.request(at.max(now));
        }
        conclusion
    }

    /// Whether the primary is paused.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Whether a reconciliation is running.
    pub fn is_running(&self) -> bool {
        matches!(self.state, State::Running(_))
    }

    /// Whether nothing is pending.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Whether the last reconciliation has failed.
    pub fn is_failing(&self) -> bool {
        self.series.is_some()
    }

    /// The number of failures since the last success.
    pub fn failures(&self) -> u32 {
        self.series.map_or(0, |series| series.failures)
    }

    /// Whether the reconciler has given up, until the next trigger (A8).
    pub fn has_given_up(&self) -> bool {
        self.has_given_up
    }

    fn conclude(
        &mut self,
        result: ReconcileResult,
        since: Timestamp,
        policy: &SchedulePolicy,
        now: Timestamp,
        chance: f64,
    ) -> Conclusion {
        let own_delay = match result {
            ReconcileResult::Cancelled => return Conclusion::Cancelled,
            ReconcileResult::Succeeded | ReconcileResult::Requeued(_) => {
                self.series = None;
                return Conclusion::Succeeded { is_final: result == ReconcileResult::Succeeded };
            }
            ReconcileResult::FailedPermanently => return self.give_up(),
            ReconcileResult::Failed(delay) => delay,
        };
        let mut series = match self.series {
            None => {
                FailureSeries { started: since, first_failed: now, failures: 0, elapsed: 0, delay_ends: now }
            }
            // The delay was cut short by a trigger: it does not count (A7).
            Some(series) if since < series.delay_ends => series,
            Some(series) => FailureSeries { elapsed: series.elapsed.saturating_add(1), ..series },
        };
        series.failures = series.failures.saturating_add(1);
        let is_exhausted = policy.retries.is_some_and(|retries| series.failures >= retries);
        let failing_for = now.seconds_since(series.first_failed);
        if is_exhausted || policy.timeout.is_some_and(|timeout| failing_for >= timeout) {
            return self.give_up();
        }
        let delay = own_delay.map_or_else(|| policy.delays.delay(series.elapsed, chance), sane);
        series.delay_ends = now.plus(delay);
        self.series = Some(series);
        Conclusion::Retried(delay)
    }

    /// The idle entry: without triggers and failures. The spacing of starts, and the wait for writes, remain.
    fn forgotten(&self) -> Self {
        let Self { last_start, writes_deadline, is_paused, .. } = *self;
        Self { last_start, writes_deadline, is_paused, ..Self::default() }
    }

    fn give_up(&mut self) -> Conclusion {
        self.series = None;
        self.has_given_up = true;
        Conclusion::GaveUp
    }

    /// Queues the entry for a time, unless it is due earlier.
    fn request(&mut self, at: Timestamp) {
        let pending = self.pending(Priority::Scheduled);
        self.state = State::Queued(Pending { requested: Some(earlier(pending.requested, at)), ..pending });
    }

    /// The pending due times of an entry that is not running, with the higher of both priorities.
    fn pending(&self, priority: Priority) -> Pending {
        match &self.state {
            State::Queued(pending) => Pending { priority: pending.priority.max(priority), ..*pending },
            State::Idle | State::Running(_) => Pending { priority, requested: None, debounced: None },
        }
    }
}

fn earlier(known: Option<Timestamp>, other: Timestamp) -> Timestamp {
    known.map_or(other, |known| known.min(other))
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
