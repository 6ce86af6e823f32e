//! Defaults of built-in kinds, as data and code of kube-apiserver define them.

mod limit_ranges;
mod pods;
mod workloads;

use serde_json::{Map, Value, json};

use crate::registry::rules::{self, Phase};
use crate::schema::decode;
use pods::{admit_pod, pod_spec, qos_class};
use workloads::{count_template_changes, cron_job, job, label_job, workload};

use crate::scheme::resources::Resource;
use crate::storage::store::Store;

/// Sets a member if it is absent.
fn set(map: &mut Value, key: &str, default: Value) {
    if let Value::Object(map) = map {
        map.entry(key).or_insert(default);
    }
}

fn each<'v>(value: &'v mut Value, pointer: &str) -> impl Iterator<Item = &'v mut Value> {
    value.pointer_mut(pointer).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Sets the defaults that depend on the object alone.
pub(crate) fn fill_defaults(resource: &Resource, value: &mut Value) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => {
            pod_spec(&mut value["spec"], "Always");
            pods::pod(&mut value["spec"]);
            set(&mut value["spec"], "enableServiceLinks", true.into());
            if let Some(ip) = value.pointer("/status/podIP").cloned() {
                set(&mut value["status"], "podIPs", json!([{"ip": ip}]));
            }
        }
        ("", "podtemplates") => pod_spec(&mut value["template"]["spec"], "Always"),
        ("", "services") => service(&mut value["spec"]),
        ("", "secrets") => secret(value),
        ("", "namespaces") => {
            let name = value.pointer("/metadata/name").cloned().unwrap_or_default();
            if name.is_string() {
                value["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            }
        }
        ("", "endpoints") => each(value, "/subsets")
            .for_each(|s| each(s, "/ports").for_each(|p| set(p, "protocol", "TCP".into()))),
        ("", "replicationcontrollers") => replication_controller(value),
        ("", "nodes") => {
            if let Some(range) = value.pointer("/spec/podCIDR").cloned() {
                set(&mut value["spec"], "podCIDRs", json!([range]));
            }
        }
        ("", "events") => event(value, ["firstTimestamp", "lastTimestamp"]),
        ("events.k8s.io", "events") => event(value, ["deprecatedFirstTimestamp", "deprecatedLastTimestamp"]),
        ("storage.k8s.io", "csidrivers") => csi_driver(&mut value["spec"]),
        ("apps", plural) => workload(plural, value),
        ("batch", "jobs") => job(&mut value["spec"]),
        ("batch", "cronjobs") => cron_job(&mut value["spec"]),
        ("networking.k8s.io", "networkpolicies") => network_policy(&mut value["spec"]),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => binding(value),
        ("autoscaling", _) => {
            set(&mut value["spec"], "minReplicas", 1.into());
            if resource.version == "v1" && value.pointer("/metadata/annotations").is_none() {
                set(&mut value["spec"], "targetCPUUtilizationPercentage", 80.into());
            }
            if resource.version == "v2" {
                let target = json!({"type": "Utilization", "averageUtilization": 80});
                set(
                    &mut value["spec"],
                    "metrics",
                    json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]),
                );
                if let Some(behavior) = value.pointer_mut("/spec/behavior") {
                    scaling_behavior(behavior);
                }
            }
        }
        ("apiextensions.k8s.io", _) => crate::registry::crd::fill_defaults(value),
        ("discovery.k8s.io", _) => each(value, "/ports").for_each(|p| {
            set(p, "name", "".into());
            set(p, "protocol", "TCP".into());
        }),
        _ => {}
    }
    rules::fill_defaults(value, &resource.schema(), Phase::Decoding);
}

