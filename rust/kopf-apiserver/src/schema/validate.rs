//! Validation of custom resources. The order of errors is that of kube-apiserver.

use std::collections::HashSet;

use serde_json::Value;

use super::correlation::OldItems;
use super::{Checks, ListType, Schema, Type, formats};
use crate::base::field_path::join;
use crate::error::status::Cause;

/// Field errors of an object, and separately those of duplicate list items.
pub(crate) fn validate(value: &Value, schema: &Schema) -> (Vec<Cause>, Vec<Cause>) {
    validate_update(value, None, schema)
}

/// Field errors of an object. Those of values that are the same in the old object are tolerated.
pub(crate) fn validate_update(
    value: &Value,
    old: Option<&Value>,
    schema: &Schema,
) -> (Vec<Cause>, Vec<Cause>) {
    let mut out = Vec::new();
    let mut duplicates = Vec::new();
    check(value, old, schema, "", &mut out);
    check_lists(value, schema, "", &mut duplicates);
    if let Some(old) = old.filter(|_| !duplicates.is_empty()) {
        let mut before = Vec::new();
        check_lists(old, schema, "", &mut before);
        if !before.is_empty() {
            duplicates.clear();
        }
    }
    // Unsupported values come after other errors, duplicates last.
    let (unsupported, mut rest): (Vec<_>, Vec<_>) =
        out.into_iter().partition(|c| c.reason == "FieldValueNotSupported");
    rest.extend(unsupported);
    (rest, duplicates)
}

/// Field errors of nulls in declared fields that are not nullable. `validate` tolerates them, as decoding drops them.
pub(crate) fn check_nulls(value: &Value, schema: &Schema, path: &str, out: &mut Vec<Cause>) {
    match value {
        Value::Null => check(value, None, schema, path, out),
        Value::Object(map) => {
            for (key, child) in map {
                if let Some(known) = schema.child(key) {
                    check_nulls(child, known, &join(path, key), out);
                }
            }
        }
        Value::Array(list) => {
            for (i, item) in list.iter().enumerate() {
                if let Some(items) = &schema.items {
                    check_nulls(item, items, &format!("{path}[{i}]"), out);
                }
            }
        }
        _ => {}
    }
}

pub(crate) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() && n.as_f64().is_some_and(|f| f.fract() != 0.0) => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn type_names(kind: Type) -> &'static str {
    match kind {
        Type::Object => "object",
        Type::Array => "array",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
        Type::IntOrString => "integer,string",
        _ => "string",
    }
}

fn matches_type(value: &Value, schema: &Schema) -> bool {
    match (schema.kind, type_of(value)) {
        (_, "null") => schema.nullable,
        (Type::Any, _) | (Type::IntOrString, "integer" | "string") | (Type::Number, "integer" | "number") => {
            true
        }
        (kind, found) => type_names(kind) == found,
    }
}

/// The found type and the expected one, for messages. Numbers and strings with a format are named by the format.
fn mistyped<'s>(value: &Value, schema: &'s Schema) -> (&'static str, &'s str) {
    let format = schema.checks.as_ref().map_or("", |checks| checks.format.as_str());
    match (type_of(value), schema.kind) {
        ("integer", Type::String) if !format.is_empty() => ("int64", format),
        (found, kind) => (found, type_names(kind)),
    }
}

