//! Changes computed from the latest state: our finalizer and the transformation functions.
//!
//! They are sent as a JSON patch, which fails on a conflict. Then it is computed again from a fresh state: the driver calls the
//! functions with it. It is sent in two requests if it contains operations on a status subresource.

use super::documents::{PatchPart, holds, is_about_status};
use super::identity::is_gone;
use super::merged::Ended;
use super::outcome::{WriteFailure, is_final, is_rejection};
use super::request::{Document, WriteRequest};
use super::sending::{Pending, Reading, Sending};
use super::status::operations_on_status;
use super::{CONFLICTS, Input, Scope};
use crate::json::json_patch;
use crate::json::merge_patch::Patch;
use crate::json::value::{Map, Value, python_repr};
use crate::object::Object;
use crate::object::redaction::shown_operations;
use crate::persistence::finalizer::{self, Edit};
use crate::persistence::stored_state;
use crate::request_error::RequestError;
use serde_json::json;
use std::sync::Arc;

/// The finalizer and the functions of a write.
#[derive(Clone, Debug)]
pub(super) struct Transform {
    edit: Option<Edit>,
    deletion_handled: bool,
    /// Whether there are functions.
    has_functions: bool,
    /// Whether the functions are called; not any more after a rejection of their result.
    calls_functions: bool,
    /// The state from which the operations are computed.
    base: Arc<Object>,
    attempts: usize,
    /// The rejection of the functions' result, while the finalizer is written without them.
    rejection: Option<WriteFailure>,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    /// The driver calls the functions.
    Calling,
    Sending(Operations),
    /// The server does not apply the patch to this version: the latest state is read.
    Rejected(Operations, RequestError, Reading),
    /// The server has rejected operations on the status: either the subresource does not exist, or the object.
    Checking(RequestError, Reading),
}

/// A JSON patch. Nothing more is kept while it is sent, as many objects may be waiting for their requests.
#[derive(Clone, Debug)]
struct Operations {
    all: Vec<Value>,
    /// The same as a merge patch.
    changes: Map<String, Value>,
    /// The document that is being sent, and its version.
    document: Value,
    version: Option<String>,
    sending: Sending,
    is_status: bool,
}

impl Transform {
    /// Begins with the first request or the call of the functions. Returns the end if there is neither.
    pub(super) fn begin(request: &WriteRequest, scope: &mut Scope<'_>) -> (Self, Option<Ended>) {
        let mut transform = Self {
            edit: request.finalizer,
            deletion_handled: request.deletion_handled,
            has_functions: request.functions,
            calls_functions: request.functions,
            base: scope.latest(),
            attempts: 0,
            rejection: None,
            stage: Stage::Calling,
        };
        let ended = transform.attempt(scope);
        (transform, ended)
    }

