//! Simulated workload controllers: deployments, replica sets, stateful sets, jobs, pods and endpoints.
//!
//! There is no scheduler, kubelet or network: pods are bound to a node that does not exist, and become ready at once.

use serde_json::{Value, json};

use crate::api::delete_stored;
use crate::base::json::strings;
use crate::cluster::Cluster;
use crate::cluster::work_queue::WorkItem;
use crate::schema::formats;
use crate::scheme::resources::Resource;
use crate::storage::object::Stored;

const NODE: &str = "in-memory";

/// Reconciles one object.
pub(crate) fn reconcile(cluster: &Cluster, table: &str, namespace: &str, name: &str) {
    let options = cluster.options.controllers;
    if table == "pods" {
        enqueue_related(cluster, namespace, name);
        return;
    }
    let Some(resource) = cluster.resource_of(table) else { return };
    let Some(object) = cluster.get(&resource, namespace, name) else { return };
    let value = object.value();
    if value.pointer("/metadata/deletionTimestamp").is_some() {
        return;
    }
    match table {
        "apps/deployments" => deployment(cluster, &resource, &value),
        "apps/replicasets" | "apps/statefulsets" => replicas(cluster, &resource, &object, &value),
        "batch/jobs" => job(cluster, &resource, &object, &value),
        "services" if options.endpoints => endpoints(cluster, &value),
        _ => {}
    }
}

fn enqueue_related(cluster: &Cluster, namespace: &str, name: &str) {
    let options = cluster.options.controllers;
    if options.pods {
        cluster.enqueue(WorkItem::AdvancePod(namespace.into(), name.into()));
    }
    if let Some(pod) = cluster.store.get("pods", namespace, name) {
        for owner in pod.owners() {
            for table in ["apps/replicasets", "apps/statefulsets", "batch/jobs"] {
                let found = cluster.store.list(table, Some(namespace)).objects;
                if let Some(owner) = found.iter().find(|o| o.uid == *owner) {
                    cluster.enqueue(WorkItem::Reconcile(
                        table.into(),
                        owner.namespace.clone(),
                        owner.name.clone(),
                    ));
                }
            }
        }
    } else if options.workloads {
        // A pod was deleted: its set may have to create another one.
        for table in ["apps/replicasets", "apps/statefulsets"] {
            for set in cluster.store.list(table, Some(namespace)).objects {
                cluster.enqueue(WorkItem::Reconcile(table.into(), set.namespace.clone(), set.name.clone()));
            }
        }
    }
    if options.endpoints {
        for service in cluster.store.list("services", Some(namespace)).objects {
            cluster.enqueue(WorkItem::Reconcile(
                "services".into(),
                service.namespace.clone(),
                service.name.clone(),
            ));
        }
    }
}

/// Advances a pod to its next phase, or removes it if it is deleted.
pub(crate) fn advance_pod(cluster: &Cluster, namespace: &str, name: &str) {
    let Some(pods) = cluster.builtin("", "pods") else { return };
    let Some(pod) = cluster.get(&pods, namespace, name) else { return };
    let value = pod.value();
    if value.pointer("/metadata/deletionTimestamp").is_some() {
        if strings(value.pointer("/metadata/finalizers")).is_empty() {
            // Fails only after a concurrent update, which enqueues the pod again.
            let _ = cluster.remove(&pods, &pod, value);
        }
        return;
    }
    if value.pointer("/status/phase").and_then(Value::as_str) != Some("Pending") {
        return;
    }
    let of_job = value.pointer("/metadata/ownerReferences/0/kind").and_then(Value::as_str) == Some("Job");
    cluster.update(&pods, namespace, name, |pod| {
        pod["spec"]["nodeName"] = NODE.into();
        pod["status"] = pod_status(pod, of_job);
        true
    });
}

