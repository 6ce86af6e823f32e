//! Delays between retries: how long to wait after a failure, and after how many failures to give up.
//!
//! It has the delays of requests, watches, discovery, logins, writes, and throttled objects, but does not decide which
//! failures are retried: for the engine's requests, `kopf-engine/src/client/mod.rs` does; for those of users' code,
//! `user_request/retry.rs`. Pure arithmetic: callers draw the random numbers, and sleep. [`Retries`] counts the consecutive
//! failures.

use crate::durations::Seconds;
use crate::time::Timestamp;

/// The maximum of `Retry-After` that is respected, in seconds. A server that needs longer repeats its response.
pub const MAX_RETRY_AFTER: f64 = 60.0;

/// The delays between attempts of the same operation.
///
/// Parameters: the steps in seconds, whether the retries are limited by them, the jitter (a fraction of the delay), and
/// whether `Retry-After` of the server also shortens delays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff<'a> {
    steps: Steps<'a>,
    is_endless: bool,
    jitter: f64,
    is_retry_after_enforced: bool,
}

/// The sequence of delays in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Steps<'a> {
    Listed(&'a [f64]),
    Doubling {
        first: f64,
        longest: f64,
    },
    /// The operation uses one of several series. After its end, the last values of all series follow in turn.
    Series {
        series: &'a [Vec<f64>],
        operation: usize,
    },
}

/// The delay before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delay {
    /// The seconds to sleep.
    pub seconds: f64,
    /// The same without jitter, for log lines.
    pub planned: f64,
    /// The delay of the policy, if the server's `Retry-After` has replaced it.
    pub overridden: Option<f64>,
}

/// The retries of one operation: the policy, and the number of consecutive failures so far.
#[derive(Clone, Copy, Debug)]
pub struct Retries<'a> {
    policy: Backoff<'a>,
    failures: u32,
}

impl<'a> Backoff<'a> {
    const fn of(steps: Steps<'a>, is_endless: bool) -> Self {
        Self { steps, is_endless, jitter: 0.0, is_retry_after_enforced: false }
    }

    /// A policy without retries.
    pub const NEVER: Self = Self::limited(&[]);

    /// A policy with as many retries as steps: after the last one, Kopf gives up.
    pub const fn limited(steps: &'a [f64]) -> Self {
        Self::of(Steps::Listed(steps), false)
    }

    /// A policy with infinite retries: the last step repeats. Without steps, there is no retry.
    pub const fn endless(steps: &'a [f64]) -> Self {
        Self::of(Steps::Listed(steps), true)
    }

    /// A policy with infinite retries: the delay doubles with each failure, from `first` seconds up to `longest`.
    pub const fn doubling(first: f64, longest: f64) -> Self {
        Self::of(Steps::Doubling { first, longest }, true)
    }

    /// A policy whose steps are one of several series, selected by the number of the operation, so that the random
    /// delays of concurrent operations differ.
    pub const fn series(series: &'a [Vec<f64>], operation: usize, is_endless: bool) -> Self {
        Self::of(Steps::Series { series, operation }, is_endless)
    }

    /// Makes each delay longer by up to this fraction, so that clients that failed together do not retry together.
    #[must_use]
    pub const fn with_jitter(mut self, share: f64) -> Self {
        self.jitter = share;
        self
    }

    /// Whether `Retry-After` applies even if it is shorter than the delay of the policy.
    #[must_use]
    pub const fn with_retry_after_enforced(mut self, is_enforced: bool) -> Self {
        self.is_retry_after_enforced = is_enforced;
        self
    }

