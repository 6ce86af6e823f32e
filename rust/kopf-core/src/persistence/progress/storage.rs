//! Storages of progress records: annotations, the status, or several of them.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::record::{Malformed, Record};
use crate::json::merge_patch::Patch;
use crate::json::path::{self, FieldPath};
use crate::json::value::Value;
use crate::object::{Found, Object};
use crate::persistence::annotation_keys::{
    drop_empty_stanzas, lacks_annotation, make_keys, retain_annotations, store_marker,
};

/// A storage of progress records.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(tag = "type")]
pub enum ProgressStorage {
    /// One annotation per handler (or two, under the keys of both schemes).
    Annotations {
        /// The prefix of all keys.
        prefix: String,
        /// Whether fields without a value are written.
        #[serde(default)]
        verbose: bool,
        /// The name of the annotation by which an object is touched.
        touch_key: String,
        /// Whether keys of the old scheme (v1) are read and written too.
        v1: bool,
    },
    /// One mapping in the status, with handler ids as keys.
    Status {
        /// The field with the mapping.
        field: FieldPath,
        /// The field that is changed to touch an object.
        touch_field: FieldPath,
        /// Whether records are only read and removed there, not written.
        #[serde(default)]
        read_only: bool,
    },
    /// Several storages: records are written to all of them, and read from the first that has one.
    Multi {
        /// The storages.
        storages: Vec<ProgressStorage>,
    },
    /// A storage implemented in Python, reached by commands. The methods here treat it as empty.
    Custom,
}

impl Default for ProgressStorage {
    /// Annotations; and, only to read and remove them, records in the status, which old versions of Kopf wrote.
    fn default() -> Self {
        let annotations = Self::Annotations {
            prefix: "kopf.zalando.org".to_owned(),
            verbose: false,
            touch_key: "touch-dummy".to_owned(),
            v1: true,
        };
        let status = Self::Status {
            field: FieldPath::from_keys(["status", "kopf", "progress"]),
            touch_field: FieldPath::from_keys(["status", "kopf", "dummy"]),
            read_only: true,
        };
        Self::Multi { storages: vec![annotations, status] }
    }
}

impl ProgressStorage {
    /// The record of a handler, if there is one.
    pub fn fetch(&self, object: &Object, id: &str) -> Result<Option<Record>, Malformed> {
        match self {
            Self::Annotations { prefix, .. } if lacks_annotation(prefix, id, object) => Ok(None),
            Self::Annotations { prefix, v1, .. } => {
                for key in make_keys(prefix, id, *v1, Some(object)) {
                    let Some(text) = object.annotation(&key) else { continue };
                    let record = read(&text)
                        .map_err(|problem| Malformed { place: format!("annotation {key}"), problem })?;
                    if record.is_some() {
                        return Ok(record);
                    }
                }
                Ok(None)
            }
            Self::Status { field, .. } => {
                // Most objects have no records there.
                let Found::Text(_) = object.text_at(field.keys()) else { return Ok(None) };
                let path = field.child(id);
                let Some(value) = object.field(&path).filter(|value| !value.is_null()) else {
                    return Ok(None);
                };
                let malformed = |problem| Malformed { place: format!("field {path}"), problem };
                Record::from_value(&value).map(Some).map_err(malformed)
            }
            Self::Custom => Ok(None),
            Self::Multi { storages } => {
                for storage in storages {
                    if let Some(record) = storage.fetch(object, id)? {
                        return Ok(Some(record));
                    }
                }
                Ok(None)
            }
        }
    }

    /// Puts the record of a handler into the patch.
    pub fn store(&self, object: &Object, patch: &mut Patch, id: &str, record: &Record) {
        match self {
            Self::Annotations { prefix, verbose, v1, .. } => {
                let text = record.to_json(*verbose);
                for key in make_keys(prefix, id, *v1, Some(object)) {
                    patch.set_annotation(&key, Some(text.clone()));
                }
                store_marker(prefix, object, patch);
            }
            Self::Status { read_only: true, .. } | Self::Custom => {}
            Self::Status { field, .. } => {
                let field = field.child(id);
                let mut map = record.to_map();
                // The mapping is merged into the existing record, so the field must be removed explicitly.
                if record.observed.is_none() && object.field(&field.child("seen")).is_some() {
                    map.insert("seen".to_owned(), Value::Null);
                }
                patch.set(field.keys(), Value::Object(map));
            }
            Self::Multi { storages } => storages.iter().for_each(|it| it.store(object, patch, id, record)),
        }
    }

