//! Schemas of built-in and custom resources.
//!
//! Fields of built-in kinds come from `builtin/types.txt`, those of custom resources from CRDs. This module has the
//! type, its construction from `openAPIV3Schema`, pruning and defaulting. `decode` decodes built-in kinds, `validate`
//! validates custom resources, `cel` evaluates their rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::base::field_path::FieldPath;
use crate::base::go_regex;
use crate::base::json::{drop_empty, strings};

pub(crate) mod cel;
mod correlation;
pub(crate) mod decode;
pub(crate) mod formats;
mod go_time;
pub(crate) mod quantity;
pub(crate) mod validate;

/// Type of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Type {
    #[default]
    Any,
    Object,
    Array,
    String,
    Bytes,
    Integer,
    Number,
    Boolean,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
}

/// `x-kubernetes-list-type`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

pub(crate) type Property = Arc<Schema>;

/// Schema of a value.
#[expect(clippy::struct_excessive_bools, reason = "each is a word of the schema language")]
#[derive(Clone, Debug, Default)]
pub(crate) struct Schema {
    pub(crate) kind: Type,
    /// Name of the built-in type; else empty.
    pub(crate) type_name: String,
    pub(crate) properties: BTreeMap<String, Property>,
    pub(crate) required: Vec<String>,
    pub(crate) additional: Option<Arc<Schema>>,
    pub(crate) items: Option<Arc<Schema>>,
    /// Built-in types: the value that is written if the field is absent.
    pub(crate) always_written: Option<Value>,
    pub(crate) list: ListType,
    /// `x-kubernetes-map-type: atomic`.
    pub(crate) atomic: bool,
    pub(crate) patch: Vec<String>,
    pub(crate) merge_key: String,
    pub(crate) options: Vec<String>,
    /// A 32-bit integer.
    pub(crate) is_int32: bool,
    /// Built-in types: omitted if it is zero.
    pub(crate) omits_zero: bool,
    /// Built-in types: written even if it is an empty string.
    pub(crate) keeps_empty: bool,
    /// Built-in types: the named Go type of a string, e.g. `v1.Protocol`; else empty.
    pub(crate) go_type: String,
    /// Built-in types: the embedded Go structs that have the field; else empty.
    pub(crate) embedding: String,
    /// From here on: custom resources only.
    pub(crate) default: Option<Value>,
    pub(crate) nullable: bool,
    pub(crate) preserve: bool,
    pub(crate) embedded: bool,
    pub(crate) checks: Option<Arc<Checks>>,
    pub(crate) rules: Vec<Arc<cel::Rule>>,
}

/// Value validations of a custom resource.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checks {
    pub(crate) options: Option<Vec<Value>>,
    pub(crate) pattern: Option<(String, Option<regex::Regex>)>,
    pub(crate) format: String,
    pub(crate) minimum: Option<(f64, bool)>,
    pub(crate) maximum: Option<(f64, bool)>,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) length: (Option<u64>, Option<u64>),
    pub(crate) items: (Option<u64>, Option<u64>),
    pub(crate) unique: bool,
    pub(crate) properties: (Option<u64>, Option<u64>),
    pub(crate) all_of: Vec<Schema>,
    pub(crate) any_of: Vec<Schema>,
    pub(crate) one_of: Vec<Schema>,
    pub(crate) not: Option<Box<Schema>>,
}

impl Schema {
    /// Schema that accepts and preserves everything.
    pub(crate) fn any() -> Self {
        Self { kind: Type::Any, preserve: true, ..Self::default() }
    }

    /// Whether the field is a pointer to a string, so that an empty one is a value.
    pub(crate) fn is_string_pointer(&self) -> bool {
        self.keeps_empty && self.always_written.as_ref().is_none_or(Value::is_null)
    }

    /// Schema of a member: a property, or additional properties.
    pub(crate) fn child(&self, name: &str) -> Option<&Arc<Schema>> {
        self.properties.get(name).or(self.additional.as_ref())
    }

