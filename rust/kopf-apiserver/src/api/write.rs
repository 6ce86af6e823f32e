//! Create and update, and the subresources `finalize` and `binding`.

use serde_json::{Value, json};

use super::Call;
use super::body;
use super::change::{
    check_name, check_size, check_uid, check_version, initial_managed_fields, update_object,
};
use super::mutation::restore_managed_fields;
use crate::admission::{self, Operation};
use crate::apply::managed_fields::{self, ManagedFieldsEntry};
use crate::base::json::{at, text};
use crate::base::{names, random};
use crate::error::status::{Cause, Status};
use crate::http::render;
use crate::http::render::{WriteResult, object_value};
use crate::http::request::WriteOptions;
use crate::http::response::Response;
use crate::registry::deletion;
use crate::registry::prepare::{self, FieldWarnings};
use crate::schema::{self, decode, formats};
use crate::storage::store::StoreError;
use crate::webhook::conversion;

/// Maximum number of attempts of a write after conflicts.
pub(super) const ATTEMPTS: usize = 20;

pub(crate) async fn create(call: &Call<'_>) -> Result<Response, Status> {
    call.output_format(false)?;
    let options = call.request.write_options("CreateOptions")?;
    let mut value = read_object(call, &options)?;
    body::check_namespace_matches(call, &mut value)?;
    let has_version = !text(&value, "/metadata/resourceVersion").is_empty();
    let outcome = create_object(call, value, &options, None).await?;
    if has_version && !options.dry_run {
        return Err(Status::internal("resourceVersion should not be set on objects to be created"));
    }
    outcome.response(201, call.request, &call.resource)
}

/// Decodes the object of the body. Reports its unknown and duplicate fields.
pub(super) fn read_object(call: &Call<'_>, options: &WriteOptions) -> Result<Value, Status> {
    let (mut value, duplicates) = body::read(call)?;
    body::check_type(call, &mut value)?;
    let duplicate_keys = call.request.duplicate_keys.clone();
    let mut warnings = FieldWarnings { duplicates, duplicate_keys, ..FieldWarnings::default() };
    let value = body::decode_object(call, value, &mut warnings)?;
    for line in warnings.apply_field_validation(options.field_validation, &call.resource)? {
        call.warnings.add(&line);
    }
    Ok(value)
}

/// Removes the version of an object that an update or an apply creates.
pub(super) fn drop_version(value: &mut Value) {
    if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.shift_remove("resourceVersion");
    }
}

/// Creates an object. `applied` is the entry of a server-side apply.
pub(super) async fn create_object(
    call: &Call<'_>,
    mut value: Value,
    options: &WriteOptions,
    applied: Option<ManagedFieldsEntry>,
) -> Result<WriteResult, Status> {
    let has_version = !text(&value, "/metadata/resourceVersion").is_empty();
    clear_system_fields(&mut value);
    check_namespace_active(call, &value)?;
    check_crd_active(call, &value)?;
    let given_name = text(&value, "/metadata/name").to_owned();
    let entries = if let Some(entry) = applied {
        vec![entry]
    } else {
        let baseline = if call.resource.custom.is_some() {
            json!({})
        } else {
            decode::zero_value(&call.resource.schema())
        };
        initial_managed_fields(call, &add_nulls(baseline, &value), &value, options)
    };
    if let Some(map) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        managed_fields::write(map, entries);
    }
    let has_webhooks = admission::has_mutating_webhooks(call.cluster);
    let mut value = if has_webhooks { mutate(call, value, options).await? } else { value };
    before_create(call, &mut value);
    admission::pods::admit(&call.cluster.store, &call.resource, &mut value)?;
    crate::registry::defaults::assign(&call.cluster.store, &call.resource, &mut value, None);
    let validated = prepare::validate_object(&call.resource, &value, None, &call.cluster.tasks).await?;
    prepare::reject_invalid(&call.resource, &value, &validated.causes)?;
    admission::pods::validate(&call.cluster.store, &call.resource, &value)?;
    call.add_warnings(&value, None);
    // The name of the request is the given or the generated one, also if a webhook changes that of the object.
    let name = if given_name.is_empty() { text(&value, "/metadata/name") } else { &given_name };
    let attributes = call.admission_attributes(Operation::Create, name, options);
    admission::validate(&attributes, Some(&value), None).await?;
    if call.resource.custom.is_some() {
        if has_webhooks {
            value = prepare::coerce_custom_object(&call.resource, value);
        }
        // kube-apiserver sets the defaults of the status when it reads the object from its storage.
        schema::fill_defaults(&mut value, &call.resource.schema());
    }
    check_size(&value, call.request.body.len())?;
    if options.dry_run || has_version {
        let name = text(&value, "/metadata/name");
        if call.cluster.get(&call.resource, &call.namespace, name).is_some() && !has_version {
            return Err(Status::already_exists(call.resource.group_resource(), name));
        }
        return Ok(WriteResult::Unstored(conversion::round_trip(&call.resource, value).await?));
    }
    let name = text(&value, "/metadata/name").to_owned();
    let is_generated = !text(&value, "/metadata/generateName").is_empty();
    let value = conversion::to_storage(&call.resource, value).await?;
    match call.cluster.insert(&call.resource, value) {
        Ok(stored) => Ok(WriteResult::Stored(call.in_version(stored).await?)),
        // The CRD was deleted during the request.
        Err(StoreError::NotFound) => Err(Status::no_such_resource()),
        Err(_) => {
            let mut status = Status::already_exists(call.resource.group_resource(), &name);
            if is_generated {
                status.message.push_str(", the server was not able to generate a unique name for the object");
            }
            Err(status)
        }
    }
}

