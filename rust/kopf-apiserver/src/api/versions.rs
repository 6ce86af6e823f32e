//! Objects in the versions of their managed fields.
//!
//! An entry of `metadata.managedFields` has the fields of its version. So a write is compared, and fields that are no longer
//! applied are removed, in each of these versions. The objects are converted to them as for clients, but without defaults.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::Call;
use crate::apply::field_set::{self, Comparison, Set};
use crate::apply::managed_fields::{Changes, ManagedFieldsEntry};
use crate::apply::{merge, typed};
use crate::base::json::member_text;
use crate::base::names::split_api_version;
use crate::error::status::Status;
use crate::schema::Schema;
use crate::scheme;
use crate::scheme::resources::Resource;
use crate::webhook::conversion;

/// Adds the changes in the versions of the entries. `own` are those in the version of the request. Versions that a built-in resource
/// does not have get none.
pub(super) async fn changes(
    call: &Call<'_>,
    own: Comparison,
    (old, new): (&Value, &Value),
    entries: &[ManagedFieldsEntry],
) -> Result<Changes, Status> {
    let mut changes: Changes = [(call.resource.api_version(), own)].into();
    for entry in entries {
        let version = &entry.api_version;
        if changes.contains_key(version) {
            continue;
        }
        let Some(schema) = managed_schema(call, version)? else { continue };
        let (old, new) = (converted(call, old, version).await?, converted(call, new, version).await?);
        let mut other = Comparison::default();
        field_set::compare(Some(&old), Some(&new), &schema, &mut Vec::new(), &mut other);
        changes.insert(version.clone(), other);
    }
    Ok(changes)
}

/// Removes the fields that a manager has applied last and applies no longer, unless an entry has them. `entries` are those after
/// the apply. A field of another version stays if the object that is left lacks it in that version.
pub(super) async fn prune(
    call: &Call<'_>,
    merged: Value,
    previous: &ManagedFieldsEntry,
    entries: &[ManagedFieldsEntry],
) -> Result<Value, Status> {
    let version = &previous.api_version;
    let Some(schema) = managed_schema(call, version)? else { return Ok(merged) };
    let complete = converted(call, &merged, version).await?;
    let mut pruned = complete.clone();
    let owned = owned_in(version, entries);
    merge::remove_fields(&mut pruned, &merge::unowned_fields(&previous.set, &owned), &owned, &schema);
    let others: BTreeSet<&String> =
        entries.iter().map(|entry| &entry.api_version).filter(|other| *other != version).collect();
    for other in &others {
        let Some(schema) = managed_schema(call, other)? else { continue };
        let mut kept = converted(call, &complete, other).await?;
        let left = fields_of(&converted(call, &pruned, other).await?, &schema);
        let owned = owned_in(other, entries);
        let lost: Set = fields_of(&kept, &schema).difference(&left).cloned().collect();
        merge::remove_fields(&mut kept, &merge::unowned_fields(&lost, &owned), &owned, &schema);
        pruned = kept;
    }
    if others.is_empty() {
        return Ok(pruned);
    }
    let left = fields_of(&converted(call, &pruned, version).await?, &schema);
    let lost: Set = fields_of(&complete, &schema).difference(&left).cloned().collect();
    let mut object = complete;
    let lost = lost.intersection(&previous.set).cloned().collect();
    merge::remove_fields(&mut object, &lost, &owned, &schema);
    converted(call, &object, &call.resource.api_version()).await
}

fn owned_in(version: &str, entries: &[ManagedFieldsEntry]) -> Set {
    entries.iter().filter(|entry| entry.api_version == version).flat_map(|entry| entry.set.clone()).collect()
}

fn fields_of(value: &Value, schema: &Schema) -> Set {
    let mut set = Set::new();
    field_set::collect_fields(value, schema, &mut Vec::new(), &mut set);
    set
}

/// Schema of a version; `None` if a built-in resource does not have it. A custom object cannot be converted to such a version.
fn managed_schema(call: &Call<'_>, api_version: &str) -> Result<Option<Arc<Schema>>, Status> {
    let Some(custom) = &call.resource.custom else {
        if api_version == call.resource.api_version() {
            return Ok(Some(call.resource.managed_schema()));
        }
        return Ok(builtin(call, api_version).map(|resource| resource.managed_schema()));
    };
    let known = custom.managed_versions.get(api_version).cloned();
    let unknown = || format!("request to convert CR to an invalid group/version: {api_version}");
    known.map(Some).ok_or_else(|| Status::internal(unknown()))
}

/// A built-in resource in another version.
fn builtin(call: &Call<'_>, api_version: &str) -> Option<Arc<Resource>> {
    let (group, version) = split_api_version(api_version);
    call.cluster.registry().by_kind(group, version, &call.resource.kind).cloned()
}

/// An object in another version. Custom objects are checked against its schema.
async fn converted(call: &Call<'_>, value: &Value, api_version: &str) -> Result<Value, Status> {
    let mut value = value.clone();
    let given = member_text(&value, "apiVersion").to_owned();
    if given == api_version {
        return Ok(value);
    }
    let Some(custom) = &call.resource.custom else {
        if let (Some(from), Some(to)) = (builtin(call, &given), builtin(call, api_version)) {
            scheme::conversion::convert(&mut value, &from, &to);
        }
        return Ok(value);
    };
    let mut value = conversion::one(&call.resource, value, api_version).await?;
    value["apiVersion"] = api_version.into();
    let schema = custom.managed_versions.get(api_version);
    match schema.and_then(|schema| typed::error(&value, schema)) {
        Some(why) => Err(Status::internal(why)),
        None => Ok(value),
    }
}