    /// Removes the record of a handler: from the object if it is persisted, or else from the patch.
    pub fn purge(&self, object: &Object, patch: &mut Patch, id: &str) {
        match self {
            Self::Annotations { prefix, v1, .. } => {
                for key in make_keys(prefix, id, *v1, Some(object)) {
                    let is_persisted = object.raw_annotations().any(|(name, _)| name == key);
                    purge_field(patch, &["metadata", "annotations", &key], is_persisted);
                }
            }
            Self::Status { field, .. } => {
                let record = field.child(id);
                purge_field(patch, record.keys(), object.field(&record).is_some());
            }
            Self::Custom => {}
            Self::Multi { storages } => storages.iter().for_each(|it| it.purge(object, patch, id)),
        }
    }

    /// Changes a dummy annotation or field of the object, so that the change causes a watch event; `None` removes it.
    pub fn touch(&self, object: &Object, patch: &mut Patch, value: Option<&str>) {
        match self {
            Self::Annotations { prefix, touch_key, v1, .. } => {
                for key in make_keys(prefix, touch_key, *v1, Some(object)) {
                    if object.annotation(&key).as_deref() != value {
                        patch.set_annotation(&key, value.map(str::to_owned));
                        store_marker(prefix, object, patch);
                    }
                }
            }
            Self::Status { read_only: true, .. } | Self::Custom => {}
            Self::Status { touch_field, .. } => {
                let new = json!(value);
                if object.field(touch_field).unwrap_or_default() != new {
                    patch.set(touch_field.keys(), new);
                }
            }
            Self::Multi { storages } => storages.iter().for_each(|it| it.touch(object, patch, value)),
        }
    }

    /// The fields that map handler ids to records, also those that are only read and removed.
    pub(crate) fn fields(&self) -> Vec<&FieldPath> {
        match self {
            Self::Status { field, .. } => vec![field],
            Self::Annotations { .. } | Self::Custom => Vec::new(),
            Self::Multi { storages } => storages.iter().flat_map(Self::fields).collect(),
        }
    }

    /// Whether records are written to status fields.
    pub(crate) fn writes_fields(&self) -> bool {
        match self {
            Self::Status { read_only, .. } => !read_only,
            Self::Annotations { .. } | Self::Custom => false,
            Self::Multi { storages } => storages.iter().any(Self::writes_fields),
        }
    }

    /// The dummy fields that are changed to touch an object.
    pub(crate) fn touch_fields(&self) -> Vec<&FieldPath> {
        match self {
            Self::Status { touch_field, .. } => vec![touch_field],
            Self::Annotations { .. } | Self::Custom => Vec::new(),
            Self::Multi { storages } => storages.iter().flat_map(Self::touch_fields).collect(),
        }
    }

    /// Removes Kopf's annotations and fields of this storage from an essence.
    pub fn clear(&self, essence: &mut Value) {
        match self {
            Self::Annotations { prefix, .. } => retain_annotations(essence, |key| !is_under(prefix, key)),
            Self::Status { field, .. } => {
                path::remove(essence, field.keys());
                drop_empty_stanzas(essence);
            }
            Self::Custom => {}
            Self::Multi { storages } => storages.iter().for_each(|it| it.clear(essence)),
        }
    }

    /// Whether `clear` removes this annotation.
    pub(crate) fn clears_annotation(&self, key: &str) -> bool {
        match self {
            Self::Annotations { prefix, .. } => is_under(prefix, key),
            Self::Status { .. } | Self::Custom => false,
            Self::Multi { storages } => storages.iter().any(|it| it.clears_annotation(key)),
        }
    }

    /// Whether `clear` removes only annotations and parts of the status.
    pub(crate) fn is_plain(&self) -> bool {
        match self {
            Self::Annotations { .. } => true,
            Self::Status { field, .. } => field.keys().first().is_some_and(|key| &**key == "status"),
            Self::Custom => false,
            Self::Multi { storages } => storages.iter().all(Self::is_plain),
        }
    }
}

pub(super) fn is_under(prefix: &str, key: &str) -> bool {
    key.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
}

pub(super) fn read(text: &str) -> Result<Option<Record>, String> {
    match serde_json::from_str(text).map_err(|error| error.to_string())? {
        Value::Null => Ok(None),
        value => Record::from_value(&value).map(Some),
    }
}

