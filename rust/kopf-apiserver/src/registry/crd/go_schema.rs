//! Schemas and rules in messages: kube-apiserver writes its internal structs, with all their fields.

use serde_json::{Map, Value, json};

use crate::scheme::go_values::escape;

/// Keywords with the fields of the internal struct, and the values of absent fields, in the struct's order.
const FIELDS: [(&str, &str, Zero); 44] = [
    ("id", "ID", Zero::Text),
    ("$schema", "Schema", Zero::Text),
    ("$ref", "Ref", Zero::Null),
    ("description", "Description", Zero::Text),
    ("type", "Type", Zero::Text),
    ("nullable", "Nullable", Zero::Flag),
    ("format", "Format", Zero::Text),
    ("title", "Title", Zero::Text),
    ("default", "Default", Zero::Null),
    ("maximum", "Maximum", Zero::Null),
    ("exclusiveMaximum", "ExclusiveMaximum", Zero::Flag),
    ("minimum", "Minimum", Zero::Null),
    ("exclusiveMinimum", "ExclusiveMinimum", Zero::Flag),
    ("maxLength", "MaxLength", Zero::Null),
    ("minLength", "MinLength", Zero::Null),
    ("pattern", "Pattern", Zero::Text),
    ("maxItems", "MaxItems", Zero::Null),
    ("minItems", "MinItems", Zero::Null),
    ("uniqueItems", "UniqueItems", Zero::Flag),
    ("multipleOf", "MultipleOf", Zero::Null),
    ("enum", "Enum", Zero::Null),
    ("maxProperties", "MaxProperties", Zero::Null),
    ("minProperties", "MinProperties", Zero::Null),
    ("required", "Required", Zero::Null),
    ("items", "Items", Zero::Null),
    ("allOf", "AllOf", Zero::Null),
    ("oneOf", "OneOf", Zero::Null),
    ("anyOf", "AnyOf", Zero::Null),
    ("not", "Not", Zero::Null),
    ("properties", "Properties", Zero::Null),
    ("additionalProperties", "AdditionalProperties", Zero::Null),
    ("patternProperties", "PatternProperties", Zero::Null),
    ("dependencies", "Dependencies", Zero::Null),
    ("additionalItems", "AdditionalItems", Zero::Null),
    ("definitions", "Definitions", Zero::Null),
    ("externalDocs", "ExternalDocs", Zero::Null),
    ("example", "Example", Zero::Null),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields", Zero::Null),
    ("x-kubernetes-embedded-resource", "XEmbeddedResource", Zero::Flag),
    ("x-kubernetes-int-or-string", "XIntOrString", Zero::Flag),
    ("x-kubernetes-list-map-keys", "XListMapKeys", Zero::Null),
    ("x-kubernetes-list-type", "XListType", Zero::Null),
    ("x-kubernetes-map-type", "XMapType", Zero::Null),
    ("x-kubernetes-validations", "XValidations", Zero::Null),
];

#[derive(Clone, Copy)]
enum Zero {
    Null,
    Text,
    Flag,
}

/// A schema as JSON of the internal struct.
pub(super) fn internal_text(schema: &Value) -> String {
    escape(&internal(schema).to_string())
}

/// Whether all versions have the same member, so that kube-apiserver moves it to the CRD.
pub(super) fn is_shared(versions: &[Value], key: &str) -> bool {
    versions.iter().all(|version| version.get(key) == versions.first().and_then(|first| first.get(key)))
}

/// Versions as JSON of the internal structs, without what all of them share.
pub(super) fn internal_versions_text(list: &[Value]) -> String {
    let shown = list.iter().map(|version| {
        let member = |key: &str| version.get(key).cloned().unwrap_or_default();
        let own = |key: &str| if is_shared(list, key) { Value::Null } else { member(key) };
        let schema = match own("schema") {
            Value::Null => Value::Null,
            schema => json!({"OpenAPIV3Schema": schema.get("openAPIV3Schema").map(internal)}),
        };
        let deprecated = version["deprecated"] == Value::Bool(true);
        json!({"Name": member("name"), "Served": member("served"), "Storage": member("storage"),
            "Deprecated": deprecated, "DeprecationWarning": member("deprecationWarning"), "Schema": schema,
            "Subresources": own("subresources"), "AdditionalPrinterColumns": own("additionalPrinterColumns"),
            "SelectableFields": own("selectableFields")})
    });
    escape(&shown.collect::<Value>().to_string())
}

/// A validation rule as JSON of the internal struct.
pub(super) fn internal_rule_text(rule: &Value) -> String {
    escape(&internal_rule(rule).to_string())
}

fn internal(schema: &Value) -> Value {
    let mut out = Map::new();
    for (key, name, zero) in FIELDS {
        let value = match schema.get(key) {
            None | Some(Value::Null) => match zero {
                Zero::Null => Value::Null,
                Zero::Text => "".into(),
                Zero::Flag => false.into(),
            },
            Some(value) => internal_member(key, value),
        };
        out.insert(name.to_owned(), value);
    }
    out.into()
}

fn internal_member(key: &str, value: &Value) -> Value {
    match (key, value) {
        ("items", Value::Array(list)) => {
            json!({"Schema": null, "JSONSchemas": list.iter().map(internal).collect::<Vec<_>>()})
        }
        ("items", schema) => json!({"Schema": internal(schema), "JSONSchemas": null}),
        ("additionalProperties" | "additionalItems", Value::Bool(allows)) => {
            json!({"Allows": allows, "Schema": null})
        }
        ("additionalProperties" | "additionalItems", schema) => {
            json!({"Allows": true, "Schema": internal(schema)})
        }
        ("allOf" | "oneOf" | "anyOf", Value::Array(list)) => list.iter().map(internal).collect(),
        ("not", schema) => internal(schema),
        ("properties" | "patternProperties" | "definitions", Value::Object(members)) => {
            let mut names: Vec<&String> = members.keys().collect();
            names.sort();
            names.into_iter().map(|name| (name.clone(), internal(&members[name]))).collect()
        }
        ("x-kubernetes-validations", Value::Array(rules)) => rules.iter().map(internal_rule).collect(),
        (_, value) => value.clone(),
    }
}

fn internal_rule(rule: &Value) -> Value {
    let text = |key: &str| rule.get(key).cloned().unwrap_or_else(|| "".into());
    let optional = |key: &str| rule.get(key).cloned().unwrap_or_default();
    json!({"Rule": text("rule"), "Message": text("message"), "MessageExpression": text("messageExpression"),
        "Reason": optional("reason"), "FieldPath": text("fieldPath"), "OptionalOldSelf": optional("optionalOldSelf")})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_have_all_fields() {
        let text = internal_rule_text(&json!({"rule": "self < 1"}));
        let expected = r#"{"Rule":"self \u003c 1","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn schemas_have_all_fields() {
        let schema = json!({"type": "object", "properties": {"b": {"type": "array", "items": {}}, "a": {}},
            "additionalProperties": false, "not": {}});
        let text = internal_text(&schema);
        assert!(
            text.starts_with(
                r#"{"ID":"","Schema":"","Ref":null,"Description":"","Type":"object","Nullable":false"#
            ),
            "{text}"
        );
        assert!(text.contains(r#""Properties":{"a":{"ID""#), "{text}");
        assert!(text.contains(r#""Items":{"Schema":{"ID":"""#), "{text}");
        assert!(text.contains(r#""AdditionalProperties":{"Allows":false,"Schema":null}"#), "{text}");
        assert!(text.ends_with(r#""XMapType":null,"XValidations":null}"#), "{text}");
    }
}
