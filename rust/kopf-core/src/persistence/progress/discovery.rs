//! The records of all handlers on an object, also of handlers that are not declared here.

use super::record::{Malformed, Record};
use super::storage::{ProgressStorage, is_under, read};
use crate::json::value::Value;
use crate::object::Object;
use crate::persistence::annotation_keys::{LIMIT, MARKER, inherited_name, make_keys, make_safe};

/// Records by the ids of their handlers.
pub type Records = Vec<(String, Record)>;

impl ProgressStorage {
    /// All records on the object. `others` are the keys of annotations under the same prefix that are no records.
    ///
    /// The ids are those of the keys: in annotations, `/` is replaced by `.`, and long ids are cut.
    pub fn discover(&self, object: &Object, others: &[String]) -> Result<Records, Malformed> {
        match self {
            Self::Annotations { prefix, touch_key, v1, .. } => {
                let touch_keys = make_keys(prefix, touch_key, *v1, Some(object));
                let is_record = |key: &str| {
                    is_under(prefix, key)
                        && !others.iter().chain(&touch_keys).any(|other| other == key)
                        && key.strip_suffix(MARKER).is_none_or(|rest| !rest.ends_with('/'))
                };
                let mut found: Vec<(String, String, Record)> = Vec::new();
                for (key, text) in object.annotations().filter(|(key, _)| is_record(key)) {
                    let place = || format!("annotation {key}");
                    let record = read(&text).map_err(|problem| Malformed { place: place(), problem })?;
                    let name = key.get(prefix.len() + 1..).unwrap_or_default();
                    let is_known =
                        found.iter().any(|(known, same, _)| *same == text && are_twins(prefix, known, name));
                    if let Some(record) = record.filter(|_| !is_known) {
                        found.push((name.to_owned(), text.into_owned(), record));
                    }
                }
                let named = |(name, _, record): (String, _, _)| (inherited_name(&name, object), record);
                Ok(found.into_iter().map(named).collect())
            }
            Self::Status { field, .. } => {
                let Some(Value::Object(map)) = object.field(field) else { return Ok(Vec::new()) };
                let records = map.iter().filter(|(_, value)| !value.is_null()).map(|(id, value)| {
                    let place = || field.child(id).to_string();
                    let malformed = |problem| Malformed { place: format!("field {}", place()), problem };
                    Ok((id.clone(), Record::from_value(value).map_err(malformed)?))
                });
                records.collect()
            }
            Self::Custom => Ok(Vec::new()),
            Self::Multi { storages } => {
                let mut all = Records::new();
                for storage in storages {
                    let found = storage.discover(object, others)?;
                    let known: Vec<String> = all.iter().map(|(id, _)| make_safe(id)).collect();
                    all.extend(found.into_iter().filter(|(id, _)| !known.contains(&make_safe(id))));
                }
                Ok(all)
            }
        }
    }
}

/// Whether two names with the same text are those of one id in both schemes.
fn are_twins(prefix: &str, one: &str, other: &str) -> bool {
    let is_old_key_of = |old: &str, name: &str| {
        let old_key = [prefix, "/", old].concat();
        make_keys(prefix, name, true, None).contains(&old_key) || are_both_cut(name, &old_key, prefix)
    };
    is_old_key_of(one, other) || is_old_key_of(other, one)
}

/// Whether both are cut at the limit, and have hashes of an id with the same beginning. The hashes can differ.
fn are_both_cut(name: &str, old_key: &str, prefix: &str) -> bool {
    let old = old_key.get(prefix.len() + 1..).and_then(|old| old.rsplit_once('-'));
    let (Some((name_start, _)), Some((old_start, _))) = (name.rsplit_once('-'), old) else { return false };
    name.chars().count() == LIMIT && old_key.chars().count() == LIMIT && name_start.starts_with(old_start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::merge_patch::Patch;
    use crate::json::value::Map;
    use serde_json::json;

    fn with_records(ids: &[&str], body: Value) -> Object {
        let storage = ProgressStorage::default();
        let plain = Object::decode(&body.to_string()).unwrap();
        let mut patch = Patch::default();
        for (n, id) in (0..).zip(ids) {
            storage.store(&plain, &mut patch, id, &Record { retries: n, ..Record::default() });
        }
        storage.touch(&plain, &mut patch, Some("now"));
        let mut body = body;
        let metadata = patch.0.shift_remove("metadata").unwrap_or_default();
        for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
            body["metadata"]["annotations"][key] = value.clone();
        }
        Object::decode(&body.to_string()).unwrap()
    }

    fn ids(object: &Object) -> Vec<String> {
        let found = ProgressStorage::default().discover(object, &["kopf.zalando.org/base".to_owned()]);
        found.unwrap().into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn each_record_is_found_once_under_the_keys_of_both_schemes() {
        let long = "a.very.long.handler.id.that.exceeds.sixty.three.characters.in.both.schemes.of.keys";
        let middle = "b".repeat(50);
        let annotations = json!({"kopf.zalando.org/base": "{", "other.org/x": "1"});
        let object =
            with_records(&["f/spec.x", long, &middle], json!({"metadata": {"annotations": annotations}}));
        let found = ids(&object);
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found[0], "f.spec.x");
        assert!(found[1].starts_with("a.very.long.handler.id") && found[2].starts_with(&"b".repeat(39)));
    }

    #[test]
    fn equal_records_of_different_handlers_are_different() {
        let text = Record::default().to_json(false);
        let mut annotations = Map::new();
        for id in ["a-b", "a-c", "one", "other"] {
            annotations.insert(format!("kopf.zalando.org/{id}"), json!(text));
        }
        let object = Object::decode(&json!({"metadata": {"annotations": annotations}}).to_string()).unwrap();
        assert_eq!(ids(&object), ["a-b", "a-c", "one", "other"]);
    }

    #[test]
    fn records_in_the_status_are_found_and_those_of_both_places_once() {
        let mut body = json!({"metadata": {"annotations": {}}});
        body["status"] =
            json!({"kopf": {"progress": {"f/spec.x": {"retries": 7}, "g": {"retries": 8}, "n": null}}});
        let object = with_records(&["f/spec.x"], body);
        assert_eq!(ids(&object), ["f.spec.x", "g"]);
    }

    #[test]
    fn replica_sets_have_the_names_without_the_suffix() {
        let metadata = json!({"ownerReferences": [{"kind": "Deployment"}], "annotations": {}});
        let object = with_records(&["f"], json!({"kind": "ReplicaSet", "metadata": metadata}));
        assert_eq!(ids(&object), ["f"]);
    }

    #[test]
    fn a_malformed_record_is_an_error_with_its_place() {
        let annotations = json!({"kopf.zalando.org/f": "{"});
        let object = Object::decode(&json!({"metadata": {"annotations": annotations}}).to_string()).unwrap();
        let error = ProgressStorage::default().discover(&object, &[]).unwrap_err();
        assert_eq!(error.place, "annotation kopf.zalando.org/f");
        let status = json!({"status": {"kopf": {"progress": {"f": 1}}}});
        let object = Object::decode(&status.to_string()).unwrap();
        let error = ProgressStorage::default().discover(&object, &[]).unwrap_err();
        assert_eq!(error.place, "field status.kopf.progress.f");
    }
}
