//! Scale subresource of built-in and custom resources.
//!
//! A write changes the scale of the object, with the managed fields that it has as a scale, and then the object.

use std::sync::Arc;

use serde_json::Value;

use super::apply::Configuration;
use super::change::{changes, check_name, check_uid, check_version, manager_entry, update_object};
use super::patch::{self, patched};
use super::scale_values::{
    MISSING, has_replicas, replicas_of, scale_before, scale_from_object, set_replicas,
};
use super::write::{ATTEMPTS, read_object};
use super::{Call, body};
use crate::apply::field_set::Set;
use crate::apply::managed_fields::{self, ManagedFieldsEntry};
use crate::apply::scale_fields::{self, ReplicasPaths, SCALE_VERSION};
use crate::base::json::text;
use crate::base::names::GroupResource;
use crate::error::status::{Cause, Status};
use crate::http::render::object_value;
use crate::http::request::WriteOptions;
use crate::http::response::Response;
use crate::patch::PatchType;
use crate::scheme::resources::Resource;

/// The error about a scale of a custom object, whose managed fields have other versions.
const UNCONVERTED: &str = "request to convert CR to an invalid group/version: autoscaling/v1";

/// Checks that a custom resource has the field of `specReplicasPath`.
fn check_scalable(call: &Call<'_>, object: &Value) -> Result<(), Status> {
    let custom = call.resource.custom.as_ref();
    let Some(paths) = custom.and_then(|custom| custom.scale.as_ref()) else { return Ok(()) };
    if has_replicas(call, object) {
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

/// The content of a request for the scale.
enum Write {
    Object(Value),
    Patch(PatchType),
    Apply,
}

pub(crate) async fn update(call: &Call<'_>, is_patch: bool) -> Result<Response, Status> {
    let scale_call = scale_call(call);
    let name = call.name.as_deref().unwrap_or_default();
    let (write, options) = read_write(call, &scale_call, is_patch)?;
    for _ in 0..ATTEMPTS {
        let find = call.stored(name).await?;
        let old = find.ok_or_else(|| Status::not_found(call.resource.group_resource(), name))?;
        let before = object_value(&old, &call.resource);
        let entries = before.get("metadata").and_then(Value::as_object).map(managed_fields::read);
        let entries = entries.unwrap_or_default();
        let paths = replicas_paths(call);
        let mut scale_before = scale_before(call, &before);
        if let Some(meta) = scale_before["metadata"].as_object_mut() {
            managed_fields::write(meta, scale_fields::to_scale(&entries, &paths));
        }
        let is_custom = call.resource.custom.is_some();
        let (scale, scale_entries) = written(&scale_call, &write, &scale_before, &options, is_custom).await?;
        let replicas = replicas_of(&scale);
        check_replicas(call, &scale_before, replicas)?;
        check_scale_uid(call, &scale, &old.uid, is_patch)?;
        let version = text(&scale, "/metadata/resourceVersion");
        if !version.is_empty() {
            check_version(call, &scale, &old)?;
        }
        let mut new = before.clone();
        // Mutating webhooks get the version that the client has sent.
        new["metadata"]["resourceVersion"] = version.into();
        set_replicas(call, &mut new, replicas.into());
        let entries = scale_fields::to_parent(entries, scale_entries, &paths, &call.resource.api_version());
        if let Some(outcome) = update_object(call, &old, &before, new, &options, Some(entries)).await? {
            let scale = scale_from_object(call, &outcome.value(&call.resource));
            return Ok(Response::json(200, &scale));
        }
    }
    Err(Status::modified(call.resource.group_resource(), name))
}

/// The request as one for a `Scale`.
fn scale_call<'c>(call: &Call<'c>) -> Call<'c> {
    let resource = Resource {
        group: "autoscaling".to_owned(),
        version: "v1".to_owned(),
        plural: "scales".to_owned(),
        singular: "scale".to_owned(),
        kind: "Scale".to_owned(),
        list_kind: "ScaleList".to_owned(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: call.resource.namespaced,
        verbs: Vec::new(),
        subresources: Vec::new(),
        store_key: call.resource.store_key.clone(),
        storage_api_version: SCALE_VERSION.to_owned(),
        type_name: "autoscaling.v1.Scale".to_owned(),
        custom: None,
    };
    Call {
        cluster: call.cluster,
        request: call.request,
        resource: Arc::new(resource),
        namespace: call.namespace.clone(),
        name: call.name.clone(),
        subresource: call.subresource.clone(),
        warnings: Arc::clone(&call.warnings),
    }
}

/// Decodes the request.
fn read_write(
    call: &Call<'_>,
    scale_call: &Call<'_>,
    is_patch: bool,
) -> Result<(Write, WriteOptions), Status> {
    if is_patch {
        let (patch_type, options) = patch::options(call)?;
        let write = if patch_type == PatchType::Apply { Write::Apply } else { Write::Patch(patch_type) };
        return Ok((write, options));
    }
    scale_call.output_format(false)?;
    let options = scale_call.request.write_options("UpdateOptions")?;
    let mut scale = read_object(scale_call, &options).map_err(|rejection| {
        if call.resource.custom.is_some() && rejection.code == 400 {
            // kube-apiserver fails to describe the error.
            let why = "no kind is registered for the type v1.Scale in scheme \"pkg/runtime/scheme.go:111\"";
            return Status::bad_request(why);
        }
        rejection
    })?;
    check_name(&scale, scale_call.name.as_deref().unwrap_or_default())?;
    body::check_namespace_matches(scale_call, &mut scale)?;
    Ok((Write::Object(scale), options))
}

/// The scale after the write, and its managed fields.
async fn written(
    scale_call: &Call<'_>,
    write: &Write,
    before: &Value,
    options: &WriteOptions,
    is_custom: bool,
) -> Result<(Value, Vec<ManagedFieldsEntry>), Status> {
    let mut scale = match write {
        Write::Object(scale) => scale.clone(),
        Write::Patch(patch_type) => patched(scale_call, *patch_type, before, options)?,
        Write::Apply => {
            let config = Configuration::read(scale_call, options).await?;
            if is_custom && before["metadata"].get("managedFields").is_none() {
                return Err(Status::internal(format!(
                    "failed to create manager for existing fields: failed to convert live object (/; {SCALE_VERSION}, Kind=Scale) to \
                     proper version: {UNCONVERTED}"
                )));
            }
            let (scale, entries) = config.apply_to(scale_call, before, options).await?;
            if is_custom && scale != *before {
                return Err(config.unconverted(UNCONVERTED));
            }
            return Ok((scale, entries));
        }
    };
    omit_zero(&mut scale);
    let known = before.get("metadata").and_then(Value::as_object).map(managed_fields::read);
    let known = known.unwrap_or_default();
    // Without a manager, the number of replicas has none until the first apply.
    if known.is_empty() {
        return Ok((scale, known));
    }
    let changes = [(SCALE_VERSION.to_owned(), changes(scale_call, before, &scale))].into();
    let entry = manager_entry(scale_call, options, false, Set::new());
    let entries = managed_fields::update(known, &changes, entry);
    Ok((scale, entries))
}

/// Removes a number of zero, as `Scale` does: it has no manager.
fn omit_zero(scale: &mut Value) {
    if let Some(spec) = scale.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|key, value| key != "replicas" || *value != 0);
    }
}