    pub(super) fn pending(&self) -> Pending<'_> {
        match &self.stage {
            Stage::Calling => Pending::Transform(&self.base),
            Stage::Sending(operations) => operations.sending.pending(),
            Stage::Rejected(_, _, reading) | Stage::Checking(_, reading) => reading.pending(),
        }
    }

    pub(super) fn on(&mut self, input: Input, scope: &mut Scope<'_>) -> Option<Ended> {
        match &mut self.stage {
            Stage::Calling => {
                let Input::Transformed(result) = input else { return None };
                match result {
                    Ok(after) => {
                        let (finalizer, stale) = self.edits(scope);
                        let before = self.base.to_value();
                        self.compose(before, after, (finalizer, stale), scope)
                    }
                    Err(error) => {
                        scope.outcome.carry = false;
                        Some(Err(WriteFailure::Function(error)))
                    }
                }
            }
            Stage::Sending(operations) => {
                let response = operations.sending.on(input, scope.context)?;
                self.after_sending(response.and_then(|response| scope.read(&response)), scope)
            }
            Stage::Rejected(_, _, reading) => {
                let latest = reading.on(input, scope)?;
                self.after_rejection(latest, scope)
            }
            Stage::Checking(error, reading) => {
                let latest = reading.on(input, scope)?;
                let is_missing = matches!(latest, Err(error) if error.status() == Some(404));
                let error = error.clone();
                let failure = if is_missing { error.into() } else { WriteFailure::Functions(error) };
                Some(failed(failure, scope))
            }
        }
    }

    /// Computes the operations from the latest state, or has the functions called.
    fn attempt(&mut self, scope: &mut Scope<'_>) -> Option<Ended> {
        if self.calls_functions {
            self.stage = Stage::Calling;
            return None;
        }
        let (finalizer, stale) = self.edits(scope);
        let before = if stale.is_some() {
            self.base.to_value()
        } else {
            // Without functions, only the finalizers of the object matter.
            let finalizers: Vec<&str> = self.base.finalizers().collect();
            let known = if finalizers.is_empty() { json!({}) } else { json!({ "finalizers": finalizers }) };
            json!({ "metadata": known })
        };
        let after = before.clone();
        self.compose(before, after, (finalizer, stale), scope)
    }

    /// The edit of the finalizer, if it applies to the latest state, and the removal of stale progress with it. If the edit is not
    /// needed any more, the next cycle decides with the newer state.
    fn edits(&self, scope: &Scope<'_>) -> (Option<Edit>, Option<Patch>) {
        let finalizer =
            self.edit.filter(|edit| self.deletion_handled || scope.is_still_needed(*edit, &self.base));
        (finalizer, scope.stale_progress(&self.base, finalizer))
    }

    fn compose(
        &mut self,
        before: Value,
        mut after: Value,
        (finalizer, stale): (Option<Edit>, Option<Patch>),
        scope: &mut Scope<'_>,
    ) -> Option<Ended> {
        if let Some(stale) = stale {
            json_patch::apply_merge(&mut after, &stale.0);
        }
        if let Some(edit) = finalizer {
            finalizer::edit(&mut after, scope.context.finalizer, edit);
        }
        let all = json_patch::operations(&before, &after);
        let changes = json_patch::merge_patch(&before, &after);
        drop((before, after));
        self.send(all, changes, false, scope)
    }

    /// Sends the operations on the status or all others, with a test that the object is unchanged.
    fn send(
        &mut self,
        all: Vec<Value>,
        changes: Map<String, Value>,
        is_status: bool,
        scope: &mut Scope<'_>,
    ) -> Option<Ended> {
        let is_separate = scope.separate_status().is_some();
        let mut selected =
            all.iter().filter(|one| (is_separate && is_about_status(one)) == is_status).peekable();
        if selected.peek().is_none() {
            drop(selected);
            if !is_status {
                return self.send(all, changes, true, scope);
            }
            scope.outcome.merge(changes);
            return Some(self.end(scope));
        }
        let freshest = scope.outcome.latest.as_ref().unwrap_or(&self.base);
        let version = freshest.resource_version().map(str::to_owned);
        let mut document = vec![json!({
            "op": "test", "path": "/metadata/resourceVersion", "value": version,
        })];
        document.extend(selected.cloned());
        let document = Value::Array(document);
        scope.debug(|object| {
            let what = if is_status { "status" } else { "resource" };
            format!("JSON-patching the {what} with: {}", python_repr(&shown_operations(object, &document)))
        });
        let text = Document::JsonPatch(document.to_string().into_bytes());
        let sending = if is_status {
            operations_on_status(text, scope)
        } else {
            Sending::body(text, false, scope.context)
        };
        self.stage = Stage::Sending(Operations { all, changes, document, version, sending, is_status });
        None
    }

    fn after_sending(
        &mut self,
        sent: Result<Arc<Object>, RequestError>,
        scope: &mut Scope<'_>,
    ) -> Option<Ended> {
        let Stage::Sending(operations) = std::mem::replace(&mut self.stage, Stage::Calling) else {
            return None;
        };
        let Operations { is_status, .. } = operations;
        let error = match sent {
            Ok(latest) => {
                scope.outcome.latest = Some(latest);
                let Operations { all, changes, .. } = operations;
                if is_status {
                    scope.outcome.merge(changes);
                    return Some(self.end(scope));
                }
                if scope.separate_status().is_some() && all.iter().any(is_about_status) {
                    // The operations on the status are computed again if they have a conflict; these are not.
                    scope.outcome.merge(PatchPart(&changes, scope.separate_status()).to_map());
                }
                return self.send(all, changes, true, scope);
            }
            Err(error) => error,
        };
        let compat = scope.context.compat;
        if error.status() == Some(422) || (error.status() == Some(409) && !compat) {
            self.stage = Stage::Rejected(operations, error, Reading::new());
            if compat || self.attempts >= CONFLICTS {
                self.leave_to_next_cycle(scope);
                return Some(Ok(()));
            }
            return None;
        }
        if !is_status && !compat && self.calls_functions && is_rejection(&error) {
            let latest = scope.latest();
            return self.without_functions(error, latest, scope);
        }
        if !is_status || compat || is_gone(&error) || !is_final(&error) {
            return Some(failed(error.into(), scope));
        }
        if error.status() == Some(404) {
            self.stage = Stage::Checking(error, Reading::new());
            return None;
        }
        Some(failed(WriteFailure::Functions(error), scope))
    }

    fn after_rejection(
        &mut self,
        latest: Result<Option<Arc<Object>>, RequestError>,
        scope: &mut Scope<'_>,
    ) -> Option<Ended> {
        let latest = match latest {
            Ok(Some(latest)) => latest,
            Ok(None) => {
                scope.outcome.must_retry = true;
                self.leave_to_next_cycle(scope);
                return Some(Ok(()));
            }
            Err(error) => return Some(Err(error.into())),
        };
        let Stage::Rejected(operations, error, _) = std::mem::replace(&mut self.stage, Stage::Calling) else {
            return None;
        };
        self.attempts += 1;
        // The version is unchanged, so there was no conflict: a retry would fail, too.
        if latest.resource_version() == operations.version.as_deref() {
            if !self.calls_functions || error.status() != Some(422) {
                return Some(Err(error.into()));
            }
            return self.without_functions(error, latest, scope);
        }
        // It was applied, and only the response was lost.
        if holds(&latest, &operations.all) {
            scope.outcome.latest = Some(latest);
            scope.outcome.merge(operations.changes);
            return Some(self.end(scope));
        }
        self.base = Arc::clone(&latest);
        scope.outcome.latest = Some(latest);
        self.attempt(scope)
    }

    /// The server rejects the result of the functions. The finalizer does not depend on them.
    fn without_functions(
        &mut self,
        error: RequestError,
        latest: Arc<Object>,
        scope: &mut Scope<'_>,
    ) -> Option<Ended> {
        self.rejection = Some(WriteFailure::Functions(error));
        scope.outcome.functions_rejected = true;
        if self.edit.is_none() {
            return Some(self.end(scope));
        }
        self.calls_functions = false;
        self.base = latest;
        self.attempt(scope)
    }

    /// There are too many conflicts, or the latest state cannot be read.
    fn leave_to_next_cycle(&self, scope: &mut Scope<'_>) {
        scope.outcome.carry = self.has_functions;
        if let Stage::Rejected(Operations { document, .. }, ..) = &self.stage {
            scope.debug(|_| {
                format!(
                    "Could not apply the patch in full due to conflicts with newer changes. Will try on the next \
                     cycle soon. Remaining: {}",
                    python_repr(document)
                )
            });
        }
    }

    /// All is written, apart from a rejected result of the functions.
    fn end(&mut self, scope: &mut Scope<'_>) -> Ended {
        if let Some(rejection) = self.rejection.take() {
            return Err(rejection);
        }
        scope.outcome.carry = false;
        Ok(())
    }
}

fn failed(failure: WriteFailure, scope: &mut Scope<'_>) -> Ended {
    scope.outcome.functions_rejected = matches!(failure, WriteFailure::Functions(_));
    Err(failure)
}

impl Scope<'_> {
    /// Whether the edit of the finalizer, decided for one state, applies to another one. Kopf 1.45 does not check this.
    fn is_still_needed(&self, edit: Edit, latest: &Object) -> bool {
        self.context.release_cleanup.is_none_or(|(resource_handlers, persistence)| {
            finalizer::holds(edit, self.object, latest, persistence, &resource_handlers.extra_fields)
        })
    }

    /// The removal of the stale progress of a finished deletion; none if the object has no such progress.
    fn stale_progress(&self, base: &Object, finalizer: Option<Edit>) -> Option<Patch> {
        let (resource_handlers, persistence) = self.context.release_cleanup?;
        let is_released = finalizer == Some(Edit::Allow) && base.deletion_timestamp().is_some();
        is_released
            .then(|| stored_state::stale_progress(base, persistence, resource_handlers))
            .filter(|stale| !stale.is_empty())
    }
}
