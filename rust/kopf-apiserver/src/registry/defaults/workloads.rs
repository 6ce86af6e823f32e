//! Defaults of workloads and jobs.

use serde_json::{Value, json};

use super::pods::pod_spec;
use super::{each, set};

/// Annotation of daemon sets that counts the changes of their templates. Objects of requests without it have zero, which is a
/// change for the field managers; its value is replaced afterwards.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Sets the template generation of a daemon set.
pub(super) fn count_template_changes(value: &mut Value, old: Option<&Value>) {
    let stored = old.and_then(|old| {
        let text = old["metadata"]["annotations"][TEMPLATE_GENERATION].as_str()?;
        let is_changed = old["spec"]["template"] != value["spec"]["template"];
        Some(text.parse::<i64>().ok()? + i64::from(is_changed))
    });
    value["metadata"]["annotations"][TEMPLATE_GENERATION] = stored.unwrap_or(1).to_string().into();
}

pub(super) fn workload(plural: &str, value: &mut Value) {
    if plural == "controllerrevisions" {
        return;
    }
    if plural == "daemonsets" {
        set(value, "metadata", json!({}));
        set(&mut value["metadata"], "annotations", json!({}));
        set(&mut value["metadata"]["annotations"], TEMPLATE_GENERATION, "0".into());
    }
    let spec = &mut value["spec"];
    if plural != "daemonsets" {
        set(spec, "replicas", 1.into());
    }
    if plural != "replicasets" {
        set(spec, "revisionHistoryLimit", 10.into());
    }
    match plural {
        "deployments" => {
            set(spec, "progressDeadlineSeconds", 600.into());
            set(spec, "strategy", json!({}));
            set(&mut spec["strategy"], "type", "RollingUpdate".into());
            if spec["strategy"]["type"] == "RollingUpdate" {
                set(&mut spec["strategy"], "rollingUpdate", json!({}));
            }
        }
        "statefulsets" => {
            for claim in each(spec, "/volumeClaimTemplates") {
                set(claim, "apiVersion", "v1".into());
                set(claim, "kind", "PersistentVolumeClaim".into());
                set(claim, "status", json!({}));
                set(&mut claim["status"], "phase", "Pending".into());
            }
            set(spec, "updateStrategy", json!({}));
            set(&mut spec["updateStrategy"], "type", "RollingUpdate".into());
            if spec["updateStrategy"]["type"] == "RollingUpdate" {
                set(&mut spec["updateStrategy"], "rollingUpdate", json!({}));
            }
            set(spec, "persistentVolumeClaimRetentionPolicy", json!({}));
        }
        "daemonsets" => {
            set(spec, "updateStrategy", json!({}));
            set(&mut spec["updateStrategy"], "type", "RollingUpdate".into());
            if spec["updateStrategy"]["type"] == "RollingUpdate" {
                set(&mut spec["updateStrategy"], "rollingUpdate", json!({}));
            }
        }
        _ => {}
    }
    pod_spec(&mut spec["template"]["spec"], "Always");
}

pub(super) fn job(spec: &mut Value) {
    let single = spec.get("parallelism").is_none() && spec.get("completions").is_none();
    if single {
        set(spec, "completions", 1.into());
    }
    set(spec, "parallelism", 1.into());
    set(spec, "completionMode", "NonIndexed".into());
    set(spec, "manualSelector", false.into());
    set(spec, "suspend", false.into());
    let per_index = spec.get("backoffLimitPerIndex").is_some();
    set(spec, "backoffLimit", if per_index { i32::MAX.into() } else { 6.into() });
    let has_policy = spec.get("podFailurePolicy").is_some();
    let replacement = if has_policy { "Failed" } else { "TerminatingOrFailed" };
    set(spec, "podReplacementPolicy", replacement.into());
    pod_spec(&mut spec["template"]["spec"], "Always");
}

pub(super) fn cron_job(spec: &mut Value) {
    set(spec, "concurrencyPolicy", "Allow".into());
    set(spec, "suspend", false.into());
    set(spec, "successfulJobsHistoryLimit", 3.into());
    set(spec, "failedJobsHistoryLimit", 1.into());
    pod_spec(&mut spec["jobTemplate"]["spec"]["template"]["spec"], "Always");
}

pub(super) fn label_job(value: &mut Value) {
    if value.pointer("/spec/manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    let uid = value["metadata"]["uid"].clone();
    let name = value["metadata"]["name"].clone();
    set(&mut value["spec"], "selector", json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}));
    let labels = [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ];
    for (key, label) in labels {
        value["spec"]["template"]["metadata"]["labels"][key] = label.clone();
    }
    let labels = value["spec"]["template"]["metadata"]["labels"].clone();
    if value["metadata"].get("labels").is_none() {
        value["metadata"]["labels"] = labels;
    }
}