fn replicas_paths(call: &Call<'_>) -> ReplicasPaths {
    match &call.resource.custom {
        None => [(call.resource.api_version(), Some(scale_fields::path_of(".spec.replicas")))].into(),
        Some(custom) => custom
            .replicas_paths
            .iter()
            .map(|(version, path)| (version.clone(), path.as_deref().map(scale_fields::path_of)))
            .collect(),
    }
}

fn check_replicas(call: &Call<'_>, before: &Value, replicas: i64) -> Result<(), Status> {
    if let Some(paths) = call.resource.custom.as_ref().and_then(|custom| custom.scale.as_ref()) {
        // The number of a custom resource is validated as a part of it.
        if replicas == MISSING {
            let why = format!("the spec replicas field \"{}\" cannot be empty", paths.spec);
            return Err(Status::bad_request(why));
        }
    } else if replicas < 0 {
        let cause = Cause::invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0");
        let name = text(before, "/metadata/name");
        return Err(Status::invalid("autoscaling", "Scale", name, &[cause]));
    }
    Ok(())
}

/// Checks `metadata.uid` of the scale. Patches of custom objects ignore it.
fn check_scale_uid(call: &Call<'_>, scale: &Value, stored: &str, is_patch: bool) -> Result<(), Status> {
    let given = text(scale, "/metadata/uid");
    if given == stored || (is_patch && call.resource.custom.is_some()) {
        return Ok(());
    }
    if !is_patch {
        return check_uid(call, scale, stored).map_err(|mut conflict| {
            conflict.message = conflict.message.replace("/registry/", "/");
            conflict
        });
    }
    let resource = format!("{}/scale", call.resource.plural);
    let resource = GroupResource { group: &call.resource.group, resource: &resource };
    let why = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {stored}");
    Err(Status::conflict(resource, call.name.as_deref().unwrap_or_default(), &why))
}
