//! Validation of workloads, jobs and cron jobs.

use serde_json::{Map, Value, json};

use super::{list, pods};
use crate::base::json::member_text;
use crate::error::status::Cause;
use crate::registry::selectors::LabelSelector;
use crate::schema::Schema;
use crate::scheme::{builtin, go_values};

pub(super) fn labels_match(selector: &Value, labels: &Value) -> bool {
    LabelSelector::from_json(selector).matches(|key| labels.get(key).and_then(Value::as_str))
}

/// Deployments, replica sets, stateful sets and daemon sets.
pub(super) fn workload(plural: &str, value: &Value, old: Option<&Value>, out: &mut Vec<Cause>) {
    let spec = &value["spec"];
    selector(plural, spec, out);
    let kind = match plural {
        "daemonsets" => "DaemonSet",
        "statefulsets" => "StatefulSet",
        _ => "ReplicaSet",
    };
    pods::always_restarts(&spec["template"], kind, "spec.template", out);
    match plural {
        "deployments" => deployment(spec, out),
        "statefulsets" => stateful_set(value, old, out),
        "daemonsets" => daemon_set(spec, out),
        _ => {}
    }
    if let Some(old) = old
        && old.pointer("/spec/selector") != spec.get("selector")
        && plural != "statefulsets"
    {
        let now = spec.get("selector").unwrap_or(&Value::Null);
        let now = go_values::ordered(now, &builtin::schema("meta.v1.LabelSelector"));
        out.push(Cause::invalid("spec.selector", &now, "field is immutable"));
    }
}

fn selector(plural: &str, spec: &Value, out: &mut Vec<Cause>) {
    let subject = match plural {
        "daemonsets" => "daemonset",
        "statefulsets" => "statefulset",
        _ => "deployment",
    };
    let selector_schema = builtin::schema("meta.v1.LabelSelector");
    let selector =
        spec.get("selector").filter(|s| s.is_object()).map(|s| go_values::ordered(s, &selector_schema));
    let selector = selector.as_ref();
    let empty = Value::Object(Map::new());
    let labels = spec.pointer("/template/metadata/labels");
    let mut errors = Vec::new();
    match selector {
        None => {
            if plural != "daemonsets" {
                out.push(Cause::required("spec.selector", ""));
            }
        }
        Some(selector) => {
            super::selectors::label_selector(selector, "spec.selector", &mut errors);
            let is_empty = ["matchLabels", "matchExpressions"].iter().all(|k| match selector.get(*k) {
                Some(Value::Array(list)) => list.is_empty(),
                Some(Value::Object(map)) => map.is_empty(),
                _ => true,
            });
            if is_empty {
                let detail = format!("empty selector is invalid for {subject}");
                out.push(Cause::invalid("spec.selector", selector, &detail));
            }
            if !errors.is_empty() && plural != "daemonsets" {
                let detail = "invalid label selector";
                let shown = selector.to_string();
                out.push(if plural == "statefulsets" {
                    // Without a detail.
                    let message = format!("Invalid value: {shown}");
                    Cause { field: "spec.selector".into(), reason: "FieldValueInvalid", message }
                } else {
                    Cause::invalid_raw("spec.selector", &shown, detail)
                });
                return;
            }
        }
    }
    if !errors.is_empty() {
        return;
    }
    if selector.is_none_or(|s| !labels_match(s, labels.unwrap_or(&empty))) {
        out.push(mismatch(labels));
    }
}

/// The error about labels of a template that do not match the selector.
fn mismatch(labels: Option<&Value>) -> Cause {
    let labels = labels.map_or(Value::Null, |labels| go_values::ordered(labels, &Schema::default()));
    let detail = "`selector` does not match template `labels`";
    Cause::invalid("spec.template.metadata.labels", &labels, detail)
}

/// A number of pods, or a percentage of 100 % at most.
fn amount(value: &Value) -> Option<i64> {
    match value {
        Value::Number(n) => n.as_i64(),
        Value::String(text) => text.strip_suffix('%').and_then(|n| n.parse().ok()),
        _ => None,
    }
}

fn go_strategy(strategy: &Value) -> Value {
    let rolling = strategy
        .get("rollingUpdate")
        .map_or(Value::Null, |r| json!({"MaxUnavailable": r["maxUnavailable"], "MaxSurge": r["maxSurge"]}));
    json!({"Type": strategy["type"], "RollingUpdate": rolling})
}