/// Adds the nulls of the object to the baseline, so that they are not managed.
fn add_nulls(mut baseline: Value, value: &Value) -> Value {
    if let (Value::Object(baseline), Value::Object(map)) = (&mut baseline, value) {
        for (key, _) in map.iter().filter(|(_, v)| v.is_null()) {
            baseline.entry(key.clone()).or_insert(Value::Null);
        }
    }
    baseline
}

/// Calls mutating webhooks. They get the object before it has a generated name and system fields.
async fn mutate(call: &Call<'_>, mut value: Value, options: &WriteOptions) -> Result<Value, Status> {
    admission::pods::admit(&call.cluster.store, &call.resource, &mut value)?;
    crate::registry::defaults::before_admission(&call.resource, &mut value);
    let name = text(&value, "/metadata/name").to_owned();
    let attributes = call.admission_attributes(Operation::Create, &name, options);
    let managed = value.pointer("/metadata/managedFields").cloned();
    let mut mutated = admission::mutate(&attributes, value, None).await?;
    restore_managed_fields(call, managed, &mut mutated);
    body::check_namespace_matches(call, &mut mutated)?;
    Ok(mutated)
}

/// Removes the fields that only the server sets.
fn clear_system_fields(value: &mut Value) {
    let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "managedFields",
        "resourceVersion",
    ] {
        meta.shift_remove(key);
    }
}

/// Sets the system fields of a new object.
fn before_create(call: &Call<'_>, value: &mut Value) {
    let has_status = call.resource.subresource("status").is_some();
    let Some(map) = value.as_object_mut() else { return };
    if has_status {
        if call.resource.custom.is_some() {
            map.shift_remove("status");
        } else {
            crate::registry::defaults::initial_status(&call.resource, map);
        }
    }
    let Some(meta) = map.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let prefix = meta.get("generateName").and_then(Value::as_str).unwrap_or_default().to_owned();
    let unnamed = meta.get("name").and_then(Value::as_str).is_none_or(str::is_empty);
    if unnamed && !prefix.is_empty() {
        let prefix_kept: String = prefix.chars().take(58).collect();
        meta.insert("name".into(), format!("{prefix_kept}{}", random::name_suffix()).into());
    }
    for key in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        meta.shift_remove(key);
    }
    meta.insert("uid".into(), random::uid().into());
    meta.insert("creationTimestamp".into(), formats::now().into());
    if call.resource.tracks_generation() {
        meta.insert("generation".into(), 1.into());
    }
}

/// Checks that the namespace exists and is not terminating.
fn check_namespace_active(call: &Call<'_>, value: &Value) -> Result<(), Status> {
    if !call.resource.namespaced {
        return Ok(());
    }
    if call.cluster.store.get("namespaces", "", &call.namespace).is_some_and(|ns| !ns.is_deleting) {
        return Ok(());
    }
    let namespaces = call.cluster.builtin("", "namespaces");
    if let (None, Some(namespaces)) = (call.cluster.store.get("namespaces", "", &call.namespace), &namespaces)
    {
        return Err(Status::not_found(namespaces.group_resource(), &call.namespace));
    }
    if call.cluster.is_terminating(&call.namespace) {
        let namespace = &call.namespace;
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let cause = Cause {
            field: "metadata.namespace".into(),
            reason: "NamespaceTerminating",
            message: format!("namespace {namespace} is being terminated"),
        };
        return Err(Status::forbidden(
            call.resource.group_resource(),
            text(value, "/metadata/name"),
            &why,
            &[cause],
        ));
    }
    Ok(())
}

/// Checks that the CRD of a custom resource is not being deleted.
fn check_crd_active(call: &Call<'_>, value: &Value) -> Result<(), Status> {
    let Some(custom) = &call.resource.custom else { return Ok(()) };
    let crd = call.cluster.store.get("apiextensions.k8s.io/customresourcedefinitions", "", &custom.crd);
    if !crd.is_some_and(|crd| crd.is_deleting) {
        return Ok(());
    }
    let why = "create not allowed while custom resource definition is terminating";
    Err(Status::forbidden(call.resource.group_resource(), text(value, "/metadata/name"), why, &[]))
}