fn purge_field<S: AsRef<str>>(patch: &mut Patch, keys: &[S], persisted: bool) {
    if persisted {
        patch.set(keys, Value::Null);
    } else if patch.get(keys).is_some() {
        patch.unset(keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: &Value) -> Object {
        Object::decode(&value.to_string()).unwrap()
    }

    fn both_writable() -> ProgressStorage {
        serde_json::from_value(json!({"type": "Multi", "storages": [
            {"type": "Annotations", "prefix": "my.org", "touch_key": "touch-dummy", "v1": false},
            {"type": "Status", "field": ["status", "kopf", "progress"], "touch_field": ["status", "kopf", "dummy"]},
        ]}))
        .unwrap()
    }

    #[test]
    fn the_first_storage_with_a_record_is_used() {
        let text = Record { retries: 1, ..Record::default() }.to_json(false);
        let object = object(&json!({
            "metadata": {"annotations": {"kopf.zalando.org/a": text, "kopf.zalando.org/n": "null"}},
            "status": {"kopf": {"progress": {"a": {"retries": 2}, "b/c": {"retries": 3}, "n": {"retries": 4}}}},
        }));
        let storage = ProgressStorage::default();
        let retries = |id: &str| storage.fetch(&object, id).unwrap().map(|record| record.retries);
        assert_eq!(
            [retries("a"), retries("b/c"), retries("n"), retries("x")],
            [Some(1), Some(3), Some(4), None]
        );
    }

    #[test]
    fn malformed_records_are_errors_that_name_the_annotation() {
        let object = object(
            &json!({"metadata": {"annotations": {"kopf.zalando.org/a": "{", "kopf.zalando.org/b": "5"}}}),
        );
        let error = |id: &str| ProgressStorage::default().fetch(&object, id).unwrap_err().to_string();
        assert!(error("a").starts_with("malformed annotation kopf.zalando.org/a: EOF"));
        assert_eq!(error("b"), "malformed annotation kopf.zalando.org/b: the record is not a mapping");
    }

    // contract: engine 7.3
    #[test]
    fn records_are_written_to_all_storages_except_read_only_ones() {
        let mut patch = Patch::default();
        both_writable().store(&object(&json!({})), &mut patch, "a/b", &Record::default());
        assert_eq!(
            Value::Object(patch.0),
            json!({
                "metadata": {"annotations": {
                    "my.org/a.b": r#"{"retries":0,"success":false,"failure":false}"#,
                    "my.org/kopf-managed": "yes",
                }},
                "status": {"kopf": {"progress": {"a/b": {
                    "started": null, "stopped": null, "delayed": null, "purpose": null, "retries": 0,
                    "success": false, "failure": false, "message": null, "subrefs": null,
                }}}},
            })
        );
        let mut patch = Patch::default();
        ProgressStorage::default().store(&object(&json!({})), &mut patch, "a", &Record::default());
        ProgressStorage::default().touch(&object(&json!({})), &mut patch, Some("now"));
        assert_eq!(patch.0.keys().collect::<Vec<_>>(), ["metadata"]);
    }

    // contract: engine 7.3
    #[test]
    fn purging_removes_unpersisted_records_from_the_patch() {
        let storage = both_writable();
        let mut patch = Patch::default();
        let persisted = object(&json!({
            "metadata": {"annotations": {"my.org/a": "{}", "my.org/kopf-managed": "yes"}},
            "status": {"kopf": {"progress": {"a": {}}}},
        }));
        storage.store(&persisted, &mut patch, "b", &Record::default());
        storage.purge(&persisted, &mut patch, "b");
        storage.purge(&persisted, &mut patch, "c");
        assert!(patch.is_empty());
        storage.purge(&persisted, &mut patch, "a");
        assert_eq!(
            Value::Object(patch.0),
            json!({"metadata": {"annotations": {"my.org/a": null}}, "status": {"kopf": {"progress": {"a": null}}}})
        );
    }

    #[test]
    fn touching_writes_only_different_values() {
        let storage = both_writable();
        let touched = object(&json!({
            "metadata": {"annotations": {"my.org/touch-dummy": "x"}}, "status": {"kopf": {"dummy": "x"}},
        }));
        let mut patch = Patch::default();
        storage.touch(&touched, &mut patch, Some("x"));
        storage.touch(&object(&json!({})), &mut patch, None);
        assert!(patch.is_empty());
        storage.touch(&touched, &mut patch, None);
        assert_eq!(
            Value::Object(patch.0),
            json!({
                "metadata": {"annotations": {"my.org/touch-dummy": null, "my.org/kopf-managed": "yes"}},
                "status": {"kopf": {"dummy": null}},
            })
        );
    }

    #[test]
    fn clearing_keeps_annotations_of_others() {
        let mut essence = json!({
            "spec": {}, "metadata": {"annotations": {"my.org/a": "1", "my.organ/a": "1"}},
            "status": {"kopf": {"progress": {}}},
        });
        both_writable().clear(&mut essence);
        assert_eq!(essence, json!({"spec": {}, "metadata": {"annotations": {"my.organ/a": "1"}}}));
    }
}
