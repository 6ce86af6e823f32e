//! The identity of patched objects: a patch of a deleted object must not change its successor of the same name.
//!
//! A write that finds another object has the same result as one that finds none: the object is gone.
//!
//! - Nothing is sent if the deletion of the object was received.
//! - Merge patches contain the uid. It is immutable, so the server rejects the patch for another object.
//! - Custom resources ignore the uid in merge patches of their status subresource. A status of them is sent as a JSON patch that
//!   tests the uid: this takes no further request, and changes by others are no conflicts. Where a JSON patch could overwrite
//!   such changes (see `merge_operations`), a merge patch with the resource version is sent: this is mostly the first status of
//!   an object. After a conflict, the object is read, which costs two more requests.
//! - The other JSON patches test the resource version; no two objects share one.
//!
//! With leader election, merge patches also contain the resource version that they were decided for. A process can be stopped
//! between its last check of the lease and the system call that sends a patch, and the bytes can travel for long. Meanwhile, another
//! replica may have become the leader. So the server decides: it rejects a patch for another version. After a conflict, the object is
//! read, and the same patch is sent with the latest version: the fence admits this only while the replica leads.
//!
//! With the behaviour of Kopf 1.45, patches have no precondition.

use super::documents::{PatchPart, to_json};
use super::rejection::causes;
use super::request::Document;
use super::{Scope, WriteContext};
use crate::json::json_patch::merge_operations;
use crate::json::value::{Map, Value, to_python_json, write_json_member};
use crate::object::{Found, Object};
use crate::request_error::{ApiError, RequestError};
use crate::resource::Resource;
use serde_json::json;
use std::sync::Arc;

/// The reason in the error of a request that was not applied because the object is gone.
const REPLACED: &str = "Replaced";

/// The largest number of operations in a JSON patch of the status. Servers accept ten thousand.
const MAX_OPERATIONS: usize = 1000;

/// The error of a request to an object that was deleted, even if another object has its name now.
pub(super) fn gone() -> RequestError {
    let mut gone = ApiError::from_response(404, None, b"the object was deleted");
    gone.reason = Some(REPLACED.to_owned());
    RequestError::Api(Box::new(gone))
}

/// The error of a conflict, if the latest version cannot be read, or is not the latest one any more.
pub(super) fn changed() -> RequestError {
    RequestError::Api(Box::new(ApiError::from_response(409, None, b"the object has changed")))
}

/// Whether it is certain that the object is gone; a 404 may mean that only the subresource is missing.
pub(super) fn is_gone(error: &RequestError) -> bool {
    matches!(error, RequestError::Api(error) if error.reason.as_deref() == Some(REPLACED))
}

/// Whether a 404 proves that the object was deleted. Others come from proxies, and from servers without the resource.
pub(super) fn is_deletion(error: &RequestError, object: &Object) -> bool {
    let RequestError::Api(rejection) = error else { return false };
    let named = || rejection.payload.as_ref()?.get("details")?.get("name")?.as_str();
    let is_named = rejection.reason.as_deref() == Some("NotFound") && named() == object.name();
    object.uid().is_some() && (is_gone(error) || is_named)
}

/// Whether the server has rejected a patch because of the uid.
pub(super) fn is_about_uid(error: &RequestError) -> bool {
    let RequestError::Api(rejection) = error else { return false };
    match rejection.status {
        422 => causes(error).any(|cause| cause.get("field").and_then(Value::as_str) == Some("metadata.uid")),
        // Servers of aggregated APIs may check it as a precondition, as kube-apiserver does for updates.
        409 => rejection.message.contains("UID in precondition"),
        _ => false,
    }
}

impl Scope<'_> {
    /// Parses the object in a response, and checks that it is the patched one.
    pub(super) fn read(&self, response: &[u8]) -> Result<Arc<Object>, RequestError> {
        let malformed = |error: &dyn std::fmt::Display| {
            let url = self.context.url(self.object, false);
            RequestError::Malformed(format!("PATCH {url}: {error}"))
        };
        let text = std::str::from_utf8(response).map_err(|error| malformed(&error))?;
        let latest = Object::decode(text).map(Arc::new).map_err(|error| malformed(&error))?;
        let is_other = self.object.uid().zip(latest.uid()).is_some_and(|(sent, found)| sent != found);
        if is_other && !self.context.compat { Err(gone()) } else { Ok(latest) }
    }

    /// The object in a response; the one that the cycle has decided about without a usable response.
    pub(super) fn known(&self, response: Option<&[u8]>) -> Arc<Object> {
        let latest = response.and_then(|response| self.read(response).ok());
        latest.unwrap_or_else(|| Arc::clone(self.object))
    }
}

