//! Walk over an object of a built-in kind: rules of fields, enumerations, and rules of types.

use serde_json::{Map, Value};

use super::{admission, autoscaling, containers, core, networking, pods, selectors, volumes};
use crate::base::field_path::join;
use crate::base::json::member_text;
use crate::error::status::Cause;
use crate::registry::rules::{check, rules_of};
use crate::schema::{Schema, Type};
use crate::scheme::builtin;

/// Fields that are absent from paths of messages.
const UNNAMED: [(&str, &str); 4] = [
    ("core.v1.PodDNSConfigOption", "name"),
    ("core.v1.DownwardAPIVolumeSource", "items"),
    ("core.v1.DownwardAPIProjection", "items"),
    ("core.v1.PodTemplateSpec", "metadata"),
];

/// Validates a value of a built-in type.
pub(super) fn walk(value: &Value, schema: &Schema, path: &str, out: &mut Vec<Cause>) {
    match value {
        Value::Object(map) => walk_object(map, value, schema, path, out),
        Value::Array(list) => {
            let Some(items) = &schema.items else { return };
            let is_unnamed = items.type_name == "core.v1.DownwardAPIVolumeFile";
            for (i, item) in list.iter().enumerate() {
                if is_unnamed {
                    walk(item, items, path, out);
                } else {
                    walk(item, items, &format!("{path}[{i}]"), out);
                }
            }
        }
        Value::String(word)
            if schema.kind == Type::String
                && !schema.options.is_empty()
                && (schema.is_string_pointer() || !word.is_empty())
                && !schema.options.contains(word) =>
        {
            out.push(Cause::unsupported(path, value, &schema.options));
        }
        _ => {}
    }
}

fn walk_object(map: &Map<String, Value>, value: &Value, schema: &Schema, path: &str, out: &mut Vec<Cause>) {
    let rules = rules_of(&schema.type_name);
    for rule in rules {
        let child = map.get(rule.field).unwrap_or(&Value::Null);
        let is_pointer = schema.properties.get(rule.field).is_some_and(|s| s.is_string_pointer());
        for word in &rule.words {
            check::pointer(child, word, is_pointer, &field_path(schema, path, rule.field), out);
        }
    }
    rules_of_type(value, &schema.type_name, path, out);
    let skipped = skipped_fields(&schema.type_name, map);
    for (key, child) in map {
        let is_root = path.is_empty();
        if is_root && matches!(key.as_str(), "status" | "metadata") {
            continue;
        }
        let Some(known) = schema.child(key) else { continue };
        if skipped.contains(&key.as_str()) {
            continue;
        }
        let has_enum = rules.iter().any(|r| {
            r.field == key
                && r.words.iter().any(|w| w.name.starts_with("enum") || matches!(w.name, "items" | "own"))
        });
        if !(has_enum && known.kind == Type::String) {
            walk(child, known, &field_path(schema, path, key), out);
        }
    }
}

/// Fields that are not validated: all sources but one, and what follows from an error.
fn skipped_fields<'m>(type_name: &str, map: &'m Map<String, Value>) -> Vec<&'m str> {
    match type_name {
        "core.v1.Volume" | "core.v1.PersistentVolumeSpec" => volumes::skipped_sources(map),
        "core.v1.Probe" | "core.v1.LifecycleHandler" => containers::skipped_handlers(map),
        "networking.v1.IngressBackend" if map.contains_key("service") && map.contains_key("resource") => {
            vec!["service", "resource"]
        }
        "admissionregistration.v1.WebhookClientConfig" if map.contains_key("url") => vec!["service"],
        "autoscaling.v2.MetricIdentifier" => vec!["selector"],
        "core.v1.ResourceQuotaSpec" => vec!["scopeSelector", "scopes"],
        "core.v1.ServiceSpec" if !core::is_reachable(map) => vec!["externalTrafficPolicy"],
        "autoscaling.v2.MetricSpec" => autoscaling::skipped_sources(map),
        "networking.v1.HTTPIngressPath" if !map.contains_key("pathType") => {
            map.keys().map(String::as_str).collect()
        }
        _ => Vec::new(),
    }
}

