//! Validation of CRDs.

use serde_json::Value;

use super::go_schema::{internal_rule_text, internal_text};
use super::structural;
use crate::base::json::{member_text, strings};
use crate::error::status::Cause;
use crate::schema::Schema;
use crate::schema::cel::budget::{Budget, Position};
use crate::schema::cel::compile::{Declared, compile_errors};

/// Field errors of a CRD.
pub(crate) fn validate(crd: &Value) -> Vec<Cause> {
    let mut out = Vec::new();
    let spec = crd.get("spec").unwrap_or(&Value::Null);
    let names = spec.get("names").unwrap_or(&Value::Null);
    let (group, plural) = (member_text(spec, "group"), member_text(names, "plural"));
    let name = crd.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let expected = format!("{plural}.{group}");
    if name != expected {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        out.push(Cause::invalid("metadata.name", &name.into(), detail));
    }
    if group.is_empty() {
        out.push(Cause::required("spec.group", ""));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        out.push(Cause::invalid("spec.group", &group.into(), detail));
    }
    if member_text(spec, "scope").is_empty() {
        out.push(Cause::required("spec.scope", ""));
    } else if !matches!(member_text(spec, "scope"), "Namespaced" | "Cluster") {
        let known = ["Cluster", "Namespaced"].map(str::to_owned);
        out.push(Cause::unsupported("spec.scope", &member_text(spec, "scope").into(), &known));
    }
    let strategy = spec.pointer("/conversion/strategy").and_then(Value::as_str).unwrap_or_default();
    if !matches!(strategy, "" | "None" | "Webhook") {
        let known = ["None", "Webhook"].map(str::to_owned);
        out.push(Cause::unsupported("spec.conversion.strategy", &strategy.into(), &known));
    }
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(true)) {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        out.push(Cause::invalid("spec.preserveUnknownFields", &true.into(), detail));
    }
    let versions = spec.get("versions").and_then(Value::as_array).cloned().unwrap_or_default();
    if versions.iter().filter(|v| v["storage"] == Value::Bool(true)).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        let shown = spec.get("versions").unwrap_or(&Value::Null);
        out.push(Cause::invalid("spec.versions", shown, detail));
    }
    if !versions.iter().any(|v| v["storage"] == Value::Bool(true)) {
        let detail = "must have at least one stored version";
        out.push(Cause::invalid("status.storedVersions", &Value::Null, detail));
    }
    for (i, version) in versions.iter().enumerate() {
        validate_columns(version, i, versions.len() == 1, &mut out);
        validate_version(version, &format!("spec.versions[{i}]"), versions.len() == 1, &mut out);
    }
    validate_names(names, &mut out);
    out
}

const DNS_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
                        character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
                        validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

fn validate_names(names: &Value, out: &mut Vec<Cause>) {
    for key in ["plural", "singular", "kind", "listKind"] {
        let value = member_text(names, key);
        if value.is_empty() {
            out.push(Cause::required(format!("spec.names.{key}"), ""));
        } else if !crate::registry::meta::is_dns_1035_label(&value.to_lowercase()) {
            let is_mixed = matches!(key, "kind" | "listKind");
            let prefix = if is_mixed { "may have mixed case, but should otherwise match: " } else { "" };
            out.push(Cause::invalid(
                format!("spec.names.{key}"),
                &value.into(),
                &format!("{prefix}{DNS_1035}"),
            ));
        }
    }
    for key in ["shortNames", "categories"] {
        for (i, name) in strings(names.get(key)).iter().enumerate() {
            let field = format!("spec.names.{key}[{i}]");
            if name.len() > 63 {
                out.push(Cause::invalid(field, &name.as_str().into(), "must be no more than 63 characters"));
            } else if !crate::registry::meta::is_dns_1035_label(name) {
                out.push(Cause::invalid(field, &name.as_str().into(), DNS_1035));
            }
        }
    }
}

