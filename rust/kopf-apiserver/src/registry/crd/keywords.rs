//! Decoding of `openAPIV3Schema`, as Go does: unknown keywords are dropped, and types are checked.

use serde_json::{Map, Value};

use crate::base::field_path::FieldPath;
use crate::schema::decode::found_label;

/// Type of a keyword.
#[derive(Clone, Copy)]
enum Keyword {
    Any,
    Text,
    Flag,
    Count,
    Number,
    Texts,
    Schema,
    SchemaOrList,
    SchemaOrFlag,
    Schemas,
    Members,
    Rules,
}

fn keyword(name: &str) -> Option<Keyword> {
    Some(match name {
        "default" | "example" | "enum" | "externalDocs" | "dependencies" => Keyword::Any,
        "id"
        | "$schema"
        | "$ref"
        | "description"
        | "type"
        | "format"
        | "title"
        | "pattern"
        | "x-kubernetes-list-type"
        | "x-kubernetes-map-type" => Keyword::Text,
        "exclusiveMaximum"
        | "exclusiveMinimum"
        | "uniqueItems"
        | "nullable"
        | "x-kubernetes-preserve-unknown-fields"
        | "x-kubernetes-embedded-resource"
        | "x-kubernetes-int-or-string" => Keyword::Flag,
        "maxLength" | "minLength" | "maxItems" | "minItems" | "maxProperties" | "minProperties" => {
            Keyword::Count
        }
        "maximum" | "minimum" | "multipleOf" => Keyword::Number,
        "required" | "x-kubernetes-list-map-keys" => Keyword::Texts,
        "not" => Keyword::Schema,
        "items" => Keyword::SchemaOrList,
        "additionalProperties" | "additionalItems" => Keyword::SchemaOrFlag,
        "allOf" | "anyOf" | "oneOf" => Keyword::Schemas,
        "properties" | "patternProperties" | "definitions" => Keyword::Members,
        "x-kubernetes-validations" => Keyword::Rules,
        _ => return None,
    })
}

/// Decodes the schemas of a CRD. The error is the message of Go's decoder.
pub(crate) fn decode(crd: &mut Value, unknown: &mut Vec<String>) -> Result<(), String> {
    let versions = crd.pointer_mut("/spec/versions").and_then(Value::as_array_mut).into_iter().flatten();
    let spec = FieldPath::Member(&FieldPath::Root, "spec");
    let versions_path = FieldPath::Member(&spec, "versions");
    for (i, version) in versions.enumerate() {
        let item = FieldPath::Item(&versions_path, i);
        let holder = FieldPath::Member(&item, "schema");
        if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") {
            read(schema, &FieldPath::Member(&holder, "openAPIV3Schema"), unknown)?;
        }
    }
    Ok(())
}

fn mismatch(value: &Value, holder: &str, path: &FieldPath<'_>, expected: &str) -> String {
    let found = found_label(value, matches!(expected, "int64" | "float64") && value.is_number());
    format!(
        "json: cannot unmarshal {found} into Go struct field {holder}.{} of type {expected}",
        path.fields()
    )
}

/// Decodes a schema in place.
fn read(schema: &mut Value, at: &FieldPath<'_>, unknown: &mut Vec<String>) -> Result<(), String> {
    const HOLDER: &str = "JSONSchemaProps";
    let map = match schema {
        Value::Null => return Ok(()),
        Value::Object(map) => map,
        other => return Err(mismatch(other, HOLDER, at, "v1.JSONSchemaProps")),
    };
    let mut kept = Map::new();
    for (name, mut value) in std::mem::take(map) {
        let path = FieldPath::Member(at, &name);
        let Some(kind) = keyword(&name) else {
            unknown.push(path.text());
            continue;
        };
        if !value.is_null() && !member(kind, &mut value, &path, unknown)? {
            continue;
        }
        kept.insert(name, value);
    }
    *map = kept;
    Ok(())
}

