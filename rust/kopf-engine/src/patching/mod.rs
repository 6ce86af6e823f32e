//! Patching: one cycle's changes go to the API server in the fewest requests, at most four.
//!
//! The merge patch first, apart for the body and for the status if that is a subresource; then what must be computed from the
//! freshest state, as a JSON patch that fails on a conflict: finalizers and transformation functions. Parts that the
//! server has rejected before go last, in requests of their own.
//! Rules: contract/engine 8.3-8.5.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use kopf_core::handler::registry::ResourceHandlers;
use kopf_core::json::merge_patch::Patch;
use kopf_core::json::merge_patch::subtract;
use kopf_core::json::value::{Map, Value, python_repr};
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::object::redaction::{shown, shown_diff};
use kopf_core::persistence::Persistence;
use kopf_core::persistence::finalizer::Edit;
use kopf_core::persistence::memory::Accepted;
use kopf_core::persistence::merge_requests::{MergeRequest, merge_requests};
use kopf_core::resource::Resource;

use crate::client::{Api, RequestBody};
use crate::error::RequestError;
use crate::host::{CycleId, Host, LogRecord};
use crate::time::duration::seconds;

mod documents;
pub mod partial;
mod rejections;
mod status;
#[cfg(test)]
mod tests;
mod transform;

use documents::Part;
pub(crate) use rejections::named_fields;
pub use rejections::{Denials, Rejection};
use status::{StatusWritten, as_patch, is_final};
use transform::TransformRequest;

/// Seconds between attempts of what has met a conflict that is not its own: a merge patch has no versions to conflict.
const CONFLICT_PAUSES: [f64; 3] = [0.1, 0.3, 1.0];

/// The changes to write to an object.
pub struct WriteRequest {
    /// The cycle which wants it.
    pub cycle: CycleId,
    /// The merge patch.
    pub patch: Patch,
    /// The progress in its final state: see `Decision`.
    pub outcomes: Patch,
    /// What is to be done with our finalizer.
    pub finalizer: Option<Edit>,
    /// All is done for the deletion of the object: whatever becomes of it, it is to be let go.
    pub deletion_handled: bool,
    /// Whether the handlers left transformation functions.
    pub functions: bool,
    /// The merge patch that the server has rejected before.
    pub pending: Map<String, Value>,
}

impl WriteRequest {
    /// Nothing yet.
    pub fn of(cycle: CycleId) -> Self {
        Self {
            cycle,
            patch: Patch::default(),
            outcomes: Patch::default(),
            finalizer: None,
            deletion_handled: false,
            functions: false,
            pending: Map::new(),
        }
    }

    /// Whether there is nothing to be changed.
    pub fn is_empty(&self) -> bool {
        self.patch.is_empty() && self.pending.is_empty() && self.finalizer.is_none() && !self.functions
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
    /// The functions are to be tried again in the next cycle: somebody was faster.
    pub carry: bool,
    /// What the functions have made was rejected.
    pub functions_rejected: bool,
    /// What was accepted, as a merge patch: also of what was computed from the freshest state.
    pub merged: Map<String, Value>,
    /// The merge patch that was not accepted, or of unknown fate; apart from what was rejected.
    pub unwritten: Map<String, Value>,
    /// The parts of the merge patch that were rejected, though they hold nothing else.
    pub rejections: Vec<Rejection>,
    /// What must be computed from the freshest state was not applied, and that state may not be read.
    pub refused: bool,
}

impl WriteResult {
    fn merge(&mut self, written: Map<String, Value>) {
        let mut merged = Patch(std::mem::take(&mut self.merged));
        merged.merge(written);
        self.merged = merged.0;
    }

    /// What the server has accepted.
    pub fn accepted(&self) -> Accepted<'_> {
        Accepted { patch: &self.merged, latest: self.latest.as_deref() }
    }

    /// Whether the server may have done what it has not answered to.
    pub fn is_in_doubt(&self) -> bool {
        self.rejections.iter().any(|rejection| is_of_unknown_fate(&rejection.error))
    }
}

/// A change that is not applied in full.
#[derive(Debug)]
pub struct PatchFailure {
    /// What came of it before the failure.
    pub applied: Box<WriteResult>,
    /// What went wrong.
    pub error: PatchingError,
}

fn failure<T>(applied: WriteResult, error: PatchingError) -> Result<T, PatchFailure> {
    Err(PatchFailure { applied: Box::new(applied), error })
}

/// Sends changes of objects of one resource.
pub struct Patching<'a> {
    /// The way to the server.
    pub api: &'a Api,
    /// For the log and for the transformation functions.
    pub host: &'a Arc<dyn Host>,
    /// What kind the objects are of.
    pub resource: &'a Resource,
    /// The name of our finalizer.
    pub finalizer: &'a str,
    /// Whether conflicts are left to the next event, as the reference does.
    pub compat: bool,
    /// Whose progress goes with an object that is let go, and where it is; if it has stayed there until then.
    pub release_cleanup: Option<(&'a ResourceHandlers, &'a Persistence)>,
}

