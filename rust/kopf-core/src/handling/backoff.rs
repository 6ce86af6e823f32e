//! The retry policy: the delay before a failed attempt is repeated, and the point at which Kopf gives up.
//!
//! Pure arithmetic. Callers count the consecutive failures, draw the random numbers, and sleep.

use crate::handling::durations::Seconds;
use crate::time::Timestamp;

/// The maximum of `Retry-After` that is respected, in seconds. A server that needs longer repeats its response.
pub const MAX_RETRY_AFTER: f64 = 60.0;

/// The delays between attempts of the same operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff<'a> {
    steps: &'a [f64],
    is_endless: bool,
    jitter: f64,
}

/// The delay before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delay {
    /// The seconds to sleep.
    pub seconds: f64,
    /// The delay of the policy, if the server's `Retry-After` has replaced it.
    pub overridden: Option<f64>,
}

impl<'a> Backoff<'a> {
    /// A policy with as many retries as steps: after the last one, Kopf gives up.
    pub const fn limited(steps: &'a [f64]) -> Self {
        Self { steps, is_endless: false, jitter: 0.0 }
    }

    /// A policy with infinite retries: the last step repeats. Without steps, there is no retry.
    pub const fn endless(steps: &'a [f64]) -> Self {
        Self { steps, is_endless: true, jitter: 0.0 }
    }

    /// Makes each delay longer by up to this fraction, so that clients that failed together do not retry together.
    #[must_use]
    pub const fn with_jitter(mut self, share: f64) -> Self {
        self.jitter = share;
        self
    }

    /// The delay of the policy after `failures` earlier consecutive failures; none if Kopf gives up.
    pub fn step(&self, failures: u32) -> Option<f64> {
        let last = self.steps.len().checked_sub(1)?;
        let position = usize::try_from(failures).unwrap_or(usize::MAX);
        let position = if self.is_endless { position.min(last) } else { position };
        self.steps.get(position).copied().map(sane)
    }

    /// The delay before the next attempt: the longer one of the policy's and the server's, with jitter.
    ///
    /// `retry_after` is the requested delay in seconds, `chance` a random number from 0 to 1.
    pub fn delay(&self, failures: u32, retry_after: Option<f64>, chance: f64) -> Option<f64> {
        let step = self.step(failures)?;
        let delay = retry_after.map_or(step, |wish| step.max(capped(wish)));
        Some(delay * (1.0 + self.jitter * chance.clamp(0.0, 1.0)))
    }
}

impl Delay {
    /// The longer one of the policy's delay and the server's `Retry-After`, in seconds. If `enforced`, the server's.
    pub fn of_step(step: f64, retry_after: Option<f64>, enforced: bool) -> Self {
        let step = sane(step);
        match retry_after.map(capped) {
            Some(wish) if enforced || wish > step => Self { seconds: wish, overridden: Some(step) },
            _ => Self { seconds: step, overridden: None },
        }
    }
}

fn capped(retry_after: f64) -> f64 {
    sane(retry_after).min(MAX_RETRY_AFTER)
}

/// A delay that doubles with each failure, from `first` seconds up to `longest`.
pub fn doubling(first: f64, failures: u32, longest: f64) -> f64 {
    let exponent = i32::try_from(failures).unwrap_or(i32::MAX).min(64);
    (sane(first) * 2_f64.powi(exponent)).min(longest)
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
    use proptest::prelude::*;

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
            assert_eq!(backoff.delay(0, wish, 0.0), Some(expected), "{wish:?}");
        }
    }

    #[test]
    fn the_server_can_make_a_delay_shorter_only_if_that_is_enforced() {
        let delay = |seconds, overridden| Delay { seconds, overridden };
        let table = [
            (1.0, None, true, delay(1.0, None)),
            (1.0, Some(5.0), false, delay(5.0, Some(1.0))),
            (1.0, Some(0.0), false, delay(1.0, None)),
            (1.0, Some(0.0), true, delay(0.0, Some(1.0))),
            (2.0, Some(1e9), true, delay(MAX_RETRY_AFTER, Some(2.0))),
        ];
        for (step, wish, enforced, expected) in table {
            assert_eq!(Delay::of_step(step, wish, enforced), expected, "{step} {wish:?} {enforced}");
        }
    }

    #[test]
    fn jitter_makes_delays_longer_by_its_share_at_most() {
        let backoff = Backoff::endless(&[10.0]).with_jitter(0.2);
        assert_eq!(backoff.delay(0, None, 0.0), Some(10.0));
        assert_eq!(backoff.delay(0, None, 1.0), Some(12.0));
        assert_eq!(backoff.delay(0, None, 7.0), Some(12.0));
    }

    #[test]
    fn doubling_delays_stop_growing() {
        let delays = [0, 1, 2, 9, u32::MAX].map(|it| doubling(0.5, it, 5.0).to_string());
        assert_eq!(delays, ["0.5", "1", "2", "5", "5"]);
    }

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
            if let Some(delay) = backoff.delay(failures, wish, chance) {
                let longest = steps.iter().copied().fold(MAX_RETRY_AFTER, f64::max) * 1.2;
                prop_assert!((0.0..=longest).contains(&delay), "{delay}");
            }
        }
    }
}
