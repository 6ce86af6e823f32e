//! The errors of calls.

use kopf_core::user_request::{Class, Failure, KindError};

use crate::error::RequestError;
use crate::supervision::Panicked;

/// The reason why a call has no result.
#[derive(Clone, Debug, PartialEq)]
pub enum CallError {
    /// The arguments are wrong: a `ValueError`.
    Misuse(String),
    /// The name means no resource, or several.
    Kind(KindError),
    /// The request has failed.
    Failed(Box<Failure>),
    /// There are no valid credentials.
    Login(String),
    /// The api is closed, or its operator has ended.
    Closed,
    /// There are too many streams.
    TooManyStreams(usize),
    /// The task of the request or stream has panicked.
    Panicked(Panicked),
}

impl CallError {
    /// The error with the request in its message.
    #[must_use]
    pub fn about(mut self, subject: &str) -> Self {
        if let Self::Failed(failure) = &mut self {
            subject.clone_into(&mut failure.subject);
        }
        self
    }

    /// The error with the information whether the server may have executed the request. If it may, the error is that of a request,
    /// even if the last attempt was not sent.
    #[must_use]
    pub fn uncertain(self, is_uncertain: bool) -> Self {
        let mut failure = match self {
            Self::Failed(failure) => failure,
            Self::Misuse(text) | Self::Login(text) if is_uncertain => {
                Box::new(Failure::unanswered(Class::Unreachable, &text))
            }
            other => return other,
        };
        failure.is_uncertain = is_uncertain;
        Self::Failed(failure)
    }
}

impl From<KindError> for CallError {
    fn from(error: KindError) -> Self {
        Self::Kind(error)
    }
}

impl From<&RequestError> for CallError {
    fn from(error: &RequestError) -> Self {
        let failed = |failure| Self::Failed(Box::new(failure));
        match error {
            RequestError::Api(error) => failed(Failure::rejected(
                error.status,
                &error.message,
                error.payload.as_ref(),
                error.retry_after,
            )),
            RequestError::Transport(text) | RequestError::Unsent(text) => {
                failed(Failure::unanswered(Class::Unreachable, text))
            }
            RequestError::Timeout => {
                failed(Failure::unanswered(Class::TimedOut, "the server has not responded in time"))
            }
            RequestError::Fenced => failed(Failure::unanswered(Class::Unreachable, &error.to_string())),
            RequestError::Malformed(text) => Self::Misuse(text.clone()),
            RequestError::Login(error) => Self::Login(error.0.clone()),
        }
    }
}
