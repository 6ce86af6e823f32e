//! Decoding of built-in kinds, as Go does: unknown fields are dropped, types are checked, empty values are omitted.

use serde_json::{Map, Value};

use super::{Schema, Type};
use crate::base::field_path::FieldPath;

/// Warnings of decoding.
#[derive(Debug, Default)]
pub(crate) struct DecodeWarnings {
    pub(crate) unknown: Vec<String>,
}

/// Decodes an object of a built-in kind. The error is the message of Go's decoder.
pub(crate) fn decode(value: Value, schema: &Schema, warnings: &mut DecodeWarnings) -> Result<Value, String> {
    let frame = Frame { short_type_name: &schema.type_name, path: FieldPath::Root };
    read(value, schema, &frame, warnings).map(|v| v.unwrap_or_else(|| Value::Object(Map::new())))
}

/// Position of the decoder, and the struct type there.
struct Frame<'f> {
    short_type_name: &'f str,
    path: FieldPath<'f>,
}

fn short_type_name(type_name: &str) -> String {
    type_name.rsplit('.').next().unwrap_or_default().to_owned()
}

fn read(
    value: Value,
    schema: &Schema,
    at: &Frame<'_>,
    warnings: &mut DecodeWarnings,
) -> Result<Option<Value>, String> {
    match (schema.kind, value) {
        (_, Value::Null) => Ok(None),
        (Type::Object, Value::Object(map)) => {
            if schema.type_name.is_empty() {
                read_map(map, schema, at, warnings)
            } else {
                read_struct(map, schema, at, warnings)
            }
        }
        (Type::Array, Value::Array(list)) => read_list(list, schema, at, warnings),
        (Type::Time, Value::String(text)) => super::formats::time(&text, false).map(|t| Some(t.into())),
        (Type::MicroTime, Value::String(text)) => super::formats::time(&text, true).map(|t| Some(t.into())),
        (Type::Bytes, Value::String(text)) => match base64_error(&text) {
            Some(offset) => Err(format!("illegal base64 data at input byte {offset}")),
            None => Ok(Some(Value::String(text))),
        },
        (Type::Quantity, value @ (Value::String(_) | Value::Number(_))) => {
            super::formats::quantity(&value).map(Some)
        }
        (Type::String, Value::String(text)) => Ok(Some(text.into())),
        (Type::Any, value)
        | (Type::IntOrString, value @ (Value::String(_) | Value::Number(_)))
        | (Type::Boolean, value @ Value::Bool(_))
        | (Type::Number, value @ Value::Number(_)) => Ok(Some(value)),
        (Type::Integer, Value::Number(number)) => read_integer(number, schema, at),
        (_, value) => Err(type_mismatch(&value, schema, at)),
    }
}

fn read_integer(
    number: serde_json::Number,
    schema: &Schema,
    at: &Frame<'_>,
) -> Result<Option<Value>, String> {
    let whole = number.as_i64().or_else(|| {
        #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and within range")]
        number.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 9.0e15).map(|f| f as i64)
    });
    match whole {
        Some(n) if !schema.is_int32 || i32::try_from(n).is_ok() => Ok(Some(n.into())),
        _ => Err(type_mismatch(&Value::Number(number), schema, at)),
    }
}

fn base64_error(text: &str) -> Option<usize> {
    use base64::Engine;
    let engine = &base64::engine::general_purpose::STANDARD;
    match engine.decode(text) {
        Ok(_) => None,
        Err(base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _)) => {
            Some(at)
        }
        Err(_) => Some(text.len().saturating_sub(text.len() % 4)),
    }
}

/// Go type of a struct: `v1.PodSpec` for `core.v1.PodSpec`.
fn versioned_type_name(type_name: &str) -> String {
    type_name.split_once('.').map_or(type_name, |(_, name)| name).to_owned()
}

