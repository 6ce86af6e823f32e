//! Scales of built-in and custom resources: their values, and the number of replicas.

use serde_json::{Value, json};

use super::Call;

/// The number of replicas that a custom object has in its scale if it has none, the smallest one of 32 bits.
pub(super) const MISSING: i64 = -2_147_483_648;

/// The number of replicas of a scale.
pub(super) fn replicas_of(scale: &Value) -> i64 {
    scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or_default()
}

/// The scale of an object.
pub(super) fn scale_from_object(call: &Call<'_>, object: &Value) -> Value {
    let meta = |key: &str| object.pointer(&format!("/metadata/{key}")).cloned().unwrap_or_default();
    let paths = call.resource.custom.as_ref().and_then(|c| c.scale.clone());
    let (spec_path, status_path, selector) = match &paths {
        Some(paths) => {
            let selector = paths
                .selector
                .as_ref()
                .and_then(|p| crate::base::json_path::find(object, p))
                .and_then(Value::as_str);
            (paths.spec.as_str(), paths.status.as_str(), selector.unwrap_or_default().to_owned())
        }
        None => (".spec.replicas", ".status.replicas", selector_text(object)),
    };
    let count =
        |path: &str| crate::base::json_path::find(object, path).and_then(Value::as_i64).unwrap_or_default();
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": meta("name"), "namespace": meta("namespace"), "uid": meta("uid"),
            "resourceVersion": meta("resourceVersion"), "creationTimestamp": meta("creationTimestamp")},
        "spec": {}, "status": {"replicas": count(status_path)},
    });
    if count(spec_path) != 0 {
        scale["spec"]["replicas"] = count(spec_path).into();
    }
    if !selector.is_empty() {
        scale["status"]["selector"] = selector.into();
    }
    scale
}

/// The scale of a stored object, before a write.
pub(super) fn scale_before(call: &Call<'_>, object: &Value) -> Value {
    let mut scale = scale_from_object(call, object);
    if !has_replicas(call, object) {
        scale["spec"]["replicas"] = MISSING.into();
    }
    scale
}

/// Whether a custom resource has the field of `specReplicasPath`.
pub(super) fn has_replicas(call: &Call<'_>, object: &Value) -> bool {
    let paths = call.resource.custom.as_ref().and_then(|custom| custom.scale.as_ref());
    paths.is_none_or(|paths| crate::base::json_path::find(object, &paths.spec).is_some())
}

fn selector_text(object: &Value) -> String {
    let labels = object.pointer("/spec/selector/matchLabels").or_else(|| object.pointer("/spec/selector"));
    let pairs = labels.and_then(Value::as_object).into_iter().flatten();
    pairs.map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect::<Vec<_>>().join(",")
}

/// Sets the number of replicas of an object.
pub(super) fn set_replicas(call: &Call<'_>, object: &mut Value, replicas: Value) {
    let scale = call.resource.custom.as_ref().and_then(|custom| custom.scale.clone());
    set_path(object, scale.as_ref().map_or(".spec.replicas", |paths| paths.spec.as_str()), replicas);
}

fn set_path(value: &mut Value, path: &str, new: Value) {
    let mut target = value;
    for key in path.trim_start_matches('.').split('.') {
        if !target.is_object() {
            *target = json!({});
        }
        target = &mut target[key];
    }
    *target = new;
}
