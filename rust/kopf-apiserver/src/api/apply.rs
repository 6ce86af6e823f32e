//! Server-side apply: decodes the configuration, merges it, and creates or updates the object.

use serde_json::{Value, json};

use super::body;
use super::change::{
    check_name, check_version, initial_managed_fields, manager_entry, reset_field, update_object,
};
use super::write::{ATTEMPTS, create_object, drop_version};
use super::{Call, versions};
use crate::apply::field_set::{self, Comparison, Set};
use crate::apply::last_applied;
use crate::apply::managed_fields::{self, ManagedFieldsEntry};
use crate::apply::merge;
use crate::apply::typed;
use crate::authz;
use crate::base::json::{json_complaint, text};
use crate::base::options::FieldValidation;
use crate::base::yaml::{self, DuplicateKey};
use crate::error::status::Status;
use crate::http::render::object_value;
use crate::http::request::WriteOptions;
use crate::http::response::Response;
use crate::registry::prepare::{self, FieldWarnings};
use crate::schema::{Schema, decode, validate};

/// An applied configuration.
pub(super) struct Configuration {
    /// As the client has sent it.
    given: Value,
    /// The object that it creates.
    typed: Value,
    /// Without unknown fields and nulls.
    known: Value,
    /// The part that this endpoint may write.
    writable: Value,
    duplicate_keys: Vec<DuplicateKey>,
}

impl Configuration {
    /// Decodes and checks the configuration of the request.
    pub(super) async fn read(call: &Call<'_>, options: &WriteOptions) -> Result<Self, Status> {
        let name = call.name.as_deref().unwrap_or_default();
        let (mut known, duplicate_keys) = read_config(call)?;
        let given = known.clone();
        // The name may be absent if the object exists.
        if known.pointer("/metadata/name").is_some() {
            check_name(&known, name)?;
        }
        check_live(call, name).await?;
        let given_namespace = text(&known, "/metadata/namespace").to_owned();
        body::check_namespace_matches(call, &mut known)?;
        if known.pointer("/metadata/managedFields").is_some() {
            return Err(Status::bad_request("metadata.managedFields must be nil"));
        }
        let mut warnings = FieldWarnings::default();
        let schema = call.resource.managed_schema();
        let typed = body::decode_object(call, known.clone(), &mut warnings).map_err(|rejection| {
            let type_error = typed::first_error(&known, &schema);
            type_error.map_or(rejection, |why| untyped(call, &known, &given_namespace, &why))
        })?;
        check_schema(call, &known, &schema, &warnings, &given_namespace)?;
        for line in warnings.apply_field_validation(options.field_validation, &call.resource)? {
            call.warnings.add(&line);
        }
        drop_unknown_fields(call, &mut known, &typed);
        let mut writable = known.clone();
        retain_writable(call, &mut writable);
        Ok(Self { given, typed, known, writable, duplicate_keys })
    }

    /// The error about a configuration with changes that cannot be converted to the version of the managed fields.
    pub(super) fn unconverted(&self, why: &str) -> Status {
        let given = |path: &str| text(&self.given, path);
        Status::internal(format!(
            "failed to convert new object ({}/{}; {}, Kind={}) to proper version: {why}",
            given("/metadata/namespace"),
            given("/metadata/name"),
            given("/apiVersion"),
            given("/kind")
        ))
    }