/// Validates the printer columns and the scale subresource. With a single version, errors have the path of `v1beta1`.
fn validate_columns(version: &Value, index: usize, alone: bool, out: &mut Vec<Cause>) {
    const KINDS: &str = "must be one of boolean,date,integer,number,string";
    let path = if alone { "spec".to_owned() } else { format!("spec.versions[{index}]") };
    let columns = version.get("additionalPrinterColumns").and_then(Value::as_array).into_iter().flatten();
    for (i, column) in columns.enumerate() {
        let path = format!("{path}.additionalPrinterColumns[{i}]");
        if member_text(column, "name").is_empty() {
            out.push(Cause::required(format!("{path}.name"), ""));
        }
        match member_text(column, "type") {
            "" => out.push(Cause::required(format!("{path}.type"), KINDS)),
            "boolean" | "date" | "integer" | "number" | "string" => {}
            other => out.push(Cause::invalid(format!("{path}.type"), &other.into(), KINDS)),
        }
        let format = member_text(column, "format");
        let formats = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
        if !format.is_empty() && !formats.contains(&format) {
            let detail = format!("must be one of {}", formats.join(","));
            out.push(Cause::invalid(format!("{path}.format"), &format.into(), &detail));
        }
        validate_json_path(column, "jsonPath", &format!("{path}.JSONPath"), out);
    }
    if let Some(scale) = version.pointer("/subresources/scale") {
        let path = format!("{path}.subresources.scale");
        for key in ["specReplicasPath", "statusReplicasPath"] {
            validate_json_path(scale, key, &format!("{path}.{key}"), out);
        }
        if !member_text(scale, "labelSelectorPath").is_empty() {
            validate_json_path(scale, "labelSelectorPath", &format!("{path}.labelSelectorPath"), out);
        }
    }
}

/// Requires a JSON path that starts at the root.
fn validate_json_path(parent: &Value, key: &str, field: &str, out: &mut Vec<Cause>) {
    match member_text(parent, key) {
        "" => out.push(Cause::required(field, "")),
        given if given.starts_with('.') => {}
        given => out.push(Cause::invalid(field, &given.into(), "must be a simple json path starting with .")),
    }
}

fn validate_version(version: &Value, path: &str, alone: bool, out: &mut Vec<Cause>) {
    let Some(schema) = version.pointer("/schema/openAPIV3Schema") else {
        out.push(Cause::required(format!("{path}.schema.openAPIV3Schema"), ""));
        return;
    };
    let has_status = version.pointer("/subresources/status").is_some();
    // With a single version, errors have the path of `v1beta1`.
    let path = if alone {
        "spec.validation.openAPIV3Schema".to_owned()
    } else {
        format!("{path}.schema.openAPIV3Schema")
    };
    if has_status && !matches!(member_text(schema, "type"), "" | "object") {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        let kind = member_text(schema, "type");
        out.push(Cause::invalid(format!("{path}.type"), &kind.into(), detail));
    }
    if has_status {
        validate_root_keywords(schema, &path, out);
    }
    structural::validate(schema, &path, out);
    let mut walk = Walk { budget: Budget::default(), out };
    walk.validate(schema, Position::ROOT, &path);
    walk.budget.finish(&path, out);
}

/// Keywords that the root of a schema can have if the status is a subresource.
const ROOT_KEYWORDS: [&str; 22] = [
    "description",
    "type",
    "format",
    "title",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "required",
    "items",
    "properties",
    "externalDocs",
    "example",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

fn validate_root_keywords(schema: &Value, path: &str, out: &mut Vec<Cause>) {
    let is_other = |(key, value): (&String, &Value)| {
        !ROOT_KEYWORDS.contains(&key.as_str()) && !matches!(value, Value::Null | Value::Bool(false))
    };
    if schema.as_object().is_some_and(|map| map.iter().any(is_other)) {
        let detail = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength \
                      Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example \
                      XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status \
                      subresource is enabled";
        out.push(Cause::invalid_raw(path, &internal_text(schema), detail));
    }
}

/// Reasons that rules can have.
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Checks that the patterns and rules of a schema can be compiled, and that rules are not too expensive.
struct Walk<'o> {
    budget: Budget,
    out: &'o mut Vec<Cause>,
}

