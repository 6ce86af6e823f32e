//! How a daemon is asked to stop: first politely, then by force, and then it is left alone.

use crate::handler::{Handler, Kind};
use crate::handling::attempt::Seconds;
use crate::settings::Background;
use crate::time::Timestamp;
use std::ops::BitOr;

/// The reasons why a daemon stops, and its stage of termination, as a bit set. The bits are those of Python's flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StopReasons(u8);

impl StopReasons {
    /// It has ended.
    pub const DONE: Self = Self(1);
    /// The object does not match its filters any more.
    pub const FILTERS_MISMATCH: Self = Self(1 << 1);
    /// The object is being deleted, or is no more.
    pub const RESOURCE_DELETED: Self = Self(1 << 2);
    /// The operator gives way to another one.
    pub const OPERATOR_PAUSING: Self = Self(1 << 3);
    /// The operator ends.
    pub const OPERATOR_EXITING: Self = Self(1 << 4);
    /// It is given time to stop by itself.
    pub const SIGNALLED: Self = Self(1 << 5);
    /// It is cancelled.
    pub const CANCELLED: Self = Self(1 << 6);
    /// Nobody waits for it any longer.
    pub const ABANDONED: Self = Self(1 << 7);

    /// As a number.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Whether nobody has asked it to stop.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of these are there.
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
    /// After it is asked to stop, until it is cancelled.
    pub backoff: Option<f64>,
    /// After it is cancelled, until it is left alone.
    pub timeout: Option<f64>,
    /// Between two looks, if it is waited for without end; without it, it is not.
    pub polling: Option<f64>,
}

impl TerminationPolicy {
    /// As declared, else as set; timers are only looked at.
    pub fn of(handler: &Handler, settings: &Background) -> Self {
        match &handler.kind {
            Kind::Daemon(daemon) => Self {
                backoff: daemon.cancellation_backoff,
                timeout: daemon.cancellation_timeout,
                // Like in Python, zero is as good as none: nobody wants to look all the time.
                polling: daemon
                    .cancellation_polling
                    .filter(|polling| *polling > 0.0)
                    .or(Some(settings.cancellation_polling)),
            },
            _ => Self { polling: Some(settings.cancellation_polling), ..Self::default() },
        }
    }

    /// For those whose object will never be looked at again: they are not waited for without end.
    #[must_use]
    pub fn limited(self) -> Self {
        Self { polling: None, ..self }
    }
}

/// The stage of a daemon's termination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminationStage {
    /// It is given time.
    Signalled,
    /// It is cancelled.
    Cancelled,
    /// It is left alone.
    Abandoned,
    /// It is looked at from time to time.
    Exiting,
}

/// The next action on a daemon that has not stopped yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TerminationStep {
    /// How far it has gone.
    pub rung: TerminationStage,
    /// It was not so far before: it is to be told, and to be cancelled if so.
    pub first: bool,
    /// Seconds until the next look; none if it is not waited for.
    pub delay: Option<f64>,
}

