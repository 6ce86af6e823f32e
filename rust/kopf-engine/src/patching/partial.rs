//! Partial patches: what can be written of a patch that the server rejects as a whole, again and again.
//!
//! The outcomes of handlers come first: they are in annotations of ours, and no schema is about them. Then, what the server has
//! not named in its answer. What remains is a [`Rejection`]: it is logged, and sent again later, apart from the rest.

use std::sync::Arc;

use kopf_core::json::merge_patch::{self, Patch};
use kopf_core::json::value::{Map, Value};
use kopf_core::object::Object;
use kopf_core::persistence::Persistence;
use kopf_core::persistence::{own_annotations, pending_state};

use crate::error::RequestError;
use crate::patching::{PatchFailure, Patching, PatchingError, Rejection, WriteResult, named_fields};

/// How many times a patch is sent as it is, before it is taken apart.
pub const MAX_REJECTIONS: u32 = 3;

impl Patching<'_> {
    /// Writes as much of a rejected patch as the server takes.
    ///
    /// # Errors
    /// The rejection, if it takes nothing of it; both errors, if it takes a part, but that could not be written.
    pub async fn merge_part(
        &self,
        object: &Arc<Object>,
        PatchFailure { mut applied, error: rejection }: PatchFailure,
        persistence: &Persistence,
    ) -> Result<WriteResult, PatchFailure> {
        let PatchingError::Request(refusal) = &rejection else {
            return Err(PatchFailure { applied, error: rejection });
        };
        let refusal = refusal.clone();
        let patch = std::mem::take(&mut applied.unwritten);
        for (kept, rest) in
            parts(own_annotations::own_annotations(object, &patch, persistence), &patch, &refusal)
        {
            let kept = match self.release_cleanup {
                Some((plan, persistence)) => {
                    pending_state::without_rejected(kept, &rest, object, persistence, plan)
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
                        applied.rejections.push(Rejection { patch: rest, is_status: false, error: refusal });
                    }
                    return Ok(applied);
                }
                Err(PatchFailure { applied: left, error }) if error.is_rejection() => applied = left,
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
}

/// What is to be written of a patch, and what is not then; the best first.
fn parts(
    own: Map<String, Value>,
    patch: &Map<String, Value>,
    refusal: &RequestError,
) -> Vec<(Map<String, Value>, Map<String, Value>)> {
    let rest = merge_patch::subtract(patch.clone(), &own);
    let named = named_fields(refusal, &rest);
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
