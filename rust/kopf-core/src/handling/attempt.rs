//! One attempt of one handler, and its outcome.
//!
//! The rules of errors, timeouts and retries, with the exact log messages of Kopf. They are the same for change handlers,
//! daemons, timers and activities.

use crate::handler::{ErrorsMode, Handler};
use crate::time::Timestamp;
use std::fmt;

pub use crate::log_level::Level;

/// One attempt of one handler, before the call.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// The handler's index in the registry.
    pub handler: usize,
    /// The handler's label in logs: `Handler 'id'`.
    pub label: Box<str>,
    /// The error mode for arbitrary exceptions.
    pub errors: ErrorsMode,
    /// Seconds since `started` after which the handler fails.
    pub timeout: Option<f64>,
    /// The maximum number of attempts.
    pub retries: Option<u64>,
    /// Seconds between the attempts after arbitrary exceptions.
    pub backoff: f64,
    /// The first selection of the handler in this handling.
    pub started: Timestamp,
    /// The number of earlier attempts.
    pub retry: u64,
}

/// The result of the call of a handler. Messages are `str(e) or repr(e)`.
#[derive(Clone, Debug, PartialEq)]
pub enum CallResult {
    /// The handler returned.
    Nothing,
    /// `TemporaryError`.
    Temporary {
        /// The message of the exception.
        message: String,
        /// Seconds until the next attempt; none for no delay.
        delay: Option<f64>,
    },
    /// `PermanentError` and its subclasses.
    Permanent {
        /// The message of the exception.
        message: String,
    },
    /// Some sub-handlers are unfinished.
    Children {
        /// The message of the exception.
        message: String,
        /// Seconds until the first of them can be called again.
        delay: Option<f64>,
    },
    /// Any other exception.
    Arbitrary {
        /// The message of the exception.
        message: String,
    },
}

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The handler's index in the registry.
    pub handler: usize,
    /// The end of the attempt.
    pub at: Timestamp,
    /// Whether there is no further attempt.
    pub final_: bool,
    /// Whether the attempt failed. Ignored exceptions do not count.
    pub failed: bool,
    /// Seconds until the next attempt; none for no delay.
    pub delay: Option<f64>,
    /// The message of the exception.
    pub message: Option<String>,
    /// The ids of the sub-handlers, at any depth.
    pub subrefs: Vec<String>,
}

/// A log line of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The level of the line.
    pub level: Level,
    /// The text of the line.
    pub text: String,
    /// Whether the line has the exception's traceback.
    pub traceback: bool,
}

/// A limit of a handler's attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The time since the first attempt: `timeout=`.
    Timeout,
    /// The number of attempts: `retries=`.
    Retries,
}

/// The outcome of an attempt with its log line.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptResult {
    /// The outcome to record.
    pub outcome: Outcome,
    /// The log line; none for no line.
    pub log: Option<Line>,
    /// The limit that ended the attempts; none if there will be another attempt or the end has another cause.
    pub limit: Option<Limit>,
}

impl Attempt {
    /// An attempt of a handler, with its limits.
    pub fn of(index: usize, handler: &Handler, default_backoff: f64, started: Timestamp, retry: u64) -> Self {
        Self {
            handler: index,
            label: crate::handler::label::label(handler),
            errors: handler.errors_mode(),
            timeout: handler.timeout,
            retries: handler.retries,
            backoff: handler.backoff.unwrap_or(default_backoff),
            started,
            retry,
        }
    }

    /// The result if the limits of the handler do not allow this attempt; none if they do.
    pub fn precheck(&self, now: Timestamp) -> Option<AttemptResult> {
        let runtime = now.seconds_since(self.started);
        // The timeout is measured since the first selection, not since this call.
        if self.timeout.is_some_and(|timeout| runtime >= timeout) {
            let text = format!("{} has timed out after {}.", self.label, TimeDelta(runtime));
            return Some(self.gave_up(now, Limit::Timeout, text));
        }
        // A limit of zero prevents even the first attempt.
        if let Some(limit) = self.retries.filter(|limit| self.retry >= *limit) {
            let text = format!("{} has exceeded {limit} retries.", self.label);
            return Some(self.gave_up(now, Limit::Retries, text));
        }
        None
    }

