//! Validation of CRDs.

use serde_json::Value;

use crate::base::json::member_text;
use crate::error::status::Cause;
use crate::schema::Schema;
use crate::schema::cel;
use crate::schema::cel::budget::{Budget, Position};

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
    let versions = spec.get("versions").and_then(Value::as_array).cloned().unwrap_or_default();
    if versions.iter().filter(|v| v["storage"] == Value::Bool(true)).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        out.push(Cause::invalid("spec.versions", &Value::from(versions.clone()), detail));
    }
    for (i, version) in versions.iter().enumerate() {
        validate_version(version, &format!("spec.versions[{i}]"), versions.len() == 1, &mut out);
    }
    for key in ["plural", "singular", "kind", "listKind"] {
        let value = member_text(names, key);
        if value.is_empty() {
            out.push(Cause::required(format!("spec.names.{key}"), ""));
        } else if !crate::registry::meta::is_dns_1035_label(&value.to_lowercase()) {
            let detail = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
                          character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
                          validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
            out.push(Cause::invalid(format!("spec.names.{key}"), &value.into(), detail));
        }
    }
    out
}

fn validate_version(version: &Value, path: &str, alone: bool, out: &mut Vec<Cause>) {
    let Some(schema) = version.pointer("/schema/openAPIV3Schema") else {
        out.push(Cause::required(format!("{path}.schema.openAPIV3Schema"), ""));
        return;
    };
    // With a single version, errors have the path of `v1beta1`.
    let path = if alone {
        "spec.validation.openAPIV3Schema".to_owned()
    } else {
        format!("{path}.schema.openAPIV3Schema")
    };
    if member_text(schema, "type").is_empty() {
        out.push(Cause::required(format!("{path}.type"), "must not be empty at the root"));
    } else if member_text(schema, "type") != "object" {
        out.push(Cause::invalid(format!("{path}.type"), &schema["type"], "must be object at the root"));
    }
    let mut walk = Walk { budget: Budget::default(), out };
    walk.validate(schema, Position::ROOT, &path);
    walk.budget.finish(&path, out);
}

/// Checks that a schema is structural, and that its rules can be compiled and are not too expensive.
struct Walk<'o> {
    budget: Budget,
    out: &'o mut Vec<Cause>,
}

impl Walk<'_> {
    fn validate(&mut self, schema: &Value, position: Position, path: &str) {
        let flag = |key: &str| schema.get(key).and_then(Value::as_bool).unwrap_or(false);
        let limit = |key: &str| schema.get(key).and_then(Value::as_u64);
        if let Some(error) =
            schema.get("pattern").and_then(Value::as_str).and_then(|p| regex::Regex::new(p).err())
        {
            let detail = format!("must be a valid regular expression, but isn't: {error}");
            self.out.push(Cause::invalid(format!("{path}.pattern"), &schema["pattern"], &detail));
        }
        for (name, child) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let below = format!("{path}.properties[{name}]");
            require_type(child, &below, self.out);
            self.validate(child, position.property(), &below);
        }
        if let Some(items) = schema.get("items") {
            let below = format!("{path}.items");
            require_type(items, &below, self.out);
            self.validate(items, position.items(limit("maxItems")), &below);
        } else if member_text(schema, "type") == "array" && !flag("x-kubernetes-preserve-unknown-fields") {
            self.out.push(Cause::required(format!("{path}.items"), "must be specified"));
        }
        if let Some(additional @ Value::Object(_)) = schema.get("additionalProperties") {
            let below = format!("{path}.additionalProperties");
            require_type(additional, &below, self.out);
            self.validate(additional, position.items(limit("maxProperties")), &below);
        }
        self.validate_rules(schema, position, path);
    }

    fn validate_rules(&mut self, schema: &Value, position: Position, path: &str) {
        let Some(rules) = schema.get("x-kubernetes-validations").and_then(Value::as_array) else { return };
        let known = Schema::from_json(schema);
        for (i, rule) in rules.iter().enumerate() {
            let path = format!("{path}.x-kubernetes-validations[{i}]");
            if let Some((rule, error)) = cel::Rule::from_json(rule).compile_error() {
                let detail = format!("compilation failed: {error}");
                self.out.push(Cause::invalid(format!("{path}.rule"), &rule.into(), &detail));
            }
            self.budget.count(rule, &known, position, &path, self.out);
        }
    }
}

fn require_type(schema: &Value, path: &str, out: &mut Vec<Cause>) {
    let flag = |key: &str| schema.get(key).and_then(Value::as_bool).unwrap_or(false);
    if member_text(schema, "type").is_empty()
        && !flag("x-kubernetes-int-or-string")
        && !flag("x-kubernetes-preserve-unknown-fields")
    {
        out.push(Cause::required(format!("{path}.type"), "must not be empty for specified object fields"));
    }
}
