//! Validation of webhook configurations.

use serde_json::Value;

use super::list;
use crate::base::json::member_text;
use crate::error::status::Cause;
use crate::registry::meta;

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