/// Why a change could not be applied in full.
#[derive(Debug, thiserror::Error)]
pub enum PatchingError {
    /// The server refused, or could not be reached. What was in the change is not applied in full.
    #[error("{0}")]
    Request(#[from] RequestError),
    /// The server rejects a patch, and writing a part of it has failed for another reason.
    #[error("{rejection}; then a part of the patch could not be written: {error}")]
    Partial {
        /// The answer to the whole patch.
        rejection: Box<Self>,
        /// The failure of the request with a part of it.
        error: RequestError,
    },
    /// The server rejects what the transformation functions have made.
    #[error("The server rejects the result of the transformation functions: {0}")]
    Functions(RequestError),
    /// A transformation function raised.
    #[error("{0}")]
    Function(String),
}

impl PatchingError {
    /// The failure of the last request, if it was a request.
    pub fn request(&self) -> Option<&RequestError> {
        match self {
            Self::Request(error) | Self::Partial { error, .. } | Self::Functions(error) => Some(error),
            Self::Function(_) => None,
        }
    }

    /// Whether it is the content that the server does not like: it will not like it any better later.
    pub fn is_rejection(&self) -> bool {
        matches!(self, Self::Request(error) if is_rejection(error))
    }

    /// Whether the server may have done it nevertheless: it has not refused, only its answer is missing.
    pub fn is_of_unknown_fate(&self) -> bool {
        self.request().is_some_and(is_of_unknown_fate)
    }
}

fn is_rejection(error: &RequestError) -> bool {
    matches!(error.status(), Some(400 | 413 | 422))
}

fn is_of_unknown_fate(error: &RequestError) -> bool {
    !matches!(error, RequestError::Login(_)) && matches!(error.status(), None | Some(504))
}

impl Patching<'_> {
    /// Applies the change to the object, as it was seen by the cycle.
    ///
    /// # Errors
    /// If not all of it is applied, apart from what only the status subresource, or the server's schema, has rejected: that
    /// is in [`WriteResult::rejections`].
    pub async fn apply(
        &self,
        object: &Arc<Object>,
        change: WriteRequest,
    ) -> Result<WriteResult, PatchFailure> {
        match self.send_all(object, change).await {
            Err(PatchFailure { mut applied, error: PatchingError::Request(error) })
                if error.status() == Some(404) =>
            {
                self.debug(object, || "Patching was skipped: the object does not exist anymore.".to_owned());
                applied.gone = true;
                Ok(*applied)
            }
            result => result,
        }
    }

    async fn send_all(
        &self,
        object: &Arc<Object>,
        change: WriteRequest,
    ) -> Result<WriteResult, PatchFailure> {
        let WriteRequest { cycle, patch, outcomes, finalizer, deletion_handled, functions, pending } = change;
        // If it comes to nothing, the functions are not lost.
        let mut applied = WriteResult { carry: functions && !self.compat, ..WriteResult::default() };
        if !patch.is_empty() {
            // Nothing waits for a status that is known to be rejected, and no deletion waits for any.
            let is_patient = pending.is_empty() && object.deletion_timestamp().is_none();
            applied = self.merge(object, patch.0, &outcomes, is_patient, applied).await?;
        }
        if functions || finalizer.is_some() {
            let wanted = TransformRequest { cycle, finalizer, deletion_handled, functions };
            applied = self.transform(object, wanted, applied).await?;
        }
        if !pending.is_empty() {
            applied = self.merge_pending(object, pending, applied).await;
        }
        Ok(applied)
    }

