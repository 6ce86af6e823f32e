//! Update of a stored object: preconditions, reset fields, managed fields, admission, validation, and the write.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Call, mutation, versions};
use crate::admission::{self, Operation};
use crate::apply::field_set::{self, Comparison, Set};
use crate::apply::managed_fields::{self, ManagedFieldsEntry};
use crate::apply::typed;
use crate::base::json::{at, text};
use crate::cluster::OBJECT_LIMIT;
use crate::error::status::{Cause, Status};
use crate::http::render::WriteResult;
use crate::http::request::WriteOptions;
use crate::registry::{deletion, meta, prepare};
use crate::schema::{Schema, formats};
use crate::scheme::resources::Resource;
use crate::storage::encoding;
use crate::storage::object::Stored;
use crate::webhook::conversion;

/// Updates an object. `None` means a write conflict: another request has updated or removed it. `entries` are the managed fields, if
/// they are known already.
pub(super) async fn update_object(
    call: &Call<'_>,
    old: &Arc<Stored>,
    before: &Value,
    mut new: Value,
    options: &WriteOptions,
    entries: Option<Vec<ManagedFieldsEntry>>,
) -> Result<Option<WriteResult>, Status> {
    // Mutating webhooks get the fields that are restored as the client has sent them.
    let is_mutable = admission::has_mutating_webhooks(call.cluster);
    let given = is_mutable.then(|| new.clone());
    restore_reset_fields(call, before, &mut new);
    let nothing = Map::new();
    let old_meta = before.get("metadata").and_then(Value::as_object).unwrap_or(&nothing);
    // Without managed fields, an object gets none until the first apply.
    let reset = at(&new, "/metadata/managedFields").and_then(Value::as_array).is_some_and(Vec::is_empty);
    let mut causes = match new.get_mut("metadata").and_then(Value::as_object_mut) {
        Some(meta) => meta::preserve_system_fields(meta, old_meta),
        None => Vec::new(),
    };
    let entries = match entries {
        Some(entries) => Some(entries),
        None if reset || !old_meta.contains_key("managedFields") => Some(Vec::new()),
        None => updated_managed_fields(call, before, old_meta, &mut new, options).await,
    };
    if let Some(meta) = new.get_mut("metadata").and_then(Value::as_object_mut) {
        if let Some(entries) = entries {
            managed_fields::write(meta, entries);
        }
        meta.insert("resourceVersion".into(), old.version.to_string().into());
    }
    if let Some(given) = given
        && let Some(mutated) = mutation::mutate(call, &new, given, before, options).await?
    {
        new = mutated;
        causes = restore_after_mutation(call, old, before, &mut new);
    }
    crate::registry::defaults::assign(&call.cluster.store, &call.resource, &mut new, Some(before));
    // Admission and the server's own values count as well: an object that they restore is unchanged.
    update_generation(call, before, &mut new);
    let mut validated =
        prepare::validate_object(&call.resource, &new, Some(before), &call.cluster.tasks).await?;
    validated.warnings.iter().for_each(|warning| call.warnings.add(warning));
    if call.resource.custom.is_some() && call.is_status_subresource() {
        name_status_fields(&mut validated.causes);
    }
    causes.extend(validated.causes);
    prepare::reject_invalid(&call.resource, &new, &causes)?;
    call.add_warnings(&new, Some(before));
    let attributes = call.admission_attributes(Operation::Update, &old.name, options);
    match mutation::shown(call, &new, before) {
        Some((new, old)) => admission::validate(&attributes, Some(&new), Some(&old)).await?,
        None => admission::validate(&attributes, Some(&new), Some(before)).await?,
    }
    if is_mutable && call.resource.custom.is_some() {
        new = prepare::coerce_custom_object(&call.resource, new);
    }
    check_size(&new, old.json.len() + call.request.body.len())?;
    if is_mutable && mutation::is_reverted(&new, before) {
        return Ok(Some(WriteResult::Unstored(before.clone())));
    }
    if new == *before {
        return Ok(Some(WriteResult::Unstored(new)));
    }
    if options.dry_run {
        return Ok(Some(WriteResult::Unstored(conversion::round_trip(&call.resource, new).await?)));
    }
    store(call, old, new).await
}