/// Sets the initial status of a new object.
pub(crate) fn initial_status(resource: &Resource, map: &mut Map<String, Value>) {
    let status = match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => json!({"phase": "Pending", "qosClass": qos_class(map)}),
        ("", "namespaces") => json!({"phase": "Active"}),
        ("", "persistentvolumeclaims" | "persistentvolumes") => json!({"phase": "Pending"}),
        ("apiextensions.k8s.io", _) => crate::registry::crd::initial_status(map),
        ("autoscaling", _) if resource.version == "v2" => {
            json!({"desiredReplicas": 0, "currentMetrics": null})
        }
        ("autoscaling", _) => json!({"currentReplicas": 0, "desiredReplicas": 0}),
        // Nodes report their status on registration.
        ("", "nodes") => return,
        _ => match resource.schema().properties.get("status") {
            Some(status) if status.always_written.is_some() => decode::zero_value(status),
            _ => {
                map.shift_remove("status");
                return;
            }
        },
    };
    map.insert("status".into(), status);
}

/// Sets the values of a new object that mutating webhooks get as well.
pub(crate) fn before_admission(resource: &Resource, value: &mut Value) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => admit_pod(&mut value["spec"]),
        ("", "namespaces") => {
            set(value, "status", json!({}));
            set(&mut value["status"], "phase", "Active".into());
        }
        _ => {}
    }
}

/// Sets the values that depend on the server or on the previous object.
pub(crate) fn assign(store: &Store, resource: &Resource, value: &mut Value, old: Option<&Value>) {
    if resource.custom.is_none() {
        rules::fill_defaults(value, &resource.schema(), Phase::Storing);
        decode::null_empty_required_lists(value, &resource.schema());
    }
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => {
            for key in ["priority", "preemptionPolicy"] {
                if let Some(stored) = old.and_then(|o| o.pointer(&format!("/spec/{key}"))) {
                    set(&mut value["spec"], key, stored.clone());
                }
            }
            admit_pod(&mut value["spec"]);
            if let Some(seconds) = value.pointer_mut("/spec/terminationGracePeriodSeconds")
                && old.is_none()
                && seconds.as_i64().is_some_and(|s| s < 0)
            {
                *seconds = 1.into();
            }
            if let Some(class) = old.and_then(|o| o.pointer("/status/qosClass")) {
                set(value, "status", json!({}));
                set(&mut value["status"], "qosClass", class.clone());
            }
        }
        ("", "services") => allocate_addresses(store, value, old),
        ("apps", "daemonsets") => count_template_changes(value, old),
        ("batch", "jobs") if old.is_none() => label_job(value),
        ("", "namespaces") if old.is_none() => set(&mut value["spec"], "finalizers", json!(["kubernetes"])),
        ("", "namespaces") => {
            set(value, "status", json!({}));
            set(&mut value["status"], "phase", "Active".into());
            // Only the subresource `finalize` changes them.
            if let Some(finalizers) = old.and_then(|o| o.pointer("/spec/finalizers")) {
                set(value, "spec", json!({}));
                set(&mut value["spec"], "finalizers", finalizers.clone());
            }
        }
        ("", "persistentvolumeclaims") => {
            claim(&mut value["spec"], old.is_some());
            set(value, "status", json!({}));
            set(&mut value["status"], "phase", "Pending".into());
            if old.is_none() {
                add_finalizer(value, "kubernetes.io/pvc-protection");
            }
        }
        ("", "persistentvolumes") if old.is_none() => {
            add_finalizer(value, "kubernetes.io/pv-protection");
            value["status"]["lastPhaseTransitionTime"] = crate::schema::formats::now().into();
        }
        ("", "persistentvolumes") => {
            set(value, "status", json!({}));
            set(&mut value["status"], "phase", "Pending".into());
            if let Some(time) = old.and_then(|o| o.pointer("/status/lastPhaseTransitionTime")) {
                set(&mut value["status"], "lastPhaseTransitionTime", time.clone());
            }
        }
        ("", "limitranges") => limit_ranges::fill_defaults(value),
        // References to secrets keep their names only.
        ("", "serviceaccounts") => {
            for secret in each(value, "/secrets").filter_map(Value::as_object_mut) {
                secret.retain(|key, _| key == "name");
            }
        }
        ("", "nodes") if old.is_none() => {
            let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
            set(&mut value["spec"], "taints", json!([]));
            if let Some(taints) = value.pointer_mut("/spec/taints").and_then(Value::as_array_mut)
                && !taints.contains(&taint)
            {
                taints.push(taint);
            }
        }
        _ => {}
    }
}

