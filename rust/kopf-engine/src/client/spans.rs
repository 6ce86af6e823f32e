//! The traces of requests.

use http::Method;
use tracing::{Span, field};

use crate::error::RequestError;

/// The span of a request. The query is left out: it may be long, and selectors may contain values of objects.
pub(super) fn request_span(method: &Method, url: &str) -> Span {
    let path = path_of(url);
    tracing::debug_span!("request", %method, path, status = field::Empty, error = field::Empty)
}

/// The address without the query.
pub(super) fn path_of(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}

/// Records the status of an error response, or the kind of another error. The status of success is recorded when the head of
/// the response arrives.
pub(super) fn record_result<T>(span: &Span, result: &Result<T, RequestError>) {
    let Err(error) = result else { return };
    match error {
        RequestError::Api(error) => span.record("status", error.status),
        RequestError::Timeout => span.record("error", "timeout"),
        RequestError::Transport(_) | RequestError::Unsent(_) => span.record("error", "transport"),
        RequestError::Malformed(_) => span.record("error", "malformed"),
        RequestError::Login(_) => span.record("error", "login"),
        RequestError::Fenced => span.record("error", "fenced"),
    };
}
