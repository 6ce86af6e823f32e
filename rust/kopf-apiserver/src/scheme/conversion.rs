//! Conversion between the storage version and the requested version.
//!
//! Custom resources change their `apiVersion` and lose the fields that the other version does not have (strategy `None`); those with
//! a conversion webhook are converted before they are written and after they are read (`webhook::conversion`). Of the built-in
//! kinds, events and autoscalers have two versions.

use serde_json::{Map, Value, json};

use crate::base::json::member_text;
use crate::schema;
use crate::scheme::resources::Resource;

/// (core/v1, events.k8s.io/v1)
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// Converts a stored object to the version of the resource.
pub(crate) fn from_storage(value: &mut Value, resource: &Resource) {
    if resource.is_converted_by_webhook() || resource.is_of_version(member_text(value, "apiVersion")) {
        return;
    }
    if resource.custom.is_some() {
        relabel_and_prune(value, resource, &resource.api_version());
        return;
    }
    let Value::Object(map) = value else { return };
    map.insert("apiVersion".into(), resource.api_version().into());
    match (resource.group.as_str(), resource.version.as_str()) {
        ("events.k8s.io", _) => EVENT_FIELDS.iter().for_each(|(core, new)| rename(map, core, new)),
        ("autoscaling", "v1") => hpa_to_v1(map),
        _ => {}
    }
}

/// Converts an object to the stored version. A custom object gets the defaults of that version, which kube-apiserver sets whenever it
/// reads an object.
pub(crate) fn to_storage(value: &mut Value, resource: &Resource) {
    let stored = &resource.storage_api_version;
    if resource.is_converted_by_webhook() {
        return;
    }
    if resource.custom.is_some() {
        if member_text(value, "apiVersion") != stored {
            relabel_and_prune(value, resource, stored);
            set_defaults(value, resource);
        }
        return;
    }
    let Value::Object(map) = value else { return };
    if resource.is_of_version(stored) {
        return;
    }
    map.insert("apiVersion".into(), stored.clone().into());
    match (resource.group.as_str(), resource.version.as_str()) {
        ("events.k8s.io", _) => {
            for (core, new) in EVENT_FIELDS {
                rename(map, new, core);
            }
            for (key, empty) in
                [("firstTimestamp", Value::Null), ("lastTimestamp", Value::Null), ("source", json!({}))]
            {
                map.entry(key).or_insert(empty);
            }
        }
        ("autoscaling", "v1") => hpa_from_v1(map),
        _ => {}
    }
}

/// Converts an object between two versions of its resource for admission and managed fields: a custom object keeps all its fields.
pub(crate) fn convert(value: &mut Value, from: &Resource, to: &Resource) {
    if to.custom.is_none() {
        to_storage(value, from);
        from_storage(value, to);
    } else if let (false, Some(map)) = (to.is_converted_by_webhook(), value.as_object_mut()) {
        map.insert("apiVersion".into(), to.api_version().into());
    }
}

/// Drops the fields of a stored custom object that its version does not have any more, and sets the defaults of the version. If the CRD has
/// no such version any more, the object becomes one of the stored version.
pub(crate) fn apply_schema(value: &mut Value, resource: &Resource) {
    let Some(custom) = &resource.custom else { return };
    let version = member_text(value, "apiVersion").to_owned();
    if custom.schemas.contains_key(&version) {
        relabel_and_prune(value, resource, &version);
        set_defaults(value, resource);
    } else {
        to_storage(value, resource);
    }
}

/// Sets the version of a custom object, and drops the fields that the version does not have.
fn relabel_and_prune(value: &mut Value, resource: &Resource, api_version: &str) {
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".into(), api_version.into());
    }
    if let Some(schema) = resource.custom.as_ref().and_then(|custom| custom.schemas.get(api_version)) {
        schema::prune(value, schema, &mut Vec::new());
        schema::drop_nulls(value, schema);
    }
}

/// Sets the defaults of a custom object's version.
fn set_defaults(value: &mut Value, resource: &Resource) {
    let version = member_text(value, "apiVersion");
    if let Some(schema) = resource.custom.as_ref().and_then(|custom| custom.schemas.get(version)) {
        schema::fill_defaults(value, schema);
    }
}

fn rename(map: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = map.shift_remove(from) {
        map.insert(to.to_owned(), value);
    }
}

fn hpa_to_v1(map: &mut Map<String, Value>) {
    let Some(Value::Object(spec)) = map.get_mut("spec") else { return };
    if let Some(Value::Array(metrics)) = spec.shift_remove("metrics") {
        let cpu = metrics.iter().find_map(|m| m.pointer("/resource/target/averageUtilization").cloned());
        if let Some(cpu) = cpu {
            spec.insert("targetCPUUtilizationPercentage".into(), cpu);
        }
    }
}

fn hpa_from_v1(map: &mut Map<String, Value>) {
    let Some(Value::Object(spec)) = map.get_mut("spec") else { return };
    if let Some(cpu) = spec.shift_remove("targetCPUUtilizationPercentage") {
        let metric = json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": cpu}}});
        spec.insert("metrics".into(), Value::Array(vec![metric]));
    }
}
