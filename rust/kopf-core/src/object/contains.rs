//! Compares an object with a merge patch, on its JSON text: whether it contains the patch, and what would change.

use super::{Object, member};
use crate::json::merge_patch::changing_part;
use crate::json::path::FieldPath;
use crate::json::scanner::read_as;
use crate::json::value::{self, Map, Value, equal};

impl Object {
    /// Whether the object has all values of a merge patch. A fast check: false can also mean that it cannot decide.
    pub fn contains_patch(&self, patch: &Map<String, Value>) -> bool {
        patch.iter().all(|(key, expected)| match expected {
            Value::Object(expected) if key == "metadata" => {
                expected.iter().all(|(key, expected)| self.has_metadata(key, expected))
            }
            _ => holds(self.top_level(key), expected),
        })
    }

    /// The part of a merge patch that changes the object. An empty object is a change if there is none.
    pub fn changing_part(&self, patch: Map<String, Value>) -> Map<String, Value> {
        let part = patch.into_iter().filter_map(|(key, value)| {
            let present = self.field(&FieldPath::from_keys([key.as_str()]));
            Some((key, changing_part(value, present.as_ref())?))
        });
        part.collect()
    }

    /// Whether the annotation has this value.
    pub(crate) fn has_annotation(&self, key: &str, value: &str) -> bool {
        self.raw_annotation(key).is_some_and(|json| equals_string(json, value))
    }

    fn has_metadata(&self, key: &str, expected: &Value) -> bool {
        match expected {
            Value::Object(expected) if key == "annotations" && !expected.is_empty() => {
                expected.iter().all(|(key, expected)| holds(self.raw_annotation(key), expected))
            }
            _ => holds(self.top_level("metadata").and_then(|metadata| member(metadata, key)), expected),
        }
    }
}

fn holds(json: Option<&str>, expected: &Value) -> bool {
    let Some(json) = json else { return expected.is_null() };
    match expected {
        Value::Null => json == "null",
        Value::Object(expected) => {
            json.starts_with('{') && expected.iter().all(|(key, expected)| holds(member(json, key), expected))
        }
        Value::String(text) if equals_string(json, text) => true,
        _ => value::parse_checked::<Value>(json).is_ok_and(|found| equal(&found, expected)),
    }
}

fn equals_string(json: &str, text: &str) -> bool {
    let inner = json.strip_prefix('"').and_then(|json| json.strip_suffix('"')).unwrap_or_default();
    json.len() >= 2 && read_as(inner.as_bytes(), text.as_bytes()) == Some(inner.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object() -> Object {
        let text = r#"{"metadata":{"name":"n","labels":{"l":"1"},"annotations":{"a":"{\"x\":1}\n","u":"\u003c"}},
            "spec":{"n":1,"deep":{"list":[1,{"a":2}],"z":null}},"status":{}}"#;
        Object::decode(text).unwrap()
    }

    fn has(patch: &Value) -> bool {
        object().contains_patch(patch.as_object().unwrap())
    }

    #[test]
    fn applied_patches_are_recognized() {
        assert!(has(&json!({})));
        assert!(has(
            &json!({"metadata": {"annotations": {"a": "{\"x\":1}\n", "u": "<", "gone": null}, "labels": {"l": "1"}}})
        ));
        assert!(has(
            &json!({"spec": {"n": 1.0, "deep": {"list": [1, {"a": 2}], "z": null, "no": null}}, "status": {}})
        ));
        assert!(has(&json!({"nothing": null})));
    }

    #[test]
    fn patches_that_are_not_applied_are_recognized() {
        for patch in [
            json!({"metadata": {"annotations": {"a": "{}"}}}),
            json!({"metadata": {"annotations": {"a": null}}}),
            json!({"metadata": {"annotations": {"b": "1"}}}),
            json!({"metadata": {"labels": {"l": "2"}}}),
            json!({"metadata": {"finalizers": ["x"]}}),
            json!({"spec": {"deep": {"list": [1]}}}),
            json!({"spec": {"n": {}}}),
            json!({"status": {"x": 1}}),
            json!({"nowhere": {}}),
        ] {
            assert!(!has(&patch), "{patch}");
        }
    }

    #[test]
    fn only_what_differs_is_a_change() {
        let unchanged = json!({"spec": {"n": 1, "deep": {"list": [1, {"a": 2}], "z": null, "no": null}},
            "status": {}, "metadata": {"labels": {"l": "1"}}, "nothing": null});
        for (patch, expected) in [
            (unchanged, json!({})),
            (json!({"spec": {"n": 1, "m": 2, "deep": null}}), json!({"spec": {"m": 2, "deep": null}})),
            (json!({"spec": {"deep": {"list": [1], "z": null}}}), json!({"spec": {"deep": {"list": [1]}}})),
            (
                json!({"metadata": {"labels": {"l": "1", "k": "2"}}}),
                json!({"metadata": {"labels": {"k": "2"}}}),
            ),
            (json!({"nowhere": {}, "spec": {"deep": {}}}), json!({"nowhere": {}})),
            (json!({"spec": {"n": {}, "new": {"x": 1}}}), json!({"spec": {"n": {}, "new": {"x": 1}}})),
        ] {
            let part = object().changing_part(patch.as_object().unwrap().clone());
            assert_eq!(Value::Object(part), expected, "{patch}");
        }
    }
}
