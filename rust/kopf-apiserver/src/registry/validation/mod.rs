//! Validation of built-in kinds.
//!
//! `registry::rules` has the rules of single fields, the modules here those that depend on several fields.

mod admission;
mod autoscaling;
mod containers;
mod core;
mod jobs;
mod networking;
mod pods;
mod quotas;
mod selectors;
mod updates;
mod volumes;
mod walk;
mod workloads;

use serde_json::Value;

use crate::base::json::member_text;
use crate::error::status::Cause;
use crate::registry::meta;
use crate::scheme::go_values;
use crate::scheme::resources::Resource;

/// Field errors of an object of a built-in kind, without its metadata.
pub(crate) fn validate(resource: &Resource, value: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut out = Vec::new();
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") if old.is_none() && !list(&value["spec"], "ephemeralContainers").is_empty() => {
            out.push(Cause::forbidden("spec.ephemeralContainers", "cannot be set on create"));
        }
        ("", "configmaps" | "secrets") => core::data(value, old, &mut out),
        ("", "endpoints") => core::endpoints(value, &mut out),
        ("", "events") => core::event(value, &mut out),
        ("", "nodes") => core::node(&value["spec"], &mut out),
        ("", "limitranges") => quotas::limit_range(value, &mut out),
        ("", "resourcequotas") => quotas::resource_quota(value, &mut out),
        ("storage.k8s.io", "storageclasses") => storage_class(value, &mut out),
        ("admissionregistration.k8s.io", _) => admission::configuration(value, &mut out),
        ("", "replicationcontrollers") => workloads::replication_controller(&value["spec"], &mut out),
        ("discovery.k8s.io", _) => core::endpoint_slice(value, &mut out),
        ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets") => {
            workloads::workload(&resource.plural, value, old, &mut out);
        }
        ("batch", "jobs") => jobs::job(&value["spec"], &mut out),
        ("batch", "cronjobs") => jobs::cron_job(&value["spec"], &mut out),
        ("storage.k8s.io", "csidrivers") => {
            for mode in list(&value["spec"], "volumeLifecycleModes") {
                if !matches!(mode.as_str(), Some("Persistent" | "Ephemeral")) {
                    let known = ["Persistent", "Ephemeral"].map(str::to_owned);
                    out.push(Cause::unsupported("spec.volumeLifecycleModes", mode, &known));
                }
            }
        }
        ("node.k8s.io", _) => {
            let labels = value.pointer("/scheduling/nodeSelector").and_then(Value::as_object);
            for (key, label) in labels.into_iter().flatten() {
                meta::check_label("scheduling.nodeSelector", key, label, &mut out);
            }
        }
        ("rbac.authorization.k8s.io", plural) => rbac(plural, value, old, &mut out),
        ("apiextensions.k8s.io", _) => {
            out.extend(crate::registry::crd::validation::validate(value, old));
            return out;
        }
        _ => {}
    }
    if resource.is("apps", "statefulsets") {
        let mut set = workloads::with_claims(value);
        // Claim templates cannot change, and are validated once.
        if let (Some(_), Some(spec)) = (old, set.get_mut("spec").and_then(Value::as_object_mut)) {
            spec.shift_remove("volumeClaimTemplates");
        }
        walk::walk(&set, &resource.schema(), "", &mut out);
    } else {
        walk::walk(value, &resource.schema(), "", &mut out);
    }
    if resource.is("", "services") {
        core::duplicate_ports(&value["spec"], &mut out);
    }
    if let Some(old) = old {
        // kube-apiserver validates some kinds twice on an update.
        if TWICE.iter().any(|(group, plural)| resource.is(group, plural)) {
            out.extend(out.clone());
        }
        updates::validate(resource, value, old, &mut out);
    }
    out
}

/// Kinds whose updates are validated as new objects, and again as changes.
const TWICE: [(&str, &str); 3] = [("batch", "jobs"), ("", "persistentvolumes"), ("", "nodes")];

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn unsupported(field: String, value: &str, known: &[&str]) -> Cause {
    let known: Vec<String> = known.iter().map(|k| (*k).to_owned()).collect();
    Cause::unsupported(field, &value.into(), &known)
}

