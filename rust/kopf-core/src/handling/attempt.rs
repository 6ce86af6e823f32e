//! One attempt of one handler, and its outcome.
//!
//! The rules of errors, timeouts and retries, with the exact log messages of Kopf. They are the same for change handlers,
//! daemons, timers and activities. Those of errors are also the same for reconcilers, whose limits are in their schedule.

use crate::durations::{Seconds, TimeDelta};
use crate::handler::{ErrorsMode, Handler};
use crate::time::Timestamp;

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
    /// Seconds between the attempts after arbitrary exceptions. None for reconcilers: the schedule computes them.
    pub backoff: Option<f64>,
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
    /// Whether the call has raised an arbitrary exception, also if that is ignored.
    pub is_exception: bool,
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
            backoff: handler.backoff.or(Some(default_backoff)),
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
            CallResult::Arbitrary { message } => {
                let mut result = self.evaluate_arbitrary(message, now);
                result.outcome.is_exception = true;
                result
            }
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
        if let Some(timeout) = self.timeout_within(self.backoff.unwrap_or(0.0), now) {
            let why =
                format!("stop now (it would time out in {} seconds on the next attempt)", Seconds(timeout));
            return self.exhausted(now, Limit::Timeout, message, &why);
        }
        // The next attempt would exceed the number of retries.
        if let Some(limit) = self.exhausted_limit() {
            let why = format!("stop now (it would exceed {limit} retries on the next attempt)");
            return self.exhausted(now, Limit::Retries, message, &why);
        }
        let when = self.backoff.map_or("later".to_owned(), |delay| format!("in {} seconds", Seconds(delay)));
        settled(self.retry(now, self.backoff, message), &format!("try again {when}"))
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
            is_exception: false,
        }
    }

    fn failed(&self, at: Timestamp, message: &str) -> Outcome {
        Outcome { failed: true, message: Some(message.to_owned()), ..self.succeeded(at) }
    }

    fn retry(&self, at: Timestamp, delay: Option<f64>, message: &str) -> Outcome {
        Outcome { final_: false, delay, ..self.failed(at, message) }
    }
}

#[cfg(test)]
mod tests;
