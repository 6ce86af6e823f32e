//! The meaning of failed attempts.

use bytes::Bytes;
use http::HeaderMap;
use kopf_core::user_request::{Class, FailedAttempt, Failure, Idempotency};

use super::{CallError, Response};
use crate::client::RequestHead;
use crate::error::RequestError;

const JSON_PATCH: &str = "application/json-patch+json";

/// How an attempt failed; none if no other attempt can succeed.
pub(super) fn attempt_of(error: &RequestError) -> Option<FailedAttempt> {
    Some(match error {
        RequestError::Api(error) => FailedAttempt::of_status(error.status, error.retry_after.is_some()),
        RequestError::Unsent(_) => FailedAttempt::NotSent,
        RequestError::Transport(_) | RequestError::Timeout => FailedAttempt::Unknown,
        RequestError::Malformed(_) | RequestError::Login(_) | RequestError::Fenced => return None,
    })
}

/// The delay in seconds that the server requests.
pub(super) fn retry_after(error: &RequestError) -> Option<f64> {
    match error {
        RequestError::Api(error) => error.retry_after,
        _ => None,
    }
}

pub(super) fn failed(error: &RequestError) -> CallError {
    CallError::from(error)
}

/// The result of a rejected request, which depends on the earlier attempts. `was_unknown` is whether the server may have executed
/// one of them.
pub(super) fn rejected(
    error: &RequestError,
    head: RequestHead<'_>,
    idempotency: Idempotency,
    was_unknown: bool,
) -> Result<Response, CallError> {
    let CallError::Failed(mut failure) = failed(error) else { return Err(failed(error)) };
    if was_unknown && idempotency == Idempotency::GuardedDelete && failure.code == 404 {
        let (headers, body) = (HeaderMap::new(), Bytes::new());
        return Ok(Response { status: failure.code, headers, body, resource: None, object: None });
    }
    if was_unknown && is_failed_test(head, idempotency, &failure) {
        failure.class = Class::Conflict;
    }
    // Other managers' fields conflict with each attempt, not with the effect of an earlier one.
    let is_conflict = matches!(failure.class, Class::Conflict | Class::AlreadyExists);
    failure.is_uncertain = was_unknown && is_conflict;
    Err(CallError::Failed(failure))
}

/// Whether the test of a JSON patch has failed. Servers report that as invalid, but unlike invalid objects without causes.
fn is_failed_test(head: RequestHead<'_>, idempotency: Idempotency, failure: &Failure) -> bool {
    let is_tested = head.content_type == Some(JSON_PATCH) && idempotency == Idempotency::Preconditioned;
    is_tested && failure.code == 422 && failure.causes.is_empty()
}
