//! The documents that patching sends, and what it finds in the answers to them.
//!
//! Must not know: requests, attempts, conflicts.

use kopf_core::json::diff::{DiffItem, diff_left};
use kopf_core::json::path::FieldPath;
use kopf_core::json::value::{Map, Value, truthy};
use kopf_core::object::Object;
use serde::{Serialize, Serializer};

/// A patch without what goes elsewhere.
pub(super) struct Part<'p>(pub(super) &'p Map<String, Value>, pub(super) Option<&'static str>);

impl Part<'_> {
    fn fields(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0.iter().filter(|(key, _)| Some(key.as_str()) != self.1)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fields().next().is_none()
    }

    pub(super) fn to_value(&self) -> Value {
        Value::Object(self.fields().map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        to_json(self)
    }
}

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.fields())
    }
}

/// Values are written without an adapter between text and bytes; it never fails.
pub(super) fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// What the object has not kept of a merge patch, beside what is nothing anyway.
pub(super) fn lost(latest: &Object, merged: &Map<String, Value>) -> Vec<DiffItem> {
    if latest.contains_patch(merged) {
        return vec![];
    }
    let kept = touched_part(latest, merged);
    let wanted = Value::Object(merged.clone());
    let lost = diff_left(Some(&wanted), Some(&kept));
    lost.into_iter().filter(|item| !is_harmless(item)).collect()
}

/// What the object has in the fields that the patch is about: the rest, managed fields above all, is not even parsed.
fn touched_part(object: &Object, wanted: &Map<String, Value>) -> Value {
    let mut part = Map::new();
    for (key, value) in wanted {
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

/// Whether the object is already as the operations would make it.
pub(super) fn holds(object: &Object, operations: &[Value]) -> bool {
    let value = object.to_value();
    let is_wanted = |operation: &Value| {
        let text = |key: &str| operation.get(key).and_then(Value::as_str).unwrap_or_default();
        let present = value.pointer(text("path"));
        match (text("op"), operation.get("value")) {
            ("remove", _) => present.is_none(),
            (_, wanted) => present == wanted,
        }
    };
    !operations.is_empty() && operations.iter().all(is_wanted)
}

pub(super) fn is_about_status(operation: &Value) -> bool {
    let path = operation.get("path").and_then(Value::as_str).unwrap_or_default();
    path == "/status" || path.starts_with("/status/")
}

/// The server drops emptied maps and lists of the metadata: nothing is lost with them.
fn is_harmless(item: &DiffItem) -> bool {
    let falsy = |value: &Option<Value>| value.as_ref().is_none_or(|value| !truthy(value));
    let keys: Vec<&str> = item.path.keys().iter().map(AsRef::as_ref).collect();
    falsy(&item.old)
        && falsy(&item.new)
        && matches!(keys[..], ["metadata", "annotations" | "finalizers" | "labels"])
}
