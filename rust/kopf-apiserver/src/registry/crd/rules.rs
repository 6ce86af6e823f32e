//! Validation of the patterns and rules in the schemas of CRDs.

use serde_json::Value;

use super::go_schema::internal_rule_text;
use crate::base::go_regex;
use crate::base::json::member_text;
use crate::error::status::Cause;
use crate::schema::Schema;
use crate::schema::cel::budget::{Budget, Position};
use crate::schema::cel::compile::{Declared, ResultKind, compile_errors, result_kind, uses_old_value};

/// Reasons that rules can have.
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Checks that the patterns and rules of a schema can be compiled, and that rules are not too expensive.
pub(super) struct Walk<'o> {
    budget: Budget,
    /// The path of the innermost list or map whose items cannot be matched with those of the old object.
    uncorrelatable: Option<String>,
    out: &'o mut Vec<Cause>,
}

impl<'o> Walk<'o> {
    /// Checks a root schema.
    pub(super) fn check(schema: &Value, path: &str, out: &'o mut Vec<Cause>) {
        let mut walk = Self { budget: Budget::default(), uncorrelatable: None, out };
        walk.validate(schema, Position::ROOT, path);
        walk.budget.finish(path, walk.out);
    }

    fn validate(&mut self, schema: &Value, position: Position, path: &str) {
        let limit = |key: &str| schema.get(key).and_then(Value::as_u64);
        if let Some(error) =
            schema.get("pattern").and_then(Value::as_str).and_then(|pattern| go_regex::compile(pattern).err())
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
            let outer = self.uncorrelatable.clone();
            if member_text(schema, "x-kubernetes-list-type") != "map" && outer.is_none() {
                self.uncorrelatable = Some(path.to_owned());
            }
            self.validate(items, position.items(limit("maxItems")), &below);
            self.uncorrelatable = outer;
        } else if member_text(schema, "type") == "array" && schema.get("items").is_none() {
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
            self.validate_texts(rule, schema, &path);
            if let Some(reason) = rule.get("reason").and_then(Value::as_str)
                && !REASONS.contains(&reason)
            {
                let known = REASONS.map(str::to_owned);
                self.out.push(Cause::unsupported(format!("{path}.reason"), &reason.into(), &known));
            }
            let is_compiled = self.compile(rule, &known, position, &path);
            self.validate_transition(rule, is_compiled, &path);
            self.budget.count(rule, &known, position, &path, self.out);
        }
    }

    /// Validates the message and the field path of a rule.
    fn validate_texts(&mut self, rule: &Value, schema: &Value, path: &str) {
        let message = member_text(rule, "message");
        if !message.is_empty() && message.trim().is_empty() {
            let field = format!("{path}.message");
            self.out.push(Cause::invalid(field, &message.into(), "must be non-empty if specified"));
        } else if message.trim().contains('\n') {
            let field = format!("{path}.message");
            self.out.push(Cause::invalid(field, &message.into(), "must not contain line breaks"));
        } else if message.is_empty() && member_text(rule, "rule").trim().contains('\n') {
            let detail = "message must be specified if rule contains line breaks";
            self.out.push(Cause::required(format!("{path}.message"), detail));
        }
        let field_path = member_text(rule, "fieldPath");
        if !field_path.is_empty() && field_schema(schema, field_path).is_none() {
            let field = format!("{path}.fieldPath");
            self.out.push(Cause::invalid(field, &field_path.into(), "must be a valid path"));
        }
    }

    /// Validates the use of the old value in a rule. A rule that cannot be compiled counts as one that does not use it.
    fn validate_transition(&mut self, rule: &Value, is_compiled: bool, path: &str) {
        let is_transition = is_compiled && uses_old_value(member_text(rule, "rule"));
        if is_transition && let Some(outer) = &self.uncorrelatable {
            let detail =
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {outer}");
            self.out.push(Cause::invalid(format!("{path}.rule"), &rule["rule"], &detail));
        }
        if let (Some(optional @ Value::Bool(_)), false) = (rule.get("optionalOldSelf"), is_transition) {
            let detail = "may not be set if oldSelf is not used in rule";
            self.out.push(Cause::invalid(format!("{path}.optionalOldSelf"), optional, detail));
        }
    }

    /// Reports compilation errors of a rule's expressions. Returns whether the rule itself has none.
    fn compile(&mut self, rule: &Value, schema: &Schema, position: Position, path: &str) -> bool {
        let mut is_compiled = true;
        let this = Declared::Value { schema, is_root: position.is_root() };
        let is_optional = rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false);
        let optional = Declared::Optional { schema, is_root: position.is_root() };
        let old = if is_optional { optional } else { this };
        for (key, prefix, expected, detail) in [
            ("rule", "", ResultKind::Bool, "cel expression must evaluate to a bool"),
            (
                "messageExpression",
                "messageExpression ",
                ResultKind::Text,
                "messageExpression must evaluate to a string",
            ),
        ] {
            let text = member_text(rule, key);
            if text.trim().is_empty() {
                continue;
            }
            if let Some(errors) = compile_errors(text, &[("self", this), ("oldSelf", old)]) {
                is_compiled &= key != "rule";
                let detail = format!("{prefix}compilation failed: {errors}");
                self.out.push(Cause::invalid_raw(
                    format!("{path}.{key}"),
                    &internal_rule_text(rule),
                    &detail,
                ));
            } else if result_kind(text).is_some_and(|kind| kind != expected) {
                self.out.push(Cause::invalid_raw(format!("{path}.{key}"), &internal_rule_text(rule), detail));
            }
        }
        is_compiled
    }
}

