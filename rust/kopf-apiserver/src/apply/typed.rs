//! Validation of an applied configuration against a CRD's schema, as structured-merge-diff types it.

use serde_json::Value;

use super::field_set::{Path, format_path, item_key};
use crate::schema::{ListType, Schema, Type};

/// The errors of a configuration: fields that are not declared, values of other types, and items that cannot be merged.
fn errors(config: &Value, schema: &Schema) -> Vec<String> {
    let mut checker = Checker { path: Vec::new(), place: String::new(), errors: Vec::new() };
    checker.check(config, schema);
    checker.errors
}

/// The first error; that of a field that is not declared, if there is one.
pub(crate) fn first_error(config: &Value, schema: &Schema) -> Option<String> {
    let errors = errors(config, schema);
    let undeclared = errors.iter().position(|error| error.ends_with("field not declared in schema"));
    errors.into_iter().nth(undeclared.unwrap_or_default())
}

/// All errors as one text.
pub(crate) fn error(value: &Value, schema: &Schema) -> Option<String> {
    let errors = errors(value, schema);
    match errors.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("errors:\n  {}", several.join("\n  "))),
    }
}

struct Checker {
    /// The path below the innermost item of an atomic list.
    path: Path,
    /// The path of that item.
    place: String,
    errors: Vec<String>,
}

impl Checker {
    fn report(&mut self, text: &str) {
        let message = format!("{}{}: {text}", self.place, format_path(&self.path));
        self.errors.push(message);
    }

    fn check(&mut self, value: &Value, schema: &Schema) {
        if value.is_null() {
            return;
        }
        match (schema.kind, value) {
            (Type::Object, Value::Object(map)) => {
                map.iter().for_each(|(key, child)| self.member(key, child, schema));
            }
            (Type::Array, Value::Array(list)) => self.items(list, schema),
            (Type::Any, Value::Object(map)) if !schema.properties.is_empty() => {
                map.iter().for_each(|(key, child)| self.member(key, child, schema));
            }
            (Type::Object, other) => self.report(&format!("expected map, got {}", pointer(other))),
            (Type::Array, other) => self.report(&format!("expected list, got {}", pointer(other))),
            (Type::String, other) if !other.is_string() => {
                self.report(&format!(
                    "expected string, got &value.valueUnstructured{{Value:{}}}",
                    go_value(other)
                ));
            }
            (Type::Boolean, other) if !other.is_boolean() => {
                self.report(&format!("expected boolean, got {}", pointer(other)));
            }
            (Type::Integer | Type::Number, other) if !other.is_number() => {
                self.report(&format!("expected numeric (int or float), got {}", go_type(other)));
            }
            _ => {}
        }
    }

    fn member(&mut self, key: &str, child: &Value, schema: &Schema) {
        let is_object = (self.path.is_empty() && self.place.is_empty()) || schema.embedded;
        let is_system = is_object && matches!(key, "apiVersion" | "kind" | "metadata");
        self.path.push(format!("f:{key}").into());
        match schema.child(key) {
            Some(known) => self.check(child, known),
            None if schema.keeps_unknown() || is_system => {}
            None => self.report("field not declared in schema"),
        }
        self.path.pop();
    }

    fn items(&mut self, list: &[Value], schema: &Schema) {
        let any = Schema::any();
        let items = schema.items.as_deref().unwrap_or(&any);
        for (i, item) in list.iter().enumerate() {
            if schema.list == ListType::Atomic || schema.atomic {
                let outer = self.place.clone();
                let path = std::mem::take(&mut self.path);
                self.place = format!("{outer}{}[{i}]", format_path(&path));
                self.check(item, items);
                (self.place, self.path) = (outer, path);
                continue;
            }
            if let Some(error) = unmergeable(item, schema) {
                self.report(&format!("element {i}: {error}"));
                continue;
            }
            self.path.push(item_key(item, schema).into());
            self.check(item, items);
            self.path.pop();
        }
    }
}

/// Why an item has no identity in its list.
fn unmergeable(item: &Value, schema: &Schema) -> Option<String> {
    match (&schema.list, item) {
        (ListType::Map(_), Value::Null) => Some("associative list with keys may not have a null element".into()),
        (ListType::Map(keys), Value::Object(_)) => (item_key(item, schema) == "k:{}").then(|| {
            let keys: Vec<String> = keys.iter().map(|key| format!("\"{key}\"")).collect();
            format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for \
                 any key fields)",
                keys.join(" ")
            )
        }),
        (ListType::Map(_), _) => Some("associative list with keys may not have non-map elements".into()),
        (ListType::Set, Value::Null) => {
            Some("associative list without keys has an element that's an explicit null".into())
        }
        (ListType::Set, Value::Object(_)) => {
            Some("associative list without keys has an element that's a map type".into())
        }
        (ListType::Set, Value::Array(_)) => Some("not supported: associative list with lists as elements".into()),
        (ListType::Atomic | ListType::Set, _) => None,
    }
}

/// The first item of the object that cannot be merged.
pub(crate) fn unmergeable_item(object: &Value, schema: &Schema) -> Option<String> {
    errors(object, schema).into_iter().find(|error| error.contains(": element "))
}

/// A value as Go's `%v` of a pointer.
fn pointer(value: &Value) -> String {
    match value {
        Value::String(text) => format!("&{{{text}}}"),
        other => format!("&{{{other}}}"),
    }
}

/// A value as Go's `%#v`.
fn go_value(value: &Value) -> String {
    match value {
        Value::Array(_) => "[]interface {}{}".to_owned(),
        Value::Object(_) => "map[string]interface {}{}".to_owned(),
        scalar => scalar.to_string(),
    }
}

/// The Go type of a value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
        Value::Number(_) | Value::Null => "number",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_are_those_of_structured_merge_diff() {
        let item =
            json!({"type": "object", "properties": {"k": {"type": "string"}, "n": {"type": "integer"}}});
        let schema = Schema::from_json(&json!({"type": "object", "properties": {
            "text": {"type": "string"}, "flag": {"type": "boolean"}, "number": {"type": "number"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}},
            "list": {"type": "array", "items": item},
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item}}}));
        for (config, expected) in [
            (
                json!({"text": "x", "flag": true, "number": 1.5, "free": {"a": [1]}, "kind": "K", "metadata": {}}),
                None,
            ),
            (json!({"text": 5}), Some(".text: expected string, got &value.valueUnstructured{Value:5}")),
            (json!({"flag": "text"}), Some(".flag: expected boolean, got &{text}")),
            (json!({"number": "x"}), Some(".number: expected numeric (int or float), got string")),
            (json!({"other": 1}), Some(".other: field not declared in schema")),
            (json!({"list": [{"k": "a", "x": 1}]}), Some(".list[0].x: field not declared in schema")),
            (json!({"map": [{"k": "a", "x": 1}]}), Some(".map[k=\"a\"].x: field not declared in schema")),
            (
                json!({"map": [null]}),
                Some(".map: element 0: associative list with keys may not have a null element"),
            ),
            (
                json!({"map": [{"n": 1}]}),
                Some(
                    ".map: element 0: associative list with keys has an element that omits all key fields [\"k\"] (and doesn't have \
                     default values for any key fields)",
                ),
            ),
            (
                json!({"set": [{"a": 1}]}),
                Some(".set: element 0: associative list without keys has an element that's a map type"),
            ),
        ] {
            let found = errors(&config, &schema);
            assert_eq!(
                found.iter().map(String::as_str).collect::<Vec<_>>(),
                Vec::from_iter(expected),
                "{config}"
            );
        }
    }
}
