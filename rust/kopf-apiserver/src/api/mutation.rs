//! Calls of mutating webhooks for updates, and the managed fields after them.

use serde_json::Value;

use super::{Call, body, scale_values};
use crate::admission::{self, Operation};
use crate::base::json::{at, text};
use crate::error::status::Status;
use crate::http::request::WriteOptions;

/// The new and the stored object as scales, for admission to the scale subresource.
pub(super) fn shown(call: &Call<'_>, new: &Value, before: &Value) -> Option<(Value, Value)> {
    let is_scale = call.subresource.as_deref() == Some("scale");
    is_scale
        .then(|| (scale_values::scale_from_object(call, new), scale_values::scale_from_object(call, before)))
}

/// Calls mutating webhooks. `new` is the object with its managed fields, `given` what the client has sent. Returns the changed object.
pub(super) async fn mutate(
    call: &Call<'_>,
    new: &Value,
    mut given: Value,
    before: &Value,
    options: &WriteOptions,
) -> Result<Option<Value>, Status> {
    let name = text(before, "/metadata/name");
    let attributes = call.admission_attributes(Operation::Update, name, options);
    let Some((shown, old)) = shown(call, new, before) else {
        let managed = at(new, "/metadata/managedFields").cloned();
        if let (Some(managed), Some(meta)) =
            (managed, given.get_mut("metadata").and_then(Value::as_object_mut))
        {
            meta.insert("managedFields".into(), managed);
        }
        let managed = at(&given, "/metadata/managedFields").cloned();
        let mut mutated = admission::mutate(&attributes, given.clone(), Some(before)).await?;
        restore_managed_fields(call, managed, &mut mutated);
        if mutated == given {
            return Ok(None);
        }
        body::check_namespace_matches(call, &mut mutated)?;
        return Ok(Some(mutated));
    };
    let mutated = admission::mutate(&attributes, shown.clone(), Some(&old)).await?;
    if mutated == shown {
        return Ok(None);
    }
    let mut new = new.clone();
    let replicas = mutated.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or_default();
    scale_values::set_replicas(call, &mut new, replicas.into());
    Ok(Some(new))
}

/// Restores managed fields that webhooks have made invalid.
pub(super) fn restore_managed_fields(call: &Call<'_>, before: Option<Value>, mutated: &mut Value) {
    let entries = mutated.pointer("/metadata/managedFields").and_then(Value::as_array);
    let odd = entries.into_iter().flatten().enumerate().find(|(_, entry)| entry["fieldsType"] != "FieldsV1");
    let Some((index, entry)) = odd else { return };
    call.warnings.add(&format!(
        ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission \
         controller; please fix your requests: invalid fieldsType {} in managed fields entry {index}",
        entry["fieldsType"]
    ));
    if let Some(before) = before {
        mutated["metadata"]["managedFields"] = before;
    }
}
