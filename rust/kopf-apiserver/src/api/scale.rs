//! Scale subresource of built-in and custom resources.

use serde_json::Value;

use super::change::{check_name, check_uid, update_object};
use super::patch::apply_patch;
use super::scale_values::{scale_from_object, set_replicas};
use super::write::ATTEMPTS;
use super::{Call, body};
use crate::base::json::text;
use crate::base::names::GroupResource;
use crate::error::status::{Cause, Status};
use crate::http::render::object_value;
use crate::http::response::Response;
use crate::patch::PatchType;

/// Checks that a custom resource has the field of `specReplicasPath`.
fn check_scalable(call: &Call<'_>, object: &Value) -> Result<(), Status> {
    let Some(paths) = call.resource.custom.as_ref().and_then(|c| c.scale.clone()) else { return Ok(()) };
    if crate::base::json_path::find(object, &paths.spec).is_some() {
        return Ok(());
    }
    let why = format!("the spec replicas field \"{}\" does not exist", paths.spec);
    Err(Status::internal_error(&why))
}

pub(crate) async fn get(call: &Call<'_>) -> Result<Response, Status> {
    let name = call.name.as_deref().unwrap_or_default();
    let find = call.stored(name).await?;
    let find = find.ok_or_else(|| Status::not_found(call.resource.group_resource(), name))?;
    let value = object_value(&find, &call.resource);
    check_scalable(call, &value)?;
    Ok(Response::json(200, &scale_from_object(call, &value)))
}

pub(crate) async fn update(call: &Call<'_>, is_patch: bool) -> Result<Response, Status> {
    let options = call.request.write_options(if is_patch { "PatchOptions" } else { "UpdateOptions" })?;
    let name = call.name.as_deref().unwrap_or_default();
    for _ in 0..ATTEMPTS {
        let find = call.stored(name).await?;
        let old = find.ok_or_else(|| Status::not_found(call.resource.group_resource(), name))?;
        let before = object_value(&old, &call.resource);
        let scale = requested(call, &before, is_patch)?;
        check_name(&scale, name)?;
        check_scale_uid(call, &scale, &old.uid, is_patch)?;
        let given = text(&scale, "/metadata/resourceVersion");
        if !given.is_empty() && given.parse() != Ok(old.version) {
            break;
        }
        let mut new = before.clone();
        let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or_default();
        set_replicas(call, &mut new, replicas.into());
        if let Some(outcome) = update_object(call, &old, &before, new, &options, None).await? {
            let scale = scale_from_object(call, &outcome.value(&call.resource));
            return Ok(Response::json(200, &scale));
        }
    }
    Err(Status::modified(call.resource.group_resource(), name))
}

/// Checks `metadata.uid` of the scale.
fn check_scale_uid(call: &Call<'_>, scale: &Value, stored: &str, is_patch: bool) -> Result<(), Status> {
    let given = text(scale, "/metadata/uid");
    if !is_patch || given == stored {
        return check_uid(call, scale, stored);
    }
    let resource = format!("{}/scale", call.resource.plural);
    let resource = GroupResource { group: &call.resource.group, resource: &resource };
    let why = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {stored}");
    Err(Status::conflict(resource, call.name.as_deref().unwrap_or_default(), &why))
}

/// The scale that the request asks for.
fn requested(call: &Call<'_>, before: &Value, is_patch: bool) -> Result<Value, Status> {
    let scale = if is_patch {
        let patch_type = PatchType::of(call.request.header("content-type"));
        let patch_type =
            if patch_type == Some(PatchType::Strategic) { Some(PatchType::Merge) } else { patch_type };
        apply_patch(call, patch_type.unwrap_or(PatchType::Merge), &scale_from_object(call, before))?.0
    } else {
        body::read(call)?.0
    };
    let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or_default();
    // The number of a custom resource is validated as a part of it.
    if replicas < 0 && call.resource.custom.is_none() {
        let cause = Cause::invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0");
        let name = call.name.as_deref().unwrap_or_default();
        return Err(Status::invalid("autoscaling", "Scale", name, &[cause]));
    }
    Ok(scale)
}