fn deployment(spec: &Value, out: &mut Vec<Cause>) {
    let strategy = &spec["strategy"];
    let rolling = strategy.get("rollingUpdate");
    match member_text(strategy, "type") {
        "Recreate" => {
            if rolling.is_some() {
                let detail = "may not be specified when strategy `type` is 'Recreate'";
                out.push(Cause::forbidden("spec.strategy.rollingUpdate", detail));
            }
        }
        "RollingUpdate" => {
            let is_zero = |key: &str| rolling.and_then(|r| r.get(key)).and_then(amount) == Some(0);
            if is_zero("maxSurge") && is_zero("maxUnavailable") {
                let shown = &strategy["rollingUpdate"]["maxUnavailable"];
                let detail = "may not be 0 when `maxSurge` is 0";
                out.push(Cause::invalid("spec.strategy.rollingUpdate.maxUnavailable", shown, detail));
            }
        }
        _ => {
            let known = ["Recreate", "RollingUpdate"].map(str::to_owned);
            out.push(Cause::unsupported("spec.strategy", &go_strategy(strategy), &known));
        }
    }
    let number = |key: &str| spec.get(key).and_then(Value::as_i64);
    if let Some(deadline) = number("progressDeadlineSeconds")
        && deadline <= number("minReadySeconds").unwrap_or_default()
    {
        let detail = "must be greater than minReadySeconds";
        out.push(Cause::invalid("spec.progressDeadlineSeconds", &deadline.into(), detail));
    }
}

fn stateful_set(value: &Value, old: Option<&Value>, out: &mut Vec<Cause>) {
    let spec = &value["spec"];
    let policy = member_text(spec, "podManagementPolicy");
    if !matches!(policy, "OrderedReady" | "Parallel") {
        let detail = "must be 'OrderedReady' or 'Parallel'";
        out.push(Cause::invalid("spec.podManagementPolicy", &policy.into(), detail));
    }
    let strategy = member_text(&spec["updateStrategy"], "type");
    if !matches!(strategy, "RollingUpdate" | "OnDelete") {
        let shown = go_values::internal_text(&spec["updateStrategy"], "apps.v1.StatefulSetUpdateStrategy");
        let detail = "must be 'RollingUpdate' or 'OnDelete'";
        out.push(Cause::invalid_raw("spec.updateStrategy", &shown, detail));
    }
    // kube-apiserver validates the labels and annotations of this template twice.
    pods::template_metadata(&spec["template"], "spec.template", out);
    let Some(old) = old else { return };
    let fixed = |set: &Value| {
        let mut spec = set.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
        for key in [
            "replicas",
            "ordinals",
            "template",
            "updateStrategy",
            "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy",
            "minReadySeconds",
        ] {
            spec.shift_remove(key);
        }
        spec
    };
    if fixed(value) != fixed(old) {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
                      'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        out.push(Cause::forbidden("spec", detail));
    }
}

/// The stateful set with a volume for each claim template, which containers can mount.
pub(super) fn with_claims(value: &Value) -> Value {
    let mut value = value.clone();
    let claims: Vec<Value> = list(&value["spec"], "volumeClaimTemplates")
        .iter()
        .map(|claim| {
            let name = &claim["metadata"]["name"];
            json!({"name": name, "persistentVolumeClaim": {"claimName": name}})
        })
        .collect();
    let Some(spec) = value.pointer_mut("/spec/template/spec").and_then(Value::as_object_mut) else {
        return value;
    };
    if let (Some(volumes), false) =
        (spec.entry("volumes").or_insert_with(|| json!([])).as_array_mut(), claims.is_empty())
    {
        volumes.retain(|v| claims.iter().all(|c| c["name"] != v["name"]));
        volumes.extend(claims);
    }
    value
}

fn daemon_set(spec: &Value, out: &mut Vec<Cause>) {
    let strategy = &spec["updateStrategy"];
    let path = "spec.updateStrategy.rollingUpdate";
    match member_text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let rolling = &strategy["rollingUpdate"];
            let (max, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            let (has_max, has_surge) = (amount(max) != Some(0), amount(surge) != Some(0));
            if has_max && has_surge {
                let detail = "may not be set when maxUnavailable is non-zero";
                out.push(Cause::invalid(format!("{path}.maxSurge"), surge, detail));
            } else if !has_max && !has_surge {
                out.push(Cause::required(format!("{path}.maxUnavailable"), "cannot be 0 when maxSurge is 0"));
            }
        }
        _ => {
            let known = ["RollingUpdate", "OnDelete"].map(str::to_owned);
            out.push(Cause::unsupported("spec.updateStrategy", &go_strategy(strategy), &known));
        }
    }
}

/// A replication controller.
pub(super) fn replication_controller(spec: &Value, out: &mut Vec<Cause>) {
    let Some(template) = spec.get("template") else { return };
    pods::always_restarts(template, "ReplicationController", "spec.template", out);
    let labels = template.pointer("/metadata/labels");
    let selector = spec.get("selector").and_then(Value::as_object);
    let matches =
        selector.is_some_and(|s| s.iter().all(|(k, v)| labels.is_some_and(|l| l.get(k) == Some(v))));
    if !matches && selector.is_some_and(|s| !s.is_empty()) {
        out.push(mismatch(labels));
    }
}