impl WriteContext<'_> {
    /// The precondition of a merge patch for the body: a resource version; none without leader election.
    pub(super) fn version(&self, object: &Object) -> Option<String> {
        object.resource_version().filter(|_| self.is_versioned).map(str::to_owned)
    }

    /// The merge patch for the body, with its preconditions.
    pub(super) fn body_document(
        &self,
        object: &Object,
        body: &PatchPart<'_>,
        version: Option<&str>,
    ) -> Document {
        Document::MergePatch(guarded(body, object.uid().filter(|_| !self.compat), version))
    }

    /// The patch for the status subresource of the object as `known`, with the preconditions that the server checks there.
    pub(super) fn status_document(
        &self,
        object: &Object,
        known: &Object,
        status: &Map<String, Value>,
    ) -> StatusDocument {
        let merge_patch = |uid: Option<&str>, version: Option<&str>| StatusDocument {
            document: Document::MergePatch(guarded(&PatchPart(status, None), uid, version)),
            is_versioned: version.is_some(),
        };
        let uid = object.uid().filter(|_| !self.compat);
        let version = known.resource_version();
        match uid {
            _ if is_built_in(self.resource) => merge_patch(uid, version.filter(|_| self.is_versioned)),
            Some(uid) if !self.is_versioned => match status_operations(uid, known, status) {
                Some(text) => StatusDocument { document: Document::JsonPatch(text), is_versioned: false },
                None => merge_patch(None, version),
            },
            _ => merge_patch(None, version.filter(|_| self.is_versioned)),
        }
    }
}

/// A patch for the status subresource: a merge patch, or a JSON patch that tests the uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StatusDocument {
    pub(super) document: Document,
    /// Whether it is a merge patch for one version of the object.
    pub(super) is_versioned: bool,
}

impl StatusDocument {
    /// A merge patch without preconditions.
    pub(super) fn unguarded(status: &Map<String, Value>) -> Self {
        Self { document: Document::MergePatch(to_json(status)), is_versioned: false }
    }
}

/// Whether the reason of the error of a status may be that the object has changed, or that another one has its name.
pub(super) fn may_conflict(document: &Document, is_versioned: bool, error: &RequestError) -> bool {
    match document {
        Document::MergePatch(_) => is_versioned && error.status() == Some(409),
        // The errors of schemas name fields.
        Document::JsonPatch(_) => error.status() == Some(422) && causes(error).next().is_none(),
    }
}

/// Whether the server itself has implemented the resource, so that it checks the uid in a status. Other groups, also those that
/// end with `.k8s.io`, can have CRDs.
fn is_built_in(resource: &Resource) -> bool {
    !resource.group.contains('.')
}

/// The JSON patch that does the same as a merge patch of the status; none if only a merge patch can do it.
fn status_operations(uid: &str, known: &Object, status: &Map<String, Value>) -> Option<Vec<u8>> {
    let is_mapping =
        |keys: &[&str]| matches!(known.text_at(keys), Found::Text(text) if text.starts_with('{'));
    let mut operations = merge_operations(status, &is_mapping)?;
    if operations.len() >= MAX_OPERATIONS {
        return None;
    }
    operations.insert(0, json!({"op": "test", "path": "/metadata/uid", "value": uid}));
    Some(to_python_json(&Value::Array(operations)).into_bytes())
}

/// A merge patch with preconditions. They are not part of the patch anywhere else, such as in log lines.
fn guarded(body: &PatchPart<'_>, uid: Option<&str>, version: Option<&str>) -> Vec<u8> {
    let metadata = body.fields().find(|(key, _)| *key == "metadata").map(|(_, value)| value);
    let metadata = match metadata {
        _ if uid.is_none() && version.is_none() => return to_json(body.fields()),
        None => None,
        Some(Value::Object(metadata)) if !metadata.contains_key("uid") => Some(metadata),
        // Handlers have put this there.
        Some(_) => return to_json(body.fields()),
    };
    let mut text = String::from("{\"metadata\":{");
    for (key, value) in [("uid", uid), ("resourceVersion", version)] {
        if let Some(value) = value {
            write_json_member(&mut text, key, &value.into());
        }
    }
    for (key, value) in metadata.into_iter().flatten() {
        write_json_member(&mut text, key, value);
    }
    text.push('}');
    for (key, value) in body.fields().filter(|(key, _)| *key != "metadata") {
        write_json_member(&mut text, key, value);
    }
    text.push('}');
    text.into_bytes()
}