    /// The policy with the count of the failures of one operation, which has not failed yet.
    pub const fn retries(self) -> Retries<'a> {
        Retries { policy: self, failures: 0 }
    }

    /// The number of attempts before Kopf gives up; none if it is unlimited or not known in advance.
    pub fn attempts(&self) -> Option<usize> {
        match self.steps {
            Steps::Listed(steps) if !self.is_endless || steps.is_empty() => Some(steps.len() + 1),
            _ => None,
        }
    }

    /// The delay of the policy after `failures` earlier consecutive failures; none if Kopf gives up.
    pub fn step(&self, failures: u32) -> Option<f64> {
        let position = usize::try_from(failures).unwrap_or(usize::MAX);
        let step = match self.steps {
            Steps::Listed(steps) => {
                let last = steps.len().checked_sub(1)?;
                steps.get(if self.is_endless { position.min(last) } else { position }).copied()?
            }
            Steps::Doubling { first, longest } => {
                let exponent = i32::try_from(failures).unwrap_or(i32::MAX).min(64);
                (sane(first) * 2_f64.powi(exponent)).min(longest)
            }
            Steps::Series { series, operation } => {
                let nth = |number: usize| series.get(number % series.len().max(1));
                let own = nth(operation)?;
                let rest = || nth(operation.wrapping_add(position))?.last().copied();
                own.get(position).copied().or_else(|| rest().filter(|_| self.is_endless))?
            }
        };
        Some(sane(step))
    }

    /// The delay before the next attempt: the longer one of the policy's and the server's, with jitter.
    ///
    /// `retry_after` is the requested delay in seconds, `chance` a random number from 0 to 1.
    pub fn delay(&self, failures: u32, retry_after: Option<f64>, chance: f64) -> Option<Delay> {
        let step = self.step(failures)?;
        let wish = retry_after.map(capped).filter(|wish| self.is_retry_after_enforced || *wish > step);
        let planned = wish.unwrap_or(step);
        let seconds = planned * (1.0 + self.jitter * chance.clamp(0.0, 1.0));
        Some(Delay { seconds, planned, overridden: wish.map(|_| step) })
    }

    /// The sum of the delays of a limited policy in seconds.
    pub fn total(&self) -> f64 {
        let limit = self.attempts().unwrap_or_default();
        (0..).map_while(|failures| self.step(failures)).take(limit).sum()
    }
}