fn add_finalizer(value: &mut Value, finalizer: &str) {
    let mut list = crate::base::json::strings(value.pointer("/metadata/finalizers"));
    if !list.iter().any(|f| f == finalizer) {
        list.push(finalizer.to_owned());
    }
    value["metadata"]["finalizers"] = list.into();
}

fn event(value: &mut Value, times: [&str; 2]) {
    set(value, "eventTime", Value::Null);
    for time in times {
        set(value, time, Value::Null);
    }
}

fn csi_driver(spec: &mut Value) {
    set(spec, "attachRequired", true.into());
    set(spec, "podInfoOnMount", false.into());
    set(spec, "volumeLifecycleModes", json!(["Persistent"]));
    set(spec, "storageCapacity", false.into());
    set(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType".into());
    set(spec, "requiresRepublish", false.into());
    set(spec, "seLinuxMount", false.into());
}

/// Keeps the cluster IP of a service, or allocates one.
fn allocate_addresses(store: &Store, value: &mut Value, old: Option<&Value>) {
    let spec = &mut value["spec"];
    let kind = spec.get("type").and_then(Value::as_str).unwrap_or("ClusterIP").to_owned();
    if kind == "ExternalName" {
        let is_valid = matches!(spec["internalTrafficPolicy"].as_str(), Some("Cluster" | "Local"));
        if let Some(map) = spec.as_object_mut().filter(|_| is_valid) {
            map.shift_remove("internalTrafficPolicy");
        }
        return;
    }
    let previous = old.and_then(|o| o.pointer("/spec/clusterIP")).cloned();
    let requested = spec.get("clusterIP").cloned().filter(|v| v.as_str() != Some(""));
    let address = requested.or(previous).unwrap_or_else(|| {
        let version = store.version();
        format!("10.0.{}.{}", (version / 250) % 250, 2 + version % 250).into()
    });
    set(spec, "clusterIPs", json!([address]));
    set(spec, "clusterIP", address);
    if spec["clusterIP"] == "None" && spec.get("selector").is_none() {
        // Headless services without selectors have both IP families.
        set(spec, "ipFamilies", json!(["IPv4", "IPv6"]));
        set(spec, "ipFamilyPolicy", "RequireDualStack".into());
    }
    set(spec, "ipFamilies", json!(["IPv4"]));
    set(spec, "ipFamilyPolicy", "SingleStack".into());
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        let allocates = kind == "NodePort" || spec["allocateLoadBalancerNodePorts"] != Value::Bool(false);
        for port in each(spec, "/ports").filter(|_| allocates) {
            set(port, "nodePort", node_port());
        }
        if kind == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local" {
            set(spec, "healthCheckNodePort", node_port());
        }
    }
}

/// A random port of nodes.
fn node_port() -> Value {
    (30_000 + crate::base::random::random_bits() % 2768).into()
}

