//! Which failures of requests are retried, and after which delay.

use crate::error::RequestError;

/// Whether the failure may be temporary. This includes 403: permissions are often granted shortly after the operator's
/// start. And 401, if it is not that of the API server itself, whose rejected credentials are replaced.
pub(super) fn is_retriable(error: &RequestError) -> bool {
    match error {
        RequestError::Api(api_error) => matches!(api_error.status, 401 | 403 | 429 | 500..),
        RequestError::Transport(_) | RequestError::Unsent(_) | RequestError::Timeout => true,
        RequestError::Malformed(_) | RequestError::Login(_) | RequestError::Fenced => false,
    }
}

/// The delay in seconds that an overloaded server requests.
pub(super) fn retry_after(error: &RequestError) -> Option<f64> {
    match error {
        RequestError::Api(api_error) if api_error.status == 429 => api_error.retry_after,
        _ => None,
    }
}
