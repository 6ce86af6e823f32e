//! Validation of autoscalers.

use serde_json::{Map, Value};

use super::containers;
use crate::base::json::member_text;
use crate::error::status::Cause;

/// Fields of metric sources, by type.
const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

/// The spec of an autoscaler.
pub(super) fn spec(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    let number = |key: &str| spec.get(key).and_then(Value::as_i64);
    let (min, max) = (number("minReplicas"), number("maxReplicas").unwrap_or_default());
    if let Some(min) = min.filter(|m| *m < 1) {
        // Scaling to zero is off by default.
        let detail = "must be greater than or equal to 1";
        out.push(Cause::invalid(format!("{path}.minReplicas"), &min.into(), detail));
    }
    if let Some(percent) = number("targetCPUUtilizationPercentage").filter(|percent| *percent < 1) {
        // The field is converted to a metric.
        let field = format!("{path}.metrics[0].resource.target.averageUtilization");
        out.push(Cause::invalid(field, &percent.into(), "must be greater than 0"));
    }
    let field = format!("{path}.maxReplicas");
    if max < 0 {
        out.push(Cause::invalid(&*field, &max.into(), "must be greater than or equal to 1"));
    } else if max == 0 {
        out.push(Cause::required(field.clone(), "must be set and greater than 0"));
    }
    if min.is_some_and(|m| max < m) {
        let detail = "must be greater than or equal to `minReplicas`";
        out.push(Cause::invalid(field, &max.into(), detail));
    }
    let target = &spec["scaleTargetRef"];
    let (kind, version) = (member_text(target, "kind"), member_text(target, "apiVersion"));
    if !version.contains('/') && kind != "ReplicationController" {
        let detail = "apiVersion must specify API group";
        out.push(Cause::invalid(format!("{path}.scaleTargetRef.apiVersion"), &version.into(), detail));
    }
}

/// Sources in the order in which kube-apiserver validates them: the first one counts.
const ORDER: [&str; 5] = ["object", "external", "pods", "resource", "containerResource"];

/// The sources of a metric that are not validated.
pub(super) fn skipped_sources(map: &Map<String, Value>) -> Vec<&str> {
    ORDER.into_iter().filter(|s| map.contains_key(*s)).skip(1).collect()
}

/// A metric: its type, and the source of that type only.
pub(super) fn metric(metric: &Value, path: &str, out: &mut Vec<Cause>) {
    let kind = member_text(metric, "type");
    let options = SOURCES.map(|(kind, _)| kind.to_owned());
    let field = format!("{path}.type");
    if kind.is_empty() {
        out.push(Cause::required(field.clone(), "must specify a metric source type"));
    }
    let present: Vec<&str> = ORDER.into_iter().filter(|s| metric.get(*s).is_some()).collect();
    if let Some(first) = present.first() {
        target(first, &metric[*first], &format!("{path}.{first}"), out);
    }
    let expected = SOURCES.iter().find(|(k, _)| *k == kind).map(|(_, field)| *field);
    let Some(expected) = expected else {
        // kube-apiserver reports this twice.
        out.extend(vec![Cause::unsupported(field, &kind.into(), &options); 2]);
        return;
    };
    if !present.contains(&expected) {
        let detail = "must populate information for the given metric source";
        out.push(Cause::required(format!("{path}.{expected}"), detail));
    }
    if present.len() > 1 {
        for other in present.iter().filter(|p| **p != expected) {
            let detail = "must populate the given metric source only";
            out.push(Cause::forbidden(format!("{path}.{other}"), detail));
        }
    }
}

fn target(kind: &str, source: &Value, path: &str, out: &mut Vec<Cause>) {
    let target = &source["target"];
    let field = |key: &str| format!("{path}.target.{key}");
    let has = |key: &str| target.get(key).is_some();
    let target_type = member_text(target, "type");
    if target_type.is_empty() {
        out.push(Cause::required(field("type"), "must specify a metric target type"));
    }
    if !matches!(target_type, "Utilization" | "Value" | "AverageValue") {
        let detail = "must be either Utilization, Value, or AverageValue";
        out.push(Cause::invalid(field("type"), &target_type.into(), detail));
    }
    match kind {
        "resource" | "containerResource" => {
            if has("averageUtilization") && has("averageValue") {
                let detail = "may not set both a target raw value and a target utilization";
                out.push(Cause::forbidden(field("averageValue"), detail));
            }
            if !has("averageUtilization") && !has("averageValue") {
                let detail = "must set either a target raw value or a target utilization";
                out.push(Cause::required(field("averageUtilization"), detail));
            }
        }
        "pods" => {
            if !has("averageValue") {
                out.push(Cause::required(
                    field("averageValue"),
                    "must specify a positive target averageValue",
                ));
            }
        }
        "object" => {
            if !has("value") && !has("averageValue") {
                let detail = "must set either a target value or averageValue";
                out.push(Cause::required(field("averageValue"), detail));
            }
        }
        _ => {
            if has("value") && has("averageValue") {
                let detail = "may not set both a target value for metric and a per-pod target";
                out.push(Cause::forbidden(field("value"), detail));
            } else if !has("value") && !has("averageValue") {
                let detail = "must set either a target value for metric or a per-pod target";
                out.push(Cause::required(field("averageValue"), detail));
            }
        }
    }
    if kind == "containerResource" {
        let name = member_text(source, "name");
        for error in containers::resource_name_errors(name).into_iter().filter(|_| !name.is_empty()) {
            out.push(Cause::invalid(format!("{path}.name"), &name.into(), &error));
        }
    }
}
