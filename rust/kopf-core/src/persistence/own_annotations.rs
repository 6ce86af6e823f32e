//! The parts of a merge patch that belong to Kopf: handler progress and the diff-base.

use std::borrow::Cow;

use super::Persistence;
use crate::json::merge_patch::{Patch, is_removal};
use crate::json::path::{self, FieldPath};
use crate::json::scanner::is_json;
use crate::json::value::{Map, Value};
use crate::object::Object;

/// The serialized diff-base in the annotations of the object, if it is valid JSON.
pub(super) fn base_text<'o>(object: &'o Object, keys: &[String]) -> Option<Cow<'o, str>> {
    let text = keys.iter().find_map(|key| object.annotation(key))?;
    is_json(&text).then_some(text)
}

/// The serialized diff-base in the annotations of a patch.
pub(super) fn written_base<'p>(patch: &'p Map<String, Value>, keys: &[String]) -> Option<&'p str> {
    annotations_of(patch).find(|(key, _)| keys.contains(key))?.1.as_str()
}

pub(super) fn annotations_of(patch: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let annotations = patch.get("metadata").and_then(|metadata| metadata.get("annotations"));
    annotations.and_then(Value::as_object).into_iter().flatten()
}

/// The part of a patch that concerns progress. `keys` are the annotations of the diff-base, which are left out.
pub(super) fn own_progress(
    patch: &Map<String, Value>,
    keys: &[String],
    persistence: &Persistence,
) -> Map<String, Value> {
    let storage = &persistence.progress_storage;
    let is_ours = |key: &String| storage.clears_annotation(key) && !keys.contains(key);
    let own = annotations_of(patch).filter(|(key, _)| is_ours(key));
    let own = as_annotations(own.map(|(key, value)| (key.clone(), value.clone())).collect());
    with_fields(own, patch, &storage.fields())
}

/// Adds these fields of `patch` to `own`.
pub(super) fn with_fields(
    own: Map<String, Value>,
    patch: &Map<String, Value>,
    fields: &[&FieldPath],
) -> Map<String, Value> {
    let mut own = Patch(own);
    for field in fields {
        if let Some((first, rest)) = field.keys().split_first()
            && let Some(value) = patch.get(&**first).and_then(|value| path::resolve(value, rest))
        {
            own.set(field.keys(), value.clone());
        }
    }
    own.0
}

/// The part of a patch that concerns Kopf's own state on the object: progress, touch fields, and the diff-base.
pub fn own_annotations(
    object: &Object,
    patch: &Map<String, Value>,
    persistence: &Persistence,
) -> Map<String, Value> {
    let keys = persistence.diffbase_storage.own_keys(object);
    let own = own_progress(patch, &keys, persistence);
    let mut own = Patch(with_fields(own, patch, &persistence.progress_storage.touch_fields()));
    own.merge(own_base(object, patch, persistence));
    own.0
}

/// The part of a patch that is the diff-base.
pub(super) fn own_base(
    object: &Object,
    patch: &Map<String, Value>,
    persistence: &Persistence,
) -> Map<String, Value> {
    let storage = &persistence.diffbase_storage;
    let keys = storage.own_keys(object);
    let base = annotations_of(patch).filter(|(key, _)| keys.contains(key));
    let base = as_annotations(base.map(|(key, value)| (key.clone(), value.clone())).collect());
    with_fields(base, patch, &storage.own_fields())
}

/// The fields of the progress records in a patch, with their values. Records in annotations are not included.
pub(crate) fn progress_records(
    patch: &Map<String, Value>,
    persistence: &Persistence,
) -> Vec<(FieldPath, Value)> {
    let mut found = Vec::new();
    for field in persistence.progress_storage.fields() {
        let own = Patch(with_fields(Map::new(), patch, &[field]));
        let records = own.get(field.keys()).and_then(Value::as_object).into_iter().flatten();
        found.extend(records.map(|(id, record)| (field.child(id), record.clone())));
    }
    found
}

/// The fields of the progress records that a patch removes. Records in annotations are not included.
pub(crate) fn removed_records(patch: &Map<String, Value>, persistence: &Persistence) -> Vec<FieldPath> {
    let records = progress_records(patch, persistence).into_iter();
    records.filter(|(_, record)| record.is_null()).map(|(field, _)| field).collect()
}

/// The field for the progress that the object does not have at all.
pub(crate) fn absent_progress(object: &Object, persistence: &Persistence) -> Option<FieldPath> {
    let mut fields = persistence.progress_storage.fields().into_iter();
    fields.find(|field| object.field(field).is_none()).cloned()
}

/// Whether a response lacks the field with the progress that an accepted patch has written: the schema prunes it. None if the patch
/// writes no such field.
pub(super) fn is_pruned(
    patch: &Map<String, Value>,
    response: &Object,
    persistence: &Persistence,
) -> Option<bool> {
    let is_written = |field: &&FieldPath| {
        let written = with_fields(Map::new(), patch, &[*field]);
        !written.is_empty() && !is_removal(&written)
    };
    let mut written = persistence.progress_storage.fields().into_iter().filter(is_written).peekable();
    written.peek()?;
    Some(written.any(|field| response.field(field).is_none()))
}

/// Whether the patch writes the diff-base.
pub(super) fn has_base(object: &Object, patch: &Map<String, Value>, persistence: &Persistence) -> bool {
    let storage = &persistence.diffbase_storage;
    !with_fields(Map::new(), patch, &storage.own_fields()).is_empty()
        || written_base(patch, &storage.own_keys(object)).is_some()
}

pub(super) fn as_annotations(annotations: Map<String, Value>) -> Map<String, Value> {
    let mut patch = Patch::default();
    if !annotations.is_empty() {
        patch.set(&["metadata", "annotations"], Value::Object(annotations));
    }
    patch.0
}

/// Replaces incomplete progress records by the whole ones. The object may be older than our last write: a field that it has
/// can have been written since.
pub(super) fn with_whole_records(
    missing: Map<String, Value>,
    whole: &Map<String, Value>,
    persistence: &Persistence,
) -> Map<String, Value> {
    let incomplete = progress_records(&missing, persistence);
    let (mut patch, whole) = (Patch(missing), Patch(whole.clone()));
    for (field, _) in incomplete.iter().filter(|(_, record)| record.is_object()) {
        if let Some(record) = whole.get(field.keys()) {
            patch.set(field.keys(), record.clone());
        }
    }
    patch.0
}
