//! Validation of built-in kinds.
//!
//! `registry::rules` has the rules of single fields, the modules here those that depend on several fields.

mod admission;
mod autoscaling;
mod containers;
mod core;
mod networking;
mod pods;
mod selectors;
mod volumes;
mod walk;
mod workloads;

use serde_json::Value;

use crate::base::json::member_text;
use crate::error::status::Cause;
use crate::registry::meta;
use crate::scheme::resources::Resource;

/// Field errors of an object of a built-in kind, without its metadata.
pub(crate) fn validate(resource: &Resource, value: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut out = Vec::new();
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => {
            if let Some(old) = old {
                validate_pod_update(value, old, &mut out);
            } else if !list(&value["spec"], "ephemeralContainers").is_empty() {
                out.push(Cause::forbidden("spec.ephemeralContainers", "cannot be set on create"));
            }
        }
        ("", "configmaps" | "secrets") => core::data(value, old, &mut out),
        ("", "endpoints") => core::endpoints(value, &mut out),
        ("", "events") => core::event(value, &mut out),
        ("", "nodes") => core::node(value, &mut out),
        ("", "replicationcontrollers") => workloads::replication_controller(&value["spec"], &mut out),
        ("discovery.k8s.io", _) => core::endpoint_slice(value, &mut out),
        ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets") => {
            workloads::workload(&resource.plural, value, old, &mut out);
        }
        ("batch", "jobs") => workloads::job(&value["spec"], old, &mut out),
        ("batch", "cronjobs") => workloads::cron_job(&value["spec"], &mut out),
        ("storage.k8s.io", "csidrivers") => {
            for mode in list(&value["spec"], "volumeLifecycleModes") {
                if !matches!(mode.as_str(), Some("Persistent" | "Ephemeral")) {
                    let known = ["Persistent", "Ephemeral"].map(str::to_owned);
                    out.push(Cause::unsupported("spec.volumeLifecycleModes", mode, &known));
                }
            }
        }
        ("rbac.authorization.k8s.io", plural) => rbac(plural, value, old, &mut out),
        ("apiextensions.k8s.io", _) => {
            out.extend(crate::registry::crd::validation::validate(value));
            for field in ["scope", "group"] {
                let now = &value["spec"][field];
                if old.is_some_and(|old| old["spec"][field] != *now) {
                    out.push(Cause::invalid(format!("spec.{field}"), now, "field is immutable"));
                }
            }
            return out;
        }
        _ => {}
    }
    if let Some(old) = old {
        immutable_fields(resource, value, old, &mut out);
    }
    if resource.is("apps", "statefulsets") {
        walk::walk(&workloads::with_claims(value), &resource.schema(), "", &mut out);
    } else {
        walk::walk(value, &resource.schema(), "", &mut out);
    }
    out
}

/// Fields that cannot change, by resource.
const IMMUTABLE: [(&str, &str, &[&str]); 5] = [
    ("storage.k8s.io", "storageclasses", &["provisioner", "parameters", "volumeBindingMode"]),
    ("scheduling.k8s.io", "priorityclasses", &["preemptionPolicy"]),
    ("apps", "controllerrevisions", &["data"]),
    ("node.k8s.io", "runtimeclasses", &["handler"]),
    ("discovery.k8s.io", "endpointslices", &["addressType"]),
];

fn immutable_fields(resource: &Resource, value: &Value, old: &Value, out: &mut Vec<Cause>) {
    for (_, _, fields) in IMMUTABLE.iter().filter(|(group, plural, _)| resource.is(group, plural)) {
        for field in *fields {
            if value.get(*field) != old.get(*field) {
                let now = value.get(*field).unwrap_or(&Value::Null);
                out.push(Cause::invalid(*field, now, "field is immutable"));
            }
        }
    }
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Validates that a pod update changes mutable fields only.
fn validate_pod_update(value: &Value, old: &Value, out: &mut Vec<Cause>) {
    let fixed = |pod: &Value| {
        let mut spec = pod.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
        for key in [
            "activeDeadlineSeconds",
            "terminationGracePeriodSeconds",
            "tolerations",
            "nodeName",
            "schedulingGates",
        ] {
            spec.shift_remove(key);
        }
        for key in ["containers", "initContainers"] {
            for container in spec.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(map) = container.as_object_mut() {
                    map.shift_remove("image");
                }
            }
        }
        spec
    };
    if fixed(value) != fixed(old) {
        let detail = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
                      `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
                      `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        out.push(Cause::forbidden("spec", detail));
    }
}

