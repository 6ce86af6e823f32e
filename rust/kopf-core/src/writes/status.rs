//! The status subresource: written before the progress, but a rejection does not block the progress.
//!
//! Handlers count as finished when their progress is written. Their status is written first, so that it is not lost if
//! the operator crashes in between. The progress and the finalizers follow, even if the server rejects the status. The
//! part that was not written is a [`Rejection`], and is sent again later. If it contains the diff-base, the progress of
//! the completed handling waits with it; the rest of the patch does not.

use super::identity::{StatusDocument, changed, is_gone, may_conflict};
use super::outcome::{is_final, is_outcome_unknown};
use super::rejection::{Rejection, named_fields};
use super::request::Document;
use super::sending::{Pending, Reading, STATUS_RETRIES, Sending, is_temporary};
use super::{CONFLICTS, Input, Scope};
use crate::backoff::{Backoff, Retries};
use crate::json::merge_patch::{Patch, subtract};
use crate::json::value::{Map, Value, python_repr};
use crate::object::Object;
use crate::object::redaction::shown;
use crate::persistence::merge_requests::deferred_progress;
use crate::request_error::RequestError;
use bytes::Bytes;
use std::sync::Arc;

/// A status for the object as known; after a conflict, for the object as it is then. It changes no other object.
#[derive(Clone, Debug)]
pub(super) struct StatusWrite {
    /// The merge patch, with nothing but the status.
    patch: Map<String, Value>,
    sending: Sending,
    /// Whether the document is a merge patch for one version of the object.
    is_versioned: bool,
    /// The version of the object as known.
    version: Option<String>,
    may_retry: bool,
    retries: Retries<'static>,
    conflicts: usize,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Sending,
    /// After this error, it is read whether the object has changed.
    Reading(Reading, RequestError),
    Waiting(f64),
}

impl StatusWrite {
    pub(super) fn new(
        patch: Map<String, Value>,
        known: &Object,
        may_retry: bool,
        scope: &mut Scope<'_>,
    ) -> Self {
        scope.debug(|object| {
            let document = Value::Object(patch.clone());
            format!("Merge-patching the status with: {}", python_repr(&shown(object, &document)))
        });
        let (sending, is_versioned, version) = if scope.context.compat {
            (Sending::plain_status(StatusDocument::unguarded(&patch).document), false, None)
        } else {
            let StatusDocument { document, is_versioned } =
                scope.context.status_document(scope.object, known, &patch);
            let version = known.resource_version().map(str::to_owned);
            (Sending::status(document, is_versioned, may_retry), is_versioned, version)
        };
        let retries = if may_retry { STATUS_RETRIES } else { Backoff::NEVER }.retries();
        Self {
            patch,
            sending,
            is_versioned,
            version,
            may_retry,
            retries,
            conflicts: 0,
            state: State::Sending,
        }
    }

    pub(super) fn pending(&self) -> Pending<'_> {
        match &self.state {
            State::Sending => self.sending.pending(),
            State::Reading(reading, _) => reading.pending(),
            State::Waiting(seconds) => Pending::Wait(*seconds),
        }
    }

    /// The result, if the status is not sent again.
    pub(super) fn on(&mut self, input: Input, scope: &Scope<'_>) -> Option<Result<Bytes, RequestError>> {
        match &mut self.state {
            State::Sending => match self.sending.on(input, scope.context)? {
                Err(error)
                    if !scope.context.compat
                        && may_conflict(&self.sending.document, self.is_versioned, &error) =>
                {
                    self.state = State::Reading(Reading::new(), error);
                    None
                }
                sent => Some(sent),
            },
            State::Waiting(_) => {
                self.state = State::Sending;
                None
            }
            State::Reading(reading, _) => {
                let latest = reading.on(input, scope)?;
                self.after_reading(latest, scope).map(Err)
            }
        }
    }

    /// Sends the status again, for the object as it is now; or the error.
    fn after_reading(
        &mut self,
        latest: Result<Option<Arc<Object>>, RequestError>,
        scope: &Scope<'_>,
    ) -> Option<RequestError> {
        let State::Reading(_, error) = std::mem::replace(&mut self.state, State::Sending) else {
            return None;
        };
        let latest = match latest {
            Ok(Some(latest)) => latest,
            Ok(None) => return Some(changed()),
            Err(error) => return Some(error),
        };
        let StatusDocument { document, is_versioned } =
            scope.context.status_document(scope.object, &latest, &self.patch);
        // Unwritten parts of a status are only in the known object: its version is the same, but not its fields.
        let is_same = latest.resource_version() == self.version.as_deref()
            && document == self.sending.document
            && is_versioned == self.is_versioned;
        if is_same {
            // The reason is another one than a change of the object.
            let delay = self.retries.next(None, 0.0).filter(|_| is_temporary(&error, false));
            let Some(delay) = delay else { return Some(error) };
            self.state = State::Waiting(delay.seconds);
        } else if self.conflicts == CONFLICTS {
            return Some(changed());
        } else {
            self.conflicts += 1;
            self.version = latest.resource_version().map(str::to_owned);
            self.is_versioned = is_versioned;
        }
        self.sending = Sending::status(document, is_versioned, self.may_retry);
        None
    }
}

