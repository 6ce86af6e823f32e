//! Upgrade from client-side to server-side apply: the annotation with the configuration that `kubectl apply` applied last.
//!
//! It has effects for the manager `kubectl` only.

use serde_json::Value;

use crate::apply::field_set::{self, Comparison, Set};
use crate::base::json::member_text;
use crate::schema::Schema;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The manager of `kubectl apply --server-side`.
const MANAGER: &str = "kubectl";
/// Maximum size of all annotations, in bytes.
const LIMIT: usize = 256 * 1024;

fn annotation(object: &Value) -> Option<&str> {
    let text = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

/// Conflicts that remain: fields of the configuration that was applied last, whose values have not changed since, are no
/// conflicts. The pairs are of managers and fields.
pub(crate) fn remaining_conflicts(
    conflicts: Vec<(String, String)>,
    manager: &str,
    live: &Value,
    schema: &Schema,
) -> Vec<(String, String)> {
    if manager != MANAGER || conflicts.is_empty() {
        return conflicts;
    }
    let Some(owned) = unchanged_fields(live, schema) else { return conflicts };
    let owned: Vec<String> = owned.iter().map(field_set::format_path).collect();
    conflicts.into_iter().filter(|(_, field)| !owned.contains(field)).collect()
}

/// Fields of the configuration that was applied last, as far as they have the same values now.
fn unchanged_fields(live: &Value, schema: &Schema) -> Option<Set> {
    let last: Value = serde_json::from_str(annotation(live)?).ok()?;
    if !last.is_object() || member_text(&last, "apiVersion") != member_text(live, "apiVersion") {
        return None;
    }
    let mut set = Set::new();
    field_set::collect_fields(&last, schema, &mut Vec::new(), &mut set);
    let mut changes = Comparison::default();
    field_set::compare(Some(&last), Some(live), schema, &mut Vec::new(), &mut changes);
    for changed in [&changes.modified, &changes.added, &changes.removed] {
        set.retain(|path| !changed.contains(path));
    }
    Some(set)
}

/// Replaces the annotation of an applied object with the configuration, if it has one.
pub(crate) fn update_annotation(object: &mut Value, config: &Value, manager: &str) {
    if manager != MANAGER || annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    let annotations =
        |object: &mut Value| object.get_mut("metadata")?.get_mut("annotations")?.as_object_mut().cloned();
    if let Some(mut kept) = annotations(&mut config) {
        kept.shift_remove(ANNOTATION);
        config["metadata"]["annotations"] = kept.into();
    }
    config.sort_all_objects();
    let text = format!("{config}\n").replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let Some(mut new) = annotations(object) else { return };
    new.insert(ANNOTATION.to_owned(), text.into());
    let size: usize =
        new.iter().map(|(key, value)| key.len() + value.as_str().unwrap_or_default().len()).sum();
    if size > LIMIT {
        new.shift_remove(ANNOTATION);
    }
    object["metadata"]["annotations"] = new.into();
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live(last: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1", "b": "2"},
            "metadata": {"name": "m", "annotations": {ANNOTATION: last.to_string(), "x": "y"}}})
    }

    #[test]
    fn unchanged_fields_of_the_last_configuration_are_no_conflicts() {
        let conflicts = || {
            [".data.a", ".data.b", ".data.c"].map(|field| ("\"other\"".to_owned(), field.to_owned())).to_vec()
        };
        let last = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1", "b": "changed"}});
        let remaining = |manager: &str, live: &Value| -> Vec<String> {
            let remaining = remaining_conflicts(conflicts(), manager, live, &Schema::any());
            remaining.into_iter().map(|(_, field)| field).collect()
        };
        assert_eq!(remaining("kubectl", &live(&last)), [".data.b", ".data.c"]);
        assert_eq!(remaining("another", &live(&last)).len(), 3);
        assert_eq!(remaining("kubectl", &live(&json!({"apiVersion": "v2", "data": {"a": "1"}}))).len(), 3);
    }

    #[test]
    fn the_annotation_becomes_the_applied_configuration() {
        let config = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"a": "<"},
            "metadata": {"name": "m", "annotations": {ANNOTATION: "old"}}});
        let mut object = live(&json!({}));
        update_annotation(&mut object, &config, "another");
        assert_eq!(annotation(&object), Some("{}"));
        update_annotation(&mut object, &config, "kubectl");
        let expected = "{\"apiVersion\":\"v1\",\"data\":{\"a\":\"\\u003c\"},\"kind\":\"ConfigMap\",\"metadata\":{\"annotations\":{},\
                        \"name\":\"m\"}}\n";
        assert_eq!(annotation(&object), Some(expected));
        let mut without = json!({"metadata": {"name": "m"}});
        update_annotation(&mut without, &config, "kubectl");
        assert_eq!(without, json!({"metadata": {"name": "m"}}));
    }
}