pub(crate) async fn update(call: &Call<'_>) -> Result<Response, Status> {
    call.output_format(false)?;
    let options = call.request.write_options("UpdateOptions")?;
    let name = call.name.as_deref().unwrap_or_default();
    let mut value = read_object(call, &options)?;
    check_name(&value, name)?;
    body::check_namespace_matches(call, &mut value)?;
    for _ in 0..ATTEMPTS {
        let Some(old) = call.stored(name).await? else {
            if allows_create_on_update(call) {
                check_uid(call, &value, "")?;
                let mut created = value.clone();
                drop_version(&mut created);
                match create_object(call, created, &options, None).await {
                    // Another request has created it.
                    Err(status) if status.reason == "AlreadyExists" && call.exists(name) => continue,
                    outcome => return outcome?.response(201, call.request, &call.resource),
                }
            }
            return Err(Status::not_found(call.resource.group_resource(), name));
        };
        let has_version = check_version(call, &value, &old)?;
        check_uid(call, &value, &old.uid)?;
        let before = object_value(&old, &call.resource);
        // A precondition leaves a single attempt.
        let new = if has_version { std::mem::take(&mut value) } else { value.clone() };
        match update_object(call, &old, &before, new, &options, None).await? {
            Some(outcome) => {
                return outcome.response(200, call.request, &call.resource);
            }
            None if has_version && !call.exists(name) => {
                return Err(Status::not_found(call.resource.group_resource(), name));
            }
            None if has_version => break,
            None => {}
        }
    }
    Err(Status::modified(call.resource.group_resource(), name))
}

/// Whether an update creates an object that does not exist (`AllowCreateOnUpdate`).
fn allows_create_on_update(call: &Call<'_>) -> bool {
    call.subresource.is_none()
        && matches!(
            (call.resource.group.as_str(), call.resource.plural.as_str()),
            ("coordination.k8s.io", "leases")
                | ("rbac.authorization.k8s.io", _)
                | ("", "endpoints" | "events" | "limitranges")
        )
}

/// Removes finalizers from the spec of a namespace.
pub(crate) fn finalize(call: &Call<'_>) -> Result<Response, Status> {
    let options = call.request.write_options("UpdateOptions")?;
    let name = call.name.as_deref().unwrap_or_default();
    let (value, _) = body::read(call)?;
    for _ in 0..ATTEMPTS {
        let old = call
            .cluster
            .get(&call.resource, "", name)
            .ok_or_else(|| Status::not_found(call.resource.group_resource(), name))?;
        check_version(call, &value, &old)?;
        check_uid(call, &value, &old.uid)?;
        let mut new = old.value();
        set_finalizers(&mut new, &value);
        if options.dry_run {
            return render::value(200, call.request, &call.resource, &new);
        }
        let is_deleting = new.pointer("/metadata/deletionTimestamp").is_some();
        if is_deleting && !deletion::is_held(&call.resource, &new) {
            if call.cluster.remove(&call.resource, &old, old.value()).is_ok() {
                return render::value(200, call.request, &call.resource, &new);
            }
        } else if let Ok(stored) = call.cluster.replace(&call.resource, &old, new) {
            return render::object(200, call.request, &call.resource, &stored);
        }
    }
    Err(Status::modified(call.resource.group_resource(), name))
}

/// Sets the finalizers in the spec of a namespace to those of another state.
fn set_finalizers(namespace: &mut Value, given: &Value) {
    let Some(spec) = namespace.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let finalizers = at(given, "/spec/finalizers").filter(|it| it.as_array().is_some_and(|l| !l.is_empty()));
    match finalizers {
        Some(finalizers) => spec.insert("finalizers".into(), finalizers.clone()),
        None => spec.shift_remove("finalizers"),
    };
}

/// Admission of an object that is created at a subresource, such as an `Eviction`. It is checked before validating webhooks are called.
pub(super) async fn admit_subresource(
    call: &Call<'_>,
    mut value: Value,
    options: &WriteOptions,
    check: impl FnOnce(&Value) -> Result<(), Status>,
) -> Result<Value, Status> {
    clear_system_fields(&mut value);
    body::check_namespace_matches(call, &mut value)?;
    let kind = call.subresource.as_deref().and_then(|name| call.resource.subresource(name)?.kind.as_ref());
    if let (Some((group, version, kind)), Some(map)) = (kind, value.as_object_mut()) {
        map.entry("kind").or_insert_with(|| kind.clone().into());
        map.entry("apiVersion").or_insert_with(|| names::api_version(group, version).into());
    }
    let name = call.name.as_deref().unwrap_or_default();
    let attributes = call.admission_attributes(Operation::Create, name, options);
    let value = admission::mutate(&attributes, value, None).await?;
    check(&value)?;
    admission::validate(&attributes, Some(&value), None).await?;
    Ok(value)
}

/// The response to an object that is created at a subresource.
pub(super) fn created() -> Response {
    Response::json(
        201,
        &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
    )
}
