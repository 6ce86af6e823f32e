//! The end of a merge patch: the written, the unwritten and the rejected parts.

use super::Scope;
use super::identity::gone;
use super::outcome::{WriteFailure, is_final};
use super::rejection::Rejection;
use crate::json::merge_patch::{Patch, subtract};
use crate::json::value::{Map, Value};
use crate::request_error::RequestError;
use bytes::Bytes;

/// The end of a part of a write: the change is in the outcome, or the reason why it is not written in full.
pub(super) type Ended = Result<(), WriteFailure>;

/// The results of the requests of a merge patch so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    /// The last response.
    pub(super) response: Option<Bytes>,
    /// The part of the status that was rejected.
    pub(super) rejection: Option<Rejection>,
}

/// The parts of a merge patch after the failure of one of its requests, without a rejected status.
#[derive(Default)]
pub(super) struct Parts {
    /// The part that the server has accepted before.
    pub(super) accepted: Map<String, Value>,
    /// The part in the failed request and in those that would follow.
    pub(super) left: Map<String, Value>,
}

impl Parts {
    pub(super) fn unwritten(patch: Map<String, Value>) -> Self {
        Self { left: patch, ..Self::default() }
    }
}

/// The object does not exist any more, or has a successor of its name: nothing of the patch is written.
pub(super) fn unmerged_without_object(patch: Map<String, Value>, scope: &mut Scope<'_>) -> Ended {
    unmerged(Parts::unwritten(patch), Sent::default(), gone(), scope)
}

/// The failure if the body was not accepted.
pub(super) fn unmerged(parts: Parts, sent: Sent, error: RequestError, scope: &mut Scope<'_>) -> Ended {
    let Parts { accepted, left } = parts;
    let mut unwritten = Patch::default();
    match sent.response.and_then(|response| scope.read(&response).ok()) {
        Some(latest) => {
            scope.outcome.latest = Some(latest);
            scope.outcome.merge(accepted);
        }
        None => unwritten.merge(accepted),
    }
    match sent.rejection.filter(|_| !scope.context.compat) {
        Some(rejection) if is_final(&rejection.error) => scope.outcome.rejections.push(rejection),
        Some(rejection) => unwritten.merge(rejection.patch),
        None => {}
    }
    unwritten.merge(left);
    scope.outcome.unwritten = unwritten.0;
    Err(error.into())
}

/// The result if all was accepted, apart from the status perhaps.
pub(super) fn merged(patch: Map<String, Value>, sent: Sent, scope: &mut Scope<'_>) -> Ended {
    if let Some(response) = sent.response {
        match scope.read(&response) {
            Ok(latest) => scope.outcome.latest = Some(latest),
            Err(error) => {
                scope.outcome.unwritten = patch;
                return Err(error.into());
            }
        }
    }
    let mut merged = patch;
    if let Some(rejection) = sent.rejection {
        let latest = scope.outcome.latest.as_ref();
        // It was accepted as a field of the body.
        let is_accepted = rejection.error.status() == Some(404)
            && latest.is_some_and(|latest| latest.contains_patch(&rejection.patch));
        if !is_accepted {
            merged = subtract(merged, &rejection.patch);
            scope.outcome.rejections.push(rejection);
        }
    }
    scope.verify(&merged);
    scope.outcome.merge(merged);
    scope.outcome.unwritten.clear();
    Ok(())
}