fn unsupported(field: String, value: &str, known: &[&str]) -> Cause {
    let known: Vec<String> = known.iter().map(|k| (*k).to_owned()).collect();
    Cause::unsupported(field, &value.into(), &known)
}

fn binding(plural: &str, value: &Value, old: Option<&Value>, out: &mut Vec<Cause>) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let role = &value["roleRef"];
    if member_text(role, "apiGroup") != GROUP {
        out.push(unsupported("roleRef.apiGroup".into(), member_text(role, "apiGroup"), &[GROUP]));
    }
    let kinds: &[&str] =
        if plural == "clusterrolebindings" { &["ClusterRole"] } else { &["Role", "ClusterRole"] };
    if !kinds.contains(&member_text(role, "kind")) {
        out.push(unsupported("roleRef.kind".into(), member_text(role, "kind"), kinds));
    }
    for (i, subject) in list(value, "subjects").iter().enumerate() {
        let (kind, group) = (member_text(subject, "kind"), member_text(subject, "apiGroup"));
        let place = format!("subjects[{i}]");
        let name = member_text(subject, "name");
        if name.is_empty() {
            out.push(Cause::required(format!("{place}.name"), ""));
        }
        match kind {
            "ServiceAccount" => {
                for error in meta::subdomain_errors(name).into_iter().filter(|_| !name.is_empty()) {
                    out.push(Cause::invalid(format!("{place}.name"), &name.into(), &error));
                }
                if !group.is_empty() {
                    out.push(unsupported(format!("{place}.apiGroup"), group, &[""]));
                }
            }
            "User" | "Group" => {
                if group != GROUP {
                    out.push(unsupported(format!("{place}.apiGroup"), group, &[GROUP]));
                }
            }
            other => {
                let known = ["ServiceAccount", "User", "Group"];
                out.push(unsupported(format!("{place}.kind"), other, &known));
            }
        }
    }
    if let Some(old) = old
        && old["roleRef"] != value["roleRef"]
    {
        out.push(Cause::invalid("roleRef", &value["roleRef"], "cannot change roleRef"));
    }
}

fn rbac(plural: &str, value: &Value, old: Option<&Value>, out: &mut Vec<Cause>) {
    if plural.ends_with("bindings") {
        binding(plural, value, old, out);
        return;
    }
    if let Some(aggregation) = value.get("aggregationRule")
        && list(aggregation, "clusterRoleSelectors").is_empty()
    {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        out.push(Cause::required("aggregationRule.clusterRoleSelectors", detail));
    }
    for (i, rule) in list(value, "rules").iter().enumerate() {
        let place = format!("rules[{i}]");
        if list(rule, "verbs").is_empty() {
            out.push(Cause::required(format!("{place}.verbs"), "verbs must contain at least one value"));
        }
        if !list(rule, "nonResourceURLs").is_empty() {
            let urls = &rule["nonResourceURLs"];
            let field = format!("{place}.nonResourceURLs");
            if plural == "roles" {
                let detail = "namespaced rules cannot apply to non-resource URLs";
                out.push(Cause::invalid(field.clone(), urls, detail));
            }
            if ["apiGroups", "resources", "resourceNames"].iter().any(|k| !list(rule, k).is_empty()) {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                out.push(Cause::invalid(field, urls, detail));
            }
            continue;
        }
        if list(rule, "apiGroups").is_empty() {
            out.push(Cause::required(
                format!("{place}.apiGroups"),
                "resource rules must supply at least one api group",
            ));
        }
        if list(rule, "resources").is_empty() {
            out.push(Cause::required(
                format!("{place}.resources"),
                "resource rules must supply at least one resource",
            ));
        }
    }
}