    /// Reports the duplicate keys of the configuration by their lines, as the decoder for YAML does.
    fn report_duplicate_keys(&self, call: &Call<'_>, options: &WriteOptions) -> Result<(), Status> {
        if self.duplicate_keys.is_empty() {
            return Ok(());
        }
        let lines = self.duplicate_keys.iter().map(ToString::to_string);
        match options.field_validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => lines.for_each(|line| call.warnings.add(&line)),
            FieldValidation::Strict => {
                let lines: Vec<String> = lines.map(|line| format!("\n  {line}")).collect();
                return Err(Status::bad_request(format!(
                    "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:{}",
                    lines.concat()
                )));
            }
        }
        Ok(())
    }

    /// The entry of the manager.
    fn entry(&self, call: &Call<'_>, options: &WriteOptions) -> ManagedFieldsEntry {
        let mut set = Set::new();
        let schema = call.resource.managed_schema();
        field_set::collect_fields(&self.writable, &schema, &mut Vec::new(), &mut set);
        field_set::strip_unmanaged(&mut set, reset_field(call));
        manager_entry(call, options, true, set)
    }

    /// The object with the configuration applied, and its managed fields.
    ///
    /// # Errors
    /// 409: other managers have fields of the configuration with other values.
    pub(super) async fn apply_to(
        &self,
        call: &Call<'_>,
        before: &Value,
        options: &WriteOptions,
    ) -> Result<(Value, Vec<ManagedFieldsEntry>), Status> {
        let schema = call.resource.managed_schema();
        let entry = self.entry(call, options);
        let known_entries = entries_of(call, before, options);
        let object = merged(call, before, &self.writable, &known_entries, &entry).await?;
        let mut own = Comparison::default();
        field_set::compare(Some(before), Some(&object), &schema, &mut Vec::new(), &mut own);
        let changes = versions::changes(call, own, (before, &object), &known_entries).await?;
        let mut applied = managed_fields::apply(known_entries.clone(), &changes, entry);
        let conflicts = std::mem::take(&mut applied.conflicts);
        let conflicts = last_applied::remaining_conflicts(conflicts, &options.field_manager, before, &schema);
        if !options.force && !conflicts.is_empty() {
            return Err(Status::apply_conflict(&conflicts));
        }
        // Atomic lists count as changed if the configuration omits their defaults.
        let is_same_before_defaults = is_unchanged(&object, before);
        let mut object = if is_same_before_defaults {
            before.clone()
        } else {
            reject_emptied(call, &object)?;
            prepare::decode_object(&call.resource, object, None, &mut FieldWarnings::default())
                .map_err(|why| Status::invalid_patch(&self.known, &why))?
        };
        // An apply that changes no field keeps the time of the entry; a new entry has none. Nor do times alone change the object.
        if is_same_before_defaults
            || (is_unchanged(&object, before)
                && managed_fields::are_the_same_but_for_times(&applied.entries, &known_entries))
        {
            managed_fields::keep_times(&mut applied.entries, &known_entries);
        }
        last_applied::update_annotation(&mut object, &self.given, &options.field_manager);
        self.report_duplicate_keys(call, options)?;
        Ok((object, applied.entries))
    }
}

/// Handles an apply patch.
pub(super) async fn apply(call: &Call<'_>, options: &WriteOptions) -> Result<Response, Status> {
    let name = call.name.as_deref().unwrap_or_default();
    let config = Configuration::read(call, options).await?;
    for _ in 0..ATTEMPTS {
        let Some(old) = call.stored(name).await? else {
            check_name(&config.known, name)?;
            config.report_duplicate_keys(call, options)?;
            let mut created = config.typed.clone();
            last_applied::update_annotation(&mut created, &config.given, &options.field_manager);
            match create(call, created, options, config.entry(call, options)).await {
                // Another request has created it.
                Err(status) if status.reason == "AlreadyExists" && call.exists(name) => continue,
                response => return response,
            }
        };
        if !text(&config.known, "/metadata/resourceVersion").is_empty() {
            check_version(call, &config.known, &old)?;
        }
        let before = object_value(&old, &call.resource);
        let (object, entries) = config.apply_to(call, &before, options).await?;
        if let Some(outcome) = update_object(call, &old, &before, object, options, Some(entries)).await? {
            return outcome.response(200, call.request, &call.resource);
        }
    }
    Err(Status::modified(call.resource.group_resource(), name))
}

