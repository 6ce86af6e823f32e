//! The termination of a daemon: it is signalled first, then cancelled, then abandoned.

use crate::durations::Seconds;
use crate::handler::{Handler, Kind};
use crate::settings::Background;
use crate::time::Timestamp;
use std::ops::BitOr;

/// The reasons for the termination of a daemon, and its stages, as a bit set. The bits are those of Python's flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StopReasons(u8);

impl StopReasons {
    /// The daemon has exited.
    pub const DONE: Self = Self(1);
    /// The object does not match the filters of the daemon any more.
    pub const FILTERS_MISMATCH: Self = Self(1 << 1);
    /// The object is being deleted, or is deleted.
    pub const RESOURCE_DELETED: Self = Self(1 << 2);
    /// The operator is paused by its peering.
    pub const OPERATOR_PAUSING: Self = Self(1 << 3);
    /// The operator is exiting.
    pub const OPERATOR_EXITING: Self = Self(1 << 4);
    /// The daemon is signalled to stop, and has the time to exit gracefully.
    pub const SIGNALLED: Self = Self(1 << 5);
    /// The daemon is cancelled.
    pub const CANCELLED: Self = Self(1 << 6);
    /// The operator does not wait for the daemon any more.
    pub const ABANDONED: Self = Self(1 << 7);

    /// The bit set as a number.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Whether there is no reason to stop.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set contains all of these.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for StopReasons {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The grace periods of a daemon, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TerminationPolicy {
    /// From the signal until the cancellation; none if the daemon is not signalled first.
    pub backoff: Option<f64>,
    /// From the cancellation until the daemon is abandoned; none if it is never cancelled.
    pub timeout: Option<f64>,
    /// Between the checks of a daemon that is never abandoned; none if it is abandoned.
    pub polling: Option<f64>,
}

impl TerminationPolicy {
    /// The policy of the handler, with the defaults from the settings. Timers are only polled.
    pub fn of(handler: &Handler, settings: &Background) -> Self {
        match &handler.kind {
            Kind::Daemon(daemon) => Self {
                backoff: daemon.cancellation_backoff,
                timeout: daemon.cancellation_timeout,
                // As in Python, zero counts as not set: polling would never sleep.
                polling: daemon
                    .cancellation_polling
                    .filter(|polling| *polling > 0.0)
                    .or(Some(settings.cancellation_polling)),
            },
            _ => Self { polling: Some(settings.cancellation_polling), ..Self::default() },
        }
    }

    /// The policy for a daemon whose object is never checked again: without unlimited polling.
    #[must_use]
    pub fn limited(self) -> Self {
        Self { polling: None, ..self }
    }
}

/// The stage of a daemon's termination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminationStage {
    /// The daemon has the time to exit gracefully.
    Signalled,
    /// The daemon is cancelled.
    Cancelled,
    /// The operator does not wait for the daemon any more.
    Abandoned,
    /// The operator polls the daemon until it exits.
    Exiting,
}

/// The next action on a daemon that has not stopped yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TerminationStep {
    /// The stage that the termination has reached.
    pub stage: TerminationStage,
    /// Whether the stage is new, so that it is logged, and a cancellation is carried out.
    pub first: bool,
    /// Seconds until the next check; none if there is no check.
    pub delay: Option<f64>,
}

impl TerminationStep {
    /// The log message of the step, with the label of the handler; none if the stage was logged before.
    pub fn text(&self, label: &str) -> Option<String> {
        match self.stage {
            TerminationStage::Signalled => {
                self.first.then(|| format!("{label} is signalled to exit gracefully."))
            }
            TerminationStage::Cancelled => {
                self.first.then(|| format!("{label} is signalled to exit by force."))
            }
            TerminationStage::Abandoned => {
                self.first.then(|| format!("{label} did not exit in time. Leaving it orphaned."))
            }
            TerminationStage::Exiting => {
                let delay = Seconds(self.delay.unwrap_or_default());
                Some(format!("{label} is still exiting. The next check is in {delay} seconds."))
            }
        }
    }
}

/// The state of the termination of one daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stopping {
    reasons: StopReasons,
    since: Option<Timestamp>,
}

impl Stopping {
    /// The reasons for the termination, so far.
    pub fn reasons(&self) -> StopReasons {
        self.reasons
    }

    /// Whether the termination has been requested.
    pub fn is_requested(&self) -> bool {
        self.since.is_some()
    }

    /// Requests the termination, or adds a reason to an earlier request.
    pub fn request(&mut self, reason: StopReasons, now: Timestamp) {
        self.reasons = self.reasons | reason;
        self.since.get_or_insert(now);
    }

