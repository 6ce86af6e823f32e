//! The changes to write to an object, and the requests to the API server that write them.

use crate::json::merge_patch::Patch;
use crate::json::value::{Map, Value};
use crate::object::Object;
use crate::persistence::finalizer::Edit;
use std::sync::Arc;

/// The changes to write to an object.
#[derive(Clone, Debug, Default)]
pub struct WriteRequest {
    /// The merge patch.
    pub patch: Patch,
    /// The parts of the merge patch with the final progress: see [`Decision::final_progress`](crate::cycle::Decision).
    pub final_progress: Patch,
    /// The edit of our finalizer.
    pub finalizer: Option<Edit>,
    /// Deletion handlers have finished: our finalizer is removed even if the object has changed since the decision.
    pub deletion_handled: bool,
    /// Whether the handlers have added transformation functions.
    pub functions: bool,
    /// The merge patch that the server has rejected before; it is sent again, separately.
    pub rejected_patch: Map<String, Value>,
}

impl WriteRequest {
    /// Whether there are no changes to write.
    pub fn is_empty(&self) -> bool {
        self.patch.is_empty() && self.rejected_patch.is_empty() && self.finalizer.is_none() && !self.functions
    }
}

/// The next action of the driver of a write.
#[derive(Debug)]
pub enum Action<'w> {
    /// Send the request, then call [`Writing::on_response`](super::Writing::on_response).
    Send(Request<'w>),
    /// Call the transformation functions with this object, then call [`Writing::on_transformed`](super::Writing::on_transformed).
    Transform(&'w Arc<Object>),
    /// Wait for so many seconds, then call [`Writing::on_waited`](super::Writing::on_waited).
    Wait(f64),
}

/// A request to the API server.
#[derive(Debug)]
pub struct Request<'w> {
    /// The path, with its query.
    pub url: String,
    /// The method, the content type, and the body.
    pub content: Content<'w>,
    /// Whether it goes to the status subresource.
    pub is_status: bool,
    /// Whether temporary failures are returned at once. Otherwise, the client retries the request.
    pub is_once: bool,
}

/// The method, the content type, and the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'w> {
    /// GET: a list with one object at most.
    List,
    /// PATCH with a merge patch, RFC 7386.
    MergePatch(&'w [u8]),
    /// PATCH with a JSON patch, RFC 6902.
    JsonPatch(&'w [u8]),
}

/// The body of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Document {
    MergePatch(Vec<u8>),
    JsonPatch(Vec<u8>),
}

impl Document {
    pub(super) fn content(&self) -> Content<'_> {
        match self {
            Self::MergePatch(text) => Content::MergePatch(text),
            Self::JsonPatch(text) => Content::JsonPatch(text),
        }
    }
}