/// Restores the fields that webhooks must not change. Returns field errors for immutable fields.
fn restore_after_mutation(call: &Call<'_>, old: &Stored, before: &Value, new: &mut Value) -> Vec<Cause> {
    restore_reset_fields(call, before, new);
    let nothing = Map::new();
    let old_meta = before.get("metadata").and_then(Value::as_object).unwrap_or(&nothing);
    let Some(meta) = new.get_mut("metadata").and_then(Value::as_object_mut) else { return Vec::new() };
    let mut causes = meta::preserve_system_fields(meta, old_meta);
    let name = meta.get("name").cloned().unwrap_or_default();
    if name != *old.name {
        // kube-apiserver validates this twice and reports it twice.
        causes.extend(vec![Cause::invalid("metadata.name", &name, "field is immutable"); 2]);
    }
    meta.insert("resourceVersion".into(), old.version.to_string().into());
    causes
}

/// Writes an updated object, or removes it if nothing holds its deletion any longer. `None` means a write conflict.
async fn store(call: &Call<'_>, old: &Arc<Stored>, new: Value) -> Result<Option<WriteResult>, Status> {
    let is_deleting = at(&new, "/metadata/deletionTimestamp").is_some();
    if is_deleting && !deletion::remains(&call.resource, &new) {
        // Watches get the stored state: this update is not stored.
        return match call.cluster.remove(&call.resource, old, old.value()) {
            Ok(_) => Ok(Some(WriteResult::Unstored(new))),
            Err(_) => Ok(None),
        };
    }
    let new = conversion::to_storage(&call.resource, new).await?;
    match call.cluster.replace(&call.resource, old, new) {
        Ok(stored) => Ok(Some(WriteResult::Stored(call.in_version(stored).await?))),
        Err(_) => Ok(None),
    }
}

/// The subresource is validated apart: its values have no `status` in their messages.
fn name_status_fields(causes: &mut [Cause]) {
    for cause in causes {
        if cause.field.starts_with("status.") {
            let named = format!("{} in body", cause.field);
            let short = format!("{} in body", cause.field.trim_start_matches("status."));
            cause.message = cause.message.replace(&named, &short);
        }
    }
}

/// Restores the fields that this endpoint must not write, as `GetResetFields` of kube-apiserver defines them.
fn restore_reset_fields(call: &Call<'_>, old: &Value, new: &mut Value) {
    let Some(map) = new.as_object_mut() else { return };
    let mut restore = |key: &str| match old.get(key) {
        Some(value) => {
            map.insert(key.to_owned(), value.clone());
        }
        None => {
            map.shift_remove(key);
        }
    };
    if call.is_status_subresource() {
        let others: Vec<String> = old.as_object().into_iter().flatten().map(|(k, _)| k.clone()).collect();
        for key in
            others.iter().filter(|k| *k != "status" && (call.resource.custom.is_some() || *k != "metadata"))
        {
            restore(key);
        }
        if call.resource.custom.is_some() {
            map.retain(|k, _| k == "status" || old.get(k).is_some());
        }
    } else if call.resource.subresource("status").is_some() && call.subresource.is_none() {
        restore("status");
    }
}

/// Increments `metadata.generation` if the desired state has changed.
fn update_generation(call: &Call<'_>, old: &Value, new: &mut Value) {
    // CSI drivers have a generation after their first update.
    let is_tracked = call.resource.tracks_generation() || call.resource.is("storage.k8s.io", "csidrivers");
    if !is_tracked || call.is_status_subresource() {
        return;
    }
    let has_status = call.resource.subresource("status").is_some();
    let counts = |key: &str| match key {
        "metadata" | "apiVersion" | "kind" => false,
        "status" => !has_status,
        _ => true,
    };
    let nothing = Map::new();
    let (was, is) = (old.as_object().unwrap_or(&nothing), new.as_object().unwrap_or(&nothing));
    let changed = was.iter().any(|(k, v)| counts(k) && is.get(k) != Some(v))
        || is.keys().any(|k| counts(k) && !was.contains_key(k));
    let given = |v: &Value, key: &str| v.get("metadata").and_then(|meta| meta.get(key)).cloned();
    // For two resources, changes of some metadata count as well.
    let metadata_changed = match call.resource.plural.as_str() {
        "deployments" if call.resource.group == "apps" => {
            given(old, "annotations") != given(new, "annotations")
        }
        "endpointslices" => given(old, "labels") != given(new, "labels"),
        _ => false,
    };
    let is_tracked = call.resource.plural != "priorityclasses";
    if is_tracked && (metadata_changed || changed) {
        let count = at(old, "/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
        if let Some(meta) = new.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.insert("generation".into(), (count + 1).into());
        }
    }
}

