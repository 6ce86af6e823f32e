//! Failures that stop the operator. The errors of requests are defined in the core.

pub use kopf_core::request_error::{ApiError, LoginError, RequestError};

const NO_RESPONSE: &str = "The API server has not responded within `settings.networking.request_timeout`. Try again when it has recovered.";

/// The reason why the operator has stopped without a request to stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The kind, which selects the exception in Python.
    pub kind: FailureKind,
    /// The message for the user.
    pub message: String,
    /// The paragraph at the end of a command, if the message has the format of Kopf 1.45.
    pub explanation: Option<String>,
}

impl Failure {
    /// A failure of any other kind.
    pub fn other(message: impl Into<String>) -> Self {
        Self { kind: FailureKind::Other, message: message.into(), explanation: None }
    }
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
    /// The API server cannot be reached.
    Unreachable,
    /// Handlers are still running after the loss of the lease. The host knows which.
    Leadership,
    /// Anything else.
    Other,
}

impl From<LoginError> for Failure {
    fn from(error: LoginError) -> Self {
        Self { kind: FailureKind::Login, message: error.0, explanation: None }
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        let (kind, explanation) = match &error {
            RequestError::Login(_) => (FailureKind::Login, None),
            RequestError::Api(error) => (FailureKind::Api, Some(error.explanation())),
            RequestError::Transport(text) | RequestError::Unsent(text) => {
                (FailureKind::Unreachable, Some(sentence(text)))
            }
            RequestError::Timeout => (FailureKind::Unreachable, Some(NO_RESPONSE.to_owned())),
            RequestError::Malformed(_) | RequestError::Fenced => (FailureKind::Other, None),
        };
        Self { kind, message: error.to_string(), explanation }
    }
}

/// The text with a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut rest = text.chars();
    let first = rest.next().map(char::to_uppercase).into_iter().flatten();
    first.chain(rest.as_str().trim_end_matches('.').chars()).chain(['.']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    #[test]
    fn failures_are_explained_in_sentences_with_the_request() {
        let rejected = |status, body: &[u8]| {
            let error =
                ApiError::from_response(status, None, body).of_request(&Method::GET, "/apis/x?limit=5");
            Failure::from(RequestError::Api(Box::new(error)))
        };
        let unavailable = rejected(503, b"service unavailable\n");
        assert_eq!(unavailable.kind, FailureKind::Api);
        assert_eq!(unavailable.message, "APIServerError('service unavailable\\n', None, status=503)");
        assert_eq!(
            unavailable.explanation.unwrap(),
            "The API server has responded to GET /apis/x with the status 503: service unavailable. Try again when the \
             API server has recovered."
        );
        let invalid =
            rejected(422, br#"{"kind":"Status","message":"spec.x is wrong."}"#).explanation.unwrap();
        assert!(invalid.contains(" with the status 422: spec.x is wrong. Correct what"), "{invalid}");
        let empty = rejected(404, b"").explanation.unwrap();
        assert_eq!(empty, "The API server has responded to GET /apis/x with the status 404.");

        let unsent = Failure::from(RequestError::Unsent("cannot reach https://h: no route".to_owned()));
        assert_eq!(unsent.kind, FailureKind::Unreachable);
        assert_eq!(unsent.explanation.as_deref(), Some("Cannot reach https://h: no route."));
        let late = Failure::from(RequestError::Timeout);
        assert_eq!(late.message, "TimeoutError()");
        assert!(late.explanation.unwrap().starts_with("The API server has not responded within"));
    }
}
