//! Parts that the server has rejected before: the status and the rest in one request each, without retries.

use super::body::BodyWrite;
use super::documents::PatchPart;
use super::identity::is_gone;
use super::rejection::Rejection;
use super::sending::Pending;
use super::status::{SplitStatus, StatusWritten, as_patch};
use super::{Input, Scope};
use crate::json::merge_patch::subtract;
use crate::json::value::{Map, Value};
use crate::object::Object;
use crate::request_error::RequestError;
use bytes::Bytes;

/// The writing of the parts that were rejected before. It cannot fail: parts that are rejected again are rejections of the outcome.
#[derive(Clone, Debug)]
pub(super) struct RejectedMerge {
    patch: Map<String, Value>,
    stage: Stage,
    /// The status, if its subresource does not exist any more: then it is an ordinary field.
    missing: Option<Rejection>,
}

#[derive(Clone, Debug)]
enum Stage {
    Begun,
    Status(SplitStatus),
    Body(BodyWrite, Map<String, Value>),
}

impl RejectedMerge {
    /// Begins with the first request. Returns none if there is none.
    pub(super) fn begin(patch: Map<String, Value>, scope: &mut Scope<'_>) -> Option<Self> {
        if scope.outcome.latest.as_deref().is_some_and(is_released) {
            return None;
        }
        let mut merge = Self { patch, stage: Stage::Begun, missing: None };
        if let Some(status) = scope.separate_status().and_then(|key| merge.patch.get(key)) {
            merge.stage = Stage::Status(SplitStatus::new(status, scope.latest(), false, scope));
            return Some(merge);
        }
        let separate = scope.separate_status();
        merge.begin_body(separate, scope).then_some(merge)
    }

    pub(super) fn pending(&self) -> Option<Pending<'_>> {
        match &self.stage {
            Stage::Begun => None,
            Stage::Status(status) => Some(status.pending()),
            Stage::Body(body, _) => Some(body.pending()),
        }
    }

    /// Returns whether there is another request.
    pub(super) fn on(&mut self, input: Input, scope: &mut Scope<'_>) -> bool {
        match &mut self.stage {
            Stage::Begun => false,
            Stage::Status(status) => {
                let Some(written) = status.on(input, scope) else { return true };
                let is_missing = |it: &Rejection| it.error.status() == Some(404) && !is_gone(&it.error);
                if written.response.is_none() && written.rejection.as_ref().is_some_and(is_missing) {
                    self.missing = written.rejection;
                    return self.begin_body(None, scope);
                }
                self.after_status(written, scope);
                let separate = scope.separate_status();
                self.begin_body(separate, scope)
            }
            Stage::Body(body, part) => {
                let Some(sent) = body.on(input, &PatchPart(part, None), scope) else { return true };
                let patch = std::mem::take(part);
                self.after_body(sent, patch, scope);
                false
            }
        }
    }

    fn after_status(&self, StatusWritten { response, rejection }: StatusWritten, scope: &mut Scope<'_>) {
        let Some(status) = self.patch.get("status") else { return };
        let mut written = as_patch(status);
        if let Some(rejection) = rejection {
            written = subtract(written, &rejection.patch);
            reject(rejection, scope);
        }
        if let Some(response) = response {
            accepted(&response, written, scope);
        }
    }

    fn after_body(
        &mut self,
        sent: Result<Bytes, RequestError>,
        patch: Map<String, Value>,
        scope: &mut Scope<'_>,
    ) {
        let response = match sent {
            Ok(response) => response,
            Err(error) => return reject(Rejection { patch, is_status: false, error }, scope),
        };
        accepted(&response, patch, scope);
        if let Some(status) = self.missing.take()
            && !scope.outcome.latest.as_ref().is_some_and(|latest| latest.contains_patch(&status.patch))
        {
            scope.outcome.merged = subtract(std::mem::take(&mut scope.outcome.merged), &status.patch);
            reject(status, scope);
        }
    }

    /// Sends the part for the body. Returns whether there is one.
    fn begin_body(&mut self, separate: Option<&'static str>, scope: &mut Scope<'_>) -> bool {
        let body = PatchPart(&self.patch, separate);
        if body.is_empty() || scope.outcome.gone {
            return false;
        }
        let mut patch = body.to_map();
        // Also progress that was kept for an older diff-base waits for a newer one.
        let mut rejections = std::mem::take(&mut scope.outcome.rejections);
        for rejection in &mut rejections {
            patch = scope.defer_progress(patch, rejection);
        }
        scope.outcome.rejections = rejections;
        if patch.is_empty() {
            return false;
        }
        let body = BodyWrite::new(&PatchPart(&patch, None), None, true, scope);
        self.stage = Stage::Body(body, patch);
        true
    }
}

fn reject(rejection: Rejection, scope: &mut Scope<'_>) {
    scope.outcome.gone |= is_gone(&rejection.error);
    scope.outcome.rejections.push(rejection);
}

fn accepted(response: &Bytes, written: Map<String, Value>, scope: &mut Scope<'_>) {
    match scope.read(response) {
        Ok(latest) => {
            scope.outcome.latest = Some(latest);
            scope.outcome.merge(written);
        }
        Err(error) => scope.outcome.gone |= is_gone(&error),
    }
}

fn is_released(latest: &Object) -> bool {
    latest.deletion_timestamp().is_some() && latest.finalizers().next().is_none()
}
