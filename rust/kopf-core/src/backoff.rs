//! When a failed request is made again.
//!
//! Pure judgements over the sequence of delays and the server's wishes; the requests themselves are made elsewhere.

use crate::outcome::Seconds;
use crate::time::Timestamp;

/// How a request failed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Failure {
    /// No answer: the connection failed, or time ran out.
    Unanswered,
    /// An answer with an error.
    Status {
        /// Its code.
        code: u16,
        /// What the server asked to wait, in seconds: the header or the details of the status.
        retry_after: Option<f64>,
    },
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// Try again.
    Retry {
        /// After so many seconds.
        delay: f64,
        /// The scheduled delay, if the server's wish replaced it.
        overridden: Option<f64>,
    },
    /// Give up.
    Escalate,
}

/// Whether a request may be made again after such an answer. Permissions may be on their way, so 403 counts.
pub fn is_retriable(failure: Failure) -> bool {
    match failure {
        Failure::Unanswered => true,
        Failure::Status { code, .. } => code >= 500 || code == 403 || code == 429,
    }
}

/// What to do after the failure of one attempt; `attempt` counts from one.
pub fn judge(failure: Failure, attempt: usize, backoffs: &[f64], enforce_retry_after: bool) -> Verdict {
    // Another attempt would fail as well.
    if !is_retriable(failure) {
        return Verdict::Escalate;
    }
    // The attempts are used up; the server's wishes never add any.
    let Some(&scheduled) = backoffs.get(attempt.saturating_sub(1)) else {
        return Verdict::Escalate;
    };
    // The server may know better when it is ready, but it may not hurry us unless that was allowed.
    if let Failure::Status { code: 429, retry_after: Some(wish) } = failure
        && (enforce_retry_after || wish > scheduled)
    {
        return Verdict::Retry { delay: wish.max(0.0), overridden: Some(scheduled) };
    }
    Verdict::Retry { delay: scheduled, overridden: None }
}

/// Seconds of a `Retry-After` header: a number (whole seconds count), or a date as HTTP writes it.
pub fn parse_retry_after(header: &str, now: Timestamp) -> Option<f64> {
    let header = header.trim();
    if let Ok(seconds) = header.parse::<f64>() {
        return seconds.is_finite().then(|| seconds.trunc().max(0.0));
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(header).ok()?;
    Some(Timestamp::from_micros(date.as_microsecond()).seconds_since(now).max(0.0))
}

/// `#2/9`: which attempt of how many.
pub fn numbered(attempt: usize, backoffs: &[f64]) -> String {
    format!("#{attempt}/{}", backoffs.len() + 1)
}

/// What is said when the server's wish replaces the schedule, at the debug level. `what` is like `GET url`.
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

    #[test]
    fn judgements() {
        let status = |code, retry_after| Failure::Status { code, retry_after };
        let again = |delay, overridden| Verdict::Retry { delay, overridden };
        let backoffs = [1.0, 2.0];
        let table = [
            (Failure::Unanswered, 1, false, again(1.0, None)),
            (Failure::Unanswered, 2, false, again(2.0, None)),
            (Failure::Unanswered, 3, false, Verdict::Escalate),
            (status(500, None), 1, false, again(1.0, None)),
            (status(403, None), 2, false, again(2.0, None)),
            (status(404, None), 1, false, Verdict::Escalate),
            (status(409, None), 1, false, Verdict::Escalate),
            (status(429, None), 1, false, again(1.0, None)),
            (status(429, Some(5.0)), 1, false, again(5.0, Some(1.0))),
            (status(429, Some(0.0)), 1, false, again(1.0, None)),
            (status(429, Some(0.0)), 1, true, again(0.0, Some(1.0))),
            (status(429, Some(5.0)), 3, true, Verdict::Escalate),
            (status(503, Some(5.0)), 1, true, again(1.0, None)),
        ];
        for (failure, attempt, enforce, expected) in table {
            assert_eq!(
                judge(failure, attempt, &backoffs, enforce),
                expected,
                "{failure:?} {attempt} {enforce}"
            );
        }
    }

    #[test]
    fn the_header_is_a_number_or_a_date() {
        let now = Timestamp::parse("2015-10-21T07:28:00Z").unwrap();
        assert_eq!(parse_retry_after("5", now), Some(5.0));
        assert_eq!(parse_retry_after(" 1.9 ", now), Some(1.0));
        assert_eq!(parse_retry_after("Wed, 21 Oct 2015 07:28:30 GMT", now), Some(30.0));
        assert_eq!(parse_retry_after("Wed, 21 Oct 2015 07:27:30 GMT", now), Some(0.0));
        assert_eq!(parse_retry_after("soon", now), None);
    }

    #[test]
    fn texts() {
        assert_eq!(numbered(2, &[1.0; 8]), "#2/9");
        assert_eq!(
            override_text(1.0, 5.0, "GET /x"),
            "Overriding the backoff 1s with the retry-after 5s from the server: GET /x"
        );
    }
}
