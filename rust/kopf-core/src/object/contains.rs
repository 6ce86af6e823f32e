//! Whether the server has kept what it was asked to, read from the text of its answer.
//!
//! Owns: the quick look, which builds no values but those of the leaves. Must not know: what follows if it has not.

use super::{Object, member};
use crate::json::scanner::read_as;
use crate::json::value::{self, Map, Value, equal};

impl Object {
    /// Whether all that a merge patch says is so in the object, as far as a quick look can tell.
    pub fn contains_patch(&self, patch: &Map<String, Value>) -> bool {
        patch.iter().all(|(key, wanted)| match wanted {
            Value::Object(wanted) if key == "metadata" => {
                wanted.iter().all(|(key, wanted)| self.has_metadata(key, wanted))
            }
            _ => holds(self.top_level(key), wanted),
        })
    }

    fn has_metadata(&self, key: &str, wanted: &Value) -> bool {
        match wanted {
            Value::Object(wanted) if key == "annotations" && !wanted.is_empty() => {
                wanted.iter().all(|(key, wanted)| holds(self.raw_annotation(key), wanted))
            }
            _ => holds(self.top_level("metadata").and_then(|metadata| member(metadata, key)), wanted),
        }
    }
}

fn holds(json: Option<&str>, wanted: &Value) -> bool {
    let Some(json) = json else { return wanted.is_null() };
    match wanted {
        Value::Null => json == "null",
        Value::Object(wanted) => {
            json.starts_with('{') && wanted.iter().all(|(key, wanted)| holds(member(json, key), wanted))
        }
        Value::String(text) if reads(json, text) => true,
        _ => value::parse_checked::<Value>(json).is_ok_and(|found| equal(&found, wanted)),
    }
}

fn reads(json: &str, text: &str) -> bool {
    let inner = json.strip_prefix('"').and_then(|json| json.strip_suffix('"')).unwrap_or_default();
    json.len() >= 2 && read_as(inner.as_bytes(), text.as_bytes()) == Some(inner.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn has(patch: &Value) -> bool {
        let text = r#"{"metadata":{"name":"n","labels":{"l":"1"},"annotations":{"a":"{\"x\":1}\n","u":"\u003c"}},
            "spec":{"n":1,"deep":{"list":[1,{"a":2}],"z":null}},"status":{}}"#;
        Object::decode(text).unwrap().contains_patch(patch.as_object().unwrap())
    }

    #[test]
    fn what_is_so_is_seen() {
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
    fn what_is_not_so_is_seen_too() {
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
}
