//! The merge patch of a write, in the fewest requests: one; two if the status is a subresource, or three if the order of the
//! progress and the diff-base requires it (`ordered`).

use super::body::BodyWrite;
use super::documents::PatchPart;
use super::identity::is_gone;
use super::merged::{Ended, Parts, Sent, merged, unmerged, unmerged_without_object};
use super::ordered::{OrderedMerge, ordered_requests};
use super::outcome::{is_outcome_unknown, is_rejection};
use super::sending::Pending;
use super::status::{SplitStatus, StatusWrite, StatusWritten, as_patch, may_follow_body};
use super::{Input, Scope};
use crate::json::merge_patch::subtract;
use crate::json::value::{Map, Value};
use crate::request_error::RequestError;
use bytes::Bytes;

/// A merge patch.
#[derive(Clone, Debug)]
pub(super) enum Merging {
    /// First the status, then the rest.
    StatusFirst(Merge),
    /// Several requests in a certain order.
    Ordered(OrderedMerge),
}

impl Merging {
    /// Begins with the first request. Returns the end if there is none.
    pub(super) fn begin(
        patch: Map<String, Value>,
        final_progress: &Map<String, Value>,
        may_retry: bool,
        scope: &mut Scope<'_>,
    ) -> (Self, Option<Ended>) {
        let separate = scope.separate_status();
        let has_status = separate.and_then(|key| patch.get(key)).is_some_and(|status| !status.is_null());
        if has_status
            && !PatchPart(&patch, separate).is_empty()
            && let Some(requests) = ordered_requests(&patch, final_progress, scope)
        {
            let mut ordered = OrderedMerge::new(patch, requests, may_retry);
            let ended = ordered.proceed(scope);
            return (Self::Ordered(ordered), ended);
        }
        let mut merge =
            Merge { patch, separate, may_retry, stage: Stage::Begun, rest: None, sent: Sent::default() };
        let ended = merge.begin(scope);
        (Self::StatusFirst(merge), ended)
    }