    /// The result of the attempt after the call of the handler.
    pub fn evaluate(&self, raised: &CallResult, now: Timestamp) -> AttemptResult {
        match raised {
            CallResult::Nothing => AttemptResult {
                outcome: self.succeeded(now),
                log: Some(self.line(Level::Info, false, "succeeded.")),
                limit: None,
            },
            // This is not an error: the handler continues later. Its limits are checked before the next call.
            CallResult::Children { message, delay } => AttemptResult {
                outcome: self.retry(now, *delay, message),
                log: Some(self.line(Level::Debug, false, "has unfinished sub-handlers. Will retry soon.")),
                limit: None,
            },
            CallResult::Temporary { message, delay } => self.evaluate_temporary(message, *delay, now),
            CallResult::Permanent { message } => AttemptResult {
                outcome: self.failed(now, message),
                log: Some(self.line(Level::Error, false, &format!("failed permanently: {message}"))),
                limit: None,
            },
            CallResult::Arbitrary { message } => self.evaluate_arbitrary(message, now),
        }
    }

    fn evaluate_temporary(&self, message: &str, delay: Option<f64>, now: Timestamp) -> AttemptResult {
        // The next attempt would exceed the timeout.
        if let Some(timeout) = self.timeout_within(delay.unwrap_or(0.0), now) {
            let timeout = Seconds(timeout);
            let text = format!(
                "{} failed temporarily but will time out after {timeout} seconds: {message}",
                self.label
            );
            return self.gave_up(now, Limit::Timeout, text);
        }
        // The next attempt would exceed the number of retries.
        if let Some(limit) = self.exhausted_limit() {
            let text =
                format!("{} failed temporarily but will exceed {limit} retries: {message}", self.label);
            return self.gave_up(now, Limit::Retries, text);
        }
        AttemptResult {
            outcome: self.retry(now, delay, message),
            log: Some(self.line(Level::Error, false, &format!("failed temporarily: {message}"))),
            limit: None,
        }
    }

    fn evaluate_arbitrary(&self, message: &str, now: Timestamp) -> AttemptResult {
        let settled = |outcome: Outcome, verdict: &str| AttemptResult {
            outcome,
            log: Some(self.line(
                Level::Error,
                true,
                &format!("failed with an exception and will {verdict}: {message}"),
            )),
            limit: None,
        };
        // The error mode of the handler ignores all exceptions.
        if self.errors == ErrorsMode::Ignored {
            return settled(self.succeeded(now), "ignore it");
        }
        // The error mode of the handler makes all exceptions permanent.
        if self.errors == ErrorsMode::Permanent {
            return settled(self.failed(now, message), "stop now");
        }
        // The next attempt would exceed the timeout.
        if let Some(timeout) = self.timeout_within(self.backoff, now) {
            let why =
                format!("stop now (it would time out in {} seconds on the next attempt)", Seconds(timeout));
            return self.exhausted(now, Limit::Timeout, message, &why);
        }
        // The next attempt would exceed the number of retries.
        if let Some(limit) = self.exhausted_limit() {
            let why = format!("stop now (it would exceed {limit} retries on the next attempt)");
            return self.exhausted(now, Limit::Retries, message, &why);
        }
        let why = format!("try again in {} seconds", Seconds(self.backoff));
        settled(self.retry(now, Some(self.backoff), message), &why)
    }

    /// The result of an arbitrary exception if the limits allow no other attempt. The recorded message names the limit.
    fn exhausted(&self, now: Timestamp, limit: Limit, message: &str, why: &str) -> AttemptResult {
        let line =
            self.line(Level::Error, true, &format!("failed with an exception and will {why}: {message}"));
        AttemptResult { outcome: self.failed(now, &line.text), log: Some(line), limit: Some(limit) }
    }

    /// The timeout of the handler, if it is exceeded within the delay.
    fn timeout_within(&self, delay: f64, now: Timestamp) -> Option<f64> {
        self.timeout.filter(|timeout| now.seconds_since(self.started) + delay >= *timeout)
    }

    /// The maximum number of attempts, if this one is the last.
    fn exhausted_limit(&self) -> Option<u64> {
        self.retries.filter(|limit| self.retry.saturating_add(1) >= *limit)
    }

