//! JSON patches (RFC 6902), the operations that turn one document into another, or that do the same as a merge patch (RFC 7396);
//! and local application of merge patches.

use serde_json::json;

use crate::json::path;
use crate::json::value::{Map, Value};

/// The `add`, `remove` and `replace` operations that turn `from` into `to`. `1`, `1.0` and `true` are different here.
///
/// Those of a mapping are, as in Kopf: removals, additions, changes of what both documents have.
pub fn operations(from: &Value, to: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    compare(&mut found, &mut String::new(), from, to);
    found
}

/// The operations that do exactly the same as a merge patch, also if the document has changed meanwhile, as long as the mappings on
/// the way to its fields exist. `is_mapping` is for the value at these keys. If any field was removed, the operations fail.
///
/// There are none, but a merge patch is required,
///
/// - if a mapping is created: an operation would replace one that exists meanwhile;
/// - if lists contain `null`: servers drop some of them from merge patches, but not from operations;
/// - if nothing is changed.
pub fn merge_operations(
    patch: &Map<String, Value>,
    is_mapping: &dyn Fn(&[&str]) -> bool,
) -> Option<Vec<Value>> {
    let mut found = Vec::new();
    let is_complete = add_merged(&mut found, &mut String::new(), &mut Vec::new(), patch, is_mapping);
    (is_complete && !found.is_empty()).then_some(found)
}

fn add_merged<'p>(
    found: &mut Vec<Value>,
    at: &mut String,
    keys: &mut Vec<&'p str>,
    patch: &'p Map<String, Value>,
    is_mapping: &dyn Fn(&[&str]) -> bool,
) -> bool {
    patch.iter().all(|(key, value)| {
        keys.push(key);
        let is_complete = within(at, key, |at| match value {
            Value::Object(deeper) => is_mapping(keys) && add_merged(found, at, keys, deeper, is_mapping),
            Value::Null => {
                // A removal fails if the field does not exist.
                found.push(json!({"op": "add", "path": *at, "value": null}));
                found.push(json!({"op": "remove", "path": *at}));
                true
            }
            Value::Array(items) if items.iter().any(has_null) => false,
            _ => {
                found.push(json!({"op": "add", "path": *at, "value": value}));
                true
            }
        });
        keys.pop();
        is_complete
    })
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(map) => map.values().any(has_null),
        _ => false,
    }
}

/// The merge patch (RFC 7396) that turns `from` into `to`. `null` means the same as a missing value.
pub fn merge_patch(from: &Value, to: &Value) -> Map<String, Value> {
    let empty = Map::new();
    let (from, to) = (from.as_object().unwrap_or(&empty), to.as_object().unwrap_or(&empty));
    let mut patch = Map::new();
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, new) in to {
        match from.get(key) {
            Some(old) if old == new => {}
            Some(old @ Value::Object(_)) if new.is_object() => {
                patch.insert(key.clone(), Value::Object(merge_patch(old, new)));
            }
            _ => {
                patch.insert(key.clone(), new.clone());
            }
        }
    }
    patch
}

/// Applies a merge patch as Kopf does: a removal also removes emptied parents, and an empty mapping sets nothing.
pub fn apply_merge(doc: &mut Value, patch: &Map<String, Value>) {
    let mut at = Vec::new();
    merge(doc, patch, &mut at);
}

fn merge<'p>(doc: &mut Value, patch: &'p Map<String, Value>, at: &mut Vec<&'p str>) {
    for (key, value) in patch {
        at.push(key);
        match value {
            Value::Null => path::remove(doc, at),
            Value::Object(deeper) => merge(doc, deeper, at),
            other => path::ensure(doc, at, other.clone()),
        }
        at.pop();
    }
}

fn compare(found: &mut Vec<Value>, at: &mut String, from: &Value, to: &Value) {
    match (from, to) {
        _ if from == to => {}
        (Value::Object(a), Value::Object(b)) => compare_mappings(found, at, a, b),
        (Value::Array(a), Value::Array(b)) => compare_lists(found, at, a, b),
        _ => found.push(json!({"op": "replace", "path": *at, "value": to})),
    }
}

fn compare_mappings(found: &mut Vec<Value>, at: &mut String, a: &Map<String, Value>, b: &Map<String, Value>) {
    for key in a.keys().filter(|key| !b.contains_key(*key)) {
        within(at, key, |at| found.push(json!({"op": "remove", "path": *at})));
    }
    for (key, new) in b.iter().filter(|(key, _)| !a.contains_key(*key)) {
        within(at, key, |at| found.push(json!({"op": "add", "path": *at, "value": new})));
    }
    for (key, new) in b {
        if let Some(old) = a.get(key) {
            within(at, key, |at| compare(found, at, old, new));
        }
    }
}

/// Skips the common head and tail. In the middle, items are edited pairwise, then removed or inserted.
fn compare_lists(found: &mut Vec<Value>, at: &mut String, a: &[Value], b: &[Value]) {
    let head = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (a, b) = (a.get(head..).unwrap_or_default(), b.get(head..).unwrap_or_default());
    let tail = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let (a, b) = (a.split_at(a.len() - tail).0, b.split_at(b.len() - tail).0);
    for (i, (old, new)) in a.iter().zip(b).enumerate() {
        within(at, &(head + i).to_string(), |at| compare(found, at, old, new));
    }
    for i in (b.len()..a.len()).rev() {
        within(at, &(head + i).to_string(), |at| found.push(json!({"op": "remove", "path": *at})));
    }
    for (i, new) in b.iter().enumerate().skip(a.len()) {
        within(at, &(head + i).to_string(), |at| {
            found.push(json!({"op": "add", "path": *at, "value": new}));
        });
    }
}

