//! Redaction: the parts of an object that may appear in logs, whose readers may have no access to the object.
//!
//! For Secrets, logs contain the keys of the payload but no values: neither of the payload, nor of copies in annotations
//! (by Kopf or kubectl). Other objects are not redacted. Redacted values are never written to an object.

use crate::json::diff::DiffItem;
use crate::json::value::{Map, Value};
use crate::object::Object;

/// The replacement of redacted values.
pub const MASK: &str = "***";

/// The fields of a Secret with its payload.
const PAYLOADS: [&str; 2] = ["data", "stringData"];

/// Whether the object must be redacted.
pub fn is_discreet(object: &Object) -> bool {
    object.kind() == Some("Secret") && object.api_version().is_none_or(|version| version == "v1")
}

/// Whether a request must be redacted, by its path with or without the query.
pub fn is_discreet_path(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let Some(rest) = path.strip_prefix("/api/v1/") else { return false };
    rest.split('/').any(|part| part == "secrets")
}

/// Redacts the object or a merge patch for it.
pub fn shown(object: &Object, value: &Value) -> Value {
    if is_discreet(object) { masked(value, &[]) } else { value.clone() }
}

/// Redacts a JSON patch.
pub fn shown_operations(object: &Object, operations: &Value) -> Value {
    if !is_discreet(object) {
        return operations.clone();
    }
    let mask = |operation: &Value| {
        let mut operation = operation.clone();
        let path = operation.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
        let keys: Vec<&str> = path.split('/').skip(1).collect();
        if let Some(value) = operation.get_mut("value") {
            *value = masked(value, &keys);
        }
        operation
    };
    Value::Array(operations.as_array().into_iter().flatten().map(mask).collect())
}

/// Redacts a diff.
pub fn shown_diff(object: &Object, items: &[DiffItem]) -> Vec<DiffItem> {
    if !is_discreet(object) {
        return items.to_vec();
    }
    let mask = |item: &DiffItem| {
        let keys: Vec<&str> = item.path.keys().iter().map(AsRef::as_ref).collect();
        let mut item = item.clone();
        for side in [&mut item.old, &mut item.new] {
            *side = side.as_ref().map(|value| masked(value, &keys));
        }
        item
    };
    items.iter().map(mask).collect()
}

/// The value at these keys of a Secret, redacted.
fn masked(value: &Value, keys: &[&str]) -> Value {
    if keys.first().is_some_and(|key| PAYLOADS.contains(key)) {
        return masked_all(value);
    }
    match value {
        Value::Object(map) => {
            let mask = |(key, value): (&String, &Value)| {
                let below: Vec<&str> = keys.iter().copied().chain([key.as_str()]).collect();
                (key.clone(), masked(value, &below))
            };
            Value::Object(map.iter().map(mask).collect::<Map<_, _>>())
        }
        // A JSON document in an annotation may be a copy of the payload.
        Value::String(text) if matches!(keys, ["metadata", "annotations", ..]) && text.contains('{') => {
            Value::String(MASK.to_owned())
        }
        other => other.clone(),
    }
}

/// Redacts all values, and keeps the keys.
fn masked_all(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            Value::Object(map.iter().map(|(key, value)| (key.clone(), masked_all(value))).collect())
        }
        // A removal reveals no payload.
        Value::Null => Value::Null,
        _ => Value::String(MASK.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::json::diff::diff;
    use crate::json::value::python_repr;

    fn object(kind: &str, version: &str) -> Object {
        let text = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "data": {"k": "cGxhbnQ="}});
        Object::decode(&text.to_string()).unwrap()
    }

    #[test]
    fn only_payloads_of_secrets_and_their_copies_are_masked() {
        let secret = object("Secret", "v1");
        let value = json!({
            "data": {"a": "cGxhbnQ=", "b": null},
            "stringData": {"c": "plant"},
            "type": "Opaque",
            "metadata": {"annotations": {"last": "{\"data\":{\"a\":\"cGxhbnQ=\"}}", "note": "fine"}},
        });
        let expected = json!({
            "data": {"a": "***", "b": null},
            "stringData": {"c": "***"},
            "type": "Opaque",
            "metadata": {"annotations": {"last": "***", "note": "fine"}},
        });
        assert_eq!(shown(&secret, &value), expected);
        for other in [object("ConfigMap", "v1"), object("Secret", "example.com/v1")] {
            assert_eq!(shown(&other, &value), value);
        }
    }

    #[test]
    fn operations_and_differences_are_masked_by_their_paths() {
        let secret = object("Secret", "v1");
        let operations = json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": "5"},
            {"op": "add", "path": "/data/a", "value": "cGxhbnQ="},
            {"op": "add", "path": "/data", "value": {"a": "cGxhbnQ="}},
            {"op": "add", "path": "", "value": {"stringData": {"a": "plant"}}},
            {"op": "remove", "path": "/data/b"},
        ]);
        let shown = shown_operations(&secret, &operations).to_string();
        assert!(!shown.contains("cGxhbnQ") && !shown.contains("plant"), "{shown}");
        assert!(shown.contains("\"5\"") && shown.contains("/data/b"), "{shown}");
        let items = diff(
            Some(&json!({"data": {"a": "cGxhbnQ="}, "type": "x"})),
            Some(&json!({"data": {"a": "plant", "b": "plant"}, "type": "y"})),
        );
        let text = crate::json::diff::python_repr(&shown_diff(&secret, &items));
        assert_eq!(
            text,
            "(('add', ('data', 'b'), None, '***'), ('change', ('data', 'a'), '***', '***'), ('change', ('type',), 'x', 'y'))"
        );
        assert!(python_repr(&json!(shown)).contains("***"));
    }

    #[test]
    fn requests_for_secrets_are_recognized_by_their_paths() {
        for path in
            ["/api/v1/secrets", "/api/v1/namespaces/x/secrets/y?fieldManager=z", "/api/v1/secrets?watch=true"]
        {
            assert!(is_discreet_path(path), "{path}");
        }
        for path in
            ["/api/v1/pods", "/apis/example.com/v1/secrets", "/apis/apps/v1/namespaces/secrets/deployments"]
        {
            assert!(!is_discreet_path(path), "{path}");
        }
    }
}
