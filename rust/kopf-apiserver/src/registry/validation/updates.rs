//! Validation of updates of built-in kinds: immutable fields.

use serde_json::{Map, Value};

use super::{jobs, list};
use crate::base::json::member_text;
use crate::error::status::Cause;
use crate::schema::Schema;
use crate::schema::formats::quantity_value;
use crate::scheme::resources::Resource;
use crate::scheme::{go_difference, go_values};

const IMMUTABLE: &str = "field is immutable";

/// Field errors of a change.
pub(super) fn validate(resource: &Resource, value: &Value, old: &Value, out: &mut Vec<Cause>) {
    immutable_fields(resource, value, old, out);
    let (new_spec, old_spec) = (&value["spec"], &old["spec"]);
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => pod(new_spec, old_spec, out),
        ("", "nodes") => node(new_spec, old_spec, out),
        ("", "persistentvolumeclaims") => claim(value, old, &resource.schema(), out),
        ("", "persistentvolumes") => persistent_volume(new_spec, old_spec, &resource.schema(), out),
        ("batch", "jobs") => jobs::job_update(new_spec, old_spec, out),
        ("scheduling.k8s.io", "priorityclasses") if number(value, "value") != number(old, "value") => {
            out.push(Cause::forbidden("value", "may not be changed in an update."));
        }
        _ => {}
    }
}

fn number(value: &Value, key: &str) -> i64 {
    value.get(key).and_then(Value::as_i64).unwrap_or_default()
}

/// Pointer of a field, and its path in messages.
type Field = (&'static str, &'static str);

/// Fields that cannot change, by resource.
const FIELDS: [(&str, &str, &[Field]); 7] = [
    (
        "storage.k8s.io",
        "storageclasses",
        &[
            ("/provisioner", "provisioner"),
            ("/parameters", "parameters"),
            ("/reclaimPolicy", "reclaimPolicy"),
            ("/volumeBindingMode", "volumeBindingMode"),
        ],
    ),
    (
        "storage.k8s.io",
        "csidrivers",
        // The name of the first one is not that of the field.
        &[
            ("/spec/attachRequired", "spec.attachedRequired"),
            ("/spec/volumeLifecycleModes", "spec.volumeLifecycleModes"),
        ],
    ),
    ("scheduling.k8s.io", "priorityclasses", &[("/preemptionPolicy", "preemptionPolicy")]),
    ("apps", "controllerrevisions", &[("/data", "data")]),
    ("node.k8s.io", "runtimeclasses", &[("/handler", "handler")]),
    ("discovery.k8s.io", "endpointslices", &[("/addressType", "addressType")]),
    ("networking.k8s.io", "ingressclasses", &[("/spec/controller", "spec.controller")]),
];

fn immutable_fields(resource: &Resource, value: &Value, old: &Value, out: &mut Vec<Cause>) {
    for (_, _, fields) in FIELDS.iter().filter(|(group, plural, _)| resource.is(group, plural)) {
        for (pointer, path) in *fields {
            let now = value.pointer(pointer);
            // An absent string is empty.
            let is_same = now == old.pointer(pointer);
            if !is_same {
                let is_text = old.pointer(pointer).is_some_and(Value::is_string);
                let absent = if is_text { Value::from("") } else { Value::Null };
                out.push(Cause::invalid(*path, now.unwrap_or(&absent), IMMUTABLE));
            }
        }
    }
}

/// Fields of a pod that can change, some of them in one way only.
const POD_MUTABLE: [&str; 5] =
    ["activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "nodeName", "schedulingGates"];

/// Validates that a pod update changes mutable fields only.
fn pod(spec: &Value, old: &Value, out: &mut Vec<Cause>) {
    for key in ["containers", "initContainers"] {
        if list(spec, key).len() != list(old, key).len() {
            let detail = "pod updates may not add or remove containers";
            out.push(Cause::forbidden(format!("spec.{key}"), detail));
            return;
        }
    }
    deadline(spec, old, out);
    let same_toleration = |kept: &Value, other: &Value| {
        ["key", "operator", "value", "effect"].iter().all(|k| member_text(kept, k) == member_text(other, k))
    };
    let now = list(spec, "tolerations");
    if list(old, "tolerations").iter().any(|kept| !now.iter().any(|other| same_toleration(kept, other))) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        out.push(Cause::forbidden("spec.tolerations", detail));
    }
    let grace = |spec: &Value| spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
    let is_grace_kept =
        grace(spec) == grace(old) || (grace(old).is_some_and(|g| g < 0) && grace(spec) == Some(1));
    if !is_grace_kept || fixed_fields(spec) != fixed_fields(old) {
        let detail = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
                      `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
                      `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        out.push(Cause::forbidden("spec", detail));
    }
}

