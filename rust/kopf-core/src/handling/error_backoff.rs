//! The throttling of an object after unexpected errors.
//!
//! The state only, without a clock: the engine sleeps and interrupts.

use crate::backoff::Backoff;
use crate::durations::Seconds;
use crate::time::Timestamp;

/// The info message at the end of the throttling.
pub const OVER: &str = "Throttling is over. Switching back to normal operations.";

/// The error back-off of one object: its place in the sequence of delays, and the end of the current delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorBackoff {
    failures: u32,
    until: Option<Timestamp>,
}

impl ErrorBackoff {
    /// Records a failed cycle. Returns the seconds to throttle the object; the last delay repeats. None if there are no delays.
    pub fn fail(&mut self, delays: &[f64], now: Timestamp) -> Option<f64> {
        let delay = Backoff::endless(delays).step(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.until = delay.map(|delay| now.plus(delay));
        delay
    }

    /// Records a successful cycle: the sequence of delays restarts.
    pub fn succeed(&mut self) {
        *self = Self::default();
    }

    /// Ends the current delay: processing continues. The sequence of delays is kept until a cycle succeeds.
    pub fn release(&mut self) {
        self.until = None;
    }

    /// Ends the current delay early. It still has to be released.
    pub fn cut_short(&mut self) {
        if let Some(until) = &mut self.until {
            *until = Timestamp::from_micros(0);
        }
    }

    /// Whether a delay was started and not yet released, even if its time is over.
    pub fn is_held(&self) -> bool {
        self.until.is_some()
    }

    /// The remaining seconds of the current delay; none if the object is not throttled.
    pub fn remaining(&self, now: Timestamp) -> Option<f64> {
        self.until.map(|until| until.seconds_since(now).max(0.0))
    }
}

/// The error message of a failed cycle, logged with its traceback. `delay` is the result of [`ErrorBackoff::fail`].
pub fn text(delay: Option<f64>, error: &str) -> String {
    match delay {
        Some(delay) => {
            format!("Throttling for {} seconds due to an unexpected error: {error}", Seconds(delay))
        }
        // Without delays, errors must still be logged.
        None => format!("An unexpected error, not throttled: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_micros(0).plus(seconds)
    }

    // contract: engine 12
    #[test]
    fn delays_grow_and_the_last_one_repeats() {
        let mut throttle = ErrorBackoff::default();
        let delays = [1.0, 2.0, 3.0];
        let seen: Vec<_> = (0..5).map(|_| throttle.fail(&delays, at(0.0))).collect();
        assert_eq!(seen, [Some(1.0), Some(2.0), Some(3.0), Some(3.0), Some(3.0)]);
        throttle.succeed();
        assert_eq!(throttle.fail(&delays, at(0.0)), Some(1.0));
    }

    #[test]
    fn an_object_is_held_until_released() {
        let mut throttle = ErrorBackoff::default();
        assert_eq!(throttle.remaining(at(0.0)), None);
        throttle.fail(&[5.0], at(0.0));
        assert_eq!(throttle.remaining(at(2.0)), Some(3.0));
        assert_eq!(throttle.remaining(at(7.0)), Some(0.0));
        throttle.release();
        assert_eq!(throttle.remaining(at(2.0)), None);
    }

    #[test]
    fn a_delay_can_end_early() {
        let mut throttle = ErrorBackoff::default();
        throttle.cut_short();
        assert!(!throttle.is_held());
        throttle.fail(&[5.0, 9.0], at(1.0));
        throttle.cut_short();
        assert_eq!((throttle.is_held(), throttle.remaining(at(2.0))), (true, Some(0.0)));
        assert_eq!(throttle.fail(&[5.0, 9.0], at(2.0)), Some(9.0), "the sequence goes on");
    }

    #[test]
    fn without_delays_errors_are_still_logged() {
        let mut throttle = ErrorBackoff::default();
        let delay = throttle.fail(&[], at(0.0));
        assert_eq!((delay, throttle.remaining(at(0.0))), (None, None));
        assert!(text(delay, "ValueError('x')").ends_with("ValueError('x')"));
        assert_eq!(text(Some(1.0), "E()"), "Throttling for 1 seconds due to an unexpected error: E()");
    }
}
