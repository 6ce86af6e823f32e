//! The rules by which the engine's requests are sent again: after failures, and over another connection.
//!
//! Pure: the driver (`kopf-engine/src/client`) sends the requests, logs, and sleeps. Requests of users' code have other rules, those of
//! `user_request`.

use std::fmt;

use crate::backoff::{Backoff, Delay, Retries};
use crate::request_error::RequestError;

/// Which failures are retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetriedFailures {
    /// Those that may be temporary. This includes 403: permissions are often granted shortly after the operator's start. And 401,
    /// if it is not that of the API server itself, whose rejected credentials are replaced.
    Temporary,
    /// The same without 401 and 403.
    UnlessForbidden,
}

impl RetriedFailures {
    /// Whether a request is retried after this failure.
    pub fn include(self, failure: &RequestError) -> bool {
        match failure {
            RequestError::Api(rejection) if rejection.is_too_large() => false,
            RequestError::Api(rejection) => match rejection.status {
                401 | 403 => self == Self::Temporary,
                429 | 500.. => true,
                _ => false,
            },
            RequestError::Transport(_) | RequestError::Unsent(_) | RequestError::Timeout => true,
            RequestError::Malformed(_) | RequestError::Login(_) | RequestError::Fenced => false,
        }
    }
}

/// The delay in seconds that an overloaded server requests.
fn retry_after(failure: &RequestError) -> Option<f64> {
    match failure {
        RequestError::Api(rejection) if rejection.status == 429 => rejection.retry_after,
        _ => None,
    }
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AfterFailure {
    /// The failure is that of the request: it is not retried.
    Fail,
    /// The same, since there were as many attempts as the settings allow.
    GiveUp,
    /// Another attempt after this delay.
    Retry(Delay),
}

/// The attempts of one request.
#[derive(Clone, Copy, Debug)]
pub struct Attempts<'a> {
    retried: RetriedFailures,
    retries: Retries<'a>,
    total: Option<usize>,
}

impl<'a> Attempts<'a> {
    /// The first attempt.
    pub fn new(policy: Backoff<'a>, retried: RetriedFailures) -> Self {
        Self { retried, retries: policy.retries(), total: policy.attempts() }
    }

    /// Whether this attempt is not the first one.
    pub fn is_retry(&self) -> bool {
        self.retries.failures() > 0
    }

    /// What follows the failure of this attempt. If that is a retry, the next attempt is the current one from now on.
    pub fn on_failure(&mut self, failure: &RequestError) -> AfterFailure {
        if !self.retried.include(failure) {
            return AfterFailure::Fail;
        }
        match self.retries.next(retry_after(failure), 0.0) {
            Some(delay) => AfterFailure::Retry(delay),
            None => AfterFailure::GiveUp,
        }
    }
}

impl fmt::Display for Attempts<'_> {
    /// The number of this attempt, and of all if that is known: `#1/3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.retries.failures().saturating_add(1))?;
        self.total.map_or(Ok(()), |total| write!(f, "/{total}"))
    }
}

/// A connection that has failed before a byte of the response.
#[derive(Clone, Copy, Debug)]
pub struct FailedConnection {
    /// An earlier request was sent over it: the server may have closed it while it was idle.
    pub is_reused: bool,
    /// No byte of the request was sent.
    pub is_unsent: bool,
}