/// Path of a field in messages.
fn field_path(schema: &Schema, path: &str, key: &str) -> String {
    if UNNAMED.contains(&(schema.type_name.as_str(), key)) {
        return path.to_owned();
    }
    let shown = match (schema.type_name.as_str(), key) {
        ("core.v1.Volume" | "core.v1.PersistentVolumeSpec", "gcePersistentDisk") => "persistentDisk",
        ("core.v1.PodAffinityTerm", "namespaces") => "namespace",
        // The taints of a node have the path of its metadata.
        ("core.v1.NodeSpec", "taints") => return "metadata.taints".to_owned(),
        ("core.v1.ServiceSpec", "loadBalancerSourceRanges") => "LoadBalancerSourceRanges",
        _ => key,
    };
    join(path, shown)
}

/// Rules that depend on several fields of a type.
fn rules_of_type(value: &Value, type_name: &str, path: &str, out: &mut Vec<Cause>) {
    match type_name {
        "meta.v1.LabelSelector" => selectors::label_selector(value, path, out),
        "core.v1.NodeSelectorTerm" => selectors::node_selector_term(value, path, out),
        "core.v1.TopologySelectorTerm" => selectors::topology_term(value, path, out),
        "core.v1.PodTemplateSpec" => pods::template(value, path, out),
        "core.v1.PodSpec" => pods::spec(value, &mountable_volumes(value), path, out),
        "core.v1.PodSecurityContext" => pods::security_context(value, path, out),
        "core.v1.Toleration" => pods::toleration(value, path, out),
        "core.v1.Container" | "core.v1.EphemeralContainer" => containers::container(value, path, out),
        "core.v1.HTTPGetAction" => containers::http_headers(value, path, out),
        "core.v1.EnvVar" => containers::env_var(value, path, out),
        "core.v1.ObjectFieldSelector" => containers::field_selector(value, path, out),
        "core.v1.Volume" => volumes::volume(value, path, out),
        "core.v1.AzureDiskVolumeSource" => volumes::azure_disk(value, path, out),
        "core.v1.ISCSIVolumeSource" | "core.v1.ISCSIPersistentVolumeSource" => {
            volumes::iscsi(value, type_name == "core.v1.ISCSIVolumeSource", path, out);
        }
        "core.v1.PersistentVolumeSpec" => volumes::persistent_volume(value, path, out),
        "core.v1.PersistentVolumeClaimSpec" => volumes::claim(value, path, out),
        "core.v1.ServiceSpec" => core::service(value, path, out),
        "autoscaling.v2.HorizontalPodAutoscalerSpec" | "autoscaling.v1.HorizontalPodAutoscalerSpec" => {
            autoscaling::spec(value, path, out);
        }
        "autoscaling.v2.MetricSpec" => autoscaling::metric(value, path, out),
        "networking.v1.NetworkPolicyPeer" => networking::peer(value, path, out),
        "networking.v1.NetworkPolicyPort" => networking::policy_port(value, path, out),
        "networking.v1.NetworkPolicySpec" => networking::policy(value, path, out),
        "networking.v1.IngressSpec" => networking::ingress(value, path, out),
        "networking.v1.IngressRule" => networking::ingress_rule(value, path, out),
        "networking.v1.IngressTLS" => networking::ingress_tls(value, path, out),
        "networking.v1.HTTPIngressPath" => networking::ingress_path(value, path, out),
        "networking.v1.IngressBackend" => networking::backend(value, path, out),
        "admissionregistration.v1.WebhookClientConfig" => admission::client_config(value, path, out),
        "admissionregistration.v1.ValidatingWebhook" | "admissionregistration.v1.MutatingWebhook" => {
            admission::webhook(value, path, out);
        }
        _ => {}
    }
}

/// Names of the volumes that containers can mount: those that are valid.
fn mountable_volumes(spec: &Value) -> Vec<&str> {
    let schema = builtin::schema("core.v1.Volume");
    let is_valid = |volume: &&Value| {
        let mut errors = Vec::new();
        walk(volume, &schema, "", &mut errors);
        errors.is_empty() && volumes::has_one_source(volume)
    };
    super::list(spec, "volumes").iter().filter(is_valid).map(|volume| member_text(volume, "name")).collect()
}
