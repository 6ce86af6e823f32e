//! Merge of an applied configuration: conflicts, and removal of fields that are no longer applied.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::apply::field_set::{self, Comparison, Path, Set};
use crate::apply::managed_fields::ManagedFieldsEntry;
use crate::schema::{ListType, Schema};

/// Merges the configuration into the live object.
pub(crate) fn merge(live: &mut Value, applied: &Value, schema: &Schema) {
    let any = Schema::any();
    match (live, applied) {
        (Value::Object(map), Value::Object(config)) if !schema.atomic => {
            for (key, value) in config {
                let child = schema.child(key).map_or(&any, |s| s);
                match map.get_mut(key) {
                    Some(place) => merge(place, value, child),
                    None => {
                        map.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        (Value::Array(list), Value::Array(config)) if schema.list != ListType::Atomic => {
            for item in config {
                let key = field_set::item_key(item, schema);
                match list.iter_mut().find(|other| field_set::item_key(other, schema) == key) {
                    Some(place) => merge(place, item, schema.items.as_deref().unwrap_or(&any)),
                    None => list.push(item.clone()),
                }
            }
        }
        (place, value) => *place = value.clone(),
    }
}

/// Result of an apply.
pub(crate) struct ApplyResult {
    pub(crate) object: Value,
    pub(crate) entries: Vec<ManagedFieldsEntry>,
    /// Pairs of manager and field; empty if forced.
    pub(crate) conflicts: Vec<(String, String)>,
}

/// Applies a configuration. `entry` has the manager and the set of applied fields.
pub(crate) fn apply(
    live: &Value,
    config: &Value,
    schema: &Schema,
    entries: Vec<ManagedFieldsEntry>,
    entry: ManagedFieldsEntry,
    force: bool,
) -> ApplyResult {
    let mut object = live.clone();
    merge(&mut object, config, schema);
    let own =
        |e: &ManagedFieldsEntry| e.apply && e.manager == entry.manager && e.subresource == entry.subresource;
    let before = entries.iter().find(|e| own(e)).map(|e| e.set.clone()).unwrap_or_default();
    let mut changes = Comparison::default();
    field_set::compare(Some(live), Some(&object), schema, &mut Vec::new(), &mut changes);
    let taken = changes.taken();
    let mut conflicts = Vec::new();
    let mut kept = Vec::new();
    for mut entry in entries.into_iter().filter(|e| !own(e)) {
        let conflicting: Vec<Path> = entry.set.intersection(&taken).cloned().collect();
        conflicts
            .extend(conflicting.iter().map(|path| (entry.conflict_name(), field_set::format_path(path))));
        entry.set.retain(|p| !conflicting.contains(p));
        kept.push(entry);
    }
    if force {
        conflicts.clear();
    }
    for path in removed_fields(&before, &entry.set, &kept) {
        remove(&mut object, &path, schema);
    }
    kept.push(entry);
    ApplyResult { object, entries: kept, conflicts }
}

/// Fields that the manager no longer applies and no other manager owns. Items come before their fields.
fn removed_fields(before: &Set, now: &Set, others: &[ManagedFieldsEntry]) -> Vec<Path> {
    let is_held = |path: &Path| {
        let within = |set: &Set| set.range(path.clone()..).next().is_some_and(|p| p.starts_with(path));
        within(now) || others.iter().any(|e| within(&e.set))
    };
    let mut out: Vec<Path> = before.iter().filter(|p| !is_held(p)).cloned().collect();
    out.sort_by_key(Vec::len);
    out
}

fn remove(object: &mut Value, path: &[Arc<str>], schema: &Schema) {
    let any = Schema::any();
    let Some((first, rest)) = path.split_first() else { return };
    if let (Some(name), Value::Object(map)) = (first.strip_prefix("f:"), &mut *object) {
        if rest.is_empty() {
            map.shift_remove(name);
        } else if let Some(child) = map.get_mut(name) {
            remove(child, rest, schema.child(name).map_or(&any, |s| s));
        }
    } else if let Value::Array(list) = object {
        let Some(at) = list.iter().position(|item| *field_set::item_key(item, schema) == **first) else {
            return;
        };
        if rest.is_empty() {
            list.remove(at);
        } else if let Some(item) = list.get_mut(at) {
            remove(item, rest, schema.items.as_deref().unwrap_or(&any));
        }
    }
}

/// Removes nulls from an applied configuration, unless the field is nullable.
pub(crate) fn drop_nulls(value: &mut Value, schema: &Schema) {
    let any = Schema::any();
    if let Value::Object(map) = value {
        let map: &mut Map<String, Value> = map;
        map.retain(|key, v| !v.is_null() || schema.child(key).is_some_and(|s| s.nullable));
        for (key, child) in map.iter_mut() {
            drop_nulls(child, schema.child(key).map_or(&any, |s| s));
        }
    }
}
