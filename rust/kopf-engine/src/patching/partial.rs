//! Partial patches: the acceptable parts of a patch that the server repeatedly rejects as a whole.
//!
//! The outcomes of handlers are written first: they are in our annotations, which schemas do not restrict. The fields
//! not named in the response follow. The rest is a [`Rejection`]: it is logged, and sent again later, separately.

use std::sync::Arc;

use bytes::Bytes;
use kopf_core::json::merge_patch::{self, Patch};
use kopf_core::json::value::{Map, Value};
use kopf_core::object::Object;
use kopf_core::persistence::Persistence;
use kopf_core::persistence::{own_annotations, pending_state};

use super::documents::PatchPart;
use super::identity::is_gone;
use super::status::{StatusWritten, as_patch};
use crate::error::RequestError;
use crate::patching::{PatchFailure, Patching, PatchingError, Rejection, WriteResult, named_fields};

impl Patching<'_> {
    /// Writes those parts of a rejected patch that the server accepts.
    ///
    /// # Errors
    /// The rejection, if the server accepts no part; both errors, if writing a part has failed for another reason.
    pub async fn merge_part(
        &self,
        object: &Arc<Object>,
        PatchFailure { mut applied, error: rejection }: PatchFailure,
        persistence: &Persistence,
    ) -> Result<WriteResult, PatchFailure> {
        let PatchingError::Request(cause) = &rejection else {
            return Err(PatchFailure { applied, error: rejection });
        };
        let cause = cause.clone();
        let patch = std::mem::take(&mut applied.unwritten);
        for (kept, rest) in
            parts(own_annotations::own_annotations(object, &patch, persistence), &patch, &cause)
        {
            let kept = match self.release_cleanup {
                Some((resource_handlers, persistence)) => {
                    pending_state::without_rejected(kept, &rest, object, persistence, resource_handlers)
                }
                None => kept,
            };
            let result = if kept.is_empty() {
                Ok(*applied)
            } else {
                self.merge(object, kept, &Patch::default(), false, *applied).await
            };
            match result {
                Ok(mut applied) => {
                    if !rest.is_empty() {
                        applied.rejections.push(Rejection { patch: rest, is_status: false, error: cause });
                    }
                    return Ok(applied);
                }
                Err(PatchFailure { applied: left, error }) if error.is_rejection() => applied = left,
                Err(PatchFailure { applied: left, error: PatchingError::Request(error) })
                    if error.status() == Some(404) =>
                {
                    return Ok(self.skipped(object, *left));
                }
                Err(PatchFailure { applied: mut left, error: PatchingError::Request(error) }) => {
                    left.unwritten = patch;
                    let error = PatchingError::Partial { rejection: Box::new(rejection), error };
                    return Err(PatchFailure { applied: left, error });
                }
                Err(failure) => return Err(failure),
            }
        }
        applied.unwritten = patch;
        Err(PatchFailure { applied, error: rejection })
    }

    /// Sends the parts rejected before: the status and the rest in one request each, without retries.
    pub(super) async fn merge_rejected(
        &self,
        object: &Arc<Object>,
        rejected_patch: Map<String, Value>,
        mut applied: WriteResult,
    ) -> WriteResult {
        let is_released = |latest: &Arc<Object>| {
            latest.deletion_timestamp().is_some() && latest.finalizers().next().is_none()
        };
        if applied.latest.as_ref().is_some_and(is_released) {
            return applied;
        }
        let has_subresource = self.resource.has_subresource("status");
        if let Some(status) = rejected_patch.get("status").filter(|_| has_subresource) {
            let known = applied.latest.as_ref().unwrap_or(object);
            let StatusWritten { response, rejection } = self.merge_status(object, known, status, false).await;
            let mut written = as_patch(status);
            if let Some(rejection) = rejection {
                applied.gone |= is_gone(&rejection.error);
                written = merge_patch::subtract(written, &rejection.patch);
                applied.rejections.push(rejection);
            }
            applied = self.accepted(object, response, written, applied);
        }
        let body = PatchPart(&rejected_patch, has_subresource.then_some("status"));
        if !body.is_empty() && !applied.gone {
            let mut patch = body.to_map();
            // Also progress that was kept for an older diff-base waits for a newer one.
            for rejection in &mut applied.rejections {
                patch = self.defer_progress(object, patch, rejection);
            }
            if patch.is_empty() {
                return applied;
            }
            match self.send_body(object, None, &PatchPart(&patch, None), true).await {
                Ok(response) => applied = self.accepted(object, Some(response), patch, applied),
                Err(error) => {
                    applied.gone |= is_gone(&error);
                    applied.rejections.push(Rejection { patch, is_status: false, error });
                }
            }
        }
        applied
    }

    fn accepted(
        &self,
        object: &Arc<Object>,
        response: Option<Bytes>,
        written: Map<String, Value>,
        mut applied: WriteResult,
    ) -> WriteResult {
        match response.map(|response| self.read(object, &response)) {
            Some(Ok(latest)) => {
                applied.latest = Some(latest);
                applied.merge(written);
            }
            Some(Err(error)) => applied.gone |= is_gone(&error),
            None => {}
        }
        applied
    }
}

/// The parts to be written and the respective rest, the largest part first.
fn parts(
    own: Map<String, Value>,
    patch: &Map<String, Value>,
    cause: &RequestError,
) -> Vec<(Map<String, Value>, Map<String, Value>)> {
    let rest = merge_patch::subtract(patch.clone(), &own);
    let named = named_fields(cause, &rest);
    let unnamed = merge_patch::subtract(rest.clone(), &named);
    let mut parts = Vec::new();
    if !named.is_empty() && !unnamed.is_empty() {
        let mut more = Patch(own.clone());
        more.merge(unnamed);
        parts.push((more.0, named));
    }
    parts.push((own, rest));
    parts
}
