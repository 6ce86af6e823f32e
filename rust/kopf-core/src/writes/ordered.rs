//! A merge patch whose progress or diff-base is in the status. Outcomes are written only after the changes that they stand for:
//! the operator may crash between two requests.

use super::body::BodyWrite;
use super::documents::PatchPart;
use super::merged::{Ended, Parts, Sent, merged, unmerged, unmerged_without_object};
use super::rejection::Rejection;
use super::sending::Pending;
use super::status::{SplitStatus, StatusWritten};
use super::{Input, Scope};
use crate::json::merge_patch::{Patch, subtract};
use crate::json::value::{Map, Value};
use crate::persistence::merge_requests::{MergeRequest, has_state_in_fields, merge_requests};

/// The requests for a patch, if their order is another one than the status and then the rest.
pub(super) fn ordered_requests(
    patch: &Map<String, Value>,
    final_progress: &Map<String, Value>,
    scope: &Scope<'_>,
) -> Option<Vec<MergeRequest>> {
    let (_, persistence) = scope.context.release_cleanup?;
    let requests = has_state_in_fields(patch, persistence)
        .then(|| merge_requests(scope.object, patch, final_progress, persistence));
    requests.filter(|requests| !is_status_first(requests))
}

/// Whether these are two requests, first the one for the status.
fn is_status_first(requests: &[MergeRequest]) -> bool {
    matches!(requests, [first, last] if first.is_status && !last.is_status)
}

#[derive(Clone, Debug)]
pub(super) struct OrderedMerge {
    patch: Map<String, Value>,
    requests: std::vec::IntoIter<MergeRequest>,
    may_retry: bool,
    stage: Stage,
    /// Whether a request for the body was begun: the final progress precedes it.
    is_body_begun: bool,
    accepted: Patch,
    sent: Sent,
}

/// The current request, and its part of the patch.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of it, and it is not moved")]
enum Stage {
    Begun,
    Status(SplitStatus, Map<String, Value>),
    Body(BodyWrite, Map<String, Value>),
}

impl OrderedMerge {
    pub(super) fn new(patch: Map<String, Value>, requests: Vec<MergeRequest>, may_retry: bool) -> Self {
        let requests = requests.into_iter();
        let (accepted, sent) = (Patch::default(), Sent::default());
        Self { patch, requests, may_retry, stage: Stage::Begun, is_body_begun: false, accepted, sent }
    }

    pub(super) fn pending(&self) -> Option<Pending<'_>> {
        match &self.stage {
            Stage::Begun => None,
            Stage::Status(status, _) => Some(status.pending()),
            Stage::Body(body, _) => Some(body.pending()),
        }
    }

    pub(super) fn on(
        &mut self,
        input: Input,
        final_progress: &Map<String, Value>,
        scope: &mut Scope<'_>,
    ) -> Option<Ended> {
        match &mut self.stage {
            Stage::Begun => None,
            Stage::Status(status, part) => {
                let written = status.on(input, scope)?;
                if written.finds_no_object() {
                    return Some(unmerged_without_object(std::mem::take(&mut self.patch), scope));
                }
                let part = std::mem::take(part);
                self.after_status(written, part, final_progress);
                self.proceed(scope)
            }
            Stage::Body(body, part) => {
                let sent = body.on(input, &PatchPart(part, None), scope)?;
                let part = std::mem::take(part);
                match sent {
                    Ok(response) => {
                        self.accepted.merge(part);
                        self.sent.response = Some(response);
                        self.proceed(scope)
                    }
                    Err(error) => {
                        let mut left = Patch(part);
                        self.requests.by_ref().for_each(|request| left.merge(request.patch));
                        let accepted = std::mem::take(&mut self.accepted.0);
                        let parts = Parts { accepted, left: left.0 };
                        Some(unmerged(parts, std::mem::take(&mut self.sent), error, scope))
                    }
                }
            }
        }
    }

    fn after_status(
        &mut self,
        StatusWritten { response, rejection }: StatusWritten,
        part: Map<String, Value>,
        final_progress: &Map<String, Value>,
    ) {
        if response.is_some() {
            let rejected = rejection.as_ref().map(|rejection| &rejection.patch);
            self.accepted.merge(match rejected {
                Some(rejected) => subtract(part, rejected),
                None => part,
            });
            self.sent.response = response;
        }
        // The final progress is not sent again. What follows it has other values for the same records.
        self.sent.rejection = if self.is_body_begun {
            rejection
        } else {
            rejection.map(|it| Rejection { patch: subtract(it.patch, final_progress), ..it })
        };
    }

    /// Begins the next request. Returns the end if there is none.
    pub(super) fn proceed(&mut self, scope: &mut Scope<'_>) -> Option<Ended> {
        for MergeRequest { is_status, patch: part } in self.requests.by_ref() {
            if let Some(status) = part.get("status").filter(|_| is_status) {
                if let Some(rejection) = &mut self.sent.rejection {
                    // The rest of the status is sent together with the rejected part, later.
                    let mut rejected = Patch(std::mem::take(&mut rejection.patch));
                    rejected.merge(part);
                    rejection.patch = rejected.0;
                    continue;
                }
                let known = scope.known(self.sent.response.as_deref());
                let status = SplitStatus::new(status, known, self.may_retry, scope);
                self.stage = Stage::Status(status, part);
                return None;
            }
            // What follows a rejected diff-base waits with it.
            let part = match &mut self.sent.rejection {
                Some(rejection) => scope.defer_progress(part, rejection),
                None => part,
            };
            if part.is_empty() {
                continue;
            }
            let body = scope.write_body(&PatchPart(&part, None), self.sent.response.as_deref());
            self.is_body_begun = true;
            self.stage = Stage::Body(body, part);
            return None;
        }
        Some(merged(std::mem::take(&mut self.patch), std::mem::take(&mut self.sent), scope))
    }
}