    pub(super) fn pending(&self) -> Option<Pending<'_>> {
        match self {
            Self::StatusFirst(merge) => merge.pending(),
            Self::Ordered(ordered) => ordered.pending(),
        }
    }

    pub(super) fn on(
        &mut self,
        input: Input,
        final_progress: &Map<String, Value>,
        scope: &mut Scope<'_>,
    ) -> Option<Ended> {
        match self {
            Self::StatusFirst(merge) => merge.on(input, scope),
            Self::Ordered(ordered) => ordered.on(input, final_progress, scope),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Merge {
    patch: Map<String, Value>,
    /// The field that is written by requests to a subresource.
    separate: Option<&'static str>,
    /// Whether temporary failures of the status are retried.
    may_retry: bool,
    stage: Stage,
    /// The part for the body without what waits for a rejected status.
    rest: Option<Map<String, Value>>,
    sent: Sent,
}

#[derive(Clone, Debug)]
enum Stage {
    Begun,
    Status(SplitStatus),
    /// The subresource may not exist any more: then the status is an ordinary field.
    Whole(BodyWrite),
    Body(BodyWrite),
    /// The server responds again, or the body had to be written first.
    StatusAfterBody(StatusWrite),
}

impl Merge {
    fn begin(&mut self, scope: &mut Scope<'_>) -> Option<Ended> {
        // The progress is in the body. It is written last, since the operator may crash between the requests.
        if let Some(status) = self.status().filter(|_| !scope.context.compat) {
            let status = SplitStatus::new(status, scope.latest(), self.may_retry, scope);
            self.stage = Stage::Status(status);
            return None;
        }
        self.begin_body(scope)
    }

    fn pending(&self) -> Option<Pending<'_>> {
        match &self.stage {
            Stage::Begun => None,
            Stage::Status(status) => Some(status.pending()),
            Stage::Whole(body) | Stage::Body(body) => Some(body.pending()),
            Stage::StatusAfterBody(status) => Some(status.pending()),
        }
    }

    fn on(&mut self, input: Input, scope: &mut Scope<'_>) -> Option<Ended> {
        match &mut self.stage {
            Stage::Begun => None,
            Stage::Status(status) => {
                let written = status.on(input, scope)?;
                self.after_status(written, scope)
            }
            Stage::Whole(body) => match body.on(input, &PatchPart(&self.patch, None), scope)? {
                // The status may be the reason.
                Err(error) if is_rejection(&error) => self.begin_body(scope),
                sent => self.after_body(sent.map(Some), scope),
            },
            Stage::Body(body) => {
                let part = match &self.rest {
                    Some(rest) => PatchPart(rest, None),
                    None => PatchPart(&self.patch, self.separate),
                };
                let sent = body.on(input, &part, scope)?;
                self.after_body(sent.map(Some), scope)
            }
            Stage::StatusAfterBody(status) => match status.on(input, scope)? {
                Ok(response) => {
                    self.sent = Sent { response: Some(response), rejection: None };
                    Some(self.merged(scope))
                }
                Err(error) if scope.context.compat || is_gone(&error) => {
                    let parts = Parts::unwritten(std::mem::take(&mut self.patch));
                    Some(unmerged(parts, std::mem::take(&mut self.sent), error, scope))
                }
                Err(error) => {
                    scope.outcome.lost |= is_outcome_unknown(&error);
                    Some(self.merged(scope))
                }
            },
        }
    }

    /// The status, if it is written by a separate request.
    fn status(&self) -> Option<&Value> {
        self.separate.and_then(|key| self.patch.get(key)).filter(|status| !status.is_null())
    }

    /// The part for the body.
    fn body(&self) -> PatchPart<'_> {
        match &self.rest {
            Some(rest) => PatchPart(rest, None),
            None => PatchPart(&self.patch, self.separate),
        }
    }

    fn after_status(&mut self, written: StatusWritten, scope: &mut Scope<'_>) -> Option<Ended> {
        if written.finds_no_object() {
            return Some(unmerged_without_object(std::mem::take(&mut self.patch), scope));
        }
        let StatusWritten { response, mut rejection } = written;
        if let Some(rejection) = &mut rejection {
            self.rest = Some(scope.defer_progress(self.body().to_map(), rejection));
        }
        let is_missing = rejection.as_ref().is_some_and(|it| it.error.status() == Some(404));
        self.sent = Sent { response, rejection };
        if is_missing {
            let whole = PatchPart(&self.patch, None);
            let body = scope.write_body(&whole, self.sent.response.as_deref());
            self.stage = Stage::Whole(body);
            return None;
        }
        self.begin_body(scope)
    }

    fn begin_body(&mut self, scope: &mut Scope<'_>) -> Option<Ended> {
        let part = self.body();
        if part.is_empty() && self.separate.is_some() {
            return self.after_body(Ok(None), scope);
        }
        let body = scope.write_body(&part, self.sent.response.as_deref());
        self.stage = Stage::Body(body);
        None
    }

    fn after_body(
        &mut self,
        sent: Result<Option<Bytes>, RequestError>,
        scope: &mut Scope<'_>,
    ) -> Option<Ended> {
        let response = match sent {
            Ok(response) => response,
            Err(error) => {
                let parts = self.parts(scope.context.compat);
                return Some(unmerged(parts, std::mem::take(&mut self.sent), error, scope));
            }
        };
        let is_body_written = response.is_some();
        if is_body_written {
            self.sent.response = response;
        }
        if let Some(status) = self.status() {
            let may_be_accepted = match &self.sent.rejection {
                Some(rejection) => self.may_retry && is_body_written && may_follow_body(rejection),
                None => scope.context.compat,
            };
            if may_be_accepted {
                let known = scope.known(self.sent.response.as_deref());
                let status = StatusWrite::new(as_patch(status), &known, false, scope);
                self.stage = Stage::StatusAfterBody(status);
                return None;
            }
        }
        Some(self.merged(scope))
    }

    /// The parts after the failure of the body.
    fn parts(&mut self, compat: bool) -> Parts {
        let Some(status) = self.status().filter(|_| !compat) else {
            return Parts::unwritten(std::mem::take(&mut self.patch));
        };
        let accepted = match &self.sent {
            Sent { response: None, .. } => Map::new(),
            Sent { rejection: Some(rejection), .. } => subtract(as_patch(status), &rejection.patch),
            Sent { rejection: None, .. } => as_patch(status),
        };
        Parts { accepted, left: self.body().to_map() }
    }

    fn merged(&mut self, scope: &mut Scope<'_>) -> Ended {
        merged(std::mem::take(&mut self.patch), std::mem::take(&mut self.sent), scope)
    }
}