/// The result of writing a status.
#[derive(Debug)]
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

/// A status that, if it is invalid, is written without the fields named in the response.
#[derive(Clone, Debug)]
pub(super) struct SplitStatus {
    write: StatusWrite,
    known: Arc<Object>,
    invalid: Option<InvalidStatus>,
}

/// The rejection of a status because of some of its fields.
#[derive(Clone, Debug)]
struct InvalidStatus {
    whole: Map<String, Value>,
    named: Map<String, Value>,
    error: RequestError,
}

impl SplitStatus {
    pub(super) fn new(status: &Value, known: Arc<Object>, may_retry: bool, scope: &mut Scope<'_>) -> Self {
        let write = StatusWrite::new(as_patch(status), &known, may_retry, scope);
        Self { write, known, invalid: None }
    }

    pub(super) fn pending(&self) -> Pending<'_> {
        self.write.pending()
    }

    pub(super) fn on(&mut self, input: Input, scope: &mut Scope<'_>) -> Option<StatusWritten> {
        let sent = self.write.on(input, scope)?;
        let rejection = match (sent, self.invalid.take()) {
            (Ok(response), invalid) => {
                let rejection = invalid.map(|InvalidStatus { named, error, .. }| Rejection {
                    patch: named,
                    is_status: true,
                    error,
                });
                return Some(StatusWritten { response: Some(response), rejection });
            }
            (Err(last), Some(InvalidStatus { whole: patch, error, .. })) => {
                scope.outcome.lost |= is_outcome_unknown(&last);
                Rejection { patch, is_status: true, error }
            }
            (Err(error), None) => {
                let whole = std::mem::take(&mut self.write.patch);
                let named =
                    if error.status() == Some(422) { named_fields(&error, &whole) } else { Map::new() };
                let rest = if named.is_empty() { Map::new() } else { subtract(whole.clone(), &named) };
                if rest.contains_key("status") {
                    self.invalid = Some(InvalidStatus { whole, named, error });
                    self.write = StatusWrite::new(rest, &self.known, false, scope);
                    return None;
                }
                Rejection { patch: whole, is_status: true, error }
            }
        };
        Some(StatusWritten { response: None, rejection: Some(rejection) })
    }
}

impl Scope<'_> {
    /// Moves the progress in a patch for the body to a rejected part with the diff-base. Returns the rest.
    pub(super) fn defer_progress(
        &self,
        patch: Map<String, Value>,
        rejection: &mut Rejection,
    ) -> Map<String, Value> {
        let Some((_, persistence)) = self.context.release_cleanup else { return patch };
        let progress = deferred_progress(self.object, &patch, &rejection.patch, persistence);
        let rest = subtract(patch, &progress);
        let mut rejected = Patch(std::mem::take(&mut rejection.patch));
        rejected.merge(progress);
        rejection.patch = rejected.0;
        rest
    }
}

/// Whether the status may be accepted right after the body, and none of the body waits for it.
pub(super) fn may_follow_body(rejection: &Rejection) -> bool {
    rejection.patch.keys().eq(["status"]) && !is_final(&rejection.error)
}

pub(super) fn as_patch(status: &Value) -> Map<String, Value> {
    std::iter::once(("status".to_owned(), status.clone())).collect()
}

/// A document of the transformation functions for the status.
pub(super) fn operations_on_status(document: Document, scope: &Scope<'_>) -> Sending {
    if scope.context.compat {
        Sending::plain_status(document)
    } else {
        Sending::status(document, true, scope.object.deletion_timestamp().is_none())
    }
}
