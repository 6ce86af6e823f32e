//! Validation of webhook configurations.

use std::sync::Arc;

use serde_json::Value;

use super::list;
use crate::base::json::member_text;
use crate::error::status::Cause;
use crate::registry::meta;
use crate::schema::cel::compile::compile;
use crate::schema::cel::literals::instantiation_error;
use crate::schema::cel::types::StaticType;
use crate::schema::cel::variables::{namespace_type, request_type};

/// A webhook configuration, or a policy.
pub(super) fn configuration(value: &Value, out: &mut Vec<Cause>) {
    let webhooks = list(value, "webhooks");
    for (i, webhook) in webhooks.iter().enumerate() {
        let name = member_text(webhook, "name");
        if webhooks.iter().take(i).any(|other| member_text(other, "name") == name) {
            out.push(Cause::duplicate(format!("webhooks[{i}].name"), &name.into()));
        }
    }
    let spec = &value["spec"];
    match value["kind"].as_str() {
        Some("ValidatingAdmissionPolicy") => {
            if list(spec, "validations").is_empty() && list(spec, "auditAnnotations").is_empty() {
                let detail = "validations or auditAnnotations must contain at least one item";
                for key in ["validations", "auditAnnotations"] {
                    out.push(Cause::required(format!("spec.{key}"), detail));
                }
            }
            audit_annotations(value, out);
            policy_expressions(spec, out);
            let constraints = spec.get("matchConstraints").filter(|c| c.is_object());
            if constraints.is_some_and(|c| list(c, "resourceRules").is_empty()) {
                out.push(Cause::required("spec.matchConstraints.resourceRules", ""));
            }
        }
        Some("ValidatingAdmissionPolicyBinding") => {
            let actions = list(spec, "validationActions");
            for (i, action) in actions.iter().enumerate() {
                if actions.iter().take(i).any(|other| other == action) {
                    out.push(Cause::duplicate(format!("spec.validationActions[{i}]"), action));
                }
            }
        }
        _ => {}
    }
}

type Variables = Vec<(&'static str, StaticType<'static>)>;

/// Variables of the expressions of webhooks and policies.
fn variables() -> Variables {
    vec![
        ("object", StaticType::Dyn),
        ("oldObject", StaticType::Dyn),
        ("request", request_type()),
        ("namespaceObject", namespace_type()),
        ("authorizer", StaticType::Named("kubernetes.authorization.Authorizer")),
        ("authorizer.requestResource", StaticType::Named("kubernetes.authorization.ResourceCheck")),
    ]
}

/// Checks that an expression can be compiled, and that it has one of these types, if there are any. Returns its type.
fn expression(
    text: &str,
    variables: &Variables,
    expected: &[&str],
    field: String,
    out: &mut Vec<Cause>,
) -> StaticType<'static> {
    if text.trim().is_empty() {
        return StaticType::Dyn;
    }
    let invalid = |detail: &str| Cause::invalid(field.clone(), &text.into(), detail);
    let kind = match compile(text, variables) {
        Ok(kind) => kind,
        Err(errors) => {
            out.push(invalid(&format!("compilation failed: {errors}")));
            return StaticType::Dyn;
        }
    };
    let found = kind.declared_name();
    match expected {
        [] => {}
        all if all.contains(&found.as_str()) => {}
        [one] => {
            out.push(invalid(&format!("must evaluate to {one} but got {found}")));
            return kind;
        }
        several => {
            let several = several.join(" ");
            out.push(invalid(&format!("must evaluate to one of [{several}] but got {found}")));
            return kind;
        }
    }
    if let Some(error) = instantiation_error(text) {
        out.push(Cause::internal(field, &format!("program instantiation failed: {error}")));
    }
    kind
}

fn match_conditions(holder: &Value, path: &str, variables: &Variables, out: &mut Vec<Cause>) {
    for (i, condition) in list(holder, "matchConditions").iter().enumerate() {
        let text = member_text(condition, "expression");
        expression(text, variables, &["bool"], format!("{path}[{i}].expression"), out);
    }
}