/// Drops the fields of the configuration that the decoded object lacks, and its nulls.
fn drop_unknown_fields(call: &Call<'_>, config: &mut Value, typed: &Value) {
    // Secrets are stored without `stringData`, but its fields have owners.
    let plain = config.get("stringData").cloned().filter(|_| call.resource.is("", "secrets"));
    drop_unknown(config, typed);
    if let (Some(plain), Some(map)) = (plain, config.as_object_mut()) {
        map.insert("stringData".into(), plain);
    }
    merge::drop_nulls(config, &call.resource.managed_schema());
}

/// The entries of the stored object. If it has none, its fields belong to the client that has written it before the first apply.
fn entries_of(call: &Call<'_>, stored: &Value, options: &WriteOptions) -> Vec<ManagedFieldsEntry> {
    let mut entries =
        stored.get("metadata").and_then(Value::as_object).map(managed_fields::read).unwrap_or_default();
    if entries.is_empty() {
        entries.extend(before_first_apply_entry(call, stored, options));
    }
    entries
}

/// The object with the configuration merged into it, without the fields that the manager applies no longer.
async fn merged(
    call: &Call<'_>,
    before: &Value,
    config: &Value,
    entries: &[ManagedFieldsEntry],
    applied: &ManagedFieldsEntry,
) -> Result<Value, Status> {
    let mut object = before.clone();
    merge::merge(&mut object, config, &call.resource.managed_schema());
    let (last, others): (Vec<_>, Vec<_>) =
        entries.iter().cloned().partition(|entry| entry.has_same_manager(applied));
    let entries: Vec<_> = others.into_iter().chain([applied.clone()]).collect();
    match last.first() {
        Some(last) => versions::prune(call, object, last, &entries).await,
        None => Ok(object),
    }
}

/// Rejects maps and lists of a custom object that have lost their last field and have an owner: they are null, and only nullable
/// fields may be.
fn reject_emptied(call: &Call<'_>, object: &Value) -> Result<(), Status> {
    if call.resource.custom.is_none() {
        return Ok(());
    }
    let mut causes = Vec::new();
    validate::check_nulls(object, &call.resource.schema(), "", &mut causes);
    prepare::reject_invalid(&call.resource, object, &causes)
}

/// Creates an object that is applied for the first time.
async fn create(
    call: &Call<'_>,
    mut object: Value,
    options: &WriteOptions,
    entry: ManagedFieldsEntry,
) -> Result<Response, Status> {
    let name = call.name.as_deref().unwrap_or_default();
    if call.subresource.is_some() {
        return Err(Status::not_found(call.resource.group_resource(), name));
    }
    let uid = text(&object, "/metadata/uid");
    if !uid.is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(Status::conflict(call.resource.group_resource(), name, &why));
    }
    drop_version(&mut object);
    // An apply that creates needs the permission to create, too.
    authz::check(call.cluster, &call.request.user, &call.authorizer_attributes("create"))?;
    let outcome = create_object(call, object, options, Some(entry)).await?;
    outcome.response(201, call.request, &call.resource)
}

/// Rejects applies to a custom resource whose items cannot be merged. Such a resource has no managed fields.
async fn check_live(call: &Call<'_>, name: &str) -> Result<(), Status> {
    if !call.resource.custom.as_ref().is_some_and(|custom| custom.has_sets_of_objects) {
        return Ok(());
    }
    let Some(live) = call.stored(name).await? else { return Ok(()) };
    let live = object_value(&live, &call.resource);
    let Some(why) = typed::unmergeable_item(&live, &call.resource.managed_schema()) else { return Ok(()) };
    Err(Status::internal(format!(
        "failed to create manager for existing fields: failed to convert new object ({}/{name}; {}, Kind={}) to smd typed: {why}",
        call.namespace,
        call.resource.api_version(),
        call.resource.kind
    )))
}

/// Rejects fields that a built-in type does not have, and duplicate items of associative lists.
fn check_schema(
    call: &Call<'_>,
    config: &Value,
    schema: &Schema,
    warnings: &FieldWarnings,
    namespace: &str,
) -> Result<(), Status> {
    let type_error = if call.resource.custom.is_some() {
        typed::error(config, schema)
    } else {
        let first = warnings.unknown.iter().min_by_key(|field| field.matches(['.', '[']).count());
        first.map(|field| format!(".{field}: field not declared in schema"))
    };
    let type_error = type_error.or_else(|| field_set::first_duplicate_item(config, schema, &mut Vec::new()));
    match type_error {
        Some(why) => Err(untyped(call, config, namespace, &why)),
        None => Ok(()),
    }
}

