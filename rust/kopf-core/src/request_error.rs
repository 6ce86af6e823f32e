//! Errors of requests to the API server.
//!
//! The texts name the request and quote the server's message. They contain neither tokens nor bodies of Secrets: the
//! text of a response is shortened, and the body of a request is never shown.

use std::fmt;

use crate::backoff::MAX_RETRY_AFTER;
use crate::json::value::{Map, Value, python_repr};

/// The maximum number of characters shown of a response that is not a `Status`.
const TEXT_LIMIT: usize = 256;

/// The message about owner references with two controllers, without the names that follow.
pub(crate) const SECOND_CONTROLLER: &str = "Only one reference can have Controller set to true";

/// The message about a JSON patch whose operations do not fit the object.
const UNFIT_PATCH: &str = "the server rejected our request due to an error in our request";

/// Parts of the messages about an object that exceeds the limit of etcd, or that of the connection to it.
const TOO_LARGE: [&str; 2] = ["etcdserver: request is too large", "trying to send message larger than max"];

/// The ends of messages about fields that cannot be changed.
const IMMUTABLE: [&str; 2] = ["field is immutable", "field is immutable when `immutable` is set"];

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
    /// The method and the path of the request; none for an error that a watch has delivered.
    pub request: Option<String>,
}

impl ApiError {
    /// Parses an error response. `retry_after` is the delay in seconds in the header of this name: see
    /// [`parse_retry_after`](crate::backoff::parse_retry_after).
    pub fn from_response(status: u16, retry_after: Option<f64>, body: &[u8]) -> Self {
        let payload = serde_json::from_slice::<Value>(body).ok();
        let payload = payload.filter(|value| value.get("kind").and_then(Value::as_str) == Some("Status"));
        let field = |name: &str| Some(payload.as_ref()?.get(name)?.as_str()?.to_owned());
        let asked =
            payload.as_ref().and_then(|status| status.get("details")?.get("retryAfterSeconds")?.as_f64());
        Self {
            status,
            message: field("message").unwrap_or_else(|| shortened(body)),
            reason: field("reason"),
            retry_after: retry_after
                .or(asked)
                .filter(|seconds| seconds.is_finite() && *seconds >= 0.0)
                .map(|seconds| seconds.min(MAX_RETRY_AFTER)),
            payload,
            request: None,
        }
    }

    /// The same with its request, whose query is left out: it may be long.
    #[must_use]
    pub fn of_request(mut self, method: &impl fmt::Display, url: &str) -> Self {
        self.request = Some(format!("{method} {}", url.split('?').next().unwrap_or_default()));
        self
    }

    /// The failure in sentences: the request, the server's message, and what to do.
    pub fn explanation(&self) -> String {
        let request = self.request.as_ref().map_or_else(String::new, |request| format!(" to {request}"));
        let message: Vec<_> = self.message.split_whitespace().collect();
        let message = message.join(" ");
        let reason = match message.trim_end_matches('.') {
            "" => String::new(),
            message => format!(": {message}"),
        };
        let advice = match self.status {
            _ if self.is_too_large() => " Make the object smaller.",
            400 | 422 => " Correct what the message names, or the webhook or policy that rejects it.",
            403 => " Grant this permission to the account; `kopf manifests` prints all rules of an operator.",
            429 | 500.. => " Try again when the API server has recovered.",
            _ => "",
        };
        format!("The API server has responded{request} with the status {}{reason}.{advice}", self.status)
    }

    /// Whether the operations of a JSON patch do not fit the object, such as a failed `test`: kube-apiserver has one message for all
    /// of them, which names no field and no value.
    pub fn is_unfit_patch(&self) -> bool {
        self.status == 422 && self.message == UNFIT_PATCH
    }

    /// Whether the object would be too large for etcd. The API server reports that as an internal error, but no retry helps.
    pub fn is_too_large(&self) -> bool {
        self.status == 500 && TOO_LARGE.iter().any(|part| self.message.contains(part))
    }

    /// The same without the server's messages, which may repeat the sent values, such as all of a Secret. The names of
    /// fields stay, and words of causes that are always the same.
    #[must_use]
    pub fn redacted(mut self) -> Self {
        if !matches!(self.status, 400 | 422) || self.is_unfit_patch() {
            return self;
        }
        "the server does not accept it (its words are not shown: they are about a Secret)"
            .clone_into(&mut self.message);
        if let Some(status) = &mut self.payload {
            status["message"] = Value::String(self.message.clone());
            let causes = status.pointer_mut("/details/causes").and_then(Value::as_array_mut);
            for cause in causes.into_iter().flatten().filter_map(Value::as_object_mut) {
                let fixed = fixed_words(cause);
                cause.remove("message");
                if let Some(words) = fixed {
                    cause.insert("message".to_owned(), words.into());
                }
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

/// The part of a cause's message that quotes no value of the object; none if that is not known.
fn fixed_words(cause: &Map<String, Value>) -> Option<&'static str> {
    let text = |name: &str| cause.get(name).and_then(Value::as_str);
    let message = text("message")?;
    if text("field") == Some("metadata.ownerReferences") && message.contains(SECOND_CONTROLLER) {
        return Some(SECOND_CONTROLLER);
    }
    // After the quoted value, if there is one.
    IMMUTABLE.into_iter().find(|words| message.ends_with(&format!(": {words}")))
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
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
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
    /// The request was not sent: this replica does not lead. Not retried.
    #[error("this replica is not the leader: it writes nothing")]
    Fenced,
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

    /// Whether the object would be too large for etcd: see [`ApiError::is_too_large`].
    pub fn is_too_large(&self) -> bool {
        matches!(self, Self::Api(error) if error.is_too_large())
    }
}

/// There are no valid credentials. Fatal for the operator.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct LoginError(pub String);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff::parse_retry_after;
    use crate::time::Timestamp;

    // contract: engine 1.9
    #[test]
    fn an_object_that_is_too_large_for_etcd_is_recognised() {
        let grpc =
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max (3 vs. 2)";
        for (status, message, expected) in [
            (500, "etcdserver: request is too large", true),
            (500, grpc, true),
            (500, "etcdserver: request timed out", false),
            (503, "etcdserver: request is too large", false),
        ] {
            let body = serde_json::json!({"kind": "Status", "message": message}).to_string();
            let error = ApiError::from_response(status, None, body.as_bytes());
            assert_eq!(error.is_too_large(), expected, "{message}");
            assert_eq!(error.explanation().ends_with("smaller."), expected, "{}", error.explanation());
        }
    }

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
    fn an_unfit_json_patch_is_recognised_by_the_message_of_the_server() {
        let body = format!(r#"{{"kind":"Status","message":"{UNFIT_PATCH}","reason":"Invalid","code":422}}"#);
        let error = ApiError::from_response(422, None, body.as_bytes());
        assert!(error.is_unfit_patch() && error.redacted().is_unfit_patch());
        let denied =
            br#"{"kind":"Status","message":"admission webhook \"a.b.c\" denied the request","code":422}"#;
        assert!(!ApiError::from_response(422, None, denied).is_unfit_patch());
        assert!(!ApiError::from_response(409, None, body.as_bytes()).is_unfit_patch());
    }

    #[test]
    fn the_retry_delay_is_read_from_the_header_or_the_details_and_is_limited() {
        let now = Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
        let wait = |header: Option<&str>, body: &[u8]| {
            let header = header.and_then(|text| parse_retry_after(text, now));
            ApiError::from_response(429, header, body).retry_after
        };
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
