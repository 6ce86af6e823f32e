//! Warnings about valid objects of built-in kinds, e.g. about deprecated fields.

use serde_json::Value;

use crate::base::json::{at, member_text};
use crate::scheme::resources::Resource;

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Formats that schemas of CRDs can have.
const FORMATS: [&str; 31] = [
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "date-time",
    "datetime",
    "double",
    "duration",
    "email",
    "float",
    "hexcolor",
    "hostname",
    "int32",
    "int64",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8s-long-name",
    "k8s-short-name",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

fn unrecognized_formats(schema: &Value, out: &mut Vec<String>) {
    let format = member_text(schema, "format");
    if !format.is_empty() && !FORMATS.contains(&format) {
        out.push(format!("unrecognized format \"{format}\""));
    }
    for child in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        unrecognized_formats(child.1, out);
    }
    for key in ["items", "additionalProperties"] {
        schema.get(key).into_iter().for_each(|child| unrecognized_formats(child, out));
    }
}

/// Warnings about an object that is created or updated. `old` is the stored object.
pub(crate) fn warnings(resource: &Resource, value: &Value, old: Option<&Value>) -> Vec<String> {
    let mut out = Vec::new();
    if resource.custom.is_some() {
        let stored = old.and_then(|old| at(old, "/metadata/finalizers")).and_then(Value::as_array);
        for finalizer in list(at(value, "/metadata").unwrap_or(&Value::Null), "finalizers") {
            let is_new = stored.is_none_or(|stored| !stored.contains(finalizer));
            let is_standard = finalizer == "orphan" || finalizer == "foregroundDeletion";
            if is_new && !is_standard && finalizer.as_str().is_some_and(|f| !f.contains('/')) {
                out.push(format!(
                    "metadata.finalizers: {finalizer}: prefer a domain-qualified finalizer name to avoid accidental conflicts \
                     with other finalizer writers"
                ));
            }
        }
        return out;
    }
    let spec = at(value, "/spec").unwrap_or(&Value::Null);
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "services") => service(spec, &mut out),
        ("", "secrets") => secret(value, &mut out),
        ("", "pods") => pod_spec(spec, "spec", &mut out),
        ("", "podtemplates") => {
            if let Some(spec) = at(value, "/template/spec") {
                pod_spec(spec, "template.spec", &mut out);
            }
        }
        ("", "nodes") if !member_text(spec, "externalID").is_empty() => {
            out.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".into());
        }
        ("", "persistentvolumes") if member_text(spec, "persistentVolumeReclaimPolicy") == "Recycle" => {
            out.push(
                "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
                 approach is to use dynamic provisioning."
                    .into(),
            );
        }
        ("apiextensions.k8s.io", _) => {
            for version in list(spec, "versions") {
                version
                    .pointer("/schema/openAPIV3Schema")
                    .into_iter()
                    .for_each(|schema| unrecognized_formats(schema, &mut out));
            }
        }
        ("storage.k8s.io", "csidrivers")
            if old.is_none()
                && !list(spec, "tokenRequests").is_empty()
                && spec.get("serviceAccountTokenInSecrets").is_none() =>
        {
            out.push(
                "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent \
                 possible logging of tokens in volume attributes"
                    .into(),
            );
        }
        ("batch", "cronjobs") => {
            if let Some(spec) = at(spec, "/jobTemplate/spec/template/spec") {
                pod_spec(spec, "spec.jobTemplate.spec.template.spec", &mut out);
            }
        }
        ("apps" | "batch" | "", _) => {
            if resource.plural == "statefulsets"
                && spec.get("revisionHistoryLimit").and_then(Value::as_i64).is_some_and(|l| l < 0)
            {
                out.push(
                    "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
                        .into(),
                );
            }
            if let Some(spec) = at(spec, "/template/spec") {
                pod_spec(spec, "spec.template.spec", &mut out);
            }
        }
        _ => {}
    }
    out
}

fn service(spec: &Value, out: &mut Vec<String>) {
    if !list(spec, "externalIPs").is_empty() {
        out.push(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned(),
        );
    }
    if member_text(spec, "type") != "ExternalName" && !member_text(spec, "externalName").is_empty() {
        out.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".into());
    }
    if member_text(spec, "trafficDistribution") == "PreferClose" {
        out.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".into());
    }
    if member_text(spec, "clusterIP") == "None" {
        if member_text(spec, "sessionAffinity") == "ClientIP" {
            out.push("spec.SessionAffinity is ignored for headless services".into());
        }
        if !member_text(spec, "loadBalancerIP").is_empty() {
            out.push("spec.loadBalancerIP is ignored for headless services".into());
        }
    }
}

