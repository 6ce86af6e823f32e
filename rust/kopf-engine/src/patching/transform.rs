//! Changes computed from the latest state: our finalizer and the transformation functions.
//!
//! They are sent as a JSON patch, which fails on a conflict. Then it is recomputed from a fresh state. That state is
//! read by listing one object, since operators have the permission to list, but may lack the permission to get.

use std::sync::Arc;

use form_urlencoded::byte_serialize;
use kopf_core::json::json_patch;
use kopf_core::json::merge_patch::Patch;
use kopf_core::json::value::{Map, Value, python_repr};
use kopf_core::object::redaction::shown_operations;
use kopf_core::object::{Object, decode_page};
use kopf_core::persistence::finalizer::{self, Edit};
use kopf_core::persistence::pending_state;
use serde_json::json;
use tokio::sync::oneshot;

use super::documents::{PatchPart, holds, is_about_status};
use super::identity::{gone, is_gone};
use super::status::is_final;
use super::{CONFLICTS, PatchFailure, Patching, PatchingError, WriteResult, failure};
use crate::client::RequestBody;
use crate::error::RequestError;
use crate::host::{ApplyPatchFnsTask, CycleId, HostTask};

/// The part of a write that is computed from the latest state.
#[derive(Clone, Copy)]
pub(super) struct TransformRequest {
    pub(super) cycle: CycleId,
    pub(super) finalizer: Option<Edit>,
    pub(super) deletion_handled: bool,
    pub(super) functions: bool,
}

/// The result of a JSON patch.
enum JsonPatchResult {
    Done,
    /// The server does not apply it to this version of the object.
    Rejected {
        document: Value,
        version: Option<String>,
        error: RequestError,
    },
    /// A failure that is no conflict.
    Failed(PatchingError),
}

