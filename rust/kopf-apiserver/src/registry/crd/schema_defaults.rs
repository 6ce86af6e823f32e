//! Defaults in the schemas of CRDs: they must be valid values, without unknown fields.

use serde_json::{Value, json};

use super::subschemas::{TYPES, contents, properties};
use crate::base::json::member_text;
use crate::error::status::Cause;
use crate::schema::{Schema, cel, prune, validate as values};

/// Field errors of the defaults of a schema.
pub(super) fn validate(schema: &Value, path: &str, out: &mut Vec<Cause>) {
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        let known = Schema::from_json(schema);
        let mut unknown = Vec::new();
        prune(&mut json!({"default": default}), &wrapped(known.clone()), &mut unknown);
        if !unknown.is_empty() {
            let detail = "must not have unknown fields";
            out.push(Cause::invalid(format!("{path}.default"), default, detail));
        }
        let kind = member_text(schema, "type");
        if !kind.is_empty() && !TYPES.contains(&kind) {
            out.push(mistyped(default, kind, member_text(schema, "format"), path));
        }
        let before = out.len();
        // Duplicate items of sets and maps are accepted.
        let (causes, _) = values::validate(default, &known);
        for mut cause in causes {
            let below = match cause.field.as_str() {
                "" | "<nil>" => String::new(),
                item if item.starts_with('[') => item.to_owned(),
                member => format!(".{member}"),
            };
            cause.message = cause.message.replace(": <nil> in body", ":  in body");
            cause.field = format!("{path}.default{below}");
            out.push(cause);
        }
        if out.len() == before {
            validate_rules(default, &known, path, out);
        }
    }
    for (below, child) in properties(schema, path) {
        validate(child, &below, out);
    }
    for (_, below, child) in contents(schema, path) {
        validate(child, &below, out);
    }
}

/// Evaluates the rules for a default.
fn validate_rules(default: &Value, known: &Schema, path: &str, out: &mut Vec<Cause>) {
    for mut cause in cel::check(default, None, known).causes {
        let below = match cause.field.as_str() {
            "" | "<nil>" => String::new(),
            item if item.starts_with('[') => item.to_owned(),
            member => format!(".{member}"),
        };
        cause.field = format!("{path}.default{below}");
        out.push(cause);
    }
}

/// The error about a default of a type that does not exist.
fn mistyped(default: &Value, kind: &str, format: &str, path: &str) -> Cause {
    let (found, expected) = match values::type_of(default) {
        "integer" if !format.is_empty() => ("int64", format),
        found => (found, kind),
    };
    let shown = format!("\"{found}\"");
    let detail = format!(" in body must be of type {expected}: {shown}");
    Cause::type_invalid(format!("{path}.default"), &shown, &detail)
}

/// Schema of an object with this default: only the root of an object may have undeclared metadata.
fn wrapped(known: Schema) -> Schema {
    let mut out = Schema::from_json(&json!({"type": "object"}));
    out.properties.insert("default".into(), known.into());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_that_are_not_valid_are_rejected_as_kube_apiserver_rejects_them() {
        for (property, expected) in [
            (
                json!({"type": "integer", "default": "text"}),
                "p.default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
            ),
            (
                json!({"type": "other", "default": true}),
                "p.default: Invalid value: \"boolean\":  in body must be of type other: \"boolean\"",
            ),
            (
                json!({"type": "string", "enum": ["x"], "default": "1"}),
                "p.default: Unsupported value: \"1\": supported values: \"x\"",
            ),
            (
                json!({"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}, "default": {}}),
                "p.default.x: Required value",
            ),
            (
                json!({"type": "integer", "default": 5, "x-kubernetes-validations": [{"rule": "self < 3"}]}),
                "p.default: Invalid value: 5: failed rule: self < 3",
            ),
            (
                json!({"type": "object", "default": {"x": 1}, "properties": {"a": {"type": "string"}}}),
                "p.default: Invalid value: {\"x\":1}: must not have unknown fields",
            ),
        ] {
            let mut out = Vec::new();
            validate(&property, "p", &mut out);
            let errors: Vec<String> = out.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
            assert_eq!(errors, [expected], "{property}");
        }
    }
}
