//! Calls of mutating webhooks for updates, and the managed fields after them.

use serde_json::Value;

use super::{Call, body, scale_values};
use crate::admission::{self, Operation};
use crate::apply::managed_fields;
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
    let Some((mut shown, _)) = shown(call, new, before) else {
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
    // The client may omit the version.
    match at(&given, "/metadata/resourceVersion").filter(|version| **version != "") {
        Some(version) => shown["metadata"]["resourceVersion"] = version.clone(),
        None => drop(shown["metadata"].as_object_mut().and_then(|meta| meta.shift_remove("resourceVersion"))),
    }
    let old = scale_values::scale_before(call, before);
    let mutated = admission::mutate(&attributes, shown.clone(), Some(&old)).await?;
    if mutated == shown {
        return Ok(None);
    }
    let mut new = new.clone();
    scale_values::set_replicas(call, &mut new, scale_values::replicas_of(&mutated).into());
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

/// Whether an update has changed only the times of managed fields, as webhooks have reverted its changes. It is no write then.
pub(super) fn is_reverted(new: &Value, before: &Value) -> bool {
    let entries = |value: &Value| at(value, "/metadata").and_then(Value::as_object).map(managed_fields::read);
    let without_entries = |value: &Value| {
        let mut value = value.clone();
        if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.shift_remove("managedFields");
        }
        value
    };
    let (entries, known) = (entries(new).unwrap_or_default(), entries(before).unwrap_or_default());
    managed_fields::are_the_same_but_for_times(&entries, &known)
        && without_entries(new) == without_entries(before)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_update_that_changes_only_times_is_reverted() {
        let object = |data: &str, manager: &str, time: &str, field: &str| {
            let entry = json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": time,
                "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {field: {}}}});
            json!({"data": {"a": data}, "metadata": {"name": "x", "managedFields": [entry]}})
        };
        let (early, late) = ("2020-01-01T00:00:00Z", "2020-01-01T00:00:01Z");
        let before = object("1", "one", early, "f:a");
        for (new, expected) in [
            (object("1", "one", late, "f:a"), true),
            (object("2", "one", late, "f:a"), false),
            (object("1", "two", late, "f:a"), false),
            (object("1", "one", late, "f:b"), false),
        ] {
            assert_eq!(is_reverted(&new, &before), expected, "{new}");
        }
    }
}