    fn gave_up(&self, now: Timestamp, limit: Limit, text: String) -> AttemptResult {
        let outcome = self.failed(now, &text);
        let log = Some(Line { level: Level::Error, text, traceback: false });
        AttemptResult { outcome, log, limit: Some(limit) }
    }

    fn line(&self, level: Level, traceback: bool, rest: &str) -> Line {
        Line { level, text: format!("{} {rest}", self.label), traceback }
    }

    fn succeeded(&self, at: Timestamp) -> Outcome {
        Outcome {
            handler: self.handler,
            at,
            final_: true,
            failed: false,
            delay: None,
            message: None,
            subrefs: Vec::new(),
        }
    }

    fn failed(&self, at: Timestamp, message: &str) -> Outcome {
        Outcome { failed: true, message: Some(message.to_owned()), ..self.succeeded(at) }
    }

    fn retry(&self, at: Timestamp, delay: Option<f64>, message: &str) -> Outcome {
        Outcome { final_: false, delay, ..self.failed(at, message) }
    }
}

/// Seconds in their shortest form: `60`, `0.5`.
pub struct Seconds(
    /// The seconds.
    pub f64,
);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Seconds in the format of Python's `timedelta`: `0:00:05.250000`, `1 day, 2:03:04`.
pub struct TimeDelta(
    /// The seconds.
    pub f64,
);