/// The schema of the field at a path, such as `.a.b['c']`; `None` if the path is not valid.
pub(super) fn field_schema<'v>(schema: &'v Value, path: &str) -> Option<&'v Value> {
    let mut found = schema;
    let mut rest = path;
    while !rest.is_empty() {
        let (name, tail) = if let Some(quoted) = rest.strip_prefix("['") {
            quoted.split_once("']")?
        } else {
            let named = rest.strip_prefix('.')?;
            named.split_at(named.find(['.', '[']).unwrap_or(named.len()))
        };
        if name.is_empty() {
            return None;
        }
        let declared = found.get("properties").and_then(|properties| properties.get(name));
        found = declared.or_else(|| found.get("additionalProperties").filter(|it| it.is_object()))?;
        rest = tail;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors(schema: &Value) -> Vec<String> {
        let mut out = Vec::new();
        Walk::check(schema, "s", &mut out);
        out.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
    }

    #[test]
    fn rules_are_compiled_with_the_schema() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.b > 1"}, {"rule": "self.a > oldSelf.a", "messageExpression": "x"}]});
        let mut out = Vec::new();
        Walk::check(&schema, "s", &mut out);
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

    #[test]
    fn members_of_rules_are_validated() {
        let list = |kind: &str| {
            json!({"type": "array", "maxItems": 2, "x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string", "maxLength": 3}},
                    "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}})
        };
        let ruled = |rule: Value| {
            let properties = json!({"a": {"type": "string"}});
            json!({"type": "object", "properties": properties, "x-kubernetes-validations": [rule]})
        };
        let path = "s.x-kubernetes-validations[0]";
        let detail = "oldSelf cannot be used on the uncorrelatable portion of the schema within s";
        let uncorrelatable =
            format!("s.items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": {detail}");
        for (schema, expected) in [
            (list("map"), vec![]),
            (list("set"), vec![uncorrelatable]),
            (ruled(json!({"rule": "true", "message": "x", "fieldPath": ".a"})), vec![]),
            (
                ruled(json!({"rule": "true", "fieldPath": ".b"})),
                vec![format!("{path}.fieldPath: Invalid value: \".b\": must be a valid path")],
            ),
            (
                ruled(json!({"rule": "true", "message": " "})),
                vec![format!("{path}.message: Invalid value: \" \": must be non-empty if specified")],
            ),
            (
                ruled(json!({"rule": "true", "message": "a\nb"})),
                vec![format!("{path}.message: Invalid value: \"a\\nb\": must not contain line breaks")],
            ),
            (ruled(json!({"rule": "oldSelf.hasValue()", "optionalOldSelf": true})), vec![]),
            (
                ruled(json!({"rule": "true", "optionalOldSelf": true})),
                vec![format!(
                    "{path}.optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"
                )],
            ),
        ] {
            assert_eq!(errors(&schema), expected, "{schema}");
        }
    }

    #[test]
    fn optional_old_values_are_not_compared_with_values() {
        let rule = json!({"rule": "oldSelf.a == self.a", "optionalOldSelf": true});
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-validations": [rule]});
        let found = errors(&schema);
        let expected = "found no matching overload for '_==_' applied to '(optional_type(string), string)'";
        assert!(found.iter().any(|error| error.contains(expected)), "{found:?}");
        assert!(
            found.iter().any(|error| error.contains("may not be set if oldSelf is not used in rule")),
            "{found:?}"
        );
    }

    #[test]
    fn errors_of_patterns_are_those_of_go() {
        for (pattern, expected) in [
            ("(", "missing closing ): `(`"),
            ("a)", "unexpected ): `a)`"),
            ("^(?!x).*$", "invalid or unsupported Perl syntax: `(?!`"),
        ] {
            let found = errors(&json!({"type": "string", "pattern": pattern}));
            let expected = format!("isn't: error parsing regexp: {expected}");
            assert!(found.iter().any(|error| error.ends_with(&expected)), "{found:?}");
        }
    }
}
