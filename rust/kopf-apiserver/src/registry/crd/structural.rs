//! Structural rules of the schemas in CRDs, with the messages of kube-apiserver.
//!
//! The rules come in two groups: keywords that CRDs cannot use or combine, and the structure: types are specified outside of
//! `allOf`, `anyOf`, `oneOf` and `not`. Defaults are in `schema_defaults`.

use serde_json::{Value, json};

use super::schema_defaults;
use super::subschemas::{Level, TYPES, alternatives, contents, properties};
use crate::base::json::{member_text, strings};
use crate::error::status::Cause;

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// Field errors of a root schema.
pub(super) fn validate(schema: &Value, path: &str, out: &mut Vec<Cause>) {
    validate_keywords(schema, path, out);
    if has_unsupported(schema) {
        // kube-apiserver cannot make a structural schema of it.
        return;
    }
    let before = out.len();
    validate_structure(schema, Level::Root, path, out);
    if out.len() == before {
        schema_defaults::validate(schema, path, out);
    }
}

/// Keywords that structural schemas do not have.
const UNSUPPORTED: [&str; 6] =
    ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];

/// Whether a schema has such a keyword at any level outside of the logical keywords.
fn has_unsupported(schema: &Value) -> bool {
    UNSUPPORTED.iter().any(|key| schema.get(*key).is_some_and(|value| !value.is_null()))
        || schema.get("items").is_some_and(Value::is_array)
        || properties(schema, "").any(|(_, child)| has_unsupported(child))
        || contents(schema, "").iter().any(|(_, _, child)| has_unsupported(child))
}

fn flag(schema: &Value, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or(false)
}

/// Keywords that are not supported, or cannot be combined.
fn validate_keywords(schema: &Value, path: &str, out: &mut Vec<Cause>) {
    if flag(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        out.push(Cause::forbidden(format!("{path}.uniqueItems"), detail));
    }
    for key in UNSUPPORTED {
        if schema.get(key).is_some_and(|v| !v.is_null()) {
            out.push(Cause::forbidden(format!("{path}.{key}"), &format!("{key} is not supported")));
        }
    }
    if schema.get("items").is_some_and(Value::is_array) {
        out.push(Cause::forbidden(format!("{path}.items"), "items must be a schema object and not an array"));
    }
    if properties(schema, path).next().is_some() && schema.get("additionalProperties").is_some() {
        let detail = "additionalProperties and properties are mutual exclusive";
        out.push(Cause::forbidden(format!("{path}.additionalProperties"), detail));
    }
    if schema.get(PRESERVE) == Some(&Value::Bool(false)) {
        out.push(Cause::invalid(format!("{path}.{PRESERVE}"), &false.into(), "must be true or undefined"));
    }
    let kind = member_text(schema, "type");
    if kind == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        out.push(Cause::forbidden(format!("{path}.type"), detail));
    }
    if !kind.is_empty() && !TYPES.contains(&kind) {
        out.push(Cause::unsupported(format!("{path}.type"), &kind.into(), &TYPES.map(str::to_owned)));
    }
    validate_map_type(schema, path, out);
    validate_list_type(schema, path, out);
    for (below, child) in properties(schema, path).chain(alternatives(schema, path)) {
        validate_keywords(child, &below, out);
    }
    for (_, below, child) in contents(schema, path) {
        validate_keywords(child, &below, out);
    }
}

/// Requires the type that an extension is for.
fn require_type(schema: &Value, expected: &str, extension: &str, path: &str, out: &mut Vec<Cause>) {
    let kind = member_text(schema, "type");
    let detail = format!("must be {expected} if {extension}");
    if kind.is_empty() {
        out.push(Cause::required(format!("{path}.type"), &detail));
    } else if kind != expected {
        out.push(Cause::invalid(format!("{path}.type"), &kind.into(), &detail));
    }
}