fn deadline(spec: &Value, old: &Value, out: &mut Vec<Cause>) {
    const FIELD: &str = "spec.activeDeadlineSeconds";
    let seconds = |spec: &Value| spec.get("activeDeadlineSeconds").and_then(Value::as_i64);
    match (seconds(spec), seconds(old)) {
        (Some(now), Some(before)) if now > before => {
            out.push(Cause::invalid(FIELD, &now.into(), "must be less than or equal to previous value"));
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            out.push(Cause::invalid(FIELD, &Value::Null, detail));
        }
        _ => {}
    }
}

fn fixed_fields(spec: &Value) -> Map<String, Value> {
    let mut spec = spec.as_object().cloned().unwrap_or_default();
    for key in POD_MUTABLE {
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
}

fn node(spec: &Value, old: &Value, out: &mut Vec<Cause>) {
    let detail = |name: &str| format!("node updates may not change {name} except from \"\" to valid");
    let provider = member_text(old, "providerID");
    if !provider.is_empty() && provider != member_text(spec, "providerID") {
        out.push(Cause::forbidden("spec.providerID", &detail("providerID")));
    }
    let ranges = list(old, "podCIDRs");
    if !ranges.is_empty() && ranges != list(spec, "podCIDRs") {
        out.push(Cause::forbidden("spec.podCIDRs", &detail("podCIDR")));
    }
}

/// The message about a change, with the difference of the internal structs.
fn with_difference(detail: &str, old: &Value, new: &Value) -> String {
    format!("{detail}\n{}", go_difference::difference(old, new))
}

fn claim(value: &Value, old: &Value, schema: &Schema, out: &mut Vec<Cause>) {
    let Some(spec_schema) = schema.properties.get("spec") else { return };
    let (mut now, mut before) = (value["spec"].clone(), old["spec"].clone());
    if member_text(&before, "volumeName").is_empty()
        && let (Some(before), Some(name)) = (before.as_object_mut(), now.get("volumeName"))
    {
        before.insert("volumeName".into(), name.clone());
    }
    let storage = |spec: &Value| spec.pointer("/resources/requests/storage").cloned();
    if member_text(&value["status"], "phase") == "Bound" {
        if let (Some(place), Some(size)) = (now.pointer_mut("/resources/requests/storage"), storage(&before))
        {
            *place = size;
        }
        if let (Some(now), Some(class)) = (now.as_object_mut(), before.get("volumeAttributesClassName")) {
            now.insert("volumeAttributesClassName".into(), class.clone());
        }
    }
    if now != before {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        let view = |spec: &Value| go_values::internal(spec, spec_schema);
        out.push(Cause::forbidden("spec", &with_difference(detail, &view(&before), &view(&now))));
    }
    let size = |quantity: Option<&Value>| {
        quantity.and_then(Value::as_str).and_then(quantity_value).unwrap_or_default()
    };
    let requested = size(storage(&value["spec"]).as_ref());
    if requested < size(storage(&old["spec"]).as_ref())
        && requested <= size(old.pointer("/status/capacity/storage"))
    {
        let detail = "field can not be less than status.capacity";
        out.push(Cause::forbidden("spec.resources.requests.storage", detail));
    }
}

fn persistent_volume(spec: &Value, old: &Value, schema: &Schema, out: &mut Vec<Cause>) {
    let Some(spec_schema) = schema.properties.get("spec") else { return };
    let sources = |spec: &Value| go_values::embedded(spec, spec_schema, "core.v1.PersistentVolumeSource");
    let (now, before) = (sources(spec), sources(old));
    if now != before {
        let detail = "spec.persistentvolumesource is immutable after creation";
        out.push(Cause::forbidden("spec.persistentvolumesource", &with_difference(detail, &before, &now)));
    }
    if spec.get("volumeMode") != old.get("volumeMode") {
        out.push(Cause::invalid("volumeMode", spec.get("volumeMode").unwrap_or(&Value::Null), IMMUTABLE));
    }
    let affinity = spec.get("nodeAffinity").unwrap_or(&Value::Null);
    if old.get("nodeAffinity").is_some_and(|before| before != affinity) {
        let shown = if affinity.is_null() {
            "null".to_owned()
        } else {
            go_values::internal_text(affinity, "core.v1.VolumeNodeAffinity")
        };
        let detail = "field is immutable, except for updating from beta label to GA";
        out.push(Cause::invalid_raw("nodeAffinity", &shown, detail));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scheme::resources::Registry;

    fn errors(group: &str, plural: &str, old: &Value, new: &Value) -> Vec<String> {
        let registry = Registry::builtin();
        let resource = registry.version(group, "v1").and_then(|version| version.get(plural)).cloned();
        let mut out = Vec::new();
        if let Some(resource) = resource {
            validate(&resource, new, old, &mut out);
        }
        out.iter().map(|c| format!("{}: {}", c.field, c.message)).collect()
    }

    #[test]
    fn immutable_fields_of_pods_and_nodes_are_reported() {
        let spec = |spec: Value| json!({"spec": spec});
        for (group, plural, old, new, expected) in [
            (
                "",
                "pods",
                spec(json!({"containers": [{}]})),
                spec(json!({"containers": []})),
                "spec.containers: Forbidden: pod updates",
            ),
            (
                "",
                "pods",
                spec(json!({"activeDeadlineSeconds": 3})),
                spec(json!({})),
                "spec.activeDeadlineSeconds: Invalid value: null",
            ),
            (
                "",
                "pods",
                spec(json!({"terminationGracePeriodSeconds": 3})),
                spec(json!({})),
                "spec: Forbidden",
            ),
            (
                "",
                "pods",
                spec(json!({"tolerations": [{"key": "a"}]})),
                spec(json!({})),
                "spec.tolerations: Forbidden",
            ),
            (
                "",
                "nodes",
                spec(json!({"providerID": "a"})),
                spec(json!({"providerID": "b"})),
                "spec.providerID: Forbidden",
            ),
            (
                "",
                "persistentvolumeclaims",
                spec(json!({"storageClassName": "a"})),
                spec(json!({})),
                "spec: Forbidden: spec is immutable after creation",
            ),
            (
                "",
                "persistentvolumes",
                spec(json!({"nfs": {"server": "a", "path": "/"}})),
                spec(json!({})),
                "spec.persistentvolumesource: Forbidden",
            ),
        ] {
            assert_eq!(errors(group, plural, &old, &old), Vec::<String>::new(), "{plural} {old}");
            let found = errors(group, plural, &old, &new);
            assert!(
                matches!(found.as_slice(), [one] if one.starts_with(expected)),
                "{plural} {new}: {found:?}"
            );
        }
    }

    #[test]
    fn immutable_fields_of_other_kinds_are_reported() {
        let spec = |spec: Value| json!({"spec": spec});
        for (group, plural, old, new, expected) in [
            (
                "batch",
                "jobs",
                spec(json!({"template": {"spec": {}}})),
                spec(json!({"template": {"spec": {"nodeName": "n"}}})),
                "spec.template: Invalid value: {\"Spec\":",
            ),
            (
                "storage.k8s.io",
                "storageclasses",
                json!({"reclaimPolicy": "Retain"}),
                json!({}),
                "reclaimPolicy: Invalid value: \"\": field is immutable",
            ),
            (
                "scheduling.k8s.io",
                "priorityclasses",
                json!({"value": 1}),
                json!({"value": 2}),
                "value: Forbidden",
            ),
        ] {
            assert_eq!(errors(group, plural, &old, &old), Vec::<String>::new(), "{plural} {old}");
            let found = errors(group, plural, &old, &new);
            assert!(
                matches!(found.as_slice(), [one] if one.starts_with(expected)),
                "{plural} {new}: {found:?}"
            );
        }
    }
}