/// The certificate of a TLS secret must be PEM.
fn secret(value: &Value, out: &mut Vec<String>) {
    use base64::Engine;
    if member_text(value, "type") != "kubernetes.io/tls" {
        return;
    }
    let certificate = value.get("data").map_or("", |data| member_text(data, "tls.crt"));
    let decoded = base64::engine::general_purpose::STANDARD.decode(certificate).unwrap_or_default();
    if !String::from_utf8_lossy(&decoded).contains("-----BEGIN") {
        out.push("tls: failed to find any PEM data in certificate input".into());
    }
}

/// Terms without a label selector match no pod.
fn pod_terms(spec: &Value, path: &str, out: &mut Vec<String>) {
    let mut check = |term: &Value, place: String| {
        if term.get("labelSelector").is_none_or(Value::is_null) {
            out.push(format!("{place}.labelSelector: a null labelSelector results in matching no pod"));
        }
    };
    for (i, constraint) in list(spec, "topologySpreadConstraints").iter().enumerate() {
        check(constraint, format!("{path}.topologySpreadConstraints[{i}]"));
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = spec.get("affinity").and_then(|affinity| affinity.get(kind)) else { continue };
        let path = format!("{path}.affinity.{kind}");
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        for (i, term) in list(affinity, required).iter().enumerate() {
            check(term, format!("{path}.{required}[{i}]"));
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        for (i, weighted) in list(affinity, preferred).iter().enumerate() {
            check(&weighted["podAffinityTerm"], format!("{path}.{preferred}[{i}].podAffinityTerm"));
        }
    }
}

fn pod_spec(spec: &Value, path: &str, out: &mut Vec<String>) {
    pod_terms(spec, path, out);
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|s| s < 0) {
        out.push(format!(
            "{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    let secrets = list(spec, "imagePullSecrets");
    for (i, secret) in secrets.iter().enumerate() {
        let name = member_text(secret, "name");
        if name.is_empty() {
            out.push(format!("{path}.imagePullSecrets[{i}].name: invalid empty name \"\""));
        } else if secrets.iter().take(i).any(|s| member_text(s, "name") == name) {
            out.push(format!("{path}.imagePullSecrets[{i}].name: duplicate name \"{name}\""));
        }
    }
    for volume in list(spec, "volumes") {
        let is_empty = |source: &Value| source.as_object().is_none_or(serde_json::Map::is_empty);
        if volume.get("projected").is_some_and(|p| list(p, "sources").iter().any(is_empty)) {
            let name = member_text(volume, "name");
            out.push(format!("volume \"{name}\" (Projected) has no sources provided"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scheme::resources::Registry;

    #[test]
    fn finalizers_without_a_domain_are_reported_once() {
        let crd = json!({"metadata": {"name": "things.test.dev"}, "spec": {"group": "test.dev", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
        let (registry, _) = crate::registry::crd::registered(&Registry::builtin(), "things.test.dev", &crd);
        let thing = registry.version("test.dev", "v1").and_then(|resources| resources.get("things"));
        let object = json!({"metadata": {"finalizers": ["x", "test.dev/x"]}});
        let count = |old: Option<&Value>| thing.map(|thing| warnings(thing, &object, old).len());
        assert_eq!((count(None), count(Some(&object))), (Some(1), Some(0)));
    }

    #[test]
    fn deprecated_and_doubtful_fields_are_reported() {
        let template = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
        let cases = [
            ("", "services", json!({"spec": {"externalIPs": ["192.0.2.1"]}}), 1),
            ("", "services", json!({"spec": {"clusterIP": "None", "sessionAffinity": "ClientIP"}}), 1),
            ("", "secrets", json!({"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}), 1),
            ("", "secrets", json!({"type": "Opaque"}), 0),
            ("apps", "deployments", template(json!({"terminationGracePeriodSeconds": -1})), 1),
            (
                "apps",
                "deployments",
                template(json!({"imagePullSecrets": [{}, {"name": "a"}, {"name": "a"}]})),
                2,
            ),
            ("", "pods", json!({"spec": {"volumes": [{"name": "v", "projected": {"sources": [{}]}}]}}), 1),
            ("", "pods", json!({"spec": {"topologySpreadConstraints": [{}, {"labelSelector": {}}]}}), 1),
            ("", "configmaps", json!({}), 0),
        ];
        let registry = Registry::builtin();
        for (group, plural, object, expected) in cases {
            let resource = registry.version(group, "v1").and_then(|version| version.get(plural));
            let found = resource.map(|resource| warnings(resource, &object, None).len());
            assert_eq!(found, Some(expected), "{plural} {object}");
        }
    }
}