fn validate_map_type(schema: &Value, path: &str, out: &mut Vec<Cause>) {
    let Some(map_type) = schema.get("x-kubernetes-map-type").and_then(Value::as_str) else { return };
    require_type(schema, "object", "x-kubernetes-map-type is specified", path, out);
    if !matches!(map_type, "atomic" | "granular") {
        let known = ["atomic", "granular"].map(str::to_owned);
        out.push(Cause::unsupported(format!("{path}.x-kubernetes-map-type"), &map_type.into(), &known));
    }
}

fn validate_list_type(schema: &Value, path: &str, out: &mut Vec<Cause>) {
    let list_type = schema.get("x-kubernetes-list-type").and_then(Value::as_str);
    let keys = strings(schema.get("x-kubernetes-list-map-keys"));
    if let Some(list_type) = list_type {
        require_type(schema, "array", "x-kubernetes-list-type is specified", path, out);
        if !matches!(list_type, "atomic" | "set" | "map") {
            let known = ["atomic", "set", "map"].map(str::to_owned);
            out.push(Cause::unsupported(format!("{path}.x-kubernetes-list-type"), &list_type.into(), &known));
        }
    }
    if !keys.is_empty() {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        let field = format!("{path}.x-kubernetes-list-type");
        match list_type {
            None => out.push(Cause::required(field, detail)),
            Some("map") => {}
            Some(other) => out.push(Cause::invalid(field, &other.into(), detail)),
        }
    }
    if list_type == Some("set")
        && let Some(items) = schema.get("items").filter(|items| member_text(items, "type") == "object")
        && items.get("x-kubernetes-map-type").and_then(Value::as_str) != Some("atomic")
    {
        let shown = items.get("x-kubernetes-map-type").unwrap_or(&Value::Null);
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        out.push(Cause::invalid(format!("{path}.items.x-kubernetes-map-type"), shown, detail));
    }
    if list_type == Some("set") && flag(schema.get("items").unwrap_or(&Value::Null), "nullable") {
        let detail = "cannot be nullable when x-kubernetes-list-type is set";
        out.push(Cause::forbidden(format!("{path}.items.nullable"), detail));
    }
    if list_type == Some("map") {
        validate_list_map(schema, &keys, path, out);
    }
}

/// Rules of lists with keys.
fn validate_list_map(schema: &Value, keys: &[String], path: &str, out: &mut Vec<Cause>) {
    let field = format!("{path}.x-kubernetes-list-map-keys");
    if keys.is_empty() {
        out.push(Cause::required(&*field, "must not be empty if x-kubernetes-list-type is map"));
    }
    let Some(items) = schema.get("items") else {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        out.push(Cause::required(format!("{path}.items"), detail));
        return;
    };
    let kind = member_text(items, "type");
    if kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        out.push(Cause::invalid(format!("{path}.items.type"), &kind.into(), detail));
        return;
    }
    let required = strings(items.get("required"));
    for (i, key) in keys.iter().enumerate() {
        let Some(property) = items.pointer(&format!("/properties/{key}")) else {
            out.push(Cause::invalid(&*field, &json!(keys), "entries must all be names of item properties"));
            continue;
        };
        let below = format!("{path}.items.properties[{key}]");
        let kind = member_text(property, "type");
        if matches!(kind, "array" | "object") {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            out.push(Cause::invalid(format!("{below}.type"), &kind.into(), detail));
        }
        if flag(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            out.push(Cause::forbidden(format!("{below}.nullable"), detail));
        }
        if property.get("default").is_none() && !required.contains(key) {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            out.push(Cause::required(format!("{below}.default"), detail));
        }
        if keys.iter().take(i).any(|other| other == key) {
            out.push(Cause::invalid(&*field, &json!(keys), "must not contain duplicate entries"));
        }
    }
}