impl Walk<'_> {
    fn validate(&mut self, schema: &Value, position: Position, path: &str) {
        let limit = |key: &str| schema.get(key).and_then(Value::as_u64);
        if let Some(error) =
            schema.get("pattern").and_then(Value::as_str).and_then(|p| regex::Regex::new(p).err())
        {
            let detail = format!("must be a valid regular expression, but isn't: {error}");
            self.out.push(Cause::invalid(format!("{path}.pattern"), &schema["pattern"], &detail));
        }
        for (name, child) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let below = format!("{path}.properties[{name}]");
            self.validate(child, position.property(), &below);
        }
        if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
            let below = format!("{path}.items");
            self.validate(items, position.items(limit("maxItems")), &below);
        } else if member_text(schema, "type") == "array" {
            self.out.push(Cause::required(format!("{path}.items"), "must be specified"));
        }
        if let Some(additional @ Value::Object(_)) = schema.get("additionalProperties") {
            let below = format!("{path}.additionalProperties");
            self.validate(additional, position.items(limit("maxProperties")), &below);
        }
        self.validate_rules(schema, position, path);
    }

    fn validate_rules(&mut self, schema: &Value, position: Position, path: &str) {
        let Some(rules) = schema.get("x-kubernetes-validations").and_then(Value::as_array) else { return };
        let known = Schema::from_json(schema);
        for (i, rule) in rules.iter().enumerate() {
            let path = format!("{path}.x-kubernetes-validations[{i}]");
            if member_text(rule, "rule").trim().is_empty() {
                self.out.push(Cause::required(format!("{path}.rule"), "rule is not specified"));
                continue;
            }
            if let Some(reason) = rule.get("reason").and_then(Value::as_str)
                && !REASONS.contains(&reason)
            {
                let known = REASONS.map(str::to_owned);
                self.out.push(Cause::unsupported(format!("{path}.reason"), &reason.into(), &known));
            }
            self.compile(rule, &known, position, &path);
            self.budget.count(rule, &known, position, &path, self.out);
        }
    }

    /// Reports compilation errors of a rule's expressions.
    fn compile(&mut self, rule: &Value, schema: &Schema, position: Position, path: &str) {
        let this = Declared::Value { schema, is_root: position.is_root() };
        let is_optional = rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false);
        let old = if is_optional { Declared::Dynamic } else { this };
        for (key, prefix) in [("rule", ""), ("messageExpression", "messageExpression ")] {
            let text = member_text(rule, key);
            if text.trim().is_empty() {
                continue;
            }
            if let Some(errors) = compile_errors(text, &[("self", this), ("oldSelf", old)]) {
                let detail = format!("{prefix}compilation failed: {errors}");
                self.out.push(Cause::invalid_raw(
                    format!("{path}.{key}"),
                    &internal_rule_text(rule),
                    &detail,
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_root_of_a_schema_with_a_status_has_few_keywords() {
        for (schema, expected) in [
            (json!({"type": "object", "description": "x", "required": ["a"]}), 0),
            (json!({"type": "object", "not": {}}), 1),
            (json!({"type": "object", "nullable": false}), 0),
        ] {
            let mut out = Vec::new();
            validate_root_keywords(&schema, "s", &mut out);
            assert_eq!(out.len(), expected, "{schema}");
        }
    }

    #[test]
    fn rules_are_compiled_with_the_schema() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.b > 1"}, {"rule": "self.a > oldSelf.a", "messageExpression": "x"}]});
        let mut out = Vec::new();
        let mut walk = Walk { budget: Budget::default(), out: &mut out };
        walk.validate(&schema, Position::ROOT, "s");
        let fields: Vec<&str> = out.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(
            fields,
            ["s.x-kubernetes-validations[0].rule", "s.x-kubernetes-validations[1].messageExpression"]
        );
        assert!(
            out[0].message.starts_with("Invalid value: {\"Rule\":\"self.b \\u003e 1\""),
            "{}",
            out[0].message
        );
        assert!(
            out[1].message.contains("messageExpression compilation failed: ERROR: <input>:1:1: "),
            "{}",
            out[1].message
        );
    }
}
