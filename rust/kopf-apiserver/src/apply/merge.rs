//! Merge of an applied configuration, and removal of fields that are no longer applied.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::apply::field_set::{self, Path, Set};
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

/// Fields that no owner has. A field that contains an owned one is owned.
pub(crate) fn unowned_fields(fields: &Set, owned: &Set) -> Set {
    let is_owned = |path: &Path| owned.range(path.clone()..).next().is_some_and(|p| p.starts_with(path));
    fields.iter().filter(|path| !is_owned(path)).cloned().collect()
}

/// Removes fields of an object; items before their fields.
pub(crate) fn remove_fields(object: &mut Value, fields: Set, schema: &Schema) {
    let mut paths: Vec<Path> = fields.into_iter().collect();
    paths.sort_by_key(Vec::len);
    for path in paths {
        remove(object, &path, schema);
    }
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
