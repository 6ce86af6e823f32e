//! Patching: writes the changes of one cycle to the API server in the fewest requests.
//!
//! 1. The merge patch: one request; two if the status is a subresource, or three if the order of the progress and the
//!    diff-base requires it (`kopf_core::persistence::merge_requests`).
//! 2. The finalizers and the transformation functions: a JSON patch, which is computed from the latest state and fails on a
//!    conflict. It is sent in two requests if it contains operations on a status subresource.
//! 3. The parts that the server has rejected before: two requests at most.
//!
//! No patch changes another object of the same name: see `identity`.
//!
//! In most cycles, only the first step is needed. Retries, and reading the latest state after a conflict, come on top.

use std::sync::Arc;

use bytes::Bytes;
use kopf_core::backoff::Backoff;
use kopf_core::handler::registry::ResourceHandlers;
use kopf_core::json::merge_patch::Patch;
use kopf_core::json::merge_patch::subtract;
use kopf_core::json::value::{Map, Value, python_repr};
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::object::redaction::shown;
use kopf_core::persistence::Persistence;
use kopf_core::persistence::merge_requests::MergeRequest;
use kopf_core::resource::Resource;

use crate::client::{Client, RequestBody};
use crate::error::RequestError;
use crate::host::{Host, LogRecord};
use crate::time::duration::seconds;

mod documents;
mod identity;
pub mod partial;
mod rejections;
mod request;
mod status;
#[cfg(test)]
mod tests;
mod transform;
mod versions;

use documents::PatchPart;
use identity::{gone, is_gone};
pub(crate) use rejections::named_fields;
pub use rejections::{Denials, Rejection};
use request::{Parts, failure, is_rejection};
pub use request::{PatchFailure, PatchingError, WriteRequest, WriteResult};
use status::{StatusWritten, is_final, may_follow_body};
use transform::TransformRequest;

/// The delays in seconds before a merge patch is retried after a 409. Such a conflict is not ours: the patch does not depend
/// on the resource version.
const CONFLICT_RETRIES: Backoff = Backoff::limited(&[0.1, 0.3, 1.0]);

/// How many times a change that depends on the state of the object is sent again for the latest one after a conflict. Then it is left
/// to the next cycle.
const CONFLICTS: usize = 3;

/// Writes changes to objects of one resource.
pub struct Patching<'a> {
    /// The client of the API server.
    pub client: &'a Client,
    /// For the log and for the transformation functions.
    pub host: &'a Arc<dyn Host>,
    /// The resource of the objects.
    pub resource: &'a Resource,
    /// The name of our finalizer.
    pub finalizer: &'a str,
    /// Whether conflicts are left to the next watch event, and patches have no preconditions, as in Kopf 1.45.
    pub compat: bool,
    /// Whether patches contain the resource version, so that the server rejects those that were decided for an older state. Only
    /// with leader election: see `versions`.
    pub is_versioned: bool,
    /// Whether the deletion of the object was received: then nothing is sent.
    pub is_deleted: &'a (dyn Fn() -> bool + Send + Sync),
    /// The handlers and the storage of the progress to be purged when an object is released, if it is stored in the
    /// object.
    pub release_cleanup: Option<(&'a ResourceHandlers, &'a Persistence)>,
}