/// Types and extensions of a schema that stands outside of the logical keywords.
fn validate_structure(schema: &Value, level: Level, path: &str, out: &mut Vec<Cause>) {
    for (below, child) in properties(schema, path) {
        validate_structure(child, Level::Field, &below, out);
    }
    for (level, below, child) in contents(schema, path) {
        validate_structure(child, level, &below, out);
    }
    let [is_embedded, preserves, is_int_or_string] = [
        "x-kubernetes-embedded-resource",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-int-or-string",
    ]
    .map(|key| flag(schema, key));
    let has_type = !member_text(schema, "type").is_empty();
    if matches!(level, Level::Root) || is_embedded {
        validate_object_members(schema, matches!(level, Level::Root), path, out);
    }
    if is_int_or_string {
        for (key, is_set) in [
            ("x-kubernetes-preserve-unknown-fields", preserves),
            ("x-kubernetes-embedded-resource", is_embedded),
        ] {
            if is_set {
                let detail = "must be false if x-kubernetes-int-or-string is true";
                out.push(Cause::invalid(format!("{path}.{key}"), &true.into(), detail));
            }
        }
    }
    if is_embedded {
        require_type(schema, "object", "x-kubernetes-embedded-resource is true", path, out);
        if !preserves && properties(schema, path).next().is_none() {
            let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                          x-kubernetes-preserve-unknown-fields";
            out.push(Cause::required(format!("{path}.properties"), detail));
        }
    } else if !has_type && !is_int_or_string && !preserves {
        out.push(Cause::required(format!("{path}.type"), level.missing_type()));
    }
    if let (Level::Root, true) = (level, has_type && member_text(schema, "type") != "object") {
        out.push(Cause::invalid(format!("{path}.type"), &schema["type"], "must be object at the root"));
    }
    // The one place where a type inside of `anyOf` is structural.
    let int_or_string = json!([{"type": "integer"}, {"type": "string"}]);
    for (below, child) in alternatives(schema, path) {
        let is_first = below.ends_with(".allOf[0]");
        let types_allowed = below.contains(".anyOf[")
            && below.len() > path.len()
            && below[path.len()..].starts_with(".anyOf[")
            && schema["anyOf"] == int_or_string;
        validate_nested(child, types_allowed, is_first && child["anyOf"] == int_or_string, &below, out);
    }
}

/// Validates the schemas of `apiVersion`, `kind` and `metadata`, which all objects have.
fn validate_object_members(schema: &Value, is_root: bool, path: &str, out: &mut Vec<Cause>) {
    for (name, expected) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        let Some(found) = schema.pointer(&format!("/properties/{name}")) else { continue };
        let kind = member_text(found, "type");
        if kind != expected {
            let detail = format!("must be {expected}");
            out.push(Cause::invalid(format!("{path}.properties[{name}].type"), &kind.into(), &detail));
        }
    }
    let Some(metadata) = schema.pointer("/properties/metadata").filter(|_| is_root) else { return };
    let path = format!("{path}.properties[metadata]");
    if metadata.get("default").is_some_and(|default| !default.is_null()) {
        out.push(Cause::forbidden(format!("{path}.default"), "must not be set in top-level metadata"));
    }
    let is_open = |(key, value): (&String, &Value)| match key.as_str() {
        "type" | "description" | "default" => true,
        "properties" => value.as_object().is_some_and(|members| {
            members.keys().all(|name| matches!(name.as_str(), "name" | "generateName"))
        }),
        _ => matches!(value, Value::Null | Value::Bool(false)),
    };
    if !metadata.as_object().is_none_or(|map| map.iter().all(is_open)) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        out.push(Cause::forbidden(path, detail));
    }
}