    /// Converts `openAPIV3Schema`.
    pub(crate) fn from_json(json: &Value) -> Self {
        let text = |key: &str| json.get(key).and_then(Value::as_str).unwrap_or_default();
        let flag = |key: &str| json.get(key).and_then(Value::as_bool).unwrap_or(false);
        let int_or_string = flag("x-kubernetes-int-or-string");
        let mut out = Self {
            kind: if int_or_string { Type::IntOrString } else { type_named(text("type")) },
            nullable: flag("nullable"),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            default: json.get("default").cloned(),
            atomic: text("x-kubernetes-map-type") == "atomic",
            required: strings(json.get("required")),
            items: json.get("items").map(|v| Arc::new(Self::from_json(v))),
            list: match text("x-kubernetes-list-type") {
                "set" => ListType::Set,
                "map" => ListType::Map(strings(json.get("x-kubernetes-list-map-keys"))),
                _ => ListType::Atomic,
            },
            checks: Checks::from_json(json).map(Arc::new),
            ..Self::default()
        };
        match json.get("additionalProperties") {
            Some(Value::Bool(true)) => out.additional = Some(Arc::new(Self::any())),
            Some(schema @ Value::Object(_)) => out.additional = Some(Arc::new(Self::from_json(schema))),
            _ => {}
        }
        if let Some(Value::Object(properties)) = json.get("properties") {
            out.properties =
                properties.iter().map(|(k, v)| (k.clone(), Arc::new(Self::from_json(v)))).collect();
        }
        if let Some(Value::Array(rules)) = json.get("x-kubernetes-validations") {
            out.rules = rules.iter().map(|r| Arc::new(cel::Rule::from_json(r))).collect();
        }
        out
    }

    /// Whether unknown fields are preserved.
    pub(crate) fn keeps_unknown(&self) -> bool {
        self.preserve || (self.kind == Type::Any && self.properties.is_empty() && self.additional.is_none())
    }
}

fn type_named(name: &str) -> Type {
    match name {
        "object" => Type::Object,
        "array" => Type::Array,
        "string" => Type::String,
        "integer" => Type::Integer,
        "number" => Type::Number,
        "boolean" => Type::Boolean,
        _ => Type::Any,
    }
}

impl Checks {
    fn from_json(json: &Value) -> Option<Self> {
        const KEYS: [&str; 17] = [
            "enum",
            "pattern",
            "format",
            "minimum",
            "maximum",
            "multipleOf",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "uniqueItems",
            "minProperties",
            "maxProperties",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
        ];
        if !KEYS.iter().any(|k| json.get(k).is_some()) {
            return None;
        }
        let size = |key: &str| json.get(key).and_then(Value::as_u64);
        let bound = |key: &str, exclusive: &str| {
            let open = json.get(exclusive).and_then(Value::as_bool).unwrap_or(false);
            json.get(key).and_then(Value::as_f64).map(|v| (v, open))
        };
        let several = |key: &str| {
            let list = json.get(key).and_then(Value::as_array);
            list.map(|l| l.iter().map(Schema::from_json).collect()).unwrap_or_default()
        };
        Some(Self {
            options: json.get("enum").and_then(Value::as_array).cloned(),
            pattern: json
                .get("pattern")
                .and_then(Value::as_str)
                .map(|p| (p.to_owned(), go_regex::compile(p).ok())),
            format: json.get("format").and_then(Value::as_str).unwrap_or_default().to_owned(),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: json.get("multipleOf").and_then(Value::as_f64),
            length: (size("minLength"), size("maxLength")),
            items: (size("minItems"), size("maxItems")),
            unique: json.get("uniqueItems").and_then(Value::as_bool).unwrap_or(false),
            properties: (size("minProperties"), size("maxProperties")),
            all_of: several("allOf"),
            any_of: several("anyOf"),
            one_of: several("oneOf"),
            not: json.get("not").map(|v| Box::new(Schema::from_json(v))),
        })
    }
}

/// Drops unknown fields, and collects their paths.
pub(crate) fn prune(value: &mut Value, schema: &Schema, dropped: &mut Vec<String>) {
    prune_at(value, schema, &FieldPath::Root, dropped);
}

fn prune_at(value: &mut Value, schema: &Schema, path: &FieldPath<'_>, dropped: &mut Vec<String>) {
    match value {
        Value::Object(map) => prune_map(map, schema, path, dropped),
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for (i, item) in list.iter_mut().enumerate() {
                    prune_at(item, items, &FieldPath::Item(path, i), dropped);
                }
            }
        }
        _ => {}
    }
}

fn prune_map(map: &mut Map<String, Value>, schema: &Schema, path: &FieldPath<'_>, dropped: &mut Vec<String>) {
    let system = schema.embedded || matches!(path, FieldPath::Root);
    let keeps = schema.keeps_unknown();
    map.retain(|key, child| {
        if system && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
            return true;
        }
        let below = FieldPath::Member(path, key);
        match schema.child(key) {
            Some(known) => prune_at(child, known, &below, dropped),
            None if keeps => {}
            None => {
                dropped.push(below.text());
                return false;
            }
        }
        true
    });
}