impl TerminationStep {
    /// What is said of it, after the name of the handler; none if it was said already.
    pub fn text(&self, label: &str) -> Option<String> {
        match self.rung {
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

/// The stopping of one daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stopping {
    reasons: StopReasons,
    since: Option<Timestamp>,
}

impl Stopping {
    /// Why it is to stop, so far.
    pub fn reasons(&self) -> StopReasons {
        self.reasons
    }

    /// Whether it is asked to stop.
    pub fn is_asked(&self) -> bool {
        self.since.is_some()
    }

    /// It is asked to stop; maybe not for the first time.
    pub fn ask(&mut self, reason: StopReasons, now: Timestamp) {
        self.reasons = self.reasons | reason;
        self.since.get_or_insert(now);
    }

    /// It is still there: what now?
    pub fn advance(&mut self, patience: TerminationPolicy, now: Timestamp) -> TerminationStep {
        let age = self.since.map_or(0.0, |since| now.seconds_since(since));
        let backoff = patience.backoff.unwrap_or(0.0);
        if patience.backoff.is_some() && age < backoff {
            return self.enter_stage(
                TerminationStage::Signalled,
                StopReasons::SIGNALLED,
                Some(backoff - age),
            );
        }
        if let Some(timeout) = patience.timeout {
            let left = timeout + backoff - age;
            // Nobody is left alone who was not cancelled before, however late we look.
            if left > 0.0 || !self.reasons.contains(StopReasons::CANCELLED) {
                return self.enter_stage(
                    TerminationStage::Cancelled,
                    StopReasons::CANCELLED,
                    Some(left.max(0.0)),
                );
            }
            return self.enter_stage(TerminationStage::Abandoned, StopReasons::ABANDONED, None);
        }
        match patience.polling {
            Some(polling) => {
                TerminationStep { rung: TerminationStage::Exiting, first: false, delay: Some(polling) }
            }
            None => self.enter_stage(TerminationStage::Abandoned, StopReasons::ABANDONED, None),
        }
    }

    fn enter_stage(
        &mut self,
        rung: TerminationStage,
        reason: StopReasons,
        delay: Option<f64>,
    ) -> TerminationStep {
        let first = !self.reasons.contains(reason);
        self.reasons = self.reasons | reason;
        TerminationStep { rung, first, delay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TerminationStage::{Abandoned, Cancelled, Exiting, Signalled};

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_micros(0).plus(seconds)
    }

    /// What is done at these moments with a daemon that does not stop: `rung`, whether for the first time, and the delay.
    fn ladder(patience: TerminationPolicy, moments: &[f64]) -> Vec<(TerminationStage, bool, Option<f64>)> {
        let mut stopping = Stopping::default();
        stopping.ask(StopReasons::RESOURCE_DELETED, at(0.0));
        let press = |moment: &f64| stopping.advance(patience, at(*moment));
        moments.iter().map(press).map(|it| (it.rung, it.first, it.delay)).collect()
    }

    fn patience(backoff: Option<f64>, timeout: Option<f64>) -> TerminationPolicy {
        TerminationPolicy { backoff, timeout, polling: Some(60.0) }
    }

    #[test]
    fn without_limits_it_is_looked_at_again_and_again() {
        let lived = ladder(patience(None, None), &[0.0, 60.0, 1000.0]);
        assert_eq!(lived, [(Exiting, false, Some(60.0)); 3]);
    }

    #[test]
    fn with_a_backoff_only_it_is_never_cancelled() {
        let lived = ladder(patience(Some(5.0), None), &[0.0, 2.0, 5.0]);
        let expected =
            [(Signalled, true, Some(5.0)), (Signalled, false, Some(3.0)), (Exiting, false, Some(60.0))];
        assert_eq!(lived, expected);
    }

    #[test]
    fn with_both_it_is_signalled_cancelled_and_abandoned() {
        let lived = ladder(patience(Some(5.0), Some(10.0)), &[0.0, 5.0, 8.0, 15.0, 99.0]);
        let expected = [
            (Signalled, true, Some(5.0)),
            (Cancelled, true, Some(10.0)),
            (Cancelled, false, Some(7.0)),
            (Abandoned, true, None),
            (Abandoned, false, None),
        ];
        assert_eq!(lived, expected);
    }

    #[test]
    fn a_zero_timeout_cancels_at_once_and_abandons_at_the_next_look() {
        let lived = ladder(patience(None, Some(0.0)), &[0.0, 0.0]);
        assert_eq!(lived, [(Cancelled, true, Some(0.0)), (Abandoned, true, None)]);
    }

    #[test]
    fn a_late_look_does_not_skip_the_cancellation() {
        let lived = ladder(patience(None, Some(1.0)), &[9.0, 9.0]);
        assert_eq!(lived, [(Cancelled, true, Some(0.0)), (Abandoned, true, None)]);
    }

    #[test]
    fn who_will_not_be_looked_at_again_is_abandoned() {
        assert_eq!(ladder(patience(None, None).limited(), &[0.0]), [(Abandoned, true, None)]);
    }

    #[test]
    fn reasons_add_up_and_age_counts_from_the_first() {
        let mut stopping = Stopping::default();
        assert!(!stopping.is_asked());
        stopping.ask(StopReasons::FILTERS_MISMATCH, at(0.0));
        stopping.ask(StopReasons::RESOURCE_DELETED, at(4.0));
        assert_eq!(stopping.reasons(), StopReasons::FILTERS_MISMATCH | StopReasons::RESOURCE_DELETED);
        assert_eq!(stopping.advance(patience(Some(5.0), None), at(4.0)).delay, Some(1.0));
        assert_eq!(stopping.reasons().bits(), 0b10_0110);
    }

    #[test]
    fn texts_are_those_that_people_search_for() {
        let text = |rung, first| TerminationStep { rung, first, delay: Some(60.0) }.text("Daemon 'd'");
        assert_eq!(text(Signalled, true).as_deref(), Some("Daemon 'd' is signalled to exit gracefully."));
        assert_eq!(text(Cancelled, true).as_deref(), Some("Daemon 'd' is signalled to exit by force."));
        assert_eq!(text(Cancelled, false), None);
        assert_eq!(
            text(Exiting, false).as_deref(),
            Some("Daemon 'd' is still exiting. The next check is in 60 seconds.")
        );
    }
}
