//! The stored state: the progress and the diff-base that Kopf has stored on an object, in case another client removes them.

use std::borrow::Cow;

use serde_json::json;

use super::Persistence;
use super::own_annotations::{annotations_of, as_annotations, with_whole_records};
use crate::handler::registry::ResourceHandlers;
use crate::json::merge_patch::{Patch, missing_part};
use crate::json::path::FieldPath;
use crate::json::value::{Map, Value};
use crate::object::Object;

/// The progress and the diff-base of a handling, as the API server has accepted them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StoredState {
    /// The progress of the current handling as a merge patch: `null` for removed records.
    pub(super) progress: Patch,
    /// The serialized diff-base: kept during a handling, or if another client is known to remove it.
    pub(super) diffbase: Option<Box<str>>,
    /// The API server does not store the progress in the status: the schema prunes it.
    pub(super) is_pruned: bool,
}

impl StoredState {
    /// The part that the object does not have.
    pub(super) fn missing(&self, object: &Object, persistence: &Persistence) -> Patch {
        let progress = missing_progress(object, &self.progress.0);
        let mut missing = Patch(with_whole_records(progress, &self.progress.0, persistence));
        missing.merge(self.missing_base(object, persistence));
        missing
    }

    /// The annotations of the diff-base, if the object has none or it cannot be parsed.
    fn missing_base(&self, object: &Object, persistence: &Persistence) -> Map<String, Value> {
        let storage = &persistence.diffbase_storage;
        let Some(base) = self.diffbase.as_deref() else { return Map::new() };
        let keys = storage.own_keys(object);
        // Usually, the object has just this text.
        if keys.first().is_some_and(|key| object.has_annotation(key, base)) || storage.is_readable(object) {
            return Map::new();
        }
        as_annotations(keys.into_iter().map(|key| (key, json!(base))).collect())
    }

    /// Loads the progress from the object, regardless of the operator that wrote it.
    pub(super) fn load_progress(
        &mut self,
        object: &Object,
        persistence: &Persistence,
        handlers: &ResourceHandlers,
    ) {
        let known = stale_progress(object, persistence, handlers);
        for (key, _) in annotations_of(&known.0) {
            self.progress.set_annotation(key, object.annotation(key).map(Cow::into_owned));
        }
        for field in persistence.progress_storage.fields() {
            for (id, _) in known.get(field.keys()).and_then(Value::as_object).into_iter().flatten() {
                let field = field.child(id);
                self.progress.set(field.keys(), object.field(&field).unwrap_or_default());
            }
        }
    }
}

/// The part of the known progress that the object does not have.
fn missing_progress(object: &Object, progress: &Map<String, Value>) -> Map<String, Value> {
    let is_missing = |(key, value): &(&String, &Value)| match value {
        Value::String(text) => object.annotation(key).as_deref() != Some(text),
        _ => object.raw_annotation(key).is_some(),
    };
    let annotations = annotations_of(progress).filter(is_missing);
    let mut missing = as_annotations(annotations.map(|(key, value)| (key.clone(), value.clone())).collect());
    for (key, expected) in progress.iter().filter(|(key, _)| key.as_str() != "metadata") {
        let present = object.field(&FieldPath::from_keys([key.as_str()]));
        let part = missing_part(&Map::from_iter([(key.clone(), expected.clone())]), |_| present.as_ref());
        missing.extend(part);
    }
    missing
}

/// The patch that removes all progress from the object.
pub fn stale_progress(object: &Object, persistence: &Persistence, handlers: &ResourceHandlers) -> Patch {
    let (mut patch, storage) = (Patch::default(), &persistence.progress_storage);
    for id in &handlers.owned {
        let record = storage.fetch(object, id).ok().flatten();
        storage.purge(object, &mut patch, id);
        for subref in record.iter().flat_map(|record| &record.subrefs) {
            storage.purge(object, &mut patch, subref);
        }
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::json_patch::apply_merge;

    const RECORD: &str = "kopf.zalando.org/h";
    const REMOVED: &str = "kopf.zalando.org/g";
    const BASE: &str = "kopf.zalando.org/last-handled-configuration";

    /// The stored state after these accepted annotations.
    fn stored(annotations: &Value, diffbase: Option<&str>) -> StoredState {
        let patch = json!({"metadata": {"annotations": annotations}});
        let Value::Object(progress) = patch else { panic!() };
        StoredState { progress: Patch(progress), diffbase: diffbase.map(Box::from), is_pruned: false }
    }

    fn missing(stored: &StoredState, body: &Value) -> Value {
        let object = Object::decode(&body.to_string()).unwrap();
        Value::Object(stored.missing(&object, &Persistence::default()).0)
    }

    #[test]
    fn removed_and_changed_annotations_are_missing() {
        let stored = stored(&json!({RECORD: "{\"retries\":1}", REMOVED: null}), Some("{\"spec\":{}}\n"));
        let base = "{\"spec\":{}}\n";
        for (present, expected) in [
            (json!({RECORD: "{\"retries\":1}", BASE: base}), json!(null)),
            // Another diff-base may be newer than the known one.
            (json!({RECORD: "{\"retries\":1}", BASE: "{\"spec\":{\"x\":1}}\n"}), json!(null)),
            (json!({RECORD: "{\"retries\":1}", BASE: "{"}), json!({BASE: base})),
            (json!({BASE: base}), json!({RECORD: "{\"retries\":1}"})),
            (json!({RECORD: "{}", BASE: base}), json!({RECORD: "{\"retries\":1}"})),
            (json!({RECORD: "{\"retries\":1}", REMOVED: "{}", BASE: base}), json!({REMOVED: null})),
            (json!({}), json!({RECORD: "{\"retries\":1}", BASE: base})),
        ] {
            let mut body = json!({"metadata": {"annotations": present}});
            let found = missing(&stored, &body);
            assert_eq!(
                found.pointer("/metadata/annotations").cloned().unwrap_or_default(),
                expected,
                "{present}"
            );
            // When the missing part is written, nothing is missing.
            let Value::Object(patch) = found else { panic!() };
            apply_merge(&mut body, &patch);
            assert_eq!(missing(&stored, &body), json!({}), "{present}");
        }
    }

    #[test]
    fn nothing_is_missing_without_a_stored_state() {
        let body = json!({"metadata": {"annotations": {RECORD: "{}"}}, "status": {"x": 1}});
        assert_eq!(missing(&StoredState::default(), &body), json!({}));
    }
}
