//! Errors of requests to the API server, and failures that stop the operator.
//!
//! The texts name the request and quote the server's message. They contain neither tokens nor bodies of Secrets: the
//! text of a response is shortened, and the body of a request is never shown.

use std::fmt;

use kopf_core::backoff::{MAX_RETRY_AFTER, parse_retry_after};
use kopf_core::json::value::{Value, python_repr};

use crate::time::clock::system_time;

/// The maximum number of characters shown of a response that is not a `Status`.
const TEXT_LIMIT: usize = 256;

/// An error response of the API server. Its class, as in Kopf 1.45, depends on the status.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    /// The HTTP status.
    pub status: u16,
    /// The server's message.
    pub message: String,
    /// The server's machine-readable reason, such as `NotFound`.
    pub reason: Option<String>,
    /// The `Status` object, if the server sent one.
    pub payload: Option<Value>,
    /// The delay before the next attempt in seconds, as the server requests; at most [`MAX_RETRY_AFTER`].
    pub retry_after: Option<f64>,
}

impl ApiError {
    /// Parses an error response.
    pub fn from_response(status: u16, retry_after: Option<&str>, body: &[u8]) -> Self {
        let payload = serde_json::from_slice::<Value>(body).ok();
        let payload = payload.filter(|value| value.get("kind").and_then(Value::as_str) == Some("Status"));
        let field = |name: &str| Some(payload.as_ref()?.get(name)?.as_str()?.to_owned());
        let asked =
            payload.as_ref().and_then(|status| status.get("details")?.get("retryAfterSeconds")?.as_f64());
        let header = retry_after.and_then(|text| parse_retry_after(text, system_time()));
        Self {
            status,
            message: field("message").unwrap_or_else(|| shortened(body)),
            reason: field("reason"),
            retry_after: header
                .or(asked)
                .filter(|seconds| seconds.is_finite() && *seconds >= 0.0)
                .map(|seconds| seconds.min(MAX_RETRY_AFTER)),
            payload,
        }
    }

    /// The same without the server's messages, which may repeat the sent values, such as all of a Secret. The names of
    /// fields stay.
    #[must_use]
    pub fn redacted(mut self) -> Self {
        if !matches!(self.status, 400 | 422) {
            return self;
        }
        "the server does not accept it (its words are not shown: they are about a Secret)"
            .clone_into(&mut self.message);
        if let Some(status) = &mut self.payload {
            status["message"] = Value::String(self.message.clone());
            let causes = status.pointer_mut("/details/causes").and_then(Value::as_array_mut);
            for cause in causes.into_iter().flatten().filter_map(Value::as_object_mut) {
                cause.remove("message");
            }
        }
        self
    }

    /// The name of Kopf's exception class for the status.
    pub fn class(&self) -> &'static str {
        match self.status {
            401 => "APIUnauthorizedError",
            403 => "APIForbiddenError",
            404 => "APINotFoundError",
            409 => "APIConflictError",
            422 => "APIUnprocessableEntityError",
            429 => "APITooManyRequestsError",
            400..=499 => "APIClientError",
            500..=599 => "APIServerError",
            _ => "APIError",
        }
    }
}

fn shortened(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    match text.char_indices().nth(TEXT_LIMIT - 3) {
        Some((end, _)) if text.chars().count() > TEXT_LIMIT => format!("{}...", &text[..end]),
        _ => text.into_owned(),
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = python_repr(&Value::String(self.message.clone()));
        let payload = self.payload.as_ref().map_or_else(|| "None".to_owned(), python_repr);
        write!(f, "{}({message}, {payload}, status={})", self.class(), self.status)
    }
}

impl std::error::Error for ApiError {}

/// The reason why a request has no usable response.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RequestError {
    /// The server has rejected the request. Retriable statuses were retried; react to the status.
    #[error("{0}")]
    Api(Box<ApiError>),
    /// The server could not be reached, or the response was incomplete. Was retried; try again later.
    #[error("{0}")]
    Transport(String),
    /// There was no connection, so the request was not sent. Was retried; try again later.
    #[error("{0}")]
    Unsent(String),
    /// The server did not respond in time. Was retried; try again later.
    #[error("TimeoutError()")]
    Timeout,
    /// The response does not conform to the API. Not retried.
    #[error("{0}")]
    Malformed(String),
    /// There are no valid credentials. The operator stops.
    #[error(transparent)]
    Login(#[from] LoginError),
}