fn pod_status(pod: &Value, result: bool) -> Value {
    let now = formats::now();
    let ready = if result { "False" } else { "True" };
    let condition =
        |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": now});
    let containers: Vec<Value> = pod
        .pointer("/spec/containers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|c| {
            let state = if result {
                json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}})
            } else {
                json!({"running": {"startedAt": now}})
            };
            json!({"name": c["name"], "image": c["image"], "imageID": "", "ready": !result, "started": !result, "restartCount": 0, "state": state})
        })
        .collect();
    json!({
        "phase": if result { "Succeeded" } else { "Running" }, "qosClass": "BestEffort", "startTime": now,
        "hostIP": "127.0.0.1", "podIP": format!("10.1.{}.{}", crate::base::random::random_bits() % 250, 1 + crate::base::random::random_bits() % 250),
        "conditions": [condition("PodScheduled", "True"), condition("Initialized", "True"), condition("ContainersReady", ready), condition("Ready", ready)],
        "containerStatuses": containers,
    })
}

fn owner_references(resource: &Resource, value: &Value) -> Value {
    json!([{"apiVersion": resource.api_version(), "kind": resource.kind, "name": value["metadata"]["name"],
        "uid": value["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}])
}

fn new_object(resource: &Resource, namespace: &str, name: &str, owners: Value, body: Value) -> Value {
    let mut out = body;
    out["kind"] = resource.kind.clone().into();
    out["apiVersion"] = resource.api_version().into();
    out["metadata"]["name"] = name.into();
    out["metadata"]["namespace"] = namespace.into();
    out["metadata"]["uid"] = crate::base::random::uid().into();
    out["metadata"]["creationTimestamp"] = formats::now().into();
    out["metadata"]["generation"] = 1.into();
    out["metadata"]["ownerReferences"] = owners;
    crate::registry::defaults::fill_defaults(resource, &mut out);
    out
}

fn owned(cluster: &Cluster, table: &str, namespace: &str, uid: &str) -> Vec<std::sync::Arc<Stored>> {
    let all = cluster.store.list(table, Some(namespace)).objects;
    all.into_iter().filter(|o| o.owners().iter().any(|u| &**u == uid)).collect()
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Hash of a pod template.
fn template_hash(template: &Value) -> String {
    let sum = template
        .to_string()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    format!("{:010x}", sum & 0xff_ffff_ffff)
}

fn deployment(cluster: &Cluster, resource: &Resource, value: &Value) {
    let Some(sets) = cluster.builtin("apps", "replicasets") else { return };
    let (namespace, name) = (text(value, "/metadata/namespace"), text(value, "/metadata/name"));
    let desired = value.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
    let hash = template_hash(&value["spec"]["template"]);
    let current = format!("{name}-{hash}");
    let existing = owned(cluster, "apps/replicasets", namespace, text(value, "/metadata/uid"));
    if !existing.iter().any(|s| *s.name == *current) {
        let mut template = value["spec"]["template"].clone();
        template["metadata"]["labels"]["pod-template-hash"] = hash.clone().into();
        let mut selector = value["spec"]["selector"].clone();
        selector["matchLabels"]["pod-template-hash"] = hash.into();
        let body = json!({"metadata": {"labels": template["metadata"]["labels"]},
            "spec": {"replicas": desired, "selector": selector, "template": template}, "status": {"replicas": 0}});
        // Fails only if it exists already.
        let _ = cluster
            .insert(&sets, new_object(&sets, namespace, &current, owner_references(resource, value), body));
    }
    let (mut total, mut ready, mut updated) = (0, 0, 0);
    for set in &existing {
        let is_current = *set.name == *current;
        let count = if is_current { desired } else { 0 };
        let set_value = set.value();
        if set_value.pointer("/spec/replicas").and_then(Value::as_i64) != Some(count) {
            cluster.update(&sets, namespace, &set.name, |s| {
                s["spec"]["replicas"] = count.into();
                true
            });
        }
        let number =
            |key: &str| set_value.pointer(&format!("/status/{key}")).and_then(Value::as_i64).unwrap_or(0);
        total += number("replicas");
        ready += number("readyReplicas");
        updated += if is_current { number("replicas") } else { 0 };
    }
    let available = if ready >= desired { "True" } else { "False" };
    set_status(cluster, resource, value, |status, now| {
        let mut new = json!({"observedGeneration": value.pointer("/metadata/generation"), "replicas": total, "updatedReplicas": updated,
            "readyReplicas": ready, "availableReplicas": ready});
        if let Some(map) = new.as_object_mut() {
            map.retain(|k, v| k == "observedGeneration" || *v != json!(0));
        }
        let known = status.pointer("/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        let condition = |kind: &str, status: &str, reason: &str| {
            let kept = known.iter().find(|c| c["type"] == kind && c["status"] == status).cloned();
            kept.unwrap_or_else(|| json!({"type": kind, "status": status, "reason": reason, "lastUpdateTime": now, "lastTransitionTime": now}))
        };
        let reason =
            if available == "True" { "MinimumReplicasAvailable" } else { "MinimumReplicasUnavailable" };
        new["conditions"] = json!([
            condition("Available", available, reason),
            condition("Progressing", "True", "NewReplicaSetAvailable")
        ]);
        new
    });
}

/// Updates the status if it differs.
fn set_status(cluster: &Cluster, resource: &Resource, value: &Value, make: impl Fn(&Value, &str) -> Value) {
    let (namespace, name) = (text(value, "/metadata/namespace"), text(value, "/metadata/name"));
    let now = formats::now();
    cluster.update(resource, namespace, name, |object| {
        let old = object.get("status").cloned().unwrap_or_default();
        let new = make(&old, &now);
        let changed = old != new;
        object["status"] = new;
        changed
    });
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    conditions.is_some_and(|l| l.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

fn replicas(cluster: &Cluster, resource: &Resource, object: &Stored, value: &Value) {
    let desired = value.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
    let desired = usize::try_from(desired).unwrap_or(0);
    let stateful = resource.plural == "statefulsets";
    let pods: Vec<_> = owned(cluster, "pods", &object.namespace, &object.uid);
    let mut active: Vec<_> = pods.iter().filter(|pod| !pod.is_deleting).collect();
    if stateful {
        active.sort_by_key(|pod| ordinal(pod));
        for missing in (0..desired).filter(|number| !active.iter().any(|pod| ordinal(pod) == *number)) {
            make_pod(cluster, resource, value, &format!("{}-{missing}", object.name));
        }
    } else {
        for _ in active.len()..desired {
            let name = format!("{}-{}", object.name, crate::base::random::name_suffix());
            make_pod(cluster, resource, value, &name);
        }
    }
    if let Some(pods_resource) = cluster.builtin("", "pods") {
        for (index, pod) in active.iter().enumerate() {
            let number = if stateful { ordinal(pod) } else { index };
            if number >= desired {
                delete_stored(cluster, &pods_resource, pod, None);
            }
        }
    }
    let ready = active.iter().filter(|p| is_ready(&p.value())).count();
    set_status(cluster, resource, value, |_, _| {
        let mut status =
            json!({"replicas": active.len(), "observedGeneration": value.pointer("/metadata/generation")});
        if !active.is_empty() {
            status["fullyLabeledReplicas"] = active.len().into();
        }
        if ready > 0 {
            status["readyReplicas"] = ready.into();
            status["availableReplicas"] = ready.into();
        }
        if stateful && let Some(map) = status.as_object_mut() {
            map.shift_remove("fullyLabeledReplicas");
            map.insert("currentReplicas".into(), active.len().into());
            map.insert("updatedReplicas".into(), active.len().into());
        }
        status
    });
    // The status of the deployment depends on the replica set.
    for uid in object.owners() {
        let found = cluster.store.list("apps/deployments", Some(&object.namespace)).objects;
        if let Some(deployment_object) = found.iter().find(|d| d.uid == *uid) {
            cluster.enqueue(WorkItem::Reconcile(
                "apps/deployments".into(),
                deployment_object.namespace.clone(),
                deployment_object.name.clone(),
            ));
        }
    }
}

/// The number of a pod in its stateful set.
fn ordinal(pod: &Stored) -> usize {
    pod.name.rsplit_once('-').and_then(|(_, number)| number.parse().ok()).unwrap_or(usize::MAX)
}

fn make_pod(cluster: &Cluster, resource: &Resource, value: &Value, name: &str) {
    let Some(pods) = cluster.builtin("", "pods") else { return };
    let template = &value["spec"]["template"];
    let body = json!({"metadata": template["metadata"].as_object().cloned().unwrap_or_default(), "spec": template["spec"],
        "status": {"phase": "Pending", "qosClass": "BestEffort"}});
    // Fails only if it exists already.
    let _ = cluster.insert(
        &pods,
        new_object(&pods, text(value, "/metadata/namespace"), name, owner_references(resource, value), body),
    );
}

fn job(cluster: &Cluster, resource: &Resource, object: &Stored, value: &Value) {
    let number = |pointer: &str| value.pointer(pointer).and_then(Value::as_i64);
    if value.pointer("/status/completionTime").is_some()
        || value.pointer("/spec/suspend") == Some(&Value::Bool(true))
    {
        return;
    }
    let desired = usize::try_from(number("/spec/completions").unwrap_or(1)).unwrap_or(1);
    let pods = owned(cluster, "pods", &object.namespace, &object.uid);
    for _ in pods.len()..desired {
        make_pod(
            cluster,
            resource,
            value,
            &format!("{}-{}", object.name, crate::base::random::name_suffix()),
        );
    }
    let succeeded = pods.iter().filter(|p| text(&p.value(), "/status/phase") == "Succeeded").count();
    set_status(cluster, resource, value, |old, now| {
        let mut status = json!({"startTime": old.get("startTime").cloned().unwrap_or_else(|| now.into()), "uncountedTerminatedPods": {}, "ready": 0});
        if desired > succeeded {
            status["active"] = (desired - succeeded).into();
        }
        if succeeded > 0 {
            status["succeeded"] = succeeded.into();
        }
        if succeeded >= desired {
            status["completionTime"] = now.into();
            let condition = |kind: &str| {
                json!({"type": kind, "status": "True", "lastProbeTime": now, "lastTransitionTime": now,
                    "reason": "CompletionsReached", "message": "Reached expected number of succeeded pods"})
            };
            status["conditions"] = json!([condition("SuccessCriteriaMet"), condition("Complete")]);
        }
        status
    });
}

fn endpoints(cluster: &Cluster, service: &Value) {
    let Some(resource) = cluster.builtin("", "endpoints") else { return };
    let Some(selector) =
        service.pointer("/spec/selector").and_then(Value::as_object).filter(|s| !s.is_empty())
    else {
        return;
    };
    let (namespace, name) = (text(service, "/metadata/namespace"), text(service, "/metadata/name"));
    let addresses: Vec<Value> = cluster
        .store
        .list("pods", Some(namespace))
        .objects
        .iter()
        .filter(|p| selector.iter().all(|(k, v)| p.label(k) == v.as_str()))
        .map(|p| p.value())
        .filter(is_ready)
        .map(|p| json!({"ip": p["status"]["podIP"], "nodeName": NODE, "targetRef": {"kind": "Pod", "name": p["metadata"]["name"],
            "namespace": namespace, "uid": p["metadata"]["uid"]}}))
        .collect();
    let ports: Vec<Value> = service
        .pointer("/spec/ports")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|p| json!({"name": p["name"], "port": p.get("targetPort").filter(|t| t.is_number()).unwrap_or(&p["port"]), "protocol": p["protocol"]}))
        .collect();
    let subsets =
        if addresses.is_empty() { json!([]) } else { json!([{"addresses": addresses, "ports": ports}]) };
    if cluster.get(&resource, namespace, name).is_none() {
        let body = json!({"metadata": {}, "subsets": subsets});
        // Fails only if it exists already.
        let _ = cluster.insert(&resource, new_object(&resource, namespace, name, json!([]), body));
        return;
    }
    cluster.update(&resource, namespace, name, |object| {
        let changed = object["subsets"] != subsets;
        object["subsets"] = subsets.clone();
        changed
    });
}
