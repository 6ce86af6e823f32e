//! Bindings of pods to nodes, at `pods/NAME/binding` and `bindings`.

use serde_json::{Map, Value, json};

use super::change::check_uid;
use super::write::{ATTEMPTS, admit_subresource, created};
use super::{Call, body};
use crate::base::json::{at, text};
use crate::base::names::GroupResource;
use crate::error::status::Status;
use crate::http::response::Response;
use crate::schema::formats;

/// Binds a pod to a node.
pub(super) async fn create(call: &Call<'_>) -> Result<Response, Status> {
    let options = call.request.write_options("CreateOptions")?;
    let (given, _) = body::read(call)?;
    let name = call.name.clone().unwrap_or_else(|| text(&given, "/metadata/name").to_owned());
    let binding = admit_subresource(call, given.clone(), &options, |binding| check(binding, &name)).await?;
    let pods = call.cluster.builtin("", "pods").ok_or_else(Status::no_such_resource)?;
    let call = Call {
        cluster: call.cluster,
        request: call.request,
        resource: pods,
        namespace: call.namespace.clone(),
        name: Some(name.clone()),
        subresource: Some("binding".to_owned()),
        warnings: call.warnings.clone(),
    };
    for _ in 0..ATTEMPTS {
        let old = call.cluster.get(&call.resource, &call.namespace, &name);
        let old = old.ok_or_else(|| Status::not_found(call.resource.group_resource(), &name))?;
        check_uid(&call, &given, &old.uid)?;
        let mut pod = old.value();
        assign(&mut pod, &name, &binding).map_err(|why| {
            Status::conflict(GroupResource { group: "", resource: "pods/binding" }, &name, &why)
        })?;
        if options.dry_run || call.cluster.replace(&call.resource, &old, pod).is_ok() {
            return Ok(created());
        }
    }
    Err(Status::modified(call.resource.group_resource(), &name))
}

/// Checks the name and the target of a binding.
fn check(binding: &Value, name: &str) -> Result<(), Status> {
    if text(binding, "/metadata/name") != name {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    let kind = text(binding, "/target/kind");
    if !matches!(kind, "" | "Node") {
        let why =
            format!("target.kind: Unsupported value: \"{kind}\": supported values: \"Node\", \"<empty>\"");
        return Err(Status::internal(why));
    }
    if text(binding, "/target/name").is_empty() {
        return Err(Status::internal("target.name: Required value"));
    }
    Ok(())
}

/// Assigns a pod to the node of the binding. The error is the reason why this is not possible.
fn assign(pod: &mut Value, name: &str, binding: &Value) -> Result<(), String> {
    if at(pod, "/metadata/deletionTimestamp").is_some() {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let node = text(pod, "/spec/nodeName");
    if !node.is_empty() {
        return Err(format!("pod {name} is already assigned to node \"{node}\""));
    }
    if at(pod, "/spec/schedulingGates").and_then(Value::as_array).is_some_and(|gates| !gates.is_empty()) {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    pod["spec"]["nodeName"] = text(binding, "/target/name").into();
    let given = |key: &str| binding.pointer(&format!("/metadata/{key}")).and_then(Value::as_object).cloned();
    let nothing = || Value::Object(Map::new());
    if let (Some(meta), Some(labels)) = (pod["metadata"].as_object_mut(), given("labels")) {
        let known = meta.entry("labels").or_insert_with(nothing);
        labels.into_iter().for_each(|(key, label)| {
            if known.get(&key).is_none() {
                known[key] = label;
            }
        });
    }
    if let (Some(meta), Some(annotations)) = (pod["metadata"].as_object_mut(), given("annotations")) {
        let known = meta.entry("annotations").or_insert_with(nothing);
        annotations.into_iter().for_each(|(key, annotation)| known[key] = annotation);
    }
    let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null,
        "lastTransitionTime": formats::now()});
    match pod["status"]["conditions"].as_array_mut() {
        Some(conditions) => {
            conditions.retain(|other| other["type"] != "PodScheduled");
            conditions.push(condition);
        }
        None => pod["status"]["conditions"] = json!([condition]),
    }
    Ok(())
}