/// The error about a configuration that does not fit the schema.
fn untyped(call: &Call<'_>, config: &Value, namespace: &str, why: &str) -> Status {
    let (group, version) = crate::base::names::split_api_version(text(config, "/apiVersion"));
    Status::internal(format!(
        "failed to create typed patch object ({namespace}/{}; {}{version}, Kind={}): {why}",
        text(config, "/metadata/name"),
        if group.is_empty() { "/".to_owned() } else { format!("{group}/") },
        call.resource.kind
    ))
}

/// Entry of the manager `before-first-apply`, which gets all fields of an object without managed fields.
fn before_first_apply_entry(
    call: &Call<'_>,
    live: &Value,
    options: &WriteOptions,
) -> Option<ManagedFieldsEntry> {
    let baseline =
        if call.resource.custom.is_some() { json!({}) } else { decode::zero_value(&call.resource.schema()) };
    let entry = initial_managed_fields(call, &baseline, live, options).pop()?;
    let manager = "before-first-apply".to_owned();
    // The status has the manager of the object.
    let subresource = call.subresource.clone().filter(|name| name == "scale").unwrap_or_default();
    Some(ManagedFieldsEntry { manager, subresource, ..entry })
}

fn is_unchanged(a: &Value, b: &Value) -> bool {
    let without_system_fields = |v: &Value| {
        let mut v = v.clone();
        if let Some(meta) = v.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.shift_remove("managedFields");
            meta.shift_remove("resourceVersion");
        }
        v
    };
    without_system_fields(a) == without_system_fields(b)
}

/// Decodes the configuration. Returns it with its duplicate keys.
fn read_config(call: &Call<'_>) -> Result<(Value, Vec<DuplicateKey>), Status> {
    let bytes = &call.request.body;
    let (mut config, duplicates) = crate::base::json::parse_json(bytes)
        .map_err(|e| Status::bad_request(format!("error decoding YAML: {}", json_complaint(bytes, &e))))?;
    if !config.is_object() {
        return Err(Status::bad_request(
            "error decoding YAML: json: cannot unmarshal into Go value of type map",
        ));
    }
    let (kind, api_version) = (text(&config, "/kind"), text(&config, "/apiVersion"));
    if kind != call.resource.kind || api_version != call.resource.api_version() {
        let (group, version) = crate::base::names::split_api_version(api_version);
        return Err(Status::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")));
    }
    if let Value::Object(map) = &mut config {
        map.entry("metadata").or_insert_with(|| json!({}));
    }
    let keys = if duplicates.is_empty() {
        call.request.duplicate_keys.clone()
    } else {
        yaml::duplicate_keys(&String::from_utf8_lossy(bytes))
    };
    Ok((config, keys))
}

/// Removes fields from the configuration that the schema does not declare.
fn drop_unknown(config: &mut Value, typed: &Value) {
    if let (Value::Object(map), Value::Object(known)) = (config, typed) {
        map.retain(|key, value| known.contains_key(key) || is_blank(value));
        for (key, value) in map.iter_mut() {
            if let Some(below) = known.get(key) {
                drop_unknown(value, below);
            }
        }
    }
}

fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(s) => s.is_empty(),
        Value::Array(l) => l.is_empty(),
        Value::Object(m) => m.is_empty(),
        _ => false,
    }
}

/// Keeps the part of the configuration that this endpoint may write.
fn retain_writable(call: &Call<'_>, config: &mut Value) {
    let Some(map) = config.as_object_mut() else { return };
    if call.is_status_subresource() {
        map.retain(|k, _| matches!(k.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
    } else if call.resource.subresource("status").is_some() && call.subresource.is_none() {
        map.shift_remove("status");
    }
}