fn check(value: &Value, old: Option<&Value>, schema: &Schema, path: &str, out: &mut Vec<Cause>) {
    if old == Some(value) {
        return;
    }
    if !matches_type(value, schema) {
        let (found, kind) = mistyped(value, schema);
        let shown = format!("\"{found}\"");
        // Unlike the other constraints, enumerations apply to values of all types.
        if let Some(checks) = &schema.checks {
            check_options(value, checks, path, out);
        }
        let path = if path.is_empty() { "<nil>" } else { path };
        out.push(Cause::type_invalid(
            path,
            &shown,
            &format!("{path} in body must be of type {kind}: {shown}"),
        ));
        return;
    }
    if value.is_null() {
        return;
    }
    if let Some(checks) = &schema.checks {
        check_value(value, checks, path, out);
    }
    match value {
        Value::Object(map) => {
            for name in ["apiVersion", "kind"].into_iter().filter(|_| schema.embedded && !path.is_empty()) {
                match map.get(name) {
                    None => out.push(Cause::required(join(path, name), "")),
                    Some(text) if text == "" => {
                        out.push(Cause::invalid(join(path, name), text, "must not be empty"));
                    }
                    Some(_) => {}
                }
            }
            for name in &schema.required {
                let null = map.get(name).is_some_and(Value::is_null)
                    && schema.child(name).is_some_and(|s| !s.nullable);
                if null || !map.contains_key(name) {
                    out.push(Cause::required(join(path, name), ""));
                }
            }
            let mut keys: Vec<_> = map.iter().collect();
            keys.sort_by(|a, b| a.0.cmp(b.0));
            for (key, child) in keys {
                // A null in a required field is reported as missing.
                if let Some(known) = schema.child(key).filter(|s| s.nullable || !child.is_null()) {
                    check(child, old.and_then(|old| old.get(key)), known, &join(path, key), out);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                let old_items = OldItems::new(old, schema);
                for (i, item) in list.iter().enumerate() {
                    let old = old_items.get(item);
                    check(item, old, items, &format!("{path}[{i}]"), out);
                }
            }
        }
        _ => {}
    }
}

fn check_value(value: &Value, checks: &Checks, path: &str, out: &mut Vec<Cause>) {
    match value {
        Value::Number(n) => check_number(value, n.as_f64().unwrap_or_default(), checks, path, out),
        Value::String(text) => check_text(value, text, checks, path, out),
        Value::Array(list) => {
            if let Some(max) = checks.items.1.filter(|m| list.len() as u64 > *m) {
                out.push(Cause::too_many(path, list.len(), max));
            }
            if let Some(min) = checks.items.0.filter(|m| (list.len() as u64) < *m) {
                out.push(Cause::invalid(
                    path,
                    &list.len().into(),
                    &format!("{path} in body should have at least {min} items"),
                ));
            }
            let mut seen = HashSet::new();
            if checks.unique && !list.iter().all(|item| seen.insert(item)) {
                out.push(Cause::invalid(
                    path,
                    value,
                    &format!("{path} in body shouldn't contain duplicates"),
                ));
            }
        }
        Value::Object(map) => {
            if let Some(max) = checks.properties.1.filter(|m| map.len() as u64 > *m) {
                out.push(Cause::too_many(path, map.len(), max));
            }
            if let Some(min) = checks.properties.0.filter(|m| (map.len() as u64) < *m) {
                let detail = format!("{path} in body should have at least {min} properties");
                out.push(Cause::invalid(path, &map.len().into(), &detail));
            }
        }
        _ => {}
    }
    check_options(value, checks, path, out);
    check_combinations(value, checks, path, out);
}

fn check_options(value: &Value, checks: &Checks, path: &str, out: &mut Vec<Cause>) {
    if let Some(options) = checks.options.as_ref().filter(|o| !o.contains(value)) {
        let shown: Vec<String> =
            options.iter().map(|o| o.as_str().map_or_else(|| o.to_string(), str::to_owned)).collect();
        out.push(Cause::unsupported(path, value, &shown));
    }
}

fn number(value: f64) -> String {
    Value::from(value).to_string().trim_end_matches(".0").to_owned()
}

fn check_number(value: &Value, found: f64, checks: &Checks, path: &str, out: &mut Vec<Cause>) {
    if let Some((max, open)) = checks.maximum.filter(|(m, open)| found > *m || (*open && found >= *m)) {
        let words = if open { "less than" } else { "less than or equal to" };
        out.push(Cause::invalid(path, value, &format!("{path} in body should be {words} {}", number(max))));
    }
    if let Some((min, open)) = checks.minimum.filter(|(m, open)| found < *m || (*open && found <= *m)) {
        let words = if open { "greater than" } else { "greater than or equal to" };
        out.push(Cause::invalid(path, value, &format!("{path} in body should be {words} {}", number(min))));
    }
    // The factor for integers is an integer, too.
    let is_fraction = value.is_i64() && checks.multiple_of.is_some_and(|s| s > 0.0 && s < 1.0);
    if is_fraction {
        let detail = format!("factor MultipleOf declared for {path} must be positive: 0");
        out.push(Cause::invalid(path, &0.into(), &detail));
    }
    if let Some(step) = checks
        .multiple_of
        .filter(|s| !is_fraction && *s > 0.0 && ((found / s) - (found / s).round()).abs() > 1e-9)
    {
        out.push(Cause::invalid(
            path,
            value,
            &format!("{path} in body should be a multiple of {}", number(step)),
        ));
    }
    match checks.format.as_str() {
        "int32" if !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&found) => {
            out.push(Cause::invalid(
                path,
                value,
                &format!("Checked value must be of type integer with format int32 in {path}"),
            ));
        }
        _ => {}
    }
}

fn check_text(value: &Value, text: &str, checks: &Checks, path: &str, out: &mut Vec<Cause>) {
    let length = text.chars().count() as u64;
    if let Some(max) = checks.length.1.filter(|m| length > *m) {
        out.push(Cause::too_long(path, max));
    }
    // Of these, only the first error is reported.
    let is_too_long = checks.length.1.is_some_and(|m| length > m);
    let shortest = checks.length.0.filter(|m| length < *m && !is_too_long);
    if let Some(min) = shortest {
        out.push(Cause::invalid(path, value, &format!("{path} in body should be at least {min} chars long")));
    }
    if let Some((pattern, regex)) = &checks.pattern
        && !is_too_long
        && shortest.is_none()
        && regex.as_ref().is_some_and(|r| !r.is_match(text))
    {
        out.push(Cause::invalid(path, value, &format!("{path} in body should match '{pattern}'")));
    }
    if !formats::matches(&checks.format, text) {
        let shown = value.to_string();
        out.push(Cause::type_invalid(
            path,
            &shown,
            &format!("{path} in body must be of type {}: {shown}", checks.format),
        ));
    }
}

