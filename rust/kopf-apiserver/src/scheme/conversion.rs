//! Conversion between the storage version and the requested version.
//!
//! Custom resources change their `apiVersion` only (strategy `None`); those with a conversion webhook are converted before they are
//! written and after they are read (`webhook::conversion`). Of the built-in kinds, events and autoscalers
//! have two versions.

use serde_json::{Map, Value, json};

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

pub(crate) fn from_storage(value: &mut Value, resource: &Resource) {
    let Value::Object(map) = value else { return };
    if resource.is_converted_by_webhook() {
        return;
    }
    if map.get("apiVersion").and_then(Value::as_str).is_some_and(|it| resource.is_of_version(it)) {
        return;
    }
    map.insert("apiVersion".into(), resource.api_version().into());
    if resource.custom.is_none() {
        match (resource.group.as_str(), resource.version.as_str()) {
            ("events.k8s.io", _) => EVENT_FIELDS.iter().for_each(|(core, new)| rename(map, core, new)),
            ("autoscaling", "v1") => hpa_to_v1(map),
            _ => {}
        }
    }
}

pub(crate) fn to_storage(value: &mut Value, resource: &Resource) {
    let Value::Object(map) = value else { return };
    if resource.is_of_version(&resource.storage_api_version) || resource.is_converted_by_webhook() {
        return;
    }
    map.insert("apiVersion".into(), resource.storage_api_version.clone().into());
    if resource.custom.is_none() {
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