pub(super) fn check_name(value: &Value, name: &str) -> Result<(), Status> {
    match text(value, "/metadata/name") {
        "" => Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        given if given != name => Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        ))),
        _ => Ok(()),
    }
}

/// Checks `metadata.resourceVersion` of the update. Returns whether it has one.
pub(super) fn check_version(call: &Call<'_>, value: &Value, old: &Stored) -> Result<bool, Status> {
    match text(value, "/metadata/resourceVersion") {
        "" | "0" if requires_version(call) => {
            let cause =
                Cause::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
            Err(Status::invalid(&call.resource.group, &call.resource.plural, &old.name, &[cause]))
        }
        "" | "0" => Ok(false),
        given => {
            let version: u64 = given.parse().map_err(|_| {
                Status::internal(format!("strconv.ParseUint: parsing \"{given}\": invalid syntax"))
            })?;
            if version == old.version {
                Ok(true)
            } else {
                Err(Status::modified(call.resource.group_resource(), &old.name))
            }
        }
    }
}

/// Whether updates must have a `resourceVersion` (`AllowUnconditionalUpdate` of kube-apiserver is false).
fn requires_version(call: &Call<'_>) -> bool {
    const STRICT: [(&str, &str); 12] = [
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
        ("storage.k8s.io", "csidrivers"),
        ("node.k8s.io", "runtimeclasses"),
        ("coordination.k8s.io", "leases"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("apiregistration.k8s.io", "apiservices"),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("policy", "poddisruptionbudgets"),
        ("storage.k8s.io", "csistoragecapacities"),
        ("networking.k8s.io", "ipaddresses"),
    ];
    call.resource.custom.is_some() || STRICT.iter().any(|(g, p)| call.resource.is(g, p))
}

/// Checks `metadata.uid` of the update. `stored` is that of the stored object; it is empty if there is none.
pub(super) fn check_uid(call: &Call<'_>, value: &Value, stored: &str) -> Result<(), Status> {
    let given = text(value, "/metadata/uid");
    if given.is_empty() || given == stored {
        return Ok(());
    }
    let name = call.name.as_deref().unwrap_or_default();
    let place = if call.namespace.is_empty() { String::new() } else { format!("{}/", call.namespace) };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{}/{place}{name}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {given}, UID in object meta: {stored}",
        storage_prefix(&call.resource)
    );
    Err(Status::conflict(call.resource.group_resource(), name, &why))
}

/// The prefix of the resource's keys in etcd. Those of most built-in resources have no group.
fn storage_prefix(resource: &Resource) -> String {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "services") => "services/specs".to_owned(),
        ("", "endpoints") => "services/endpoints".to_owned(),
        ("", "nodes") => "minions".to_owned(),
        ("", "replicationcontrollers") => "controllers".to_owned(),
        ("networking.k8s.io", "ingresses") => "ingress".to_owned(),
        (group @ ("apiextensions.k8s.io" | "apiregistration.k8s.io"), plural) => format!("{group}/{plural}"),
        (group, plural) if resource.custom.is_some() => format!("{group}/{plural}"),
        (_, plural) => plural.to_owned(),
    }
}

/// Checks the size of the object against the limit of etcd. `parts` is the size of its sources, in bytes.
pub(super) fn check_size(value: &Value, parts: usize) -> Result<(), Status> {
    // Measuring means encoding: it is only done for objects that can exceed the limit.
    if parts > OBJECT_LIMIT / 4 && value.to_string().len() > OBJECT_LIMIT {
        return Err(Status::internal("etcdserver: request is too large"));
    }
    Ok(())
}