impl RequestError {
    /// The HTTP status, if the server has rejected the request.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Api(error) => Some(error.status),
            _ => None,
        }
    }
}

/// There are no valid credentials. Fatal for the operator.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct LoginError(pub String);

/// The reason why the operator has stopped without a request to stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The kind, which selects the exception in Python.
    pub kind: FailureKind,
    /// The message for the user.
    pub message: String,
}

/// The kinds of failures with different exceptions in Python.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// `kopf.LoginError`.
    Login,
    /// A login handler has failed permanently. The host has its exception.
    Activity,
    /// A request rejected by the API server, without which the operator cannot run.
    Api,
    /// Anything else.
    Other,
}

impl From<LoginError> for Failure {
    fn from(error: LoginError) -> Self {
        Self { kind: FailureKind::Login, message: error.0 }
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        let kind = match &error {
            RequestError::Login(_) => FailureKind::Login,
            RequestError::Api(_) => FailureKind::Api,
            _ => FailureKind::Other,
        };
        Self { kind, message: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_object_gives_the_message_and_the_class() {
        let body = br#"{"kind":"Status","message":"no such thing","reason":"NotFound","code":404}"#;
        let error = ApiError::from_response(404, None, body);
        assert_eq!(error.message, "no such thing");
        assert_eq!(error.class(), "APINotFoundError");
        assert!(error.to_string().starts_with("APINotFoundError('no such thing', {'kind': 'Status', "));
    }

    #[test]
    fn other_texts_are_shortened_and_other_objects_are_not_a_payload() {
        let error = ApiError::from_response(500, None, "x".repeat(1000).as_bytes());
        assert_eq!(error.message.len(), TEXT_LIMIT);
        assert!(error.message.ends_with("..."));
        assert_eq!(ApiError::from_response(500, None, b"{\"kind\":\"Secret\"}").payload, None);
    }

    #[test]
    fn messages_about_secrets_are_redacted_except_for_the_fields() {
        let body = br#"{"kind":"Status","message":"Invalid value: plant","reason":"Invalid","code":422,
            "details":{"causes":[{"field":"data","message":"Invalid value: plant"}]}}"#;
        let error = ApiError::from_response(422, None, body).redacted();
        assert!(!error.to_string().contains("plant"), "{error}");
        assert!(error.to_string().contains("'field': 'data'"), "{error}");
        let garbage = ApiError::from_response(400, None, b"a plant").redacted();
        assert!(!garbage.to_string().contains("plant"), "{garbage}");
        let other =
            ApiError::from_response(403, None, br#"{"kind":"Status","message":"may not"}"#).redacted();
        assert_eq!(other.message, "may not");
    }

    #[test]
    fn the_retry_delay_is_read_from_the_header_or_the_details_and_is_limited() {
        let wait = |header, body: &[u8]| ApiError::from_response(429, header, body).retry_after;
        let status = br#"{"kind":"Status","details":{"retryAfterSeconds":7}}"#;
        let absurd = br#"{"kind":"Status","details":{"retryAfterSeconds":4294967295}}"#;
        assert_eq!(wait(Some("3"), status), Some(3.0));
        assert_eq!(wait(None, status), Some(7.0));
        assert_eq!(wait(Some("86400"), b""), Some(MAX_RETRY_AFTER));
        assert_eq!(wait(None, absurd), Some(MAX_RETRY_AFTER));
        assert_eq!(wait(Some("Wed, 21 Oct 2015 07:28:00 GMT"), b""), Some(0.0));
        assert_eq!(wait(Some("Wed, 21 Oct 2999 07:28:00 GMT"), b""), None);
        assert_eq!(wait(Some("Mon, 21 Oct 2999 07:28:00 GMT"), b""), Some(MAX_RETRY_AFTER));
        assert_eq!(wait(Some("soon"), b""), None);
    }
}
