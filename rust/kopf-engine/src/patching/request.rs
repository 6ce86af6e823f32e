//! The changes to write to an object, the result, and the reasons why they are not applied in full.

use std::sync::Arc;

use kopf_core::json::merge_patch::{Patch, subtract};
use kopf_core::json::value::{Map, Value};
use kopf_core::object::Object;
use kopf_core::persistence::finalizer::Edit;
use kopf_core::persistence::memory::Accepted;

use super::rejections::Rejection;
use super::status::{StatusWritten, as_patch};
use crate::error::RequestError;
use crate::host::CycleId;

/// The changes to write to an object.
pub struct WriteRequest {
    /// The cycle that requests the write.
    pub cycle: CycleId,
    /// The merge patch.
    pub patch: Patch,
    /// The parts of the merge patch with the final progress: see `Decision`.
    pub final_progress: Patch,
    /// The edit of our finalizer.
    pub finalizer: Option<Edit>,
    /// Deletion handlers have finished: our finalizer is removed even if the object has changed since the decision.
    pub deletion_handled: bool,
    /// Whether the handlers have added transformation functions.
    pub functions: bool,
    /// The merge patch that the server has rejected before; it is sent again.
    pub rejected_patch: Map<String, Value>,
}

impl WriteRequest {
    /// An empty request.
    pub fn of(cycle: CycleId) -> Self {
        Self {
            cycle,
            patch: Patch::default(),
            final_progress: Patch::default(),
            finalizer: None,
            deletion_handled: false,
            functions: false,
            rejected_patch: Map::new(),
        }
    }

    /// Whether there are no changes to write.
    pub fn is_empty(&self) -> bool {
        self.patch.is_empty() && self.rejected_patch.is_empty() && self.finalizer.is_none() && !self.functions
    }
}

/// The result of a write.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub struct WriteResult {
    /// The object after the last request; none if nothing was sent.
    pub latest: Option<Arc<Object>>,
    /// The object does not exist any more.
    pub gone: bool,
    /// The functions have to be called again in the next cycle: there were conflicts with newer changes.
    pub carry: bool,
    /// The server has rejected the result of the functions.
    pub functions_rejected: bool,
    /// The accepted changes as a merge patch, including the finalizers and the results of the functions.
    pub merged: Map<String, Value>,
    /// The merge patch that was not accepted, or for which no response was received; without the rejected parts.
    pub unwritten: Map<String, Value>,
    /// The parts of the merge patch that were rejected while the rest was written.
    pub rejections: Vec<Rejection>,
    /// The JSON patch had a conflict, and the latest state cannot be read for lack of permissions.
    pub must_retry: bool,
}

impl WriteResult {
    pub(super) fn merge(&mut self, written: Map<String, Value>) {
        let mut merged = Patch(std::mem::take(&mut self.merged));
        merged.merge(written);
        self.merged = merged.0;
    }

    /// The accepted changes, for the pending state.
    pub fn accepted(&self) -> Accepted<'_> {
        Accepted { patch: &self.merged, latest: self.latest.as_deref() }
    }

    /// Whether the server may have applied a change although it has not responded.
    pub fn is_in_doubt(&self) -> bool {
        self.rejections.iter().any(|rejection| is_outcome_unknown(&rejection.error))
    }
}

/// The parts of a merge patch after the failure of one of its requests, without a rejected status.
pub(super) struct Parts {
    /// The part that the server has accepted before.
    pub(super) accepted: Map<String, Value>,
    /// The part in the failed request and in those that would follow.
    pub(super) left: Map<String, Value>,
}

impl Parts {
    /// Nothing was accepted.
    pub(super) fn unwritten(patch: Map<String, Value>) -> Self {
        Self { accepted: Map::new(), left: patch }
    }

    /// The status was sent first, and then the rest, which is left.
    pub(super) fn after_status(
        left: Map<String, Value>,
        status: &Value,
        written: &StatusWritten,
        is_accepted: bool,
    ) -> Self {
        let accepted = match &written.rejection {
            _ if !is_accepted => Map::new(),
            Some(rejection) => subtract(as_patch(status), &rejection.patch),
            None => as_patch(status),
        };
        Self { accepted, left }
    }
}

/// A change that was not applied in full.
#[derive(Debug)]
pub struct PatchFailure {
    /// The result of the requests before the failure.
    pub applied: Box<WriteResult>,
    /// The failure.
    pub error: PatchingError,
}

pub(super) fn failure<T>(applied: WriteResult, error: PatchingError) -> Result<T, PatchFailure> {
    Err(PatchFailure { applied: Box::new(applied), error })
}

/// The reason why a change was not applied in full.
#[derive(Debug, thiserror::Error)]
pub enum PatchingError {
    /// The server has rejected the request or could not be reached. The change is not applied in full.
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

impl PatchingError {
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
}

pub(super) fn is_rejection(error: &RequestError) -> bool {
    matches!(error.status(), Some(400 | 413 | 422))
}

pub(super) fn is_outcome_unknown(error: &RequestError) -> bool {
    !matches!(error, RequestError::Login(_) | RequestError::Fenced)
        && matches!(error.status(), None | Some(504))
}