    /// Merges the patch into the object, in as few requests as it takes.
    pub(crate) async fn merge(
        &self,
        object: &Arc<Object>,
        patch: Map<String, Value>,
        outcomes: &Patch,
        is_patient: bool,
        applied: WriteResult,
    ) -> Result<WriteResult, PatchFailure> {
        let has_subresource = self.resource.has_subresource("status");
        let status = patch.get("status").filter(|status| has_subresource && !status.is_null());
        let body = Part(&patch, has_subresource.then_some("status"));
        if let Some((_, persistence)) = self.release_cleanup.filter(|_| status.is_some() && !body.is_empty())
        {
            let requests = merge_requests(object, &patch, &outcomes.0, persistence);
            let is_status_first =
                matches!(&requests[..], [first, last] if first.is_status && !last.is_status);
            if !is_status_first {
                return self.merge_in_order(object, patch, (requests, outcomes), is_patient, applied).await;
            }
        }
        let mut answer = None;
        let mut written = StatusWritten::default();
        // The progress is in the body: it is written when all else is, since the operator may die in between.
        if let Some(status) = status.filter(|_| !self.compat) {
            written = self.merge_status(object, status, is_patient).await;
            answer = written.answer.take();
        }
        // There may be no such subresource any more: then the status is a field as all others are.
        let is_missing = written.rejection.as_ref().is_some_and(|it| it.error.status() == Some(404));
        let sent = if is_missing { self.merge_body(object, Part(&patch, None)).await } else { Ok(None) };
        let sent = match sent {
            Ok(Some(last)) => Ok(Some(last)),
            Err(error) if !is_rejection(&error) => Err(error),
            // The status may be the reason.
            _ => self.merge_body(object, body).await,
        };
        let sent = match sent {
            Ok(last) => last,
            Err(error) => return self.unmerged(object, patch, (answer, written), applied, error),
        };
        let is_body_written = sent.is_some();
        answer = sent.or(answer);
        if let Some(status) = status {
            let may_be_accepted = match &written.rejection {
                Some(rejection) => is_patient && is_body_written && !is_final(&rejection.error),
                None => self.compat,
            };
            // The server answers again, or the body was to be the first.
            if may_be_accepted {
                match self.send_status(object, status, false).await {
                    Ok(last) => (answer, written.rejection) = (Some(last), None),
                    Err(error) if self.compat => {
                        return self.unmerged(object, patch, (answer, written), applied, error);
                    }
                    Err(_) => {}
                }
            }
        }
        self.merged(object, patch, (answer, written), applied)
    }

    /// Merges the parts of a patch if the progress or the last handled state is in the status. Nothing counts as done before
    /// it is written: the operator may die between two requests.
    async fn merge_in_order(
        &self,
        object: &Arc<Object>,
        patch: Map<String, Value>,
        (requests, outcomes): (Vec<MergeRequest>, &Patch),
        is_patient: bool,
        applied: WriteResult,
    ) -> Result<WriteResult, PatchFailure> {
        let mut answer = None;
        let mut written = StatusWritten::default();
        for MergeRequest { is_status, patch: part } in requests {
            if let Some(status) = part.get("status").filter(|_| is_status) {
                if let Some(rejection) = &mut written.rejection {
                    // The rest of the status is sent with what was rejected of it.
                    let mut rejected = Patch(std::mem::take(&mut rejection.patch));
                    rejected.merge(part);
                    rejection.patch = rejected.0;
                    continue;
                }
                let StatusWritten { answer: last, rejection } =
                    self.merge_status(object, status, is_patient).await;
                answer = last.or(answer);
                written.rejection = rejection.map(|rejection| Rejection {
                    patch: subtract(rejection.patch, &outcomes.0),
                    ..rejection
                });
            } else {
                match self.merge_body(object, Part(&part, None)).await {
                    Ok(last) => answer = last.or(answer),
                    Err(error) => return self.unmerged(object, patch, (answer, written), applied, error),
                }
            }
        }
        self.merged(object, patch, (answer, written), applied)
    }

    /// Merges what is in the body; nothing if it is empty.
    async fn merge_body(&self, object: &Arc<Object>, body: Part<'_>) -> Result<Option<Bytes>, RequestError> {
        if body.is_empty() && self.resource.has_subresource("status") {
            return Ok(None);
        }
        self.debug(object, || {
            format!("Merge-patching the resource with: {}", python_repr(&shown(object, &body.to_value())))
        });
        self.ask(object, None, RequestBody::MergePatch(&body.to_json())).await.map(Some)
    }

    /// The body was not accepted.
    fn unmerged(
        &self,
        object: &Object,
        patch: Map<String, Value>,
        (answer, written): (Option<Bytes>, StatusWritten),
        mut applied: WriteResult,
        error: RequestError,
    ) -> Result<WriteResult, PatchFailure> {
        let is_answered = answer.is_some();
        applied.latest = answer.and_then(|answer| self.read(object, &answer).ok()).or(applied.latest);
        applied.unwritten = patch;
        if !self.compat {
            let rejection = written.rejection.filter(|rejection| is_final(&rejection.error));
            if is_answered || rejection.is_some() {
                applied.unwritten.shift_remove("status");
            }
            applied.rejections.extend(rejection);
        }
        failure(applied, error.into())
    }