/// The topologies of a storage class are not empty and differ.
fn storage_class(value: &Value, out: &mut Vec<Cause>) {
    let terms = list(value, "allowedTopologies");
    for (i, term) in terms.iter().enumerate() {
        if list(term, "matchLabelExpressions").is_empty() || terms.iter().take(i).any(|other| other == term) {
            out.push(Cause::duplicate(format!("allowedTopologies[{i}].matchLabelExpressions"), &"".into()));
        }
    }
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
        let shown = go_values::internal_text(&value["roleRef"], "rbac.v1.RoleRef");
        out.push(Cause::invalid_raw("roleRef", &shown, "cannot change roleRef"));
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
    let selectors = value.get("aggregationRule").map_or(&[][..], |it| list(it, "clusterRoleSelectors"));
    for (i, selector) in selectors.iter().enumerate() {
        let mut errors = Vec::new();
        selectors::label_selector(selector, "", &mut errors);
        if !errors.is_empty() {
            let field = format!("aggregationRule.clusterRoleSelectors[{i}]");
            out.push(Cause::invalid(field, &Value::Null, "invalid label selector."));
        }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scheme::resources::Registry;

    /// The causes of a new object, as field and message.
    fn causes(group: &str, version: &str, plural: &str, object: &Value) -> Vec<(String, String)> {
        let registry = Registry::builtin();
        let resource = registry.version(group, version).and_then(|resources| resources.get(plural));
        let found = resource.map(|resource| validate(resource, object, None)).unwrap_or_default();
        found.into_iter().map(|cause| (cause.field, cause.message)).collect()
    }

    #[test]
    fn rules_of_several_fields_are_those_of_kube_apiserver() {
        let target = json!({"kind": "Deployment", "name": "x", "apiVersion": "apps/v1"});
        let selector = json!([{"matchLabels": {"a": "Not Valid!"}}]);
        let volume = |source: Value| {
            json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "iscsi": source}})
        };
        let policy = json!({"spec": {"ingress": [{"ports": [{"protocol": "TCP", "port": 80, "endPort": 1}]}], "podSelector": {}}});
        for (group, version, plural, object, field, message) in [
            (
                "autoscaling",
                "v1",
                "horizontalpodautoscalers",
                json!({"spec": {"scaleTargetRef": target, "maxReplicas": 2, "targetCPUUtilizationPercentage": 0}}),
                "spec.metrics[0].resource.target.averageUtilization",
                "Invalid value: 0: must be greater than 0",
            ),
            (
                "rbac.authorization.k8s.io",
                "v1",
                "clusterroles",
                json!({"aggregationRule": {"clusterRoleSelectors": selector}}),
                "aggregationRule.clusterRoleSelectors[0]",
                "Invalid value: null: invalid label selector.",
            ),
            (
                "node.k8s.io",
                "v1",
                "runtimeclasses",
                json!({"handler": "x", "scheduling": {"nodeSelector": {"a": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}}}),
                "scheduling.nodeSelector",
                "Invalid value: \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\": must be no more than 63 bytes",
            ),
            (
                "",
                "v1",
                "persistentvolumes",
                volume(json!({"targetPortal": "x", "iqn": "x", "lun": 1})),
                "spec.iscsi.iqn",
                "Invalid value: \"x\": must be valid format",
            ),
            (
                "networking.k8s.io",
                "v1",
                "networkpolicies",
                policy,
                "spec.ingress[0].ports[0].endPort",
                "Invalid value: 80: must be greater than or equal to `port`",
            ),
            (
                "admissionregistration.k8s.io",
                "v1",
                "validatingadmissionpolicies",
                json!({"kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
                    "spec": {"auditAnnotations": [{"key": "", "valueExpression": "'a'"}]}}),
                "spec.auditAnnotations[0].key",
                "Invalid value: \"p/\": name part must be non-empty",
            ),
            (
                "admissionregistration.k8s.io",
                "v1",
                "validatingwebhookconfigurations",
                json!({"webhooks": [{"name": "a.b.c", "clientConfig": {"service": {"namespace": "x"}}}]}),
                "webhooks[0].clientConfig.service.namespace",
                "Required value",
            ),
        ] {
            let found = causes(group, version, plural, &object);
            assert!(found.contains(&(field.to_owned(), message.to_owned())), "{plural}: {found:?}");
        }
    }

    #[test]
    fn equal_ports_are_reported_after_the_fields_of_all_ports() {
        let service = json!({"spec": {"type": "ClusterIP", "ports": [
            {"port": 80, "protocol": "TCP"}, {"port": 80, "protocol": "TCP"}, {"port": 0, "protocol": "TCP"}]}});
        let fields: Vec<String> =
            causes("", "v1", "services", &service).into_iter().map(|(field, _)| field).collect();
        let names = ["spec.ports[0].name", "spec.ports[1].name", "spec.ports[2].name"];
        assert_eq!(fields[..3], names);
        assert_eq!(fields.last().map(String::as_str), Some("spec.ports[1]"), "{fields:?}");
    }

    #[test]
    fn disks_have_the_address_of_their_kind() {
        for (kind, address, expected) in [
            ("Shared", "https://a.blob.core.windows.net/b/c.vhd", 0),
            ("Shared", "/subscriptions/a", 1),
            ("Managed", "/subscriptions/a", 0),
            ("Managed", "https://a", 1),
        ] {
            let mut out = Vec::new();
            volumes::azure_disk(&json!({"kind": kind, "diskURI": address}), "spec.azureDisk", &mut out);
            assert_eq!(out.len(), expected, "{kind} {address}");
        }
    }
}