/// Managed fields after an update that is not an apply. `None` if `new` has them already.
async fn updated_managed_fields(
    call: &Call<'_>,
    old: &Value,
    old_meta: &Map<String, Value>,
    new: &mut Value,
    options: &WriteOptions,
) -> Option<Vec<ManagedFieldsEntry>> {
    // A conversion can have made the stored object invalid.
    let is_invalid =
        |schema: &Schema| call.resource.is_converted_by_webhook() && typed::error(old, schema).is_some();
    if has_unmanaged_items(call, new) || is_invalid(&call.resource.managed_schema()) {
        return Some(Vec::new());
    }
    let changes = changes(call, old, new);
    let entry = manager_entry(call, options, false, Set::new());
    let meta = new.get_mut("metadata").and_then(Value::as_object_mut)?;
    let nothing = Value::Null;
    let stored_fields = old_meta.get("managedFields").unwrap_or(&nothing);
    let given = meta.get("managedFields").unwrap_or(&nothing);
    if !encoding::is_identical(given, stored_fields) {
        // Explicit managed fields are taken as given: clients migrate from client-side to server-side apply with them.
        let given = if given == stored_fields { Vec::new() } else { managed_fields::read(meta) };
        if !given.is_empty() {
            return Some(update_entries(call, given, changes, (old, &*new), entry).await);
        }
        meta.insert("managedFields".into(), stored_fields.clone());
    }
    if managed_fields::touch_entry(meta, &changes, &entry) {
        return None;
    }
    Some(update_entries(call, managed_fields::read(old_meta), changes, (old, &*new), entry).await)
}

/// The entries after an update. An object that cannot be converted to their versions loses them.
async fn update_entries(
    call: &Call<'_>,
    entries: Vec<ManagedFieldsEntry>,
    own: Comparison,
    (old, new): (&Value, &Value),
    entry: ManagedFieldsEntry,
) -> Vec<ManagedFieldsEntry> {
    match versions::changes(call, own, (old, new), &entries).await {
        Ok(changes) => managed_fields::update(entries, &changes, entry),
        Err(_) => Vec::new(),
    }
}

/// Managed fields of a created object that was not applied. Fields of `baseline` are not managed.
pub(super) fn initial_managed_fields(
    call: &Call<'_>,
    baseline: &Value,
    new: &Value,
    options: &WriteOptions,
) -> Vec<ManagedFieldsEntry> {
    if has_unmanaged_items(call, new) {
        return Vec::new();
    }
    let changes = [(call.resource.api_version(), changes(call, baseline, new))].into();
    managed_fields::update(Vec::new(), &changes, manager_entry(call, options, false, Set::new()))
}

/// Whether an item of an associative list lacks its keys, or an item of a set is not a scalar: kube-apiserver drops the
/// managed fields of such an object.
fn has_unmanaged_items(call: &Call<'_>, value: &Value) -> bool {
    let schema = call.resource.managed_schema();
    match &call.resource.custom {
        Some(custom) => custom.has_sets_of_objects && typed::unmergeable_item(value, &schema).is_some(),
        None => field_set::has_keyless_item(value, &schema),
    }
}

/// The differences that a write makes to the fields which this endpoint can own.
pub(super) fn changes(call: &Call<'_>, old: &Value, new: &Value) -> Comparison {
    let mut changes = Comparison::default();
    let schema = call.resource.managed_schema();
    field_set::compare(Some(old), Some(new), &schema, &mut Vec::new(), &mut changes);
    for set in [&mut changes.added, &mut changes.modified, &mut changes.removed] {
        field_set::strip_unmanaged(set, reset_field(call));
    }
    changes
}

/// The root field that changes through this endpoint cannot own.
pub(super) fn reset_field(call: &Call<'_>) -> &'static str {
    match call.subresource.as_deref() {
        Some("status") => "f:spec",
        None if call.resource.subresource("status").is_some() => "f:status",
        _ => "",
    }
}

pub(super) fn manager_entry(
    call: &Call<'_>,
    options: &WriteOptions,
    apply: bool,
    set: Set,
) -> ManagedFieldsEntry {
    ManagedFieldsEntry {
        manager: options.field_manager.clone(),
        apply,
        api_version: call.resource.api_version(),
        time: formats::now(),
        subresource: call.subresource.clone().unwrap_or_default(),
        set,
    }
}