fn service(spec: &mut Value) {
    if spec.get("sessionAffinity").and_then(Value::as_str).unwrap_or_default().is_empty() && spec.is_object()
    {
        spec["sessionAffinity"] = "None".into();
    }
    set(spec, "type", "ClusterIP".into());
    if spec["type"] == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", true.into());
    }
    let spec_affinity_is_none = spec["sessionAffinity"] == "None";
    if spec["sessionAffinity"] == "ClientIP" {
        let seconds = spec.pointer("/sessionAffinityConfig/clientIP/timeoutSeconds");
        if seconds.is_none_or(Value::is_null) {
            spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 10800}});
        }
    } else if let (Some(map), true) = (spec.as_object_mut(), spec_affinity_is_none) {
        map.shift_remove("sessionAffinityConfig");
    }
    let is_reachable =
        spec["type"] == "LoadBalancer" || spec["type"] == "NodePort" || spec.get("externalIPs").is_some();
    if is_reachable && spec["type"] != "ExternalName" {
        set(spec, "externalTrafficPolicy", "Cluster".into());
    }
    if spec["type"] != "ExternalName" {
        set(spec, "internalTrafficPolicy", "Cluster".into());
    }
    for port in each(spec, "/ports") {
        set(port, "protocol", "TCP".into());
        let target = port.get("targetPort").unwrap_or(&Value::Null);
        // An absent port is 0, which is not valid.
        if target.is_null() || target.as_i64() == Some(0) || target.as_str() == Some("") {
            let number =
                port.get("port").filter(|number| number.is_i64()).cloned().unwrap_or_else(|| 0.into());
            if let Some(map) = port.as_object_mut() {
                map.insert("targetPort".into(), number);
            }
        }
    }
}

fn secret(value: &mut Value) {
    use base64::Engine;
    set(value, "type", "Opaque".into());
    let Some(plain) = value.as_object_mut().and_then(|m| m.shift_remove("stringData")) else { return };
    for (key, text) in plain.as_object().into_iter().flatten() {
        let bytes = text.as_str().unwrap_or_default();
        value["data"][key] = base64::engine::general_purpose::STANDARD.encode(bytes).into();
    }
}

fn network_policy(spec: &mut Value) {
    let egress = spec.get("egress").is_some();
    set(spec, "policyTypes", if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
}

fn binding(value: &mut Value) {
    let rbac = "rbac.authorization.k8s.io";
    if value["roleRef"]["apiGroup"].as_str().unwrap_or_default().is_empty() && value["roleRef"].is_object() {
        value["roleRef"]["apiGroup"] = rbac.into();
    }
    for subject in each(value, "/subjects") {
        let group = if subject["kind"] == "ServiceAccount" { "" } else { rbac };
        if !group.is_empty() {
            set(subject, "apiGroup", group.into());
        }
    }
}

/// The scaling rules of an autoscaler.
fn scaling_behavior(behavior: &mut Value) {
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    set(behavior, "scaleUp", json!({}));
    set(&mut behavior["scaleUp"], "stabilizationWindowSeconds", 0.into());
    set(behavior, "scaleDown", json!({}));
    for (direction, policies) in [("scaleUp", json!([pods, percent])), ("scaleDown", json!([percent]))] {
        set(&mut behavior[direction], "selectPolicy", "Max".into());
        set(&mut behavior[direction], "policies", policies);
    }
}

/// A data source stands in both of its fields.
fn claim(spec: &mut Value, is_update: bool) {
    // Older clients know only of claims and snapshots there.
    let is_known = |source: &Value| {
        let member = |key: &str| source.get(key).and_then(Value::as_str).unwrap_or_default();
        matches!(
            (member("apiGroup"), member("kind")),
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        )
    };
    if let Some(map) = spec.as_object_mut()
        && !is_update
        && map.get("dataSource").is_some_and(|source| !is_known(source))
    {
        map.shift_remove("dataSource");
    }
    let (source, reference) = (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned());
    match (source, reference) {
        (Some(source), None) => set(spec, "dataSourceRef", source),
        (None, Some(reference)) if reference.get("namespace").is_none() => set(spec, "dataSource", reference),
        _ => {}
    }
}

/// Labels and selector default to the labels of the template.
fn replication_controller(value: &mut Value) {
    if let Some(spec) = value.pointer_mut("/spec/template/spec") {
        pod_spec(spec, "Always");
    }
    let Some(labels) = value.pointer("/spec/template/metadata/labels").cloned() else { return };
    if value.pointer("/spec/selector").is_none() {
        set(&mut value["spec"], "selector", labels.clone());
    }
    if value.pointer("/metadata/labels").is_none() {
        set(&mut value["metadata"], "labels", labels);
    }
}