impl Patching<'_> {
    /// Applies the change to the object as seen by the cycle.
    ///
    /// # Errors
    /// The change is not applied in full. Parts rejected only by the status subresource or by the server's schema are
    /// no error: they are in [`WriteResult::rejections`].
    pub async fn apply(
        &self,
        object: &Arc<Object>,
        change: WriteRequest,
    ) -> Result<WriteResult, PatchFailure> {
        match self.send_all(object, change).await {
            Err(PatchFailure { applied, error: PatchingError::Request(error) })
                if error.status() == Some(404) =>
            {
                Ok(self.skipped(object, *applied))
            }
            result => result,
        }
    }

    /// The result of a write to an object that does not exist.
    fn skipped(&self, object: &Arc<Object>, applied: WriteResult) -> WriteResult {
        self.debug(object, || "Patching was skipped: the object does not exist anymore.".to_owned());
        WriteResult { gone: true, rejections: vec![], ..applied }
    }

    async fn send_all(
        &self,
        object: &Arc<Object>,
        change: WriteRequest,
    ) -> Result<WriteResult, PatchFailure> {
        let WriteRequest {
            cycle,
            patch,
            final_progress,
            finalizer,
            deletion_handled,
            functions,
            rejected_patch,
        } = change;
        // If nothing is applied, the functions are carried over to the next cycle.
        let mut applied = WriteResult { carry: functions && !self.compat, ..WriteResult::default() };
        if self.is_known_deleted() {
            return failure(applied, gone().into());
        }
        if !patch.is_empty() {
            // The status is not retried if it is known to be rejected, or if the object is being deleted.
            let may_retry = rejected_patch.is_empty() && object.deletion_timestamp().is_none();
            applied = self.merge(object, patch.0, &final_progress, may_retry, applied).await?;
        }
        if functions || finalizer.is_some() {
            let request = TransformRequest { cycle, finalizer, deletion_handled, functions };
            applied = self.transform(object, request, applied).await?;
        }
        if !rejected_patch.is_empty() {
            applied = self.merge_rejected(object, rejected_patch, applied).await;
            if applied.gone {
                return failure(applied, gone().into());
            }
        }
        Ok(applied)
    }

    /// Sends the merge patch in the fewest requests.
    pub(crate) async fn merge(
        &self,
        object: &Arc<Object>,
        patch: Map<String, Value>,
        final_progress: &Patch,
        may_retry: bool,
        applied: WriteResult,
    ) -> Result<WriteResult, PatchFailure> {
        let has_subresource = self.resource.has_subresource("status");
        let status = patch.get("status").filter(|status| has_subresource && !status.is_null());
        let separate = has_subresource.then_some("status");
        let body = PatchPart(&patch, separate);
        if status.is_some()
            && !body.is_empty()
            && let Some(requests) = self.ordered_requests(object, &patch, final_progress)
        {
            let requests = (requests, final_progress);
            return self.merge_in_order(object, patch, requests, may_retry, applied).await;
        }
        let mut response = None;
        let mut written = StatusWritten::default();
        // The progress is in the body. It is written last, since the operator may crash between the requests.
        if let Some(status) = status.filter(|_| !self.compat) {
            let known = applied.latest.as_ref().unwrap_or(object);
            written = self.merge_status(object, known, status, may_retry).await;
            response = written.response.take();
            if written.finds_no_object() {
                return self.unmerged_without_object(object, patch, applied);
            }
        }
        let rest =
            written.rejection.as_mut().map(|rejection| self.defer_progress(object, body.to_map(), rejection));
        let body = || rest.as_ref().map_or(PatchPart(&patch, separate), |rest| PatchPart(rest, None));
        // The subresource may not exist any more: then the status is an ordinary field.
        let is_missing = written.rejection.as_ref().is_some_and(|it| it.error.status() == Some(404));
        let (whole, known) = (|| PatchPart(&patch, None), response.as_ref());
        let sent = if is_missing { self.merge_body(object, known, whole()).await } else { Ok(None) };
        let sent = match sent {
            Ok(Some(last)) => Ok(Some(last)),
            Err(error) if !is_rejection(&error) => Err(error),
            // The status may be the reason.
            _ => self.merge_body(object, known, body()).await,
        };
        let sent = match sent {
            Ok(last) => last,
            Err(error) => {
                let parts = match status {
                    Some(status) if !self.compat => {
                        Parts::after_status(body().to_map(), status, &written, response.is_some())
                    }
                    _ => Parts::unwritten(patch),
                };
                return self.unmerged(object, parts, (response, written), applied, error);
            }
        };
        let is_body_written = sent.is_some();
        response = sent.or(response);
        if let Some(status) = status {
            let may_be_accepted = match &written.rejection {
                Some(rejection) => may_retry && is_body_written && may_follow_body(rejection),
                None => self.compat,
            };
            // The server responds again, or the body had to be written first.
            if may_be_accepted {
                let latest = response.as_ref().and_then(|response| self.read(object, response).ok());
                let known = latest.as_ref().unwrap_or(object);
                match self.send_status(object, known, status, false).await {
                    Ok(last) => (response, written.rejection) = (Some(last), None),
                    Err(error) if self.compat || is_gone(&error) => {
                        let parts = Parts::unwritten(patch);
                        return self.unmerged(object, parts, (response, written), applied, error);
                    }
                    Err(_) => {}
                }
            }
        }
        self.merged(object, patch, (response, written), applied)
    }

    /// Sends the parts of a patch whose progress or diff-base is in the status. Outcomes are written only after the
    /// changes that they stand for: the operator may crash between two requests.
    async fn merge_in_order(
        &self,
        object: &Arc<Object>,
        patch: Map<String, Value>,
        (requests, final_progress): (Vec<MergeRequest>, &Patch),
        may_retry: bool,
        applied: WriteResult,
    ) -> Result<WriteResult, PatchFailure> {
        let mut response = None;
        let mut written = StatusWritten::default();
        let mut accepted = Patch::default();
        let mut requests = requests.into_iter();
        while let Some(MergeRequest { is_status, patch: part }) = requests.next() {
            if let Some(status) = part.get("status").filter(|_| is_status) {
                if let Some(rejection) = &mut written.rejection {
                    // The rest of the status is sent together with the rejected part, later.
                    let mut rejected = Patch(std::mem::take(&mut rejection.patch));
                    rejected.merge(part);
                    rejection.patch = rejected.0;
                    continue;
                }
                let latest = response.as_ref().and_then(|response| self.read(object, response).ok());
                let known = latest.as_ref().unwrap_or(object);
                let status_written = self.merge_status(object, known, status, may_retry).await;
                if status_written.finds_no_object() {
                    return self.unmerged_without_object(object, patch, applied);
                }
                let StatusWritten { response: last, rejection } = status_written;
                if last.is_some() {
                    let rejected = rejection.as_ref().map(|rejection| &rejection.patch);
                    accepted.merge(
                        rejected.map_or_else(|| part.clone(), |rejected| subtract(part.clone(), rejected)),
                    );
                }
                response = last.or(response);
                written.rejection = rejection.map(|rejection| Rejection {
                    patch: subtract(rejection.patch, &final_progress.0),
                    ..rejection
                });
            } else {
                // What follows a rejected diff-base waits with it.
                let part = match &mut written.rejection {
                    Some(rejection) => self.defer_progress(object, part, rejection),
                    None => part,
                };
                if part.is_empty() {
                    continue;
                }
                match self.merge_body(object, response.as_ref(), PatchPart(&part, None)).await {
                    Ok(last) => {
                        accepted.merge(part);
                        response = last.or(response);
                    }
                    Err(error) => {
                        let mut left = Patch(part);
                        requests.for_each(|request| left.merge(request.patch));
                        let parts = Parts { accepted: accepted.0, left: left.0 };
                        return self.unmerged(object, parts, (response, written), applied, error);
                    }
                }
            }
        }
        self.merged(object, patch, (response, written), applied)
    }

    /// Sends the part for the body, after the last response of the server, if there is one; nothing if the part is empty.
    async fn merge_body(
        &self,
        object: &Arc<Object>,
        response: Option<&Bytes>,
        body: PatchPart<'_>,
    ) -> Result<Option<Bytes>, RequestError> {
        if body.is_empty() && self.resource.has_subresource("status") {
            return Ok(None);
        }
        self.debug(object, || {
            format!("Merge-patching the resource with: {}", python_repr(&shown(object, &body.to_value())))
        });
        self.send_body(object, response, &body, false).await.map(Some)
    }

    /// The object does not exist any more, or has a successor of its name: nothing of the patch is written.
    fn unmerged_without_object(
        &self,
        object: &Object,
        patch: Map<String, Value>,
        applied: WriteResult,
    ) -> Result<WriteResult, PatchFailure> {
        self.unmerged(object, Parts::unwritten(patch), (None, StatusWritten::default()), applied, gone())
    }

    /// The failure if the body was not accepted.
    fn unmerged(
        &self,
        object: &Object,
        Parts { accepted, left }: Parts,
        (response, written): (Option<Bytes>, StatusWritten),
        mut applied: WriteResult,
        error: RequestError,
    ) -> Result<WriteResult, PatchFailure> {
        let mut unwritten = Patch::default();
        match response.and_then(|response| self.read(object, &response).ok()) {
            Some(latest) => {
                applied.latest = Some(latest);
                applied.merge(accepted);
            }
            None => unwritten.merge(accepted),
        }
        match written.rejection.filter(|_| !self.compat) {
            Some(rejection) if is_final(&rejection.error) => applied.rejections.push(rejection),
            Some(rejection) => unwritten.merge(rejection.patch),
            None => {}
        }
        unwritten.merge(left);
        applied.unwritten = unwritten.0;
        failure(applied, error.into())
    }

    /// The result if all was accepted, apart from the status perhaps.
    fn merged(
        &self,
        object: &Arc<Object>,
        patch: Map<String, Value>,
        (response, written): (Option<Bytes>, StatusWritten),
        mut applied: WriteResult,
    ) -> Result<WriteResult, PatchFailure> {
        if let Some(response) = response {
            match self.read(object, &response) {
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

    async fn ask(
        &self,
        object: &Object,
        subresource: Option<&str>,
        payload: RequestBody<'_>,
    ) -> Result<Bytes, RequestError> {
        let is_repeatable =
            matches!(payload, RequestBody::MergePatch(_)) && !self.compat && !self.is_versioned;
        let mut retries = CONFLICT_RETRIES.retries();
        loop {
            let error = match self.send(object, subresource, payload, false).await {
                Ok(body) => return Ok(body),
                Err(error) => error,
            };
            let is_conflict = is_repeatable && error.status() == Some(409);
            let Some(delay) = retries.next(None, 0.0).filter(|_| is_conflict) else { return Err(error) };
            self.client.clock().sleep(seconds(delay.seconds)).await;
        }
    }

    fn debug(&self, object: &Arc<Object>, text: impl FnOnce() -> String) {
        if self.host.enabled(Level::Debug) {
            self.host.log(LogRecord::local(Level::Debug, object, text()));
        }
    }
}
