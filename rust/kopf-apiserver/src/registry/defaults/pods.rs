//! Defaults of pods.

use serde_json::{Map, Value, json};

use super::{each, set};

/// Quality of service class of a pod.
pub(super) fn qos_class(pod: &Map<String, Value>) -> &'static str {
    let containers = pod.get("spec").and_then(|s| s.get("containers")).and_then(Value::as_array);
    let mut any = false;
    let mut all_equal = true;
    for container in containers.into_iter().flatten() {
        let (requests, limits) =
            (container.pointer("/resources/requests"), container.pointer("/resources/limits"));
        any |= requests.or(limits).is_some();
        let both = limits.is_some_and(|l| l.get("cpu").is_some() && l.get("memory").is_some());
        all_equal &= both && requests.is_none_or(|r| Some(r) == limits);
    }
    match (any, all_equal) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

pub(super) fn admit_pod(spec: &mut Value) {
    let toleration = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    set(spec, "tolerations", json!([]));
    if let Some(list) = spec.get_mut("tolerations").and_then(Value::as_array_mut) {
        for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
            if !list.iter().any(|t| t["key"] == key || (t.get("key").is_none() && t["operator"] == "Exists"))
            {
                list.push(toleration(key));
            }
        }
    }
    set(spec, "priority", 0.into());
    set(spec, "preemptionPolicy", "PreemptLowerPriority".into());
}

/// Defaults of a pod spec, in a pod or a template.
pub(super) fn pod_spec(spec: &mut Value, restart: &str) {
    if !spec.is_object() {
        return;
    }
    set(spec, "restartPolicy", restart.into());
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        set(spec, "serviceAccount", account);
    } else if let Some(account) = spec.get("serviceAccount").cloned() {
        set(spec, "serviceAccountName", account);
    }
    for list in ["/containers", "/initContainers"] {
        each(spec, list).for_each(container);
    }
    each(spec, "/volumes").for_each(volume);
}

/// Defaults of a pod that templates do not have: host ports, and requests.
pub(super) fn pod(spec: &mut Value) {
    let is_on_host = spec["hostNetwork"] == Value::Bool(true);
    for list in ["/containers", "/initContainers"] {
        for container in each(spec, list) {
            requests_from_limits(container);
            for port in each(container, "/ports").filter(|_| is_on_host) {
                let number = port["containerPort"].clone();
                set(port, "hostPort", number);
            }
        }
    }
}

fn container(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default();
    let tag = image.rsplit('/').next().and_then(|last| last.split_once(':')).map_or("latest", |(_, tag)| tag);
    // The tag of a name that cannot be parsed is unknown.
    let is_name = !image.is_empty()
        && image.len() <= 255
        && image.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/:@".contains(&b));
    let is_latest = tag == "latest" && !image.contains('@') && is_name;
    let policy = if is_latest { "Always" } else { "IfNotPresent" };
    set(container, "imagePullPolicy", policy.into());
    set(container, "resources", json!({}));
}

/// Requests default to the limits.
fn requests_from_limits(container: &mut Value) {
    let limits = container.pointer("/resources/limits").and_then(Value::as_object).cloned();
    for (name, quantity) in limits.into_iter().flatten() {
        set(&mut container["resources"], "requests", json!({}));
        set(&mut container["resources"]["requests"], &name, quantity);
    }
}

fn volume(volume: &mut Value) {
    let bare = volume.as_object().is_some_and(|m| m.len() == 1 && m.contains_key("name"));
    if bare {
        volume["emptyDir"] = json!({});
    }
}
