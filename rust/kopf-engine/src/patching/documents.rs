//! The documents that patching sends, and checks of the objects in the responses.

use std::sync::Arc;

use bytes::Bytes;
use kopf_core::json::diff::{DiffItem, diff_left, python_repr};
use kopf_core::json::merge_patch::Patch;
use kopf_core::json::path::FieldPath;
use kopf_core::json::value::{Map, Value, truthy, write_json_member};
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::object::redaction::shown_diff;
use kopf_core::persistence::merge_requests::{MergeRequest, has_state_in_fields, merge_requests};

use super::Patching;
use super::rejections::advice;
use crate::error::RequestError;
use crate::host::LogRecord;

/// A patch without the field that is sent separately.
pub(super) struct PatchPart<'p>(pub(super) &'p Map<String, Value>, pub(super) Option<&'static str>);

impl PatchPart<'_> {
    pub(super) fn fields(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0.iter().filter(|(key, _)| Some(key.as_str()) != self.1)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fields().next().is_none()
    }

    pub(super) fn to_map(&self) -> Map<String, Value> {
        self.fields().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    pub(super) fn to_value(&self) -> Value {
        Value::Object(self.to_map())
    }
}

/// An object with these members. Strings are escaped as `json.dumps()` of Python does: most of the text is a diff-base, and this is much
/// cheaper than to serialize it with serde.
pub(super) fn to_json<'v>(members: impl IntoIterator<Item = (&'v String, &'v Value)>) -> Vec<u8> {
    let mut text = String::from("{");
    members.into_iter().for_each(|(key, value)| write_json_member(&mut text, key, value));
    text.push('}');
    text.into_bytes()
}

impl Patching<'_> {
    /// The requests for a patch, if their order is another one than the status and then the rest.
    pub(super) fn ordered_requests(
        &self,
        object: &Object,
        patch: &Map<String, Value>,
        final_progress: &Patch,
    ) -> Option<Vec<MergeRequest>> {
        let (_, persistence) = self.release_cleanup?;
        let requests = has_state_in_fields(patch, persistence)
            .then(|| merge_requests(object, patch, &final_progress.0, persistence));
        requests.filter(|requests| !is_status_first(requests))
    }

    /// Parses the object in a response.
    pub(super) fn read(&self, object: &Object, response: &Bytes) -> Result<Arc<Object>, RequestError> {
        let malformed = |error: &dyn std::fmt::Display| {
            let url = self.resource.url(object.namespace(), object.name(), None);
            RequestError::Malformed(format!("PATCH {url}: {error}"))
        };
        let text = std::str::from_utf8(response).map_err(|error| malformed(&error))?;
        let latest = Object::decode(text).map(Arc::new).map_err(|error| malformed(&error))?;
        self.check_identity(object, &latest)?;
        Ok(latest)
    }

    /// Warns if the server has not kept all of the patch, such as because of a schema without the field, or a webhook.
    pub(super) fn verify(&self, object: &Arc<Object>, latest: Option<&Object>, merged: &Map<String, Value>) {
        let Some(latest) = latest else { return };
        let lost = lost(latest, merged);
        if !lost.is_empty() {
            let text = python_repr(&shown_diff(object, &lost));
            let advice = if self.compat { String::new() } else { advice(self.resource, &lost) };
            let text = format!("Merge-patching finished with inconsistencies: {text}{advice}");
            self.host.log(LogRecord::local(Level::Warning, object, text));
        }
    }
}

/// Whether these are two requests, first the one for the status.
fn is_status_first(requests: &[MergeRequest]) -> bool {
    matches!(requests, [first, last] if first.is_status && !last.is_status)
}

/// The differences between a merge patch and the object in the response, without harmless ones.
pub(super) fn lost(latest: &Object, merged: &Map<String, Value>) -> Vec<DiffItem> {
    if latest.contains_patch(merged) {
        return vec![];
    }
    let kept = touched_part(latest, merged);
    let expected = Value::Object(merged.clone());
    let lost = diff_left(Some(&expected), Some(&kept));
    lost.into_iter().filter(|item| !is_harmless(item)).collect()
}

/// The fields of the object that the patch contains. The rest, especially the managed fields, is not even parsed.
fn touched_part(object: &Object, patch: &Map<String, Value>) -> Value {
    let mut part = Map::new();
    for (key, value) in patch {
        let field = |keys: &[&str]| object.field(&FieldPath::from_keys(keys.iter().copied()));
        let found = match value {
            Value::Object(inner) if key == "metadata" => {
                let known = inner.keys().filter_map(|name| Some((name.clone(), field(&[key, name])?)));
                Some(Value::Object(known.collect()))
            }
            _ => field(&[key]),
        };
        part.extend(found.map(|found| (key.clone(), found)));
    }
    Value::Object(part)
}

/// Whether the object is already in the state that the operations lead to.
pub(super) fn holds(object: &Object, operations: &[Value]) -> bool {
    let value = object.to_value();
    let is_applied = |operation: &Value| {
        let text = |key: &str| operation.get(key).and_then(Value::as_str).unwrap_or_default();
        let present = value.pointer(text("path"));
        match (text("op"), operation.get("value")) {
            ("remove", _) => present.is_none(),
            (_, expected) => present == expected,
        }
    };
    !operations.is_empty() && operations.iter().all(is_applied)
}

pub(super) fn is_about_status(operation: &Value) -> bool {
    let path = operation.get("path").and_then(Value::as_str).unwrap_or_default();
    path == "/status" || path.starts_with("/status/")
}

/// Whether the difference is only an emptied map or list of the metadata, which the server drops.
fn is_harmless(item: &DiffItem) -> bool {
    let falsy = |value: &Option<Value>| value.as_ref().is_none_or(|value| !truthy(value));
    let keys: Vec<&str> = item.path.keys().iter().map(AsRef::as_ref).collect();
    falsy(&item.old)
        && falsy(&item.new)
        && matches!(keys[..], ["metadata", "annotations" | "finalizers" | "labels"])
}