/// Type in messages of Go's decoder.
fn type_label(schema: &Schema) -> String {
    match schema.kind {
        Type::Any => "interface {}".into(),
        Type::Object if schema.type_name.is_empty() => {
            format!("map[string]{}", schema.additional.as_deref().map_or_else(String::new, type_label))
        }
        Type::Object => versioned_type_name(&schema.type_name),
        Type::Array => format!("[]{}", schema.items.as_deref().map_or_else(String::new, type_label)),
        Type::String if !schema.go_type.is_empty() => schema.go_type.clone(),
        Type::String | Type::IntOrString | Type::Quantity | Type::Time | Type::MicroTime => "string".into(),
        Type::Bytes => "[]uint8".into(),
        Type::Integer if schema.is_int32 => "int32".into(),
        Type::Integer => "int64".into(),
        Type::Number => "float64".into(),
        Type::Boolean => "bool".into(),
    }
}

/// Kind of a JSON value in messages of Go's decoder; with the number itself if a number does not fit.
pub(crate) fn found_label(value: &Value, with_number: bool) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(n) if with_number => format!("number {n}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

fn type_mismatch(value: &Value, schema: &Schema, at: &Frame<'_>) -> String {
    let found = found_label(value, schema.kind == Type::Integer);
    match schema.kind {
        Type::Time | Type::MicroTime => {
            format!("json: cannot unmarshal {found} into Go value of type string")
        }
        Type::IntOrString => "unrecognized type: int32".to_owned(),
        _ => {
            format!(
                "json: cannot unmarshal {found} into Go struct field {}.{} of type {}",
                short_type_name(at.short_type_name),
                at.path.fields(),
                type_label(schema)
            )
        }
    }
}

fn read_struct(
    map: Map<String, Value>,
    schema: &Schema,
    at: &Frame<'_>,
    warnings: &mut DecodeWarnings,
) -> Result<Option<Value>, String> {
    let mut out = Map::new();
    for (key, value) in map {
        let Some(property) = schema.properties.get(&key) else {
            warnings.unknown.push(FieldPath::Member(&at.path, &key).text());
            continue;
        };
        let within = if property.embedding.is_empty() {
            at.path
        } else {
            FieldPath::Embedded(&at.path, &property.embedding)
        };
        let path = FieldPath::Member(&within, &key);
        let frame = Frame { short_type_name: &schema.type_name, path };
        if let Some(read) =
            read(value, property, &frame, warnings)?.filter(|v| !(property.omits_zero && is_zero(v)))
        {
            // Empty values are omitted, unless the field is always written or required.
            if property.always_written.is_some()
                || !is_empty(&read, property)
                || schema.required.contains(&key)
            {
                out.insert(key, read);
            }
        }
    }
    write_always(&mut out, schema, true);
    Ok(Some(Value::Object(out)))
}

fn is_empty(value: &Value, schema: &Schema) -> bool {
    match value {
        Value::String(s) => s.is_empty() && !schema.keeps_empty,
        Value::Array(list) => list.is_empty(),
        // An empty map is omitted; an empty struct behind a pointer is not.
        Value::Object(map) => map.is_empty() && schema.type_name.is_empty() && schema.kind == Type::Object,
        _ => false,
    }
}

fn is_zero(value: &Value) -> bool {
    matches!(value, Value::Bool(false)) || value.as_str() == Some("") || value.as_i64() == Some(0)
}

/// Replaces empty required lists with null, as protobuf storage does.
pub(crate) fn null_empty_required_lists(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => {
            for (key, child) in map.iter_mut() {
                let Some(known) = schema.child(key) else { continue };
                if child.as_array().is_some_and(Vec::is_empty)
                    && (schema.required.contains(key) || known.always_written == Some(Value::Null))
                {
                    *child = Value::Null;
                } else {
                    null_empty_required_lists(child, known);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for item in list {
                    null_empty_required_lists(item, items);
                }
            }
        }
        _ => {}
    }
}

/// Adds fields that are always written: empty structs and zero values, and defaults if `defaults`.
fn write_always(out: &mut Map<String, Value>, schema: &Schema, defaults: bool) {
    for (name, property) in &schema.properties {
        if out.contains_key(name) {
            continue;
        }
        if let Some(always_written) = &property.always_written {
            if property.kind == Type::Object && !property.type_name.is_empty() {
                let mut inner = Map::new();
                write_always(&mut inner, property, defaults);
                out.insert(name.clone(), Value::Object(inner));
            } else if !always_written.is_object() && (defaults || is_zero(always_written)) {
                out.insert(name.clone(), always_written.clone());
            }
        } else if schema.required.contains(name) && matches!(property.kind, Type::Array | Type::Object) {
            out.insert(name.clone(), Value::Null);
        }
    }
}

/// Object of this type without any fields set: the baseline of managed fields.
pub(crate) fn zero_value(schema: &Schema) -> Value {
    let mut out = Map::new();
    write_always(&mut out, schema, false);
    Value::Object(out)
}

fn read_map(
    map: Map<String, Value>,
    schema: &Schema,
    at: &Frame<'_>,
    warnings: &mut DecodeWarnings,
) -> Result<Option<Value>, String> {
    let mut out = Map::new();
    for (key, value) in map {
        let Some(item) = &schema.additional else {
            out.insert(key, value);
            continue;
        };
        let frame = Frame { short_type_name: at.short_type_name, path: FieldPath::Key(&at.path, &key) };
        match read(value, item, &frame, warnings)? {
            Some(read) => out.insert(key, read),
            None if item.kind == Type::Any => out.insert(key, Value::Null),
            None => out.insert(key, zero_item(item)),
        };
    }
    Ok(Some(Value::Object(out)))
}

/// Value of a null in a list or a map.
fn zero_item(item: &Schema) -> Value {
    match item.kind {
        Type::String | Type::Bytes => "".into(),
        Type::Integer | Type::Number | Type::IntOrString => 0.into(),
        Type::Boolean => false.into(),
        Type::Quantity => "0".into(),
        Type::Array => Value::Null,
        _ => zero_value(item),
    }
}

fn read_list(
    list: Vec<Value>,
    schema: &Schema,
    at: &Frame<'_>,
    warnings: &mut DecodeWarnings,
) -> Result<Option<Value>, String> {
    let Some(items) = &schema.items else { return Ok(Some(Value::Array(list))) };
    let mut out = Vec::with_capacity(list.len());
    for (i, value) in list.into_iter().enumerate() {
        let frame = Frame { short_type_name: at.short_type_name, path: FieldPath::Item(&at.path, i) };
        match read(value, items, &frame, warnings)? {
            Some(read) => out.push(read),
            None => out.push(zero_item(items)),
        }
    }
    Ok(Some(Value::Array(out)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scheme::builtin;

    #[test]
    fn type_errors_name_go_types_and_embedded_structs() {
        for (type_name, value, expected) in [
            (
                "core.v1.Volume",
                json!({"csi": {"driver": 5}}),
                "CSIVolumeSource.VolumeSource.csi.driver of type string",
            ),
            ("core.v1.ServicePort", json!({"protocol": 5}), "ServicePort.protocol of type v1.Protocol"),
            ("core.v1.Capabilities", json!({"add": [5]}), "Capabilities.add of type v1.Capability"),
            (
                "autoscaling.v2.HorizontalPodAutoscaler",
                json!({"spec": 5}),
                "HorizontalPodAutoscaler.spec of type v2.HorizontalPodAutoscalerSpec",
            ),
        ] {
            let found = decode(value, &builtin::schema(type_name), &mut DecodeWarnings::default());
            let expected = format!("json: cannot unmarshal number into Go struct field {expected}");
            assert_eq!(found, Err(expected), "{type_name}");
        }
    }

    #[test]
    fn nulls_in_lists_are_zero_values() {
        let value = json!({"supplementalGroups": [null, 2], "sysctls": [null]});
        let found =
            decode(value, &builtin::schema("core.v1.PodSecurityContext"), &mut DecodeWarnings::default());
        let expected = json!({"supplementalGroups": [0, 2], "sysctls": [{"name": "", "value": ""}]});
        assert_eq!(found, Ok(expected));
    }
}
