//! Validation of limit ranges and resource quotas.

use serde_json::{Map, Value};

use super::{containers, list};
use crate::base::json::member_text;
use crate::error::status::Cause;
use crate::registry::meta;

const STANDARD: &str = "must be a standard resource type or fully qualified";
const LIMITS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];

/// A limit range.
pub(super) fn limit_range(value: &Value, out: &mut Vec<Cause>) {
    let items = list(&value["spec"], "limits");
    for (i, item) in items.iter().enumerate() {
        let path = format!("spec.limits[{i}]");
        let kind = member_text(item, "type");
        let field = format!("{path}.type");
        let errors = meta::qualified_name_errors(kind);
        for error in &errors {
            out.push(Cause::invalid(&*field, &kind.into(), error));
        }
        let is_known = matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim");
        if errors.is_empty() && !kind.contains('/') && !is_known {
            out.push(Cause::invalid(
                &*field,
                &kind.into(),
                "must be a standard limit type or fully qualified",
            ));
        }
        if items.iter().take(i).any(|other| member_text(other, "type") == kind) {
            out.push(Cause::duplicate(field, &kind.into()));
        }
        for key in LIMITS {
            for (name, _) in item.get(key).and_then(Value::as_object).into_iter().flatten() {
                for error in limit_name_errors(kind, name) {
                    out.push(Cause::invalid(format!("{path}.{key}[{name}]"), &name.as_str().into(), &error));
                }
            }
        }
        let has = |key: &str| item.get(key).is_some_and(|limits| limits.get("storage").is_some());
        if kind == "PersistentVolumeClaim" && !has("min") && !has("max") {
            let detail = "either minimum or maximum storage value is required, but neither was provided";
            out.push(Cause::required(format!("{path}.limits"), detail));
        }
    }
}

fn limit_name_errors(kind: &str, name: &str) -> Vec<String> {
    if matches!(kind, "Pod" | "Container") {
        return containers::resource_name_errors(name);
    }
    let mut out = meta::qualified_name_errors(name);
    if out.is_empty() && !name.contains('/') && !is_standard(name) {
        out.push(STANDARD.to_owned());
    }
    out
}

fn is_standard(name: &str) -> bool {
    containers::is_container_resource(name)
        || containers::STANDARD_RESOURCES.contains(&name)
        || name.starts_with("requests.")
        || name.starts_with("limits.")
}

const SCOPES: [&str; 7] = [
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];

/// Resources of pods, which most scopes are for.
fn is_of_pods(name: &str) -> bool {
    const NAMES: [&str; 10] = [
        "pods",
        "cpu",
        "memory",
        "ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
    ];
    NAMES.contains(&name) || name.starts_with("requests.hugepages-") || name.starts_with("hugepages-")
}

fn covers(scope: &str, hard: &Map<String, Value>) -> bool {
    hard.keys().all(|name| match scope {
        "BestEffort" => name == "pods",
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => is_of_pods(name),
        _ => true,
    })
}

/// A resource quota.
pub(super) fn resource_quota(value: &Value, out: &mut Vec<Cause>) {
    let spec = &value["spec"];
    let nothing = Map::new();
    let hard = spec.get("hard").and_then(Value::as_object).unwrap_or(&nothing);
    for name in hard.keys() {
        let errors = meta::qualified_name_errors(name);
        let field = format!("spec.hard[{name}]");
        for error in &errors {
            out.push(Cause::invalid(&*field, &name.as_str().into(), error));
        }
        if !name.contains('/') && !is_standard(name) && !name.starts_with("services") {
            let detail = "must be a standard resource for quota";
            out.push(Cause::invalid(field, &name.as_str().into(), detail));
        }
    }
    let scopes = list(spec, "scopes");
    let shown = &spec["scopes"];
    for scope in scopes.iter().filter_map(Value::as_str) {
        if !SCOPES.contains(&scope) {
            out.push(Cause::invalid("spec.scopes", shown, "unsupported scope"));
        } else if !covers(scope, hard) {
            out.push(Cause::invalid("spec.scopes", shown, "unsupported scope applied to resource"));
        }
    }
    for expression in list(&spec["scopeSelector"], "matchExpressions") {
        scope_expression(expression, out);
    }
}

fn scope_expression(expression: &Value, out: &mut Vec<Cause>) {
    const PATH: &str = "spec.scopeSelector.matchExpressions";
    let (scope, operator) = (member_text(expression, "scopeName"), member_text(expression, "operator"));
    if !SCOPES.contains(&scope) {
        out.push(Cause::invalid(format!("{PATH}.scopeName"), &scope.into(), "unsupported scope"));
    }
    let has_values = !list(expression, "values").is_empty();
    match operator {
        "In" | "NotIn" | "Exists" | "DoesNotExist" if has_values == operator.ends_with("In") => {}
        "In" | "NotIn" => {
            let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
            out.push(Cause::required(format!("{PATH}.values"), detail));
        }
        "Exists" | "DoesNotExist" => {
            let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
            out.push(Cause::invalid(format!("{PATH}.values"), &expression["values"], detail));
        }
        other => {
            let detail = "not a valid selector operator";
            out.push(Cause::invalid(format!("{PATH}.operator"), &other.into(), detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    type Check = fn(&Value, &mut Vec<Cause>);

    #[test]
    fn limits_and_scopes_are_validated() {
        let limits = |item: Value| json!({"spec": {"limits": [item]}});
        let quota = |hard: Value, scope: &str| json!({"spec": {"hard": hard, "scopes": [scope]}});
        let cases: [(Check, Value, &[&str]); 7] = [
            (limit_range, limits(json!({"type": "Container", "max": {"cpu": "1"}})), &[]),
            (limit_range, limits(json!({"type": "other"})), &["spec.limits[0].type"]),
            (limit_range, limits(json!({"type": "PersistentVolumeClaim"})), &["spec.limits[0].limits"]),
            (limit_range, limits(json!({"type": "a/b", "min": {"key": "1"}})), &["spec.limits[0].min[key]"]),
            (resource_quota, quota(json!({"pods": "1", "requests.cpu": "1"}), "NotTerminating"), &[]),
            (resource_quota, quota(json!({"services": "1"}), "NotTerminating"), &["spec.scopes"]),
            (resource_quota, quota(json!({"pods": "1"}), "x"), &["spec.scopes"]),
        ];
        for (check, value, expected) in cases {
            let mut out = Vec::new();
            check(&value, &mut out);
            assert_eq!(out.iter().map(|c| c.field.as_str()).collect::<Vec<_>>(), expected, "{value}");
        }
    }
}