    /// All was accepted, but maybe not the status.
    fn merged(
        &self,
        object: &Arc<Object>,
        patch: Map<String, Value>,
        (answer, written): (Option<Bytes>, StatusWritten),
        mut applied: WriteResult,
    ) -> Result<WriteResult, PatchFailure> {
        if let Some(answer) = answer {
            match self.read(object, &answer) {
                Ok(latest) => applied.latest = Some(latest),
                Err(error) => {
                    applied.unwritten = patch;
                    return failure(applied, error.into());
                }
            }
        }
        let mut merged = patch;
        if let Some(rejection) = written.rejection {
            let is_there = |latest: &Arc<Object>| latest.contains_patch(&rejection.patch);
            // It was accepted as a field of the body.
            if rejection.error.status() != Some(404) || !applied.latest.as_ref().is_some_and(is_there) {
                merged = subtract(merged, &rejection.patch);
                applied.rejections.push(rejection);
            }
        }
        self.verify(object, applied.latest.as_deref(), &merged);
        applied.merge(merged);
        applied.unwritten.clear();
        Ok(applied)
    }

    /// Sends what was rejected before: the status and the rest each in one request, which is not retried.
    async fn merge_pending(
        &self,
        object: &Arc<Object>,
        pending: Map<String, Value>,
        mut applied: WriteResult,
    ) -> WriteResult {
        let is_vanishing = |latest: &Arc<Object>| {
            latest.deletion_timestamp().is_some() && latest.finalizers().next().is_none()
        };
        if applied.latest.as_ref().is_some_and(is_vanishing) {
            return applied;
        }
        let has_subresource = self.resource.has_subresource("status");
        if let Some(status) = pending.get("status").filter(|_| has_subresource) {
            let StatusWritten { answer, rejection } = self.merge_status(object, status, false).await;
            let mut written = as_patch(status);
            if let Some(rejection) = rejection {
                written = subtract(written, &rejection.patch);
                applied.rejections.push(rejection);
            }
            applied = self.accepted(object, answer, written, applied);
        }
        let body = Part(&pending, has_subresource.then_some("status"));
        if !body.is_empty() {
            let Value::Object(patch) = body.to_value() else { return applied };
            let url = self.resource.url(object.namespace(), object.name(), None);
            match self.api.request_once(&Method::PATCH, &url, RequestBody::MergePatch(&body.to_json())).await
            {
                Ok(answer) => applied = self.accepted(object, Some(answer), patch, applied),
                Err(error) => applied.rejections.push(Rejection { patch, is_status: false, error }),
            }
        }
        applied
    }

    fn accepted(
        &self,
        object: &Arc<Object>,
        answer: Option<Bytes>,
        written: Map<String, Value>,
        mut applied: WriteResult,
    ) -> WriteResult {
        if let Some(latest) = answer.and_then(|answer| self.read(object, &answer).ok()) {
            applied.latest = Some(latest);
            applied.merge(written);
        }
        applied
    }

    async fn ask(
        &self,
        object: &Object,
        subresource: Option<&str>,
        payload: RequestBody<'_>,
    ) -> Result<Bytes, RequestError> {
        let url = self.resource.url(object.namespace(), object.name(), subresource);
        let mut pauses = CONFLICT_PAUSES.iter();
        loop {
            let error = match self.api.request(&Method::PATCH, &url, payload).await {
                Ok(body) => return Ok(body),
                Err(error) => error,
            };
            let is_merge = matches!(payload, RequestBody::MergePatch(_));
            match pauses.next() {
                Some(pause) if is_merge && error.status() == Some(409) && !self.compat => {
                    self.api.clock().sleep(seconds(*pause)).await;
                }
                _ => return Err(error),
            }
        }
    }

    /// The object as the server has answered that it is now.
    fn read(&self, object: &Object, answer: &Bytes) -> Result<Arc<Object>, RequestError> {
        let malformed = |error: &dyn std::fmt::Display| {
            let url = self.resource.url(object.namespace(), object.name(), None);
            RequestError::Malformed(format!("PATCH {url}: {error}"))
        };
        let text = std::str::from_utf8(answer).map_err(|error| malformed(&error))?;
        Object::decode(text).map(Arc::new).map_err(|error| malformed(&error))
    }

    /// Warns if the server did not keep what it was asked to: a schema without the field, a webhook.
    fn verify(&self, object: &Arc<Object>, latest: Option<&Object>, merged: &Map<String, Value>) {
        let Some(latest) = latest else { return };
        let lost = documents::lost(latest, merged);
        if !lost.is_empty() {
            let text = kopf_core::json::diff::python_repr(&shown_diff(object, &lost));
            let advice = if self.compat { String::new() } else { rejections::advice(self.resource, &lost) };
            let text = format!("Merge-patching finished with inconsistencies: {text}{advice}");
            self.host.log(LogRecord::local(Level::Warning, object, text));
        }
    }

    fn debug(&self, object: &Arc<Object>, text: impl FnOnce() -> String) {
        if self.host.enabled(Level::Debug) {
            self.host.log(LogRecord::local(Level::Debug, object, text()));
        }
    }
}