impl FailedConnection {
    /// Whether the request is sent again over another connection, which is not a retry in the sense of [`Attempts`]. If the server may
    /// have received it, only idempotent requests are.
    pub fn is_replaced(self, is_idempotent: bool) -> bool {
        self.is_reused && (self.is_unsent || is_idempotent)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::request_error::{ApiError, LoginError};

    fn rejected(status: u16, retry_after: Option<f64>) -> RequestError {
        RequestError::Api(Box::new(ApiError::from_response(status, retry_after, b"")))
    }

    #[test]
    fn temporary_failures_are_retried() {
        let text = b"etcdserver: request is too large";
        let too_large = RequestError::Api(Box::new(ApiError::from_response(500, None, text)));
        // By default, and by requests that are errors if they are forbidden.
        let table = [
            (rejected(400, None), [false, false]),
            (rejected(401, None), [true, false]),
            (rejected(403, None), [true, false]),
            (rejected(404, None), [false, false]),
            (rejected(409, None), [false, false]),
            (rejected(410, None), [false, false]),
            (rejected(422, None), [false, false]),
            (rejected(429, None), [true, true]),
            (rejected(500, None), [true, true]),
            (too_large, [false, false]),
            (rejected(503, None), [true, true]),
            (RequestError::Transport("reset".to_owned()), [true, true]),
            (RequestError::Unsent("no route".to_owned()), [true, true]),
            (RequestError::Timeout, [true, true]),
            (RequestError::Malformed("{".to_owned()), [false, false]),
            (RequestError::Fenced, [false, false]),
            (RequestError::Login(LoginError("none".to_owned())), [false, false]),
        ];
        for (failure, expected) in table {
            let kinds = [RetriedFailures::Temporary, RetriedFailures::UnlessForbidden];
            assert_eq!(kinds.map(|retried| retried.include(&failure)), expected, "{failure:?}");
        }
    }

    /// The seconds of the delays after these failures, until there is no retry.
    fn delays(policy: Backoff<'_>, failures: &[RequestError]) -> (Vec<f64>, Option<AfterFailure>) {
        let mut attempts = Attempts::new(policy, RetriedFailures::Temporary);
        let mut delays = vec![];
        for failure in failures {
            match attempts.on_failure(failure) {
                AfterFailure::Retry(delay) => delays.push(delay.seconds),
                end => return (delays, Some(end)),
            }
        }
        (delays, None)
    }

    #[test]
    fn attempts_end_with_the_policy_or_with_a_permanent_failure() {
        let policy = Backoff::limited(&[1.0, 2.0]);
        let (temporary, permanent) = (rejected(500, None), rejected(404, None));
        let temporary = || temporary.clone();
        assert_eq!(
            delays(policy, &[temporary(), temporary(), temporary()]),
            (vec![1.0, 2.0], Some(AfterFailure::GiveUp))
        );
        assert_eq!(delays(policy, &[temporary(), permanent]), (vec![1.0], Some(AfterFailure::Fail)));
        assert_eq!(delays(Backoff::NEVER, &[temporary()]), (vec![], Some(AfterFailure::GiveUp)));
    }

    #[test]
    fn only_an_overloaded_server_prolongs_the_delay() {
        let policy = Backoff::limited(&[1.0, 1.0]);
        let failures = [rejected(429, Some(7.0)), rejected(503, Some(7.0))];
        assert_eq!(delays(policy, &failures), (vec![7.0, 1.0], None));
    }

    #[test]
    fn attempts_are_numbered() {
        let numbered = |policy: Backoff<'_>| {
            let mut attempts = Attempts::new(policy, RetriedFailures::Temporary);
            let first = (attempts.to_string(), attempts.is_retry());
            attempts.on_failure(&RequestError::Timeout);
            [first, (attempts.to_string(), attempts.is_retry())]
        };
        let expected = |first: &str, second: &str| [(first.to_owned(), false), (second.to_owned(), true)];
        assert_eq!(numbered(Backoff::limited(&[1.0, 2.0])), expected("#1/3", "#2/3"));
        assert_eq!(numbered(Backoff::endless(&[1.0])), expected("#1", "#2"));
    }

    #[test]
    fn a_request_is_sent_over_another_connection_if_that_cannot_execute_it_twice() {
        // Reused, unsent, idempotent.
        let table = [
            ([true, true, true], true),
            ([true, true, false], true),
            ([true, false, true], true),
            ([true, false, false], false),
            ([false, true, true], false),
            ([false, false, true], false),
            ([false, true, false], false),
            ([false, false, false], false),
        ];
        for ([is_reused, is_unsent, is_idempotent], expected) in table {
            let failed = FailedConnection { is_reused, is_unsent };
            assert_eq!(failed.is_replaced(is_idempotent), expected, "{failed:?} {is_idempotent}");
        }
    }

    proptest! {
        /// However attempts fail: there are at most as many as the policy allows, and a permanent failure is the last one.
        #[test]
        fn a_request_has_at_most_as_many_attempts_as_the_policy_allows(
            steps in proptest::collection::vec(0.0..10.0_f64, 0..5),
            statuses in proptest::collection::vec(400_u16..600, 10),
        ) {
            let failures: Vec<_> = statuses.into_iter().map(|status| rejected(status, None)).collect();
            let (delays, end) = delays(Backoff::limited(&steps), &failures);
            prop_assert!(delays.len() <= steps.len());
            let is_permanent = !RetriedFailures::Temporary.include(&failures[delays.len()]);
            let expected = if is_permanent { AfterFailure::Fail } else { AfterFailure::GiveUp };
            prop_assert_eq!(end, Some(expected));
        }
    }
}
