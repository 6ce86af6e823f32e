//! Defaults of workloads and jobs.

use serde_json::{Value, json};

use super::pods::pod_spec;
use super::set;

pub(super) fn workload(plural: &str, value: &mut Value) {
    if plural == "controllerrevisions" {
        return;
    }
    if plural == "daemonsets" {
        value["metadata"]["annotations"]["deprecated.daemonset.template.generation"] = "1".into();
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
                set(&mut spec["strategy"]["rollingUpdate"], "maxUnavailable", "25%".into());
                set(&mut spec["strategy"]["rollingUpdate"], "maxSurge", "25%".into());
            }
        }
        "statefulsets" => {
            set(spec, "podManagementPolicy", "OrderedReady".into());
            set(spec, "updateStrategy", json!({}));
            set(&mut spec["updateStrategy"], "type", "RollingUpdate".into());
            if spec["updateStrategy"]["type"] == "RollingUpdate" {
                set(&mut spec["updateStrategy"], "rollingUpdate", json!({"partition": 0}));
            }
            set(
                spec,
                "persistentVolumeClaimRetentionPolicy",
                json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
            );
        }
        "daemonsets" => {
            set(spec, "updateStrategy", json!({}));
            set(&mut spec["updateStrategy"], "type", "RollingUpdate".into());
            if spec["updateStrategy"]["type"] == "RollingUpdate" {
                set(
                    &mut spec["updateStrategy"],
                    "rollingUpdate",
                    json!({"maxUnavailable": 1, "maxSurge": 0}),
                );
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
    set(spec, "backoffLimit", 6.into());
    set(spec, "completionMode", "NonIndexed".into());
    set(spec, "manualSelector", false.into());
    set(spec, "suspend", false.into());
    set(spec, "podReplacementPolicy", "TerminatingOrFailed".into());
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