/// An integer that a floating-point number cannot represent, as Go writes it.
fn rounded(value: &Value) -> Option<Value> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let number = value.as_f64().filter(|number| !value.is_f64() && number.abs() > EXACT)?;
    // The shortest digits, with zeros.
    let text = number.to_string();
    text.parse::<i64>().map(Value::from).or_else(|_| text.parse::<u64>().map(Value::from)).ok()
}

/// Decodes the value of a keyword. Returns whether it is kept.
fn member(
    kind: Keyword,
    value: &mut Value,
    path: &FieldPath<'_>,
    unknown: &mut Vec<String>,
) -> Result<bool, String> {
    let require = |value: &Value, is_good: bool, expected: &str| {
        if is_good { Ok(()) } else { Err(mismatch(value, "JSONSchemaProps", path, expected)) }
    };
    match (kind, &mut *value) {
        (Keyword::Any, _) | (Keyword::SchemaOrFlag, Value::Bool(_)) => {}
        (Keyword::Text, found) => require(found, found.is_string(), "string")?,
        (Keyword::Flag, found) => require(found, found.is_boolean(), "bool")?,
        (Keyword::Count, found) => require(found, found.is_i64() || found.is_u64(), "int64")?,
        (Keyword::Number, found) => {
            require(found, found.is_number(), "float64")?;
            if let Some(rounded) = rounded(found) {
                *found = rounded;
            }
        }
        (Keyword::Texts, Value::Array(list)) => {
            for item in list {
                if item.is_null() {
                    *item = "".into();
                }
                require(item, item.is_string(), "string")?;
            }
        }
        (Keyword::Texts, found) => require(found, false, "[]string")?,
        (Keyword::SchemaOrFlag, found) if !found.is_object() => {
            return Err("boolean or JSON schema expected".to_owned());
        }
        (Keyword::SchemaOrList | Keyword::Schemas, Value::Array(list)) => {
            let mut unreported = Vec::new();
            let unknown = if matches!(kind, Keyword::Schemas) { unknown } else { &mut unreported };
            for (i, item) in list.iter_mut().enumerate() {
                read(item, &FieldPath::Item(path, i), unknown)?;
            }
        }
        // Other values are ignored.
        (Keyword::SchemaOrList, found) if !found.is_object() => return Ok(false),
        (Keyword::Schema, found) => read(found, path, unknown)?,
        // Their decoders do not report unknown keywords.
        (Keyword::SchemaOrList | Keyword::SchemaOrFlag, found) => read(found, path, &mut Vec::new())?,
        (Keyword::Schemas, found) => require(found, false, "[]v1.JSONSchemaProps")?,
        (Keyword::Members, Value::Object(members)) => {
            for (name, item) in members.iter_mut() {
                read(item, &FieldPath::Key(path, name), unknown)?;
            }
        }
        (Keyword::Members, found) => require(found, false, "map[string]v1.JSONSchemaProps")?,
        (Keyword::Rules, Value::Array(list)) => {
            for (i, item) in list.iter_mut().enumerate() {
                rule(item, &FieldPath::Item(path, i), unknown)?;
            }
        }
        (Keyword::Rules, found) => require(found, false, "v1.ValidationRules")?,
    }
    Ok(true)
}

/// Decodes a validation rule in place.
fn rule(value: &mut Value, at: &FieldPath<'_>, unknown: &mut Vec<String>) -> Result<(), String> {
    let Value::Object(map) = value else { return Ok(()) };
    let mut kept = Map::new();
    for (name, value) in std::mem::take(map) {
        let path = FieldPath::Member(at, &name);
        let expected = match name.as_str() {
            "rule" | "message" | "messageExpression" | "fieldPath" => "string",
            "reason" => "v1.FieldValueErrorReason",
            "optionalOldSelf" => "bool",
            _ => {
                unknown.push(path.text());
                continue;
            }
        };
        let is_good = if expected == "bool" { value.is_boolean() } else { value.is_string() };
        if !value.is_null() && !is_good {
            return Err(mismatch(&value, "ValidationRule", &path, expected));
        }
        let is_empty = value.is_null() || (name != "rule" && name != "reason" && value.as_str() == Some(""));
        if !is_empty {
            kept.insert(name, value);
        }
    }
    *map = kept;
    Ok(())
}
