//! The outcome of a write, and the reasons why changes are not written in full.

use super::rejection::Rejection;
use crate::json::merge_patch::Patch;
use crate::json::value::{Map, Value};
use crate::object::Object;
use crate::persistence::memory::Accepted;
use crate::request_error::RequestError;
use std::sync::Arc;

/// The outcome of a write.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub struct WriteOutcome {
    /// The object after the last accepted request; none if no request was accepted.
    pub latest: Option<Arc<Object>>,
    /// The object does not exist any more.
    pub gone: bool,
    /// The same, and it is certain: the server has named the object as missing, or another one has its name, or its deletion was
    /// received. Objects without a uid do not count, since the next one of their name cannot be distinguished.
    pub deleted: bool,
    /// The functions have to be called again in the next cycle.
    pub carry: bool,
    /// The server has rejected the result of the functions.
    pub functions_rejected: bool,
    /// The JSON patch had a conflict, and the latest state cannot be read for lack of permissions.
    pub must_retry: bool,
    /// A part of the status was sent again after its rejection, and there is no response.
    pub lost: bool,
    /// The accepted changes as a merge patch, including the finalizers and the results of the functions.
    pub merged: Map<String, Value>,
    /// The merge patch that was not accepted, or for which no response was received; without the rejected parts.
    pub unwritten: Map<String, Value>,
    /// The final progress that belongs to the merge patch: see [`WriteRequest::final_progress`](super::WriteRequest).
    pub final_progress: Map<String, Value>,
    /// The parts of the merge patch that were rejected while the rest was written.
    pub rejections: Vec<Rejection>,
    /// Why the changes are not written in full; none if they are, apart from the rejected parts.
    pub failure: Option<WriteFailure>,
}

impl WriteOutcome {
    pub(super) fn merge(&mut self, written: Map<String, Value>) {
        let mut merged = Patch(std::mem::take(&mut self.merged));
        merged.merge(written);
        self.merged = merged.0;
    }

    /// The accepted changes, for the pending state.
    pub fn accepted(&self) -> Accepted<'_> {
        Accepted { patch: &self.merged, latest: self.latest.as_deref() }
    }

    /// All rejected parts.
    pub fn rejected(&self) -> Patch {
        let mut rejected = Patch::default();
        for rejection in &self.rejections {
            rejected.merge(rejection.patch.clone());
        }
        rejected
    }

    /// The outcome with its rejected parts as a failure: for daemons, timers and reconcilers, they are not sent again later. If the
    /// object is gone, there is no failure.
    #[must_use]
    pub fn failing_with_rejections(mut self) -> Self {
        if self.failure.is_some() || self.gone {
            return self;
        }
        let Some(last) = self.rejections.pop() else { return self };
        let mut patch = Patch(last.patch);
        for rejection in self.rejections.drain(..) {
            patch.merge(rejection.patch);
        }
        self.unwritten = patch.0;
        self.failure = Some(last.error.into());
        self
    }

    /// The patch to be sent again by itself after a failure; none if there is none, or if this replica does not lead.
    pub fn left(&self) -> Option<Patch> {
        match &self.failure {
            Some(failure @ WriteFailure::Request(_))
                if !failure.is_fenced() && !self.unwritten.is_empty() =>
            {
                Some(Patch(self.unwritten.clone()))
            }
            _ => None,
        }
    }

    /// Whether the server may have applied a rejected part although it has not responded.
    pub fn is_in_doubt(&self) -> bool {
        self.lost || self.rejections.iter().any(|rejection| is_outcome_unknown(&rejection.error))
    }
}

/// The reason why changes are not written in full.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteFailure {
    /// The server has rejected the request or could not be reached.
    #[error("{0}")]
    Request(#[from] RequestError),
    /// The server has rejected a patch, and writing a part of it has failed for another reason.
    #[error("{rejection}; then a part of the patch could not be written: {error}")]
    Partial {
        /// The rejection of the whole patch.
        rejection: Box<Self>,
        /// The failure of the request with a part of the patch.
        error: RequestError,
    },
    /// The server has rejected the result of the transformation functions.
    #[error("The server rejects the result of the transformation functions: {0}")]
    Functions(RequestError),
    /// A transformation function raised.
    #[error("{0}")]
    Function(String),
}

impl WriteFailure {
    /// The failure of the last request, if the failure is one of a request.
    pub fn request(&self) -> Option<&RequestError> {
        match self {
            Self::Request(error) | Self::Partial { error, .. } | Self::Functions(error) => Some(error),
            Self::Function(_) => None,
        }
    }

    /// Whether the server rejects the content: a retry would fail, too.
    pub fn is_rejection(&self) -> bool {
        matches!(self, Self::Request(error) if is_rejection(error))
    }

    /// Whether the server may have applied the change: it has not rejected it, but there is no response.
    pub fn is_outcome_unknown(&self) -> bool {
        self.request().is_some_and(is_outcome_unknown)
    }

    /// Whether it is the last exception that functions of the host have raised.
    pub fn is_exception(&self) -> bool {
        matches!(self, Self::Function(_))
    }

    /// Whether the request was not sent because this replica does not lead.
    pub fn is_fenced(&self) -> bool {
        matches!(self, Self::Request(RequestError::Fenced))
    }
}

/// Whether the server rejects the content. 403 is usual for admission policies; without a permission, the parts are rejected as well.
pub(super) fn is_rejection(error: &RequestError) -> bool {
    matches!(error.status(), Some(400 | 403 | 413 | 422)) || error.is_too_large()
}

/// Whether the server has rejected the request, as opposed to a temporary failure or a missing response.
pub(super) fn is_final(error: &RequestError) -> bool {
    matches!(error.status(), Some(400..=428 | 430..=499)) || error.is_too_large()
}

pub(super) fn is_outcome_unknown(error: &RequestError) -> bool {
    !matches!(error, RequestError::Login(_) | RequestError::Fenced)
        && matches!(error.status(), None | Some(504))
}
