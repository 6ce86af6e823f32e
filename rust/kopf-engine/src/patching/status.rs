//! The status subresource: written before the progress, but a rejection does not block the progress.
//!
//! Handlers count as finished when their progress is written. Their status is written first, so that it is not lost if
//! the operator crashes in between. The progress and the finalizers follow, even if the server rejects the status. The
//! part that was not written is a [`Rejection`], and is sent again later. If it contains the diff-base, the progress of
//! the completed handling waits with it; the rest of the patch does not.

use std::sync::Arc;

use bytes::Bytes;
use kopf_core::backoff::Backoff;
use kopf_core::json::merge_patch::{Patch, subtract};
use kopf_core::json::value::{Map, Value, python_repr};
use kopf_core::object::Object;
use kopf_core::object::redaction::shown;
use kopf_core::persistence::merge_requests::deferred_progress;
use serde_json::json;

use super::documents::to_json;
use super::identity::is_gone;
use super::rejections::{Rejection, named_fields};
use super::{CONFLICTS, Patching};
use crate::client::RequestBody;
use crate::error::{ApiError, RequestError};
use crate::time::duration::seconds;

/// The delays in seconds before a temporary failure of the status is retried. After that, the progress is written
/// without it.
const RETRIES: Backoff = Backoff::limited(&[0.2, 0.8, 2.0]);

/// The result of writing a status.
#[derive(Default)]
pub(super) struct StatusWritten {
    /// The last response of the server.
    pub(super) response: Option<Bytes>,
    /// The part that was not written, and the reason.
    pub(super) rejection: Option<Rejection>,
}

impl StatusWritten {
    /// Whether the status was not written because the object is gone.
    pub(super) fn finds_no_object(&self) -> bool {
        self.rejection.as_ref().is_some_and(|rejection| is_gone(&rejection.error))
    }
}

impl Patching<'_> {
    /// Writes the status of the object as `known`, and if it is invalid, writes it without the fields named in the response.
    pub(super) async fn merge_status(
        &self,
        object: &Arc<Object>,
        known: &Arc<Object>,
        status: &Value,
        may_retry: bool,
    ) -> StatusWritten {
        let error = match self.send_status(object, known, status, may_retry).await {
            Ok(response) => return StatusWritten { response: Some(response), rejection: None },
            Err(error) => error,
        };
        let whole = as_patch(status);
        let named = if error.status() == Some(422) { named_fields(&error, &whole) } else { Map::default() };
        let unnamed = subtract(whole.clone(), &named);
        if !named.is_empty()
            && let Some(rest) = unnamed.get("status")
            && let Ok(response) = self.send_status(object, known, rest, false).await
        {
            let rejection = Rejection { patch: named, is_status: true, error };
            return StatusWritten { response: Some(response), rejection: Some(rejection) };
        }
        let rejection = Rejection { patch: whole, is_status: true, error };
        StatusWritten { response: None, rejection: Some(rejection) }
    }

    /// Moves the progress in a patch for the body to a rejected part with the diff-base. Returns the rest.
    pub(super) fn defer_progress(
        &self,
        object: &Object,
        patch: Map<String, Value>,
        rejection: &mut Rejection,
    ) -> Map<String, Value> {
        let Some((_, persistence)) = self.release_cleanup else { return patch };
        let progress = deferred_progress(object, &patch, &rejection.patch, persistence);
        let rest = subtract(patch, &progress);
        let mut rejected = Patch(std::mem::take(&mut rejection.patch));
        rejected.merge(progress);
        rejection.patch = rejected.0;
        rest
    }

    /// Sends a status for the object as `known`; after a conflict, for the object as it is then. It changes no other object.
    pub(super) async fn send_status(
        &self,
        object: &Arc<Object>,
        known: &Arc<Object>,
        status: &Value,
        may_retry: bool,
    ) -> Result<Bytes, RequestError> {
        self.debug(object, || {
            let document = json!({ "status": status });
            format!("Merge-patching the status with: {}", python_repr(&shown(object, &document)))
        });
        let patch = as_patch(status);
        if self.compat {
            let document = to_json(&patch);
            return self.ask(object, Some("status"), RequestBody::MergePatch(&document)).await;
        }
        let mut version = known.resource_version().map(str::to_owned);
        let mut document = self.status_document(object, known, &patch);
        let mut conflicts = 0;
        let mut retries = if may_retry { RETRIES } else { Backoff::NEVER }.retries();
        loop {
            let sent = self.ask_status(object, document.payload(), document.is_versioned(), may_retry).await;
            let error = match sent {
                Err(error) if document.may_conflict(&error) => error,
                sent => return sent,
            };
            let latest = self.reread(object).await?.ok_or_else(changed)?;
            let again = self.status_document(object, &latest, &patch);
            // Unwritten parts of a status are only in the known object: its version is the same, but not its fields.
            if latest.resource_version() == version.as_deref() && again == document {
                // The reason is another one than a change of the object.
                let delay = retries.next(None, 0.0).filter(|_| is_temporary(&error, false));
                let Some(delay) = delay else { return Err(error) };
                self.client.clock().sleep(seconds(delay.seconds)).await;
                continue;
            }
            if conflicts == CONFLICTS {
                return Err(changed());
            }
            conflicts += 1;
            version = latest.resource_version().map(str::to_owned);
            document = again;
        }
    }

    /// Sends a patch of the status. Temporary failures are retried only if `may_retry` is set; conflicts only if the patch does
    /// not depend on a version.
    pub(super) async fn ask_status(
        &self,
        object: &Object,
        payload: RequestBody<'_>,
        is_versioned: bool,
        may_retry: bool,
    ) -> Result<Bytes, RequestError> {
        let mut retries = if may_retry { RETRIES } else { Backoff::NEVER }.retries();
        loop {
            let error = match self.send(object, Some("status"), payload, true).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            let Some(delay) = retries.next(None, 0.0).filter(|_| is_temporary(&error, is_versioned)) else {
                return Err(error);
            };
            self.client.clock().sleep(seconds(delay.seconds)).await;
        }
    }
}

/// The error of a conflict, if the latest version cannot be read, or is not the latest one any more.
fn changed() -> RequestError {
    RequestError::Api(Box::new(ApiError::from_response(409, None, b"the object has changed")))
}

/// Whether the same request may be accepted shortly afterwards. It is not if the server requests a longer delay.
fn is_temporary(error: &RequestError, is_versioned: bool) -> bool {
    let longest = RETRIES.total();
    match error {
        RequestError::Api(error) => match error.status {
            409 => !is_versioned,
            429 | 500.. => error.retry_after.is_none_or(|asked| asked <= longest),
            _ => false,
        },
        RequestError::Transport(_) | RequestError::Unsent(_) => true,
        RequestError::Timeout
        | RequestError::Malformed(_)
        | RequestError::Login(_)
        | RequestError::Fenced => false,
    }
}

/// Whether the server has rejected the request, as opposed to a temporary failure or a missing response.
pub(super) fn is_final(error: &RequestError) -> bool {
    matches!(error.status(), Some(400..=428 | 430..=499))
}

/// Whether the status may be accepted right after the body, and none of the body waits for it.
pub(super) fn may_follow_body(rejection: &Rejection) -> bool {
    rejection.patch.keys().eq(["status"]) && !is_final(&rejection.error)
}

pub(super) fn as_patch(status: &Value) -> Map<String, Value> {
    std::iter::once(("status".to_owned(), status.clone())).collect()
}
