//! Validation of webhook configurations.

use serde_json::Value;

use super::list;
use crate::base::json::member_text;
use crate::error::status::Cause;
use crate::registry::meta;
use crate::schema::cel::compile::{Declared, compile_errors, is_dynamic};

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

/// Variables of the expressions of webhooks.
const REQUEST: [&str; 5] = ["object", "oldObject", "request", "authorizer", "namespaceObject"];

/// Checks that an expression can be compiled.
fn expression(text: &str, variables: &[(&str, Declared<'_>)], field: String, out: &mut Vec<Cause>) {
    if text.trim().is_empty() {
        return;
    }
    if let Some(errors) = compile_errors(text, variables) {
        out.push(Cause::invalid(field, &text.into(), &format!("compilation failed: {errors}")));
    }
}

fn match_conditions(holder: &Value, path: &str, variables: &[&str], out: &mut Vec<Cause>) {
    let variables: Vec<_> = variables.iter().map(|name| (*name, Declared::Dynamic)).collect();
    for (i, condition) in list(holder, "matchConditions").iter().enumerate() {
        let text = member_text(condition, "expression");
        expression(text, &variables, format!("{path}[{i}].expression"), out);
    }
}

/// The expressions of a policy. Variables are declared one after the other, by their names and expressions.
fn policy_expressions(spec: &Value, out: &mut Vec<Cause>) {
    let mut request = REQUEST.to_vec();
    if spec.get("paramKind").is_some_and(Value::is_object) {
        request.push("params");
    }
    match_conditions(spec, "spec.matchConditions", &request, out);
    let declared = list(spec, "variables");
    let mut names: Vec<&str> = Vec::new();
    for (i, variable) in declared.iter().enumerate() {
        let (name, text) = (member_text(variable, "name"), member_text(variable, "expression"));
        let is_identifier = is_identifier(name);
        if !name.is_empty() && !is_identifier {
            let detail = "must be a valid CEL identifier";
            out.push(Cause::invalid(format!("spec.variables[{i}].name"), &name.into(), detail));
        }
        expression(text, &scope(&request, Some(&names)), format!("spec.variables[{i}].expression"), out);
        if is_identifier && !text.trim().is_empty() {
            names.push(name);
        }
    }
    let scope = scope(&request, (!declared.is_empty()).then_some(&*names));
    let without_authorizer: Vec<_> =
        scope.iter().filter(|(name, _)| *name != "authorizer").copied().collect();
    for (i, validation) in list(spec, "validations").iter().enumerate() {
        let field = format!("spec.validations[{i}]");
        expression(member_text(validation, "expression"), &scope, format!("{field}.expression"), out);
        let message = member_text(validation, "messageExpression");
        expression(message, &without_authorizer, format!("{field}.messageExpression"), out);
        if is_dynamic(message, &["object", "oldObject", "params"]) {
            let detail = "must evaluate to string but got dyn";
            out.push(Cause::invalid(format!("{field}.messageExpression"), &message.into(), detail));
        }
    }
    for (i, annotation) in list(spec, "auditAnnotations").iter().enumerate() {
        let field = format!("spec.auditAnnotations[{i}].valueExpression");
        expression(member_text(annotation, "valueExpression"), &scope, field, out);
    }
}

fn scope<'s>(request: &[&'s str], variables: Option<&'s [&'s str]>) -> Vec<(&'s str, Declared<'s>)> {
    let request = request.iter().map(|name| (*name, Declared::Dynamic));
    request.chain(variables.map(|names| ("variables", Declared::Fields(names)))).collect()
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
    match_conditions(webhook, &format!("{path}.matchConditions"), &REQUEST, out);
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
