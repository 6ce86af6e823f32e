//! Validation of the patterns and rules in the schemas of CRDs.

use serde_json::Value;

use super::go_schema::internal_rule_text;
use crate::base::go_regex;
use crate::base::json::member_text;
use crate::error::status::Cause;
use crate::schema::Schema;
use crate::schema::cel::budget::{Budget, Position};
use crate::schema::cel::compile::{compile, uses_old_value};
use crate::schema::cel::literals::instantiation_error;
use crate::schema::cel::types::StaticType;

/// Reasons that rules can have.
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Checks that the patterns and rules of a schema can be compiled, and that rules are not too expensive.
pub(super) struct Walk<'o> {
    budget: Budget,
    /// The path of the innermost list or map whose items cannot be matched with those of the old object.
    uncorrelatable: Option<String>,
    /// The errors of expressions, which kube-apiserver reports only if the schema has no others.
    expressions: Vec<Cause>,
    out: &'o mut Vec<Cause>,
}

impl<'o> Walk<'o> {
    /// Checks a root schema, whose errors so far begin at `first` in `out`.
    pub(super) fn check(schema: &Value, path: &str, first: usize, out: &'o mut Vec<Cause>) {
        let mut walk = Self { budget: Budget::default(), uncorrelatable: None, expressions: Vec::new(), out };
        walk.validate(schema, Position::ROOT, path);
        if walk.out.len() == first {
            walk.budget.finish(path, &mut walk.expressions);
            walk.out.append(&mut walk.expressions);
        }
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
            let uses_old_value = self.compile(rule, &known, position, &path);
            self.validate_transition(rule, uses_old_value, &path);
        }
    }

    /// Validates the messages and the field path of a rule.
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
        let expression = member_text(rule, "messageExpression");
        if !expression.is_empty() && expression.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            self.out.push(Cause::required(format!("{path}.messageExpression"), detail));
        }
        let field_path = member_text(rule, "fieldPath");
        for (is_wrong, detail) in [
            (field_path.trim().is_empty(), "must be non-empty if specified"),
            (field_path.contains(['\n', '\r']), "must not contain line breaks"),
            (field_schema(schema, field_path).is_none(), "must be a valid path"),
        ] {
            if !field_path.is_empty() && is_wrong {
                self.out.push(Cause::invalid(format!("{path}.fieldPath"), &field_path.into(), detail));
            }
        }
    }

    /// Validates the use of the old value in a rule.
    fn validate_transition(&mut self, rule: &Value, uses_old_value: bool, path: &str) {
        if uses_old_value && let Some(outer) = &self.uncorrelatable {
            let detail =
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {outer}");
            self.expressions.push(Cause::invalid(format!("{path}.rule"), &rule["rule"], &detail));
        }
        if let (Some(optional @ Value::Bool(_)), false) = (rule.get("optionalOldSelf"), uses_old_value) {
            let detail = "may not be set if oldSelf is not used in rule";
            self.expressions.push(Cause::invalid(format!("{path}.optionalOldSelf"), optional, detail));
        }
    }

    /// Reports errors of a rule's expressions, and their costs. Returns whether the rule uses the old value; one that cannot
    /// be compiled counts as one that does not.
    fn compile(&mut self, rule: &Value, schema: &Schema, position: Position, path: &str) -> bool {
        let this = StaticType::of_schema(schema, position.is_root()).unwrap_or(StaticType::Dyn);
        let is_optional = rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false);
        let old = if is_optional { this.clone().optional() } else { this.clone() };
        let variables = [("self", this), ("oldSelf", old)];
        let mut uses_old = false;
        for key in ["rule", "messageExpression"] {
            let text = member_text(rule, key);
            if text.trim().is_empty() {
                continue;
            }
            let path = format!("{path}.{key}");
            let error = expression_error(text, key, &variables);
            uses_old |= key == "rule"
                && error.as_ref().is_none_or(|(_, is_compiled)| *is_compiled)
                && uses_old_value(text);
            if let Some((detail, _)) = error {
                self.expressions.push(Cause::invalid_raw(path, &internal_rule_text(rule), &detail));
                // The expression of the message is compiled only if the rule has no errors.
                break;
            }
            self.budget.count(text, key, schema, position, &path, &mut self.expressions);
        }
        uses_old
    }
}

/// The error of an expression of a rule, and whether it can be compiled nevertheless.
fn expression_error(text: &str, key: &str, variables: &[(&str, StaticType<'_>)]) -> Option<(String, bool)> {
    let is_rule = key == "rule";
    let prefix = if is_rule { "" } else { "messageExpression " };
    match compile(text, variables) {
        Err(errors) => Some((format!("{prefix}compilation failed: {errors}"), false)),
        Ok(StaticType::Bool) if is_rule => {
            instantiation_error(text).map(|error| (format!("program instantiation failed: {error}"), true))
        }
        Ok(StaticType::Text) if !is_rule => {
            instantiation_error(text).map(|error| (format!("{prefix}instantiation failed: {error}"), true))
        }
        Ok(_) if is_rule => Some(("cel expression must evaluate to a bool".to_owned(), false)),
        Ok(_) => Some(("messageExpression must evaluate to a string".to_owned(), false)),
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
        Walk::check(schema, "s", 0, &mut out);
        out.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
    }

    #[test]
    fn rules_are_compiled_with_the_schema() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.b > 1"}, {"rule": "self.a > oldSelf.a", "messageExpression": "x"}]});
        let mut out = Vec::new();
        Walk::check(&schema, "s", 0, &mut out);
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
    fn errors_of_expressions_are_reported_only_if_the_schema_has_no_others() {
        let fields = |rules: &Value, mut out: Vec<Cause>| {
            let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "x-kubernetes-validations": rules});
            Walk::check(&schema, "s", 0, &mut out);
            out.into_iter()
                .map(|cause| cause.field.replace("x-kubernetes-validations", ""))
                .collect::<Vec<_>>()
        };
        let wrong = json!({"rule": "self.n.foo()"});
        let unused = json!({"rule": "true", "optionalOldSelf": true});
        let other = json!({"rule": "true", "reason": "Other"});
        assert_eq!(fields(&json!([wrong]), vec![]), ["s.[0].rule"]);
        assert_eq!(fields(&json!([unused]), vec![]), ["s.[0].optionalOldSelf"]);
        assert_eq!(fields(&json!([wrong, unused, other]), vec![]), ["s.[2].reason"]);
        assert_eq!(fields(&json!([wrong]), vec![Cause::required("s.type", "")]), ["s.type"]);
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
                ruled(json!({"rule": "true", "fieldPath": " "})),
                vec![
                    format!("{path}.fieldPath: Invalid value: \" \": must be non-empty if specified"),
                    format!("{path}.fieldPath: Invalid value: \" \": must be a valid path"),
                ],
            ),
            (
                ruled(json!({"rule": "true", "messageExpression": " "})),
                vec![format!(
                    "{path}.messageExpression: Required value: messageExpression must be non-empty if specified"
                )],
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