impl fmt::Display for TimeDelta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a cast saturates; no delay is 292,000 years long"
        )]
        let micros = (self.0 * 1e6).round() as i64;
        let days = micros.div_euclid(86_400_000_000);
        let rest = micros.rem_euclid(86_400_000_000);
        let (seconds, micros) = (rest / 1_000_000, rest % 1_000_000);
        if days != 0 {
            write!(f, "{days} day{}, ", if days.abs() == 1 { "" } else { "s" })?;
        }
        write!(f, "{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
        if micros != 0 {
            write!(f, ".{micros:06}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_micros(0).plus(seconds)
    }

    fn attempt(errors: ErrorsMode, timeout: Option<f64>, retries: Option<u64>, retry: u64) -> Attempt {
        let label = "Handler 'h'".into();
        Attempt { handler: 0, label, errors, timeout, retries, backoff: 60.0, started: at(0.0), retry }
    }

    /// The attempt and its result; then `final`, `failed`, `delay` and the text after the label.
    type Row = (Attempt, CallResult, f64, (bool, bool, Option<f64>), &'static str);

    #[test]
    fn each_result_of_a_call_has_its_outcome() {
        use ErrorsMode::{Ignored, Permanent, Temporary};
        let boo = || "boo".to_owned();
        let temporary = |delay| CallResult::Temporary { message: boo(), delay };
        let arbitrary = || CallResult::Arbitrary { message: boo() };
        let plain = |errors| attempt(errors, None, None, 0);
        let rows: Vec<Row> = vec![
            (plain(Temporary), CallResult::Nothing, 1.0, (true, false, None), "succeeded."),
            (
                plain(Temporary),
                temporary(Some(5.0)),
                1.0,
                (false, true, Some(5.0)),
                "failed temporarily: boo",
            ),
            (plain(Ignored), temporary(None), 1.0, (false, true, None), "failed temporarily: boo"),
            (
                attempt(Temporary, Some(10.0), None, 0),
                temporary(Some(9.0)),
                1.0,
                (true, true, None),
                "failed temporarily but will time out after 10 seconds: boo",
            ),
            (
                attempt(Temporary, None, Some(2), 1),
                temporary(Some(1.0)),
                1.0,
                (true, true, None),
                "failed temporarily but will exceed 2 retries: boo",
            ),
            (
                attempt(Temporary, None, Some(2), 0),
                temporary(Some(1.0)),
                1.0,
                (false, true, Some(1.0)),
                "failed temporarily: boo",
            ),
            (
                plain(Temporary),
                CallResult::Permanent { message: boo() },
                1.0,
                (true, true, None),
                "failed permanently: boo",
            ),
            (
                plain(Temporary),
                CallResult::Children { message: "None".to_owned(), delay: Some(0.0) },
                1.0,
                (false, true, Some(0.0)),
                "has unfinished sub-handlers. Will retry soon.",
            ),
            (
                plain(Ignored),
                arbitrary(),
                1.0,
                (true, false, None),
                "failed with an exception and will ignore it: boo",
            ),
            (
                plain(Permanent),
                arbitrary(),
                1.0,
                (true, true, None),
                "failed with an exception and will stop now: boo",
            ),
            (
                plain(Temporary),
                arbitrary(),
                1.0,
                (false, true, Some(60.0)),
                "failed with an exception and will try again in 60 seconds: boo",
            ),
            (
                attempt(Temporary, Some(60.5), None, 0),
                arbitrary(),
                1.0,
                (true, true, None),
                "failed with an exception and will stop now (it would time out in 60.5 seconds on the next attempt): boo",
            ),
            (
                attempt(Temporary, None, Some(3), 2),
                arbitrary(),
                1.0,
                (true, true, None),
                "failed with an exception and will stop now (it would exceed 3 retries on the next attempt): boo",
            ),
        ];
        for (attempt, raised, now, expected, text) in rows {
            let settled = attempt.evaluate(&raised, at(now));
            let outcome = &settled.outcome;
            assert_eq!((outcome.final_, outcome.failed, outcome.delay), expected, "{text}");
            assert_eq!(settled.log.unwrap().text, format!("Handler 'h' {text}"));
        }
    }

    #[test]
    fn the_exceeded_limit_does_not_depend_on_the_message() {
        use ErrorsMode::Temporary;
        let words = || "the connection timed out".to_owned();
        let temporary = || CallResult::Temporary { message: words(), delay: Some(1.0) };
        let arbitrary = || CallResult::Arbitrary { message: words() };
        for raised in [temporary(), arbitrary()] {
            let limit =
                |timeout, retries| attempt(Temporary, timeout, retries, 1).evaluate(&raised, at(1.0)).limit;
            assert_eq!(limit(None, Some(2)), Some(Limit::Retries));
            assert_eq!(limit(Some(1.5), None), Some(Limit::Timeout));
            assert_eq!(limit(None, None), None);
        }
        let precheck = |timeout, retries| {
            attempt(Temporary, timeout, retries, 1).precheck(at(9.0)).and_then(|settled| settled.limit)
        };
        assert_eq!(precheck(Some(5.0), None), Some(Limit::Timeout));
        assert_eq!(precheck(None, Some(1)), Some(Limit::Retries));
    }

    #[test]
    fn counts_end_at_the_largest_number() {
        let last = attempt(ErrorsMode::Temporary, None, Some(u64::MAX), u64::MAX - 1);
        let raised = CallResult::Temporary { message: "boo".to_owned(), delay: None };
        assert!(last.evaluate(&raised, at(1.0)).outcome.final_);
        let beyond = attempt(ErrorsMode::Temporary, None, Some(u64::MAX), u64::MAX);
        assert!(beyond.evaluate(&raised, at(1.0)).outcome.final_);
        assert!(beyond.precheck(at(1.0)).is_some());
    }

    #[test]
    fn limits_are_checked_before_the_call() {
        use ErrorsMode::Temporary;
        let text = |attempt: Attempt, now| attempt.precheck(at(now)).map(|settled| settled.log.unwrap().text);
        assert_eq!(text(attempt(Temporary, None, None, 9), 1e6), None);
        assert_eq!(text(attempt(Temporary, Some(5.0), None, 0), 4.9), None);
        assert_eq!(
            text(attempt(Temporary, Some(5.0), None, 0), 5.25).as_deref(),
            Some("Handler 'h' has timed out after 0:00:05.250000.")
        );
        assert_eq!(text(attempt(Temporary, None, Some(1), 0), 0.0), None);
        assert_eq!(
            text(attempt(Temporary, None, Some(0), 0), 0.0).as_deref(),
            Some("Handler 'h' has exceeded 0 retries.")
        );
    }

    #[test]
    fn time_is_printed_as_python_prints_it() {
        let table = [
            (0.0, "0:00:00"),
            (5.0, "0:00:05"),
            (3725.5, "1:02:05.500000"),
            (86_400.0, "1 day, 0:00:00"),
            (200_000.25, "2 days, 7:33:20.250000"),
            (-1.0, "-1 day, 23:59:59"),
        ];
        for (seconds, expected) in table {
            assert_eq!(TimeDelta(seconds).to_string(), expected);
        }
        assert_eq!(Seconds(60.0).to_string(), "60");
        assert_eq!(Seconds(0.1).to_string(), "0.1");
    }
}
