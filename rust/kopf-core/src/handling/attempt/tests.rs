//! The outcomes of attempts, and the limits of handlers.

use super::*;

fn at(seconds: f64) -> Timestamp {
    Timestamp::from_micros(0).plus(seconds)
}

fn attempt(errors: ErrorsMode, timeout: Option<f64>, retries: Option<u64>, retry: u64) -> Attempt {
    let label = "Handler 'h'".into();
    Attempt { handler: 0, label, errors, timeout, retries, backoff: Some(60.0), started: at(0.0), retry }
}

/// The attempt and its result; then `final`, `failed`, `delay` and the text after the label.
type Row = (Attempt, CallResult, (bool, bool, Option<f64>), &'static str);

/// Checks the outcomes and the log lines of attempts that end after one second.
fn check(rows: impl IntoIterator<Item = Row>) {
    for (attempt, raised, expected, text) in rows {
        let result = attempt.evaluate(&raised, at(1.0));
        let outcome = &result.outcome;
        assert_eq!((outcome.final_, outcome.failed, outcome.delay), expected, "{text}");
        assert_eq!(result.log.unwrap().text, format!("Handler 'h' {text}"));
    }
}

/// An attempt without limits.
fn unlimited(errors: ErrorsMode) -> Attempt {
    attempt(errors, None, None, 0)
}

fn temporary(delay: Option<f64>) -> CallResult {
    CallResult::Temporary { message: "boo".to_owned(), delay }
}

fn arbitrary() -> CallResult {
    CallResult::Arbitrary { message: "boo".to_owned() }
}

#[test]
fn success_and_permanent_errors_are_final_and_unfinished_sub_handlers_are_not() {
    let permanent = CallResult::Permanent { message: "boo".to_owned() };
    let unfinished = CallResult::Children { message: "None".to_owned(), delay: Some(0.0) };
    let attempt = || unlimited(ErrorsMode::Temporary);
    check([
        (attempt(), CallResult::Nothing, (true, false, None), "succeeded."),
        (attempt(), permanent, (true, true, None), "failed permanently: boo"),
        (attempt(), unfinished, (false, true, Some(0.0)), "has unfinished sub-handlers. Will retry soon."),
    ]);
}

#[test]
fn temporary_errors_are_retried_within_the_limits() {
    use ErrorsMode::{Ignored, Temporary};
    check([
        (unlimited(Temporary), temporary(Some(5.0)), (false, true, Some(5.0)), "failed temporarily: boo"),
        (unlimited(Ignored), temporary(None), (false, true, None), "failed temporarily: boo"),
        (
            attempt(Temporary, Some(10.0), None, 0),
            temporary(Some(9.0)),
            (true, true, None),
            "failed temporarily but will time out after 10 seconds: boo",
        ),
        (
            attempt(Temporary, None, Some(2), 1),
            temporary(Some(1.0)),
            (true, true, None),
            "failed temporarily but will exceed 2 retries: boo",
        ),
        (
            attempt(Temporary, None, Some(2), 0),
            temporary(Some(1.0)),
            (false, true, Some(1.0)),
            "failed temporarily: boo",
        ),
    ]);
}

// contract: engine 7.8
#[test]
fn arbitrary_errors_follow_the_error_mode_and_the_limits() {
    use ErrorsMode::{Ignored, Permanent, Temporary};
    check([
        (
            unlimited(Ignored),
            arbitrary(),
            (true, false, None),
            "failed with an exception and will ignore it: boo",
        ),
        (
            unlimited(Permanent),
            arbitrary(),
            (true, true, None),
            "failed with an exception and will stop now: boo",
        ),
        (
            unlimited(Temporary),
            arbitrary(),
            (false, true, Some(60.0)),
            "failed with an exception and will try again in 60 seconds: boo",
        ),
        (
            attempt(Temporary, Some(60.5), None, 0),
            arbitrary(),
            (true, true, None),
            "failed with an exception and will stop now (it would time out in 60.5 seconds on the next attempt): boo",
        ),
        (
            attempt(Temporary, None, Some(3), 2),
            arbitrary(),
            (true, true, None),
            "failed with an exception and will stop now (it would exceed 3 retries on the next attempt): boo",
        ),
    ]);
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

// contract: engine 7.8, observed 15
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
fn without_a_back_off_the_schedule_computes_the_delay_after_exceptions() {
    use ErrorsMode::{Ignored, Permanent, Temporary};
    let scheduled = |errors| Attempt { backoff: None, ..unlimited(errors) };
    let again = "failed with an exception and will try again later: boo";
    check([
        (scheduled(Temporary), arbitrary(), (false, true, None), again),
        (scheduled(Temporary), temporary(Some(5.0)), (false, true, Some(5.0)), "failed temporarily: boo"),
        (
            scheduled(Ignored),
            arbitrary(),
            (true, false, None),
            "failed with an exception and will ignore it: boo",
        ),
        (
            scheduled(Permanent),
            arbitrary(),
            (true, true, None),
            "failed with an exception and will stop now: boo",
        ),
    ]);
}