impl Patching<'_> {
    pub(super) async fn transform(
        &self,
        object: &Arc<Object>,
        request: TransformRequest,
        mut applied: WriteResult,
    ) -> Result<WriteResult, PatchFailure> {
        let TransformRequest { cycle, deletion_handled, mut functions, .. } = request;
        let mut base = Arc::clone(applied.latest.as_ref().unwrap_or(object));
        let mut rejection = None;
        for attempt in 0.. {
            // If the edit is not needed any more, the next cycle decides with the newer state.
            let finalizer = request
                .finalizer
                .filter(|edit| deletion_handled || self.is_still_needed(*edit, object, &base));
            let (operations, changes) = match self.operations(&base, cycle, finalizer, functions).await {
                Ok(operations) => operations,
                Err(error) => return failure(WriteResult { carry: false, ..applied }, error),
            };
            let (latest, is_body_written, result) =
                self.send_operations(object, &base, &operations, applied.latest.take()).await;
            applied.latest = latest;
            if is_body_written {
                // The operations on the status are computed again if they have a conflict; these are not.
                applied.merge(PatchPart(&changes, self.separate_status()).to_map());
            }
            let (document, version, error) = match result {
                JsonPatchResult::Done => {
                    applied.merge(changes);
                    break;
                }
                JsonPatchResult::Failed(error) => {
                    applied.functions_rejected = matches!(error, PatchingError::Functions(_));
                    return failure(applied, error);
                }
                JsonPatchResult::Rejected { document, version, error } => (document, version, error),
            };
            let is_last = self.compat || attempt >= CONFLICTS;
            let latest = match if is_last { Ok(None) } else { self.reread(object).await } {
                Ok(latest) => latest,
                Err(error) => return failure(applied, error.into()),
            };
            match latest {
                // The version is unchanged, so there was no conflict: a retry would fail, too.
                Some(latest) if latest.resource_version() == version.as_deref() => {
                    if functions && error.status() == Some(422) {
                        rejection = Some(PatchingError::Functions(error));
                        applied.functions_rejected = true;
                        if request.finalizer.is_some() {
                            // The finalizer does not depend on the functions.
                            functions = false;
                            base = latest;
                            continue;
                        }
                        break;
                    }
                    return failure(applied, error.into());
                }
                // It was applied, and only the response was lost.
                Some(latest) if holds(&latest, &operations) => {
                    applied.latest = Some(latest);
                    applied.merge(changes);
                    break;
                }
                Some(latest) => {
                    base = Arc::clone(&latest);
                    applied.latest = Some(latest);
                }
                None => {
                    applied.must_retry = !is_last;
                    applied.carry = request.functions;
                    self.log_conflict(object, &document);
                    return Ok(applied);
                }
            }
        }
        if let Some(rejection) = rejection {
            return failure(applied, rejection);
        }
        Ok(WriteResult { carry: false, ..applied })
    }

    fn log_conflict(&self, object: &Arc<Object>, document: &Value) {
        self.debug(object, || {
            format!(
                "Could not apply the patch in full due to conflicts with newer changes. Will try on the next cycle \
                 soon. Remaining: {}",
                python_repr(document)
            )
        });
    }

    /// The current object; none if the permission to list is missing.
    pub(super) async fn reread(&self, object: &Object) -> Result<Option<Arc<Object>>, RequestError> {
        let name = object.name().unwrap_or_default();
        let name = name.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
        let selector: String = byte_serialize(format!("metadata.name={name}").as_bytes()).collect();
        let url = self.resource.url(object.namespace(), None, None);
        let url = format!("{url}?fieldSelector={selector}");
        let body = match self.client.request_once(&http::Method::GET, &url, RequestBody::None).await {
            Err(error) if error.status() == Some(403) => return Ok(None),
            Err(error) if !is_final(&error) => self.client.get(&url).await?,
            result => result?,
        };
        let page =
            decode_page(&body).map_err(|error| RequestError::Malformed(format!("GET {url}: {error}")))?;
        let mut found = page.items.into_iter().filter(|item| item.uid() == object.uid());
        match found.next() {
            Some(latest) => Ok(Some(Arc::new(latest))),
            None => Err(gone()),
        }
    }

    /// Sends the operations with a test that the object is unchanged. Also returns the latest state of the object, and whether
    /// the server has accepted operations on fields other than a separate status.
    async fn send_operations(
        &self,
        object: &Arc<Object>,
        base: &Arc<Object>,
        operations: &[Value],
        mut latest: Option<Arc<Object>>,
    ) -> (Option<Arc<Object>>, bool, JsonPatchResult) {
        let is_separate = self.separate_status().is_some();
        let mut is_body_written = false;
        let (status, body): (Vec<_>, Vec<_>) =
            operations.iter().cloned().partition(|one| is_separate && is_about_status(one));
        for (is_status, operations) in [(false, body), (true, status)] {
            if operations.is_empty() {
                continue;
            }
            let freshest = latest.as_ref().unwrap_or(base);
            match self.send_document(object, freshest, is_status, operations).await {
                Ok(read) => latest = Some(read),
                Err(result) => return (latest, is_body_written, *result),
            }
            is_body_written |= !is_status;
        }
        (latest, is_body_written, JsonPatchResult::Done)
    }

    /// The field that is written by requests to a subresource, if it is one.
    fn separate_status(&self) -> Option<&'static str> {
        self.resource.has_subresource("status").then_some("status")
    }

    /// Sends one document, for the resource or for its status. Returns the object in the response.
    async fn send_document(
        &self,
        object: &Arc<Object>,
        freshest: &Arc<Object>,
        is_status: bool,
        operations: Vec<Value>,
    ) -> Result<Arc<Object>, Box<JsonPatchResult>> {
        let version = freshest.resource_version().map(str::to_owned);
        let mut document = vec![json!({
            "op": "test", "path": "/metadata/resourceVersion", "value": version,
        })];
        document.extend(operations);
        let document = Value::Array(document);
        self.debug(object, || {
            let what = if is_status { "status" } else { "resource" };
            format!("JSON-patching the {what} with: {}", python_repr(&shown_operations(object, &document)))
        });
        let text = document.to_string();
        let payload = RequestBody::JsonPatch(text.as_bytes());
        let response = if is_status && !self.compat {
            self.ask_status(object, payload, true, object.deletion_timestamp().is_none()).await
        } else {
            self.ask(object, is_status.then_some("status"), payload).await
        };
        let error = match response.and_then(|response| self.read(object, &response)) {
            Ok(read) => return Ok(read),
            Err(error) => error,
        };
        if error.status() == Some(422) || (error.status() == Some(409) && !self.compat) {
            return Err(Box::new(JsonPatchResult::Rejected { document, version, error }));
        }
        if !is_status || self.compat || is_gone(&error) || !is_final(&error) {
            return Err(Box::new(JsonPatchResult::Failed(error.into())));
        }
        // Either the subresource does not exist, or the object.
        let is_gone = error.status() == Some(404)
            && matches!(self.reread(object).await, Err(error) if error.status() == Some(404));
        let error = if is_gone { error.into() } else { PatchingError::Functions(error) };
        Err(Box::new(JsonPatchResult::Failed(error)))
    }

    /// The changes as JSON patch operations and as a merge patch. Nothing more is kept, as many objects may be waiting
    /// for their requests.
    async fn operations(
        &self,
        base: &Arc<Object>,
        cycle: CycleId,
        finalizer: Option<Edit>,
        functions: bool,
    ) -> Result<(Vec<Value>, Map<String, Value>), PatchingError> {
        let (before, mut after) = if functions {
            let mut after = self.call_functions(cycle, base).await?;
            if let Some(stale) = self.stale_progress(base, finalizer) {
                json_patch::apply_merge(&mut after, &stale.0);
            }
            (base.to_value(), after)
        } else if let Some(stale) = self.stale_progress(base, finalizer) {
            let before = base.to_value();
            let mut after = before.clone();
            json_patch::apply_merge(&mut after, &stale.0);
            (before, after)
        } else {
            // Without functions, only the finalizers of the object matter.
            let finalizers: Vec<&str> = base.finalizers().collect();
            let known = if finalizers.is_empty() { json!({}) } else { json!({ "finalizers": finalizers }) };
            let before = json!({ "metadata": known });
            (before.clone(), before)
        };
        if let Some(edit) = finalizer {
            finalizer::edit(&mut after, self.finalizer, edit);
        }
        Ok((json_patch::operations(&before, &after), json_patch::merge_patch(&before, &after)))
    }

    /// Whether the edit of the finalizer, decided for one state, applies to another one. Kopf 1.45 does not check this.
    fn is_still_needed(&self, edit: Edit, decided: &Object, latest: &Object) -> bool {
        self.release_cleanup.is_none_or(|(resource_handlers, persistence)| {
            finalizer::holds(edit, decided, latest, persistence, &resource_handlers.extra_fields)
        })
    }

    /// The removal of the stale progress of a finished deletion; none if the object has no such progress.
    fn stale_progress(&self, base: &Object, finalizer: Option<Edit>) -> Option<Patch> {
        let (resource_handlers, persistence) = self.release_cleanup?;
        let is_released = finalizer == Some(Edit::Allow) && base.deletion_timestamp().is_some();
        is_released
            .then(|| pending_state::stale_progress(base, persistence, resource_handlers))
            .filter(|stale| !stale.is_empty())
    }

    async fn call_functions(&self, cycle: CycleId, object: &Arc<Object>) -> Result<Value, PatchingError> {
        let (reply, receiver) = oneshot::channel();
        self.host.submit(HostTask::ApplyPatchFns(ApplyPatchFnsTask {
            cycle,
            object: Arc::clone(object),
            reply,
        }));
        match receiver.await {
            Ok(result) => result.map_err(PatchingError::Function),
            Err(_) => Err(PatchingError::Function("The operator is exiting.".to_owned())),
        }
    }
}
