//! The parts of patches that are sent, and checks of the objects in the responses.

use super::Scope;
use super::rejection::advice;
use crate::json::diff::{DiffItem, diff_left, python_repr};
use crate::json::path::FieldPath;
use crate::json::value::{Map, Value, truthy, write_json_member};
use crate::log_level::Level;
use crate::object::Object;
use crate::object::redaction::shown_diff;

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

impl Scope<'_> {
    /// Warns if the server has not kept all of the patch, such as because of a schema without the field, or a webhook.
    pub(super) fn verify(&mut self, merged: &Map<String, Value>) {
        let Some(latest) = &self.outcome.latest else { return };
        let lost = lost(latest, merged);
        if !lost.is_empty() {
            let text = python_repr(&shown_diff(self.object, &lost));
            let advice =
                if self.context.compat { String::new() } else { advice(self.context.resource, &lost) };
            let text = format!("Merge-patching finished with inconsistencies: {text}{advice}");
            self.log(Level::Warning, text);
        }
    }
}

/// The differences between a merge patch and the object in the response, without harmless ones.
fn lost(latest: &Object, merged: &Map<String, Value>) -> Vec<DiffItem> {
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
