//! Which failed requests of users' code are retried.

use super::{Call, Verb};

/// How a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedAttempt {
    /// There was no connection.
    NotSent,
    /// The server rejects it for now: 429, or 503 with `Retry-After`.
    RejectedForNow,
    /// The server may have executed it: the response is missing or truncated, or is another 5xx.
    Unknown,
    /// The server has rejected it.
    Rejected,
}

impl FailedAttempt {
    /// The meaning of an error status.
    pub fn of_status(status: u16, has_retry_after: bool) -> Self {
        match status {
            429 => Self::RejectedForNow,
            503 if has_retry_after => Self::RejectedForNow,
            500.. => Self::Unknown,
            _ => Self::Rejected,
        }
    }
}

/// The effect of sending a request twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idempotency {
    /// The request changes nothing.
    Safe,
    /// The second request has the same effect.
    Idempotent,
    /// The same, but if the first request had an effect, the second one is answered with 404.
    GuardedDelete,
    /// If the first request had an effect, the second one conflicts with it.
    Preconditioned,
    /// If the first request had an effect, the object exists already.
    NamedCreate,
    /// The second request could have another effect.
    NotIdempotent,
}

impl Idempotency {
    /// The effect of sending a call twice.
    pub(super) fn of(call: &Call) -> Self {
        match call.verb {
            Verb::Get | Verb::List | Verb::Watch | Verb::Logs | Verb::Review => Self::Safe,
            Verb::Delete if call.is_guarded => Self::GuardedDelete,
            // Evictions: the pod is identified by its uid.
            Verb::Create if call.subresource.is_some() && call.is_guarded => Self::GuardedDelete,
            Verb::Create if call.subresource.is_none() && call.name.is_some() => Self::NamedCreate,
            Verb::Replace | Verb::MergePatch | Verb::StrategicPatch | Verb::JsonPatch if call.is_guarded => {
                Self::Preconditioned
            }
            // A merge patch, unlike a strategic one, replaces lists as a whole.
            Verb::Apply | Verb::MergePatch => Self::Idempotent,
            Verb::Replace
            | Verb::StrategicPatch
            | Verb::JsonPatch
            | Verb::Delete
            | Verb::DeleteAll
            | Verb::Create => Self::NotIdempotent,
        }
    }

    /// Whether the request is sent again after this failure.
    pub fn is_retried_after(self, failure: FailedAttempt) -> bool {
        match failure {
            FailedAttempt::NotSent | FailedAttempt::RejectedForNow => true,
            FailedAttempt::Unknown => self != Self::NotIdempotent,
            FailedAttempt::Rejected => false,
        }
    }

    /// Whether it makes no difference that the request was sent before.
    pub fn is_idempotent(self) -> bool {
        matches!(self, Self::Safe | Self::Idempotent)
    }
}