    /// The next step for a daemon that has not exited yet.
    pub fn advance(&mut self, policy: TerminationPolicy, now: Timestamp) -> TerminationStep {
        let age = self.since.map_or(0.0, |since| now.seconds_since(since));
        let backoff = policy.backoff.unwrap_or(0.0);
        if policy.backoff.is_some() && age < backoff {
            return self.enter_stage(
                TerminationStage::Signalled,
                StopReasons::SIGNALLED,
                Some(backoff - age),
            );
        }
        if let Some(timeout) = policy.timeout {
            let left = timeout + backoff - age;
            // A daemon is cancelled before it is abandoned, even if this check is late.
            if left > 0.0 || !self.reasons.contains(StopReasons::CANCELLED) {
                return self.enter_stage(
                    TerminationStage::Cancelled,
                    StopReasons::CANCELLED,
                    Some(left.max(0.0)),
                );
            }
            return self.enter_stage(TerminationStage::Abandoned, StopReasons::ABANDONED, None);
        }
        match policy.polling {
            Some(polling) => {
                TerminationStep { stage: TerminationStage::Exiting, first: false, delay: Some(polling) }
            }
            None => self.enter_stage(TerminationStage::Abandoned, StopReasons::ABANDONED, None),
        }
    }

    fn enter_stage(
        &mut self,
        stage: TerminationStage,
        reason: StopReasons,
        delay: Option<f64>,
    ) -> TerminationStep {
        let first = !self.reasons.contains(reason);
        self.reasons = self.reasons | reason;
        TerminationStep { stage, first, delay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TerminationStage::{Abandoned, Cancelled, Exiting, Signalled};

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_micros(0).plus(seconds)
    }

    /// The steps at these times for a daemon that does not exit: the stage, whether it is new, and the delay.
    fn steps_at(policy: TerminationPolicy, times: &[f64]) -> Vec<(TerminationStage, bool, Option<f64>)> {
        let mut stopping = Stopping::default();
        stopping.request(StopReasons::RESOURCE_DELETED, at(0.0));
        let advance = |time: &f64| stopping.advance(policy, at(*time));
        times.iter().map(advance).map(|it| (it.stage, it.first, it.delay)).collect()
    }

    fn policy(backoff: Option<f64>, timeout: Option<f64>) -> TerminationPolicy {
        TerminationPolicy { backoff, timeout, polling: Some(60.0) }
    }

    // contract: engine 9.9
    #[test]
    fn a_daemon_without_limits_is_polled() {
        let steps = steps_at(policy(None, None), &[0.0, 60.0, 1000.0]);
        assert_eq!(steps, [(Exiting, false, Some(60.0)); 3]);
    }

    #[test]
    fn a_daemon_with_a_backoff_only_is_never_cancelled() {
        let steps = steps_at(policy(Some(5.0), None), &[0.0, 2.0, 5.0]);
        let expected =
            [(Signalled, true, Some(5.0)), (Signalled, false, Some(3.0)), (Exiting, false, Some(60.0))];
        assert_eq!(steps, expected);
    }

    // contract: engine 9.4
    #[test]
    fn a_daemon_with_both_limits_is_signalled_cancelled_and_abandoned() {
        let steps = steps_at(policy(Some(5.0), Some(10.0)), &[0.0, 5.0, 8.0, 15.0, 99.0]);
        let expected = [
            (Signalled, true, Some(5.0)),
            (Cancelled, true, Some(10.0)),
            (Cancelled, false, Some(7.0)),
            (Abandoned, true, None),
            (Abandoned, false, None),
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn a_zero_timeout_cancels_at_once_and_abandons_at_the_next_check() {
        let steps = steps_at(policy(None, Some(0.0)), &[0.0, 0.0]);
        assert_eq!(steps, [(Cancelled, true, Some(0.0)), (Abandoned, true, None)]);
    }

    #[test]
    fn a_late_check_does_not_skip_the_cancellation() {
        let steps = steps_at(policy(None, Some(1.0)), &[9.0, 9.0]);
        assert_eq!(steps, [(Cancelled, true, Some(0.0)), (Abandoned, true, None)]);
    }

    #[test]
    fn a_daemon_that_is_never_checked_again_is_abandoned() {
        assert_eq!(steps_at(policy(None, None).limited(), &[0.0]), [(Abandoned, true, None)]);
    }

    // contract: engine 9.3
    #[test]
    fn reasons_add_up_and_age_counts_from_the_first() {
        let mut stopping = Stopping::default();
        assert!(!stopping.is_requested());
        stopping.request(StopReasons::FILTERS_MISMATCH, at(0.0));
        stopping.request(StopReasons::RESOURCE_DELETED, at(4.0));
        assert_eq!(stopping.reasons(), StopReasons::FILTERS_MISMATCH | StopReasons::RESOURCE_DELETED);
        assert_eq!(stopping.advance(policy(Some(5.0), None), at(4.0)).delay, Some(1.0));
        assert_eq!(stopping.reasons().bits(), 0b10_0110);
    }

    // contract: engine 9.4
    #[test]
    fn texts_are_those_of_kopf() {
        let text = |stage, first| TerminationStep { stage, first, delay: Some(60.0) }.text("Daemon 'd'");
        assert_eq!(text(Signalled, true).as_deref(), Some("Daemon 'd' is signalled to exit gracefully."));
        assert_eq!(text(Cancelled, true).as_deref(), Some("Daemon 'd' is signalled to exit by force."));
        assert_eq!(text(Cancelled, false), None);
        assert_eq!(
            text(Exiting, false).as_deref(),
            Some("Daemon 'd' is still exiting. The next check is in 60 seconds.")
        );
    }
}
