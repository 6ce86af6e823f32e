//! The times of writes: from progress records, and from `metadata.managedFields`.

use crate::json::path::FieldPath;
use crate::json::value::Value;
use crate::object::Object;
use crate::persistence::Persistence;
use crate::persistence::own_changes::has_field;
use crate::persistence::progress::Record;
use crate::time::Timestamp;

/// The last time when the record was certainly written. A record has no time of its last attempt, but the next attempt comes
/// after it.
pub(super) fn last_write(record: &Record, now: Timestamp) -> Option<Timestamp> {
    [record.started, record.stopped, record.delayed.map(|at| at.min(now))].into_iter().flatten().max()
}

/// The fields with the diff-base.
pub(super) fn own_fields(object: &Object, persistence: &Persistence) -> Vec<FieldPath> {
    let storage = &persistence.diffbase_storage;
    let annotations = storage.own_keys(object);
    let annotations = annotations.iter().map(|key| FieldPath::from_keys(["metadata", "annotations", key]));
    annotations.chain(storage.own_fields().into_iter().cloned()).collect()
}

/// The time of the last write by the field managers of these fields.
pub(super) fn written(object: &Object, fields: &[FieldPath]) -> Option<Timestamp> {
    last(object, |entry| owns(entry, fields))
}

/// The time of the last write by other field managers, except for writes of the status.
pub(super) fn written_by_others(object: &Object, fields: &[FieldPath]) -> Option<Timestamp> {
    let has_subresource = |entry: &Value| entry.get("subresource").is_some_and(|name| name != "");
    last(object, |entry| !owns(entry, fields) && !has_subresource(entry))
}

fn last(object: &Object, is_such: impl Fn(&Value) -> bool) -> Option<Timestamp> {
    let entries = object.field(&FieldPath::from_keys(["metadata", "managedFields"]))?;
    let entries = entries.as_array()?.iter().filter(|entry| is_such(entry));
    entries.filter_map(|entry| entry.get("time").and_then(Value::as_str).and_then(Timestamp::parse)).max()
}

fn owns(entry: &Value, fields: &[FieldPath]) -> bool {
    let Some(owned) = entry.get("fieldsV1") else { return false };
    fields.iter().any(|field| has_field(owned, &field.keys().iter().map(|key| &**key).collect::<Vec<_>>()))
}