/// The expressions of a policy. Variables are declared one after the other, by their names and expressions.
fn policy_expressions(spec: &Value, out: &mut Vec<Cause>) {
    let mut known = variables();
    if spec.get("paramKind").is_some_and(Value::is_object) {
        known.push(("params", StaticType::Dyn));
    }
    match_conditions(spec, "spec.matchConditions", &known, out);
    let declared = list(spec, "variables");
    let mut fields: Vec<(String, StaticType<'static>)> = Vec::new();
    for (i, variable) in declared.iter().enumerate() {
        let (name, text) = (member_text(variable, "name"), member_text(variable, "expression"));
        let is_identifier = is_identifier(name);
        if !name.is_empty() && !is_identifier {
            let detail = "must be a valid CEL identifier";
            out.push(Cause::invalid(format!("spec.variables[{i}].name"), &name.into(), detail));
        }
        let scope = with_fields(&known, &fields);
        let kind = expression(text, &scope, &[], format!("spec.variables[{i}].expression"), out);
        if is_identifier && !text.trim().is_empty() {
            fields.push((name.to_owned(), kind));
        }
    }
    let scope = if declared.is_empty() { known } else { with_fields(&known, &fields) };
    let is_authorizer = |name: &str| name.starts_with("authorizer");
    let without_authorizer: Variables =
        scope.iter().filter(|(name, _)| !is_authorizer(name)).cloned().collect();
    for (i, validation) in list(spec, "validations").iter().enumerate() {
        let field = format!("spec.validations[{i}]");
        let text = member_text(validation, "expression");
        expression(text, &scope, &["bool"], format!("{field}.expression"), out);
        let message = member_text(validation, "messageExpression");
        let field = format!("{field}.messageExpression");
        expression(message, &without_authorizer, &["string"], field, out);
    }
    for (i, annotation) in list(spec, "auditAnnotations").iter().enumerate() {
        let field = format!("spec.auditAnnotations[{i}].valueExpression");
        let text = member_text(annotation, "valueExpression");
        expression(text, &scope, &["string", "null_type"], field, out);
    }
}

fn with_fields(known: &Variables, fields: &[(String, StaticType<'static>)]) -> Variables {
    let fields = StaticType::Fields(Arc::new(fields.to_vec()));
    known.iter().cloned().chain([("variables", fields)]).collect()
}

fn is_identifier(name: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    name.bytes().next().is_some_and(is_letter) && name.bytes().all(|b| is_letter(b) || b.is_ascii_digit())
}

/// The keys of annotations, with the name of the policy as their prefix.
fn audit_annotations(policy: &Value, out: &mut Vec<Cause>) {
    let prefix = member_text(&policy["metadata"], "name");
    let annotations = list(&policy["spec"], "auditAnnotations");
    for (i, annotation) in annotations.iter().enumerate() {
        let key = member_text(annotation, "key");
        let field = format!("spec.auditAnnotations[{i}].key");
        let full = format!("{prefix}/{key}");
        for error in meta::qualified_name_errors(&full) {
            out.push(Cause::invalid(field.clone(), &full.as_str().into(), &error));
        }
        if annotations.iter().take(i).any(|other| member_text(other, "key") == key) {
            out.push(Cause::duplicate(field, &key.into()));
        }
    }
}

/// A webhook.
pub(super) fn webhook(webhook: &Value, path: &str, out: &mut Vec<Cause>) {
    let name = member_text(webhook, "name");
    if !name.is_empty() && meta::subdomain_errors(name).is_empty() && name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        out.push(Cause::invalid(format!("{path}.name"), &name.into(), detail));
    }
    versions(webhook, path, out);
    for (i, rule) in list(webhook, "rules").iter().enumerate() {
        let operations = list(rule, "operations");
        if operations.len() > 1 && operations.iter().any(|o| o == "*") {
            let detail = "if '*' is present, must not specify other operations";
            let field = format!("{path}.rules[{i}].operations");
            out.push(Cause::invalid(field, &rule["operations"], detail));
        }
    }
    match_conditions(webhook, &format!("{path}.matchConditions"), &variables(), out);
    let conditions = list(webhook, "matchConditions");
    for (i, condition) in conditions.iter().enumerate() {
        let name = member_text(condition, "name");
        if conditions.iter().take(i).any(|c| member_text(c, "name") == name) {
            out.push(Cause::duplicate(format!("{path}.matchConditions[{i}].name"), &name.into()));
        }
    }
}

fn versions(webhook: &Value, path: &str, out: &mut Vec<Cause>) {
    let versions = list(webhook, "admissionReviewVersions");
    let path = format!("{path}.admissionReviewVersions");
    for (i, version) in versions.iter().enumerate() {
        if versions.iter().take(i).any(|v| v == version) {
            out.push(Cause::invalid(format!("{path}[{i}]"), version, "duplicate version"));
        }
        for error in meta::label_1035_errors(version.as_str().unwrap_or_default()) {
            out.push(Cause::invalid(format!("{path}[{i}]"), version, &error));
        }
    }
    if !versions.is_empty() && !versions.iter().any(|v| v == "v1" || v == "v1beta1") {
        let detail = "must include at least one of v1, v1beta1";
        out.push(Cause::invalid(path, &webhook["admissionReviewVersions"], detail));
    }
}

/// The address of a webhook.
pub(super) fn client_config(config: &Value, path: &str, out: &mut Vec<Cause>) {
    let (url, service) = (config.get("url").and_then(Value::as_str), config.get("service"));
    if url.is_some() == service.is_some() {
        out.push(Cause::required(path, "exactly one of url or service is required"));
        return;
    }
    if let Some(url) = url {
        let field = format!("{path}.url");
        let (scheme, rest) = url.split_once("://").unwrap_or(("", ""));
        if scheme != "https" {
            let detail = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
            out.push(Cause::invalid(field.clone(), &scheme.into(), detail));
        }
        let host = rest.split('/').next().unwrap_or_default();
        if host.is_empty() {
            let detail = "host must be specified; desired format: https://host[/path]";
            out.push(Cause::invalid(field, &host.into(), detail));
        }
    }
    // kube-apiserver reports an absent name for the namespace, and the other way round.
    for (key, reported) in [("namespace", "name"), ("name", "namespace")] {
        if service.is_some_and(|s| member_text(s, key).is_empty()) {
            out.push(Cause::required(format!("{path}.service.{reported}"), ""));
        }
    }
    let path_of_service = service.and_then(|s| s.get("path")).and_then(Value::as_str);
    if let Some(text) = path_of_service {
        service_path(text, &format!("{path}.service.path"), out);
    }
}

fn service_path(text: &str, field: &str, out: &mut Vec<Cause>) {
    let invalid = |detail: &str| Cause::invalid(field, &text.into(), detail);
    let Some(rest) = text.strip_prefix('/') else {
        if !text.is_empty() {
            out.push(invalid("must start with a '/'"));
        }
        let Some(rest) = Some(text).filter(|t| !t.is_empty()) else { return };
        return segments(rest, field, text, out);
    };
    segments(rest, field, text, out);
}

fn segments(rest: &str, field: &str, text: &str, out: &mut Vec<Cause>) {
    for (i, segment) in rest.trim_end_matches('/').split('/').enumerate() {
        for error in meta::subdomain_errors(segment).into_iter().filter(|_| !rest.is_empty()) {
            out.push(Cause::invalid(field, &text.into(), &format!("segment[{i}]: {error}")));
        }
    }
}