fn within<T>(at: &mut String, key: &str, act: impl FnOnce(&mut String) -> T) -> T {
    let length = at.len();
    at.push('/');
    for c in key.chars() {
        match c {
            '~' => at.push_str("~0"),
            '/' => at.push_str("~1"),
            _ => at.push(c),
        }
    }
    let result = act(at);
    at.truncate(length);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    // contract: engine 8.3
    #[test]
    fn finalizers_are_added_and_removed_as_by_kopf() {
        let free = json!({"metadata": {"name": "x"}});
        let held = json!({"metadata": {"name": "x", "finalizers": ["f"]}});
        assert_eq!(
            operations(&free, &held),
            [json!({"op": "add", "path": "/metadata/finalizers", "value": ["f"]})]
        );
        assert_eq!(operations(&held, &free), [json!({"op": "remove", "path": "/metadata/finalizers"})]);
    }

    #[test]
    fn list_items_are_edited_in_place() {
        let ops = |a: Value, b: Value| Value::Array(operations(&a, &b));
        assert_eq!(
            ops(json!(["a", "b"]), json!(["a", "x", "b"])),
            json!([{"op": "add", "path": "/1", "value": "x"}])
        );
        assert_eq!(ops(json!(["a", "x", "b"]), json!(["a", "b"])), json!([{"op": "remove", "path": "/1"}]));
        assert_eq!(
            ops(json!([{"n": 1, "m": 1}]), json!([{"n": 2, "m": 1}])),
            json!([{"op": "replace", "path": "/0/n", "value": 2}])
        );
        assert_eq!(ops(json!([1, 2, 3]), json!([])).as_array().unwrap().len(), 3);
    }

    #[test]
    fn keys_are_escaped_and_types_matter() {
        assert_eq!(
            operations(&json!({"a/b~c": 1}), &json!({"a/b~c": 1.0})),
            [json!({"op": "replace", "path": "/a~1b~0c", "value": 1.0})]
        );
    }

    #[test]
    fn removals_precede_additions_and_changes() {
        let (from, to) = (json!({"changed": 1, "gone": 1}), json!({"changed": 2, "new": 1}));
        let found: Vec<_> = operations(&from, &to).iter().map(|found| found["op"].clone()).collect();
        assert_eq!(found, ["remove", "add", "replace"]);
    }

    // contract: engine 8.1
    #[test]
    fn merging_removes_emptied_parents_and_skips_empty_mappings() {
        let mut doc = json!({"metadata": {"annotations": {"a": "1"}, "name": "n"}, "spec": {"x": 1}});
        let Value::Object(patch) =
            json!({"metadata": {"annotations": {"a": null}}, "spec": {"y": {}}, "status": {"z": {"v": 1}}})
        else {
            panic!()
        };
        apply_merge(&mut doc, &patch);
        assert_eq!(doc, json!({"metadata": {"name": "n"}, "spec": {"x": 1}, "status": {"z": {"v": 1}}}));
    }
    /// The operations for a patch of an object with this status.
    fn merged(status: &Value, patch: &Value) -> Option<Value> {
        let object = json!({"status": status});
        let is_mapping =
            |keys: &[&str]| path::resolve(&object, keys).is_some_and(|found: &Value| found.is_object());
        merge_operations(patch.as_object().unwrap(), &is_mapping).map(Value::Array)
    }

    #[test]
    fn a_merge_patch_of_existing_mappings_is_expressed_in_operations() {
        let status = json!({"a": 1, "made": {"x": 1, "by": {"who": "me"}}});
        let patch = json!({"status": {"a": 2, "new/one": [1], "made": {"x": null, "by": {"who": "you"}}}});
        let expected = json!([
            {"op": "add", "path": "/status/a", "value": 2},
            {"op": "add", "path": "/status/new~1one", "value": [1]},
            {"op": "add", "path": "/status/made/x", "value": null},
            {"op": "remove", "path": "/status/made/x"},
            {"op": "add", "path": "/status/made/by/who", "value": "you"},
        ]);
        assert_eq!(merged(&status, &patch), Some(expected));
    }

    #[test]
    fn a_merge_patch_that_may_create_a_mapping_is_not_expressed_in_operations() {
        for (status, patch) in [
            (Value::Null, json!({"status": {"a": 1}})),
            (json!([]), json!({"status": {"a": 1}})),
            (json!({}), json!({"status": {"made": {"x": 1}}})),
            (json!({"made": "yes"}), json!({"status": {"a": 1, "made": {"x": 1}}})),
            (json!({"made": {}}), json!({"status": {"made": {"by": {"who": null}}}})),
        ] {
            assert_eq!(merged(&status, &patch), None, "{patch} for {status}");
        }
    }

    #[test]
    fn a_merge_patch_that_changes_nothing_or_has_null_in_a_list_is_not_expressed_in_operations() {
        for patch in [json!({"status": {}}), json!({"status": {"made": {}}})] {
            assert_eq!(merged(&json!({"made": {}}), &patch), None);
        }
        for list in [json!([null]), json!([{"a": null}]), json!([[{"a": {"b": null}}]])] {
            assert_eq!(merged(&json!({}), &json!({"status": {"list": list}})), None);
        }
    }
}