/// Validates a schema inside of `allOf`, `anyOf`, `oneOf` or `not`: it has only rules about values.
fn validate_nested(
    schema: &Value,
    allows_type: bool,
    allows_types_below: bool,
    path: &str,
    out: &mut Vec<Cause>,
) {
    let mut forbid = |key: &str, detail: &str| out.push(Cause::forbidden(format!("{path}.{key}"), detail));
    if !allows_type && !member_text(schema, "type").is_empty() {
        forbid("type", "must be empty to be structural");
    }
    for key in ["title", "description"] {
        if !member_text(schema, key).is_empty() {
            forbid(key, "must be empty to be structural");
        }
    }
    for key in ["x-kubernetes-list-map-keys", "x-kubernetes-validations"] {
        if schema.get(key).and_then(Value::as_array).is_some_and(|list| !list.is_empty()) {
            forbid(key, "must be empty to be structural");
        }
    }
    for key in ["additionalProperties", "default", "x-kubernetes-list-type", "x-kubernetes-map-type"] {
        if schema.get(key).is_some_and(|v| !v.is_null()) {
            forbid(key, "must be undefined to be structural");
        }
    }
    for key in [
        "nullable",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    ] {
        if flag(schema, key) {
            forbid(key, "must be false to be structural");
        }
    }
    for (below, child) in properties(schema, path).chain(alternatives(schema, path)) {
        validate_nested(child, allows_types_below, false, &below, out);
    }
    if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
        validate_nested(items, false, false, &format!("{path}.items"), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The errors of a schema with this property, without the root's path.
    fn errors(property: &Value) -> Vec<String> {
        let mut out = Vec::new();
        validate(&json!({"type": "object", "properties": {"p": property}}), "s", &mut out);
        out.iter().map(|c| format!("{}: {}", c.field.replace("s.properties[p]", "p"), c.message)).collect()
    }

    #[test]
    fn schemas_as_generators_write_them_are_structural() {
        for property in [
            json!({"type": "string", "default": "x", "enum": ["x", "y"]}),
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^x"}),
            json!({"x-kubernetes-int-or-string": true,
                "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "x"}]}),
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "oneOf": [{"required": ["a"]}],
                "not": {"properties": {"a": {"enum": ["x"]}}}, "x-kubernetes-map-type": "atomic"}),
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"], "default": [{"a": "x"}],
                "items": {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}, "b": {"type": "string", "default": ""}}}}),
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            json!({"type": "object", "additionalProperties": {"type": "string", "nullable": true}, "default": {"a": null}}),
        ] {
            assert_eq!(errors(&property), Vec::<String>::new(), "{property}");
        }
    }

    #[test]
    fn other_schemas_are_rejected_as_kube_apiserver_rejects_them() {
        let list_key = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
        for (property, expected) in [
            (
                json!({"type": "object", "dependencies": {}}),
                "p.dependencies: Forbidden: dependencies is not supported",
            ),
            (
                json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}}),
                "p.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ),
            (
                json!({"type": "other"}),
                "p.type: Unsupported value: \"other\": supported values: \"array\", \"boolean\", \
                \"integer\", \"number\", \"object\", \"string\"",
            ),
            (
                json!({"type": "string", "x-kubernetes-map-type": "atomic"}),
                "p.type: Invalid value: \"string\": must be object if x-kubernetes-map-type is specified",
            ),
            (
                json!({"x-kubernetes-int-or-string": true, "x-kubernetes-list-type": "set"}),
                "p.type: Required value: must be array if x-kubernetes-list-type is specified",
            ),
            (
                json!({"type": "array", "items": {}}),
                "p.items.type: Required value: must not be empty for specified array items",
            ),
            (
                json!({"type": "array", "x-kubernetes-list-map-keys": ["a"], "items": {"type": "string"}}),
                "p.x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty",
            ),
            (
                json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"],
                "items": {"type": "object", "properties": {"a": {"type": "string"}}}}),
                &format!("p.items.properties[a].default: Required value: {list_key}"),
            ),
            (
                json!({"type": "object", "x-kubernetes-embedded-resource": true}),
                "p.properties: Required value: must not be empty \
                if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
            ),
            (
                json!({"type": "string", "oneOf": [{"type": "string"}]}),
                "p.oneOf[0].type: Forbidden: must be empty to be structural",
            ),
            (
                json!({"type": "string", "not": {"nullable": true}}),
                "p.not.nullable: Forbidden: must be false to be structural",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}),
                "p.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ),
            (
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
                "p.x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
            ),
            (
                json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}),
                "p.items.x-kubernetes-map-type: \
                Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
            ),
        ] {
            assert_eq!(errors(&property), [expected], "{property}");
        }
    }
}