fn is_valid(value: &Value, schema: &Schema, path: &str) -> bool {
    let mut out = Vec::new();
    check(value, None, schema, path, &mut out);
    out.is_empty()
}

fn check_combinations(value: &Value, checks: &Checks, path: &str, out: &mut Vec<Cause>) {
    let name = path;
    let path = if path.is_empty() { "<nil>" } else { path };
    for schema in &checks.all_of {
        check(value, None, schema, path, out);
    }
    if !checks.any_of.is_empty() && !checks.any_of.iter().any(|s| is_valid(value, s, path)) {
        out.push(Cause::invalid_raw(
            "<nil>",
            "\"\"",
            &format!("\"{name}\" must validate at least one schema (anyOf)"),
        ));
        if let Some(first) = checks.any_of.first() {
            check(value, None, first, path, out);
        }
    }
    if !checks.one_of.is_empty() {
        let found = checks.one_of.iter().filter(|s| is_valid(value, s, path)).count();
        if found != 1 {
            let state = if found == 0 {
                "Found none valid".to_owned()
            } else {
                format!("Found {found} valid alternatives")
            };
            let detail = format!("\"{name}\" must validate one and only one schema (oneOf). {state}");
            out.push(Cause::invalid_raw("<nil>", "\"\"", &detail));
            if let Some(first) = checks.one_of.first().filter(|_| found == 0) {
                check(value, None, first, path, out);
            }
        }
    }
    if checks.not.as_ref().is_some_and(|s| is_valid(value, s, path)) {
        out.push(Cause::invalid_raw(
            "<nil>",
            "\"\"",
            &format!("\"{name}\" must not validate the schema (not)"),
        ));
    }
}

/// Validates the uniqueness of items in sets and associative lists.
fn check_lists(value: &Value, schema: &Schema, path: &str, out: &mut Vec<Cause>) {
    match value {
        Value::Object(map) => {
            for (key, child) in map {
                if let Some(known) = schema.child(key) {
                    check_lists(child, known, &join(path, key), out);
                }
            }
        }
        Value::Array(list) => {
            let (mut seen, mut reported) = (HashSet::new(), HashSet::new());
            for (i, item) in list.iter().enumerate() {
                let identity = |key: &String| item.get(key).unwrap_or(&Value::Null);
                let known = match &schema.list {
                    ListType::Atomic => None,
                    ListType::Set => Some(vec![item]),
                    ListType::Map(keys) => Some(keys.iter().map(identity).collect()),
                };
                if let Some(known) = known
                    && !seen.insert(known.clone())
                    && reported.insert(known)
                {
                    let shown = match &schema.list {
                        ListType::Map(keys) => {
                            keys.iter().map(|k| (k.clone(), identity(k).clone())).collect()
                        }
                        _ => item.clone(),
                    };
                    out.push(Cause::duplicate(format!("{path}[{i}]"), &shown));
                }
                if let Some(items) = &schema.items {
                    check_lists(item, items, &format!("{path}[{i}]"), out);
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

    #[test]
    fn errors_of_unchanged_values_are_tolerated_in_updates() {
        let schema = Schema::from_json(&json!({"type": "object", "required": ["c"], "properties": {
            "a": {"type": "string", "maxLength": 1}, "b": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object",
                "properties": {"k": {"type": "string"}, "v": {"type": "string", "maxLength": 1}}}}}}));
        let old = json!({"a": "long", "b": [{"k": "x", "v": "long"}]});
        for (new, expected) in [
            (json!({"a": "long", "b": [{"k": "x", "v": "long"}]}), vec![]),
            (json!({"a": "other", "b": [{"k": "x", "v": "long"}]}), vec!["c", "a"]),
            (json!({"a": "long", "b": [{"k": "y"}, {"k": "x", "v": "long"}]}), vec!["c"]),
            (json!({"a": "long", "b": [{"k": "x", "v": "other"}]}), vec!["c", "b[0].v"]),
        ] {
            let (causes, _) = validate_update(&new, Some(&old), &schema);
            let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
            assert_eq!(fields, expected, "{new}");
        }
    }

    #[test]
    fn numbers_in_place_of_formatted_strings_are_named_by_the_format() {
        let schema = Schema::from_json(&json!({"type": "string", "format": "duration"}));
        let (causes, _) = validate(&json!(5), &schema);
        let messages: Vec<&str> = causes.iter().map(|cause| cause.message.as_str()).collect();
        assert_eq!(messages, ["Invalid value: \"int64\": <nil> in body must be of type duration: \"int64\""]);
    }

    #[test]
    fn each_duplicate_is_reported_once() {
        let schema = Schema::from_json(
            &json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
        );
        let (_, duplicates) = validate(&json!(["a", "b", "a", "a"]), &schema);
        let fields: Vec<&str> = duplicates.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(fields, ["[2]"]);
    }
}