impl Retries<'_> {
    /// Records a failure. Returns the delay before the next attempt; none if Kopf gives up.
    ///
    /// `retry_after` is the delay in seconds that the server requests, `chance` a random number from 0 to 1.
    pub fn next(&mut self, retry_after: Option<f64>, chance: f64) -> Option<Delay> {
        let delay = self.policy.delay(self.failures, retry_after, chance);
        self.record_failure();
        delay
    }

    /// Records a failure after which there is no delay.
    pub fn record_failure(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// Records a success: the next failure is the first one.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// The number of consecutive failures so far.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

fn capped(retry_after: f64) -> f64 {
    sane(retry_after).min(MAX_RETRY_AFTER)
}

/// The delay, with zero for negative and undefined ones.
fn sane(seconds: f64) -> f64 {
    if seconds.is_nan() { 0.0 } else { seconds.max(0.0) }
}

/// The seconds of a `Retry-After` header: a number, or an HTTP date. None if it is neither.
pub fn parse_retry_after(header: &str, now: Timestamp) -> Option<f64> {
    let header = header.trim();
    if let Ok(seconds) = header.parse::<f64>() {
        return (seconds.is_finite() && seconds >= 0.0).then_some(seconds);
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(header).ok()?;
    Some(Timestamp::from_micros(date.as_microsecond()).seconds_since(now).max(0.0))
}

/// The debug log line for an overridden delay. `what` names the request, as `GET url`.
pub fn override_text(scheduled: f64, wish: f64, what: &str) -> String {
    format!(
        "Overriding the backoff {}s with the retry-after {}s from the server: {what}",
        Seconds(scheduled),
        Seconds(wish)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::ErrorBackoffs;
    use proptest::prelude::*;

    // contract: engine 1.9
    #[test]
    fn limited_policies_give_up_after_their_steps() {
        let backoff = Backoff::limited(&[1.0, 2.0]);
        assert_eq!(
            [0, 1, 2, u32::MAX].map(|failures| backoff.step(failures)),
            [Some(1.0), Some(2.0), None, None]
        );
        assert_eq!(Backoff::limited(&[]).step(0), None);
    }

    #[test]
    fn endless_policies_repeat_their_last_step() {
        let backoff = Backoff::endless(&[1.0, 2.0]);
        assert_eq!(
            [0, 1, 2, u32::MAX].map(|it| backoff.step(it)),
            [Some(1.0), Some(2.0), Some(2.0), Some(2.0)]
        );
        assert_eq!(Backoff::endless(&[]).step(0), None);
    }

    #[test]
    fn the_server_can_make_a_delay_longer_up_to_the_limit() {
        let backoff = Backoff::endless(&[1.0]);
        let table = [
            (None, 1.0),
            (Some(0.5), 1.0),
            (Some(5.0), 5.0),
            (Some(86_400.0), MAX_RETRY_AFTER),
            (Some(4_294_967_295.0), MAX_RETRY_AFTER),
            (Some(f64::INFINITY), MAX_RETRY_AFTER),
            (Some(f64::NAN), 1.0),
            (Some(-5.0), 1.0),
        ];
        for (wish, expected) in table {
            let delay = backoff.delay(0, wish, 0.0).map(|delay| delay.seconds);
            assert_eq!(delay, Some(expected), "{wish:?}");
        }
    }

    // contract: engine 1.9
    #[test]
    fn the_server_can_make_a_delay_shorter_only_if_that_is_enforced() {
        let delay = |seconds, overridden| Some(Delay { seconds, planned: seconds, overridden });
        let table = [
            (1.0, None, true, delay(1.0, None)),
            (1.0, Some(5.0), false, delay(5.0, Some(1.0))),
            (1.0, Some(0.0), false, delay(1.0, None)),
            (1.0, Some(0.0), true, delay(0.0, Some(1.0))),
            (2.0, Some(1e9), true, delay(MAX_RETRY_AFTER, Some(2.0))),
        ];
        for (step, wish, enforced, expected) in table {
            let steps = [step];
            let policy = Backoff::limited(&steps).with_retry_after_enforced(enforced);
            assert_eq!(policy.delay(0, wish, 0.0), expected, "{step} {wish:?} {enforced}");
        }
    }

    #[test]
    fn jitter_makes_delays_longer_by_its_share_at_most() {
        let backoff = Backoff::endless(&[10.0]).with_jitter(0.2);
        let delays = [0.0, 1.0, 7.0].map(|chance| backoff.delay(0, None, chance));
        assert_eq!(delays.map(|delay| delay.map(|it| it.seconds)), [Some(10.0), Some(12.0), Some(12.0)]);
        assert_eq!(delays.map(|delay| delay.map(|it| it.planned)), [Some(10.0); 3]);
    }

    #[test]
    fn doubling_delays_stop_growing() {
        let backoff = Backoff::doubling(0.5, 5.0);
        let delays = [0, 1, 2, 9, u32::MAX].map(|it| backoff.step(it));
        assert_eq!(delays, [0.5, 1.0, 2.0, 5.0, 5.0].map(Some));
    }

    #[test]
    fn retries_count_the_failures_until_a_success() {
        let mut retries = Backoff::limited(&[1.0, 2.0]).retries();
        let mut next = || retries.next(None, 0.0).map(|delay| delay.seconds);
        assert_eq!([next(), next(), next()], [Some(1.0), Some(2.0), None]);
        assert_eq!(retries.failures(), 3);
        retries.reset();
        assert_eq!(retries.next(None, 0.0).map(|delay| delay.seconds), Some(1.0));
    }

    #[test]
    fn only_limited_policies_have_a_number_of_attempts_and_a_total() {
        let series = [vec![1.0], vec![2.0, 3.0]];
        let table = [
            (Backoff::limited(&[1.0, 2.0]), Some(3), 3.0),
            (Backoff::endless(&[1.0]), None, 0.0),
            (Backoff::endless(&[]), Some(1), 0.0),
            (Backoff::doubling(1.0, 2.0), None, 0.0),
            (Backoff::series(&series, 1, false), None, 0.0),
            (Backoff::NEVER, Some(1), 0.0),
        ];
        for (policy, attempts, total) in table {
            assert_eq!((policy.attempts(), policy.total()), (attempts, total), "{policy:?}");
        }
    }

    #[test]
    fn fixed_backoffs_end_with_their_list() {
        let backoffs: ErrorBackoffs = serde_json::from_str("[1, 2.5]").unwrap();
        let policy = backoffs.policy(7);
        assert_eq!(policy.attempts(), Some(3));
        assert_eq!([0, 1, 2].map(|failures| policy.step(failures)), [Some(1.0), Some(2.5), None]);
        let none: ErrorBackoffs = serde_json::from_str("[]").unwrap();
        assert_eq!((none.policy(0).attempts(), none.policy(0).step(0)), (Some(1), None));
    }

    #[test]
    fn drawn_backoffs_differ_between_requests_and_may_have_no_end() {
        let text = r#"{"series": [[1, 2], [3, 4]], "endless": true}"#;
        let endless: ErrorBackoffs = serde_json::from_str(text).unwrap();
        assert_eq!(endless.policy(0).attempts(), None);
        let steps = |request| [0, 1, 2, 3, 4].map(|failures| endless.policy(request).step(failures));
        assert_eq!(steps(0), [1.0, 2.0, 2.0, 4.0, 2.0].map(Some));
        assert_eq!(steps(1), [3.0, 4.0, 4.0, 2.0, 4.0].map(Some));
        assert_eq!(steps(2), steps(0));
        assert!(endless.policy(usize::MAX).step(u32::MAX).is_some());

        let text = r#"{"series": [[1, 2], [3]], "endless": false}"#;
        let finite: ErrorBackoffs = serde_json::from_str(text).unwrap();
        assert_eq!((finite.policy(0).step(1), finite.policy(0).step(2)), (Some(2.0), None));
        assert_eq!((finite.policy(1).step(0), finite.policy(1).step(1)), (Some(3.0), None));

        let nothing: ErrorBackoffs = serde_json::from_str(r#"{"series": [[]], "endless": false}"#).unwrap();
        assert_eq!(nothing.policy(0).step(0), None);
    }

    // contract: engine 1.9
    #[test]
    fn the_header_is_a_number_or_a_date() {
        let now = Timestamp::parse("2015-10-21T07:28:00Z").unwrap();
        assert_eq!(parse_retry_after("5", now), Some(5.0));
        assert_eq!(parse_retry_after(" 1.5 ", now), Some(1.5));
        assert_eq!(parse_retry_after("Wed, 21 Oct 2015 07:28:30 GMT", now), Some(30.0));
        assert_eq!(parse_retry_after("Wed, 21 Oct 2015 07:27:30 GMT", now), Some(0.0));
        for nonsense in ["soon", "", "-5", "nan", "inf", "1e9999"] {
            assert_eq!(parse_retry_after(nonsense, now), None, "{nonsense}");
        }
    }

    // contract: engine 1.9
    #[test]
    fn texts() {
        assert_eq!(
            override_text(1.0, 5.0, "GET /x"),
            "Overriding the backoff 1s with the retry-after 5s from the server: GET /x"
        );
    }

    proptest! {
        #[test]
        fn delays_are_never_negative_or_longer_than_allowed(
            steps in proptest::collection::vec(any::<f64>(), 0..5),
            failures in any::<u32>(), wish in proptest::option::of(any::<f64>()), chance in any::<f64>(),
        ) {
            let backoff = Backoff::endless(&steps).with_jitter(0.2);
            if let Some(Delay { seconds: delay, .. }) = backoff.delay(failures, wish, chance) {
                let longest = steps.iter().copied().fold(MAX_RETRY_AFTER, f64::max) * 1.2;
                prop_assert!((0.0..=longest).contains(&delay), "{delay}");
            }
        }
    }
}