/// Sets defaults. A null in a field that is not nullable counts as absent.
pub(crate) fn fill_defaults(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => {
            for (name, property) in &schema.properties {
                if let Some(default) = &property.default {
                    let absent = match map.get(name) {
                        None => true,
                        Some(Value::Null) => !property.nullable,
                        Some(_) => false,
                    };
                    if absent {
                        map.insert(name.clone(), default.clone());
                    }
                }
            }
            for (key, child) in map.iter_mut() {
                if let Some(known) = schema.child(key) {
                    fill_item(child, known);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for item in list {
                    fill_item(item, items);
                }
            }
        }
        _ => {}
    }
}

/// Sets the default of an item of a list or a map in place of a null, and the defaults within it.
fn fill_item(item: &mut Value, schema: &Schema) {
    if let Some(default) = &schema.default
        && item.is_null()
        && !schema.nullable
    {
        *item = default.clone();
    }
    fill_defaults(item, schema);
}

/// Drops the nulls of fields that are not nullable, and the empty values in the metadata of embedded resources.
pub(crate) fn drop_nulls(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => {
            map.retain(|key, child| !(child.is_null() && schema.child(key).is_some_and(|s| !s.nullable)));
            if let Some(Value::Object(metadata)) = map.get_mut("metadata").filter(|_| schema.embedded) {
                drop_empty(metadata);
            }
            for (key, child) in map.iter_mut() {
                if let Some(known) = schema.child(key) {
                    drop_nulls(child, known);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for item in list {
                    drop_nulls(item, items);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::status::Cause;

    fn schema() -> Schema {
        Schema::from_json(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["n"],
            "properties": {"n": {"type": "integer", "minimum": 1}, "d": {"type": "string", "default": "x"},
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            "x-kubernetes-validations": [{"rule": "self.n < 10 && self.d.startsWith('x')", "message": "too much"}]}}}),
        )
    }

    #[test]
    fn unknown_fields_are_pruned_and_defaults_set() {
        let mut value = json!({"kind": "K", "metadata": {}, "spec": {"n": 1, "junk": 1, "any": {"kept": 1}}});
        let mut dropped = Vec::new();
        prune(&mut value, &schema(), &mut dropped);
        fill_defaults(&mut value, &schema());
        assert_eq!(dropped, ["spec.junk"]);
        assert_eq!(value["spec"], json!({"n": 1, "any": {"kept": 1}, "d": "x"}));
    }

    #[test]
    fn null_items_get_defaults() {
        let item = |nullable: bool| {
            json!({"type": "object", "nullable": nullable, "default": {"a": 1}, "properties": {
            "a": {"type": "integer"}, "b": {"type": "integer", "default": 2}}})
        };
        let schema = Schema::from_json(&json!({"type": "object", "properties": {
            "list": {"type": "array", "items": item(false)}, "nullable": {"type": "array", "items": item(true)},
            "map": {"type": "object", "additionalProperties": item(false)},
            "plain": {"type": "array", "items": {"type": "integer"}}}}));
        let mut value = json!({"list": [null, {}], "nullable": [null], "map": {"x": null}, "plain": [null]});
        fill_defaults(&mut value, &schema);
        let filled = json!({"a": 1, "b": 2});
        let expected =
            json!({"list": [filled, {"b": 2}], "nullable": [null], "map": {"x": filled}, "plain": [null]});
        assert_eq!(value, expected);
    }

    #[test]
    fn values_and_rules_are_validated() {
        let causes = |spec: Value| -> Vec<Cause> {
            let value = json!({"spec": spec});
            let (mut out, _) = validate::validate(&value, &schema());
            out.extend(cel::check(&value, None, &schema()).causes);
            out
        };
        assert_eq!(causes(json!({"n": 5, "d": "xy"})), []);
        assert_eq!(
            causes(json!({"n": 50, "d": "x"})).first().map(|c| c.message.clone()),
            Some("Invalid value: too much".into())
        );
        assert_eq!(causes(json!({"n": 0, "d": "x"})).len(), 1);
        assert_eq!(
            causes(json!({"n": "x", "d": "x"})).first().map(|c| c.reason),
            Some("FieldValueTypeInvalid")
        );
    }

    #[test]
    fn nulls_are_kept_in_nullable_fields_only() {
        let schema = Schema::from_json(&json!({"type": "object", "properties": {
            "a": {"type": "string"}, "b": {"type": "string", "nullable": true},
            "l": {"type": "array", "items": {"type": "object", "properties": {"c": {"type": "string"}}}},
            "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        }}));
        let mut value = json!({"a": null, "b": null, "l": [{"c": null}], "other": null,
            "pod": {"metadata": {"name": "x", "labels": {}, "finalizers": []}}});
        drop_nulls(&mut value, &schema);
        assert_eq!(value, json!({"b": null, "l": [{}], "other": null, "pod": {"metadata": {"name": "x"}}}));
    }
}
