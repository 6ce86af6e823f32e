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

/// Removes fields of an object; items before their fields. A map or list goes with its last field. If it has an owner itself, it becomes
/// null: kube-apiserver rejects this, unless the field is nullable.
pub(crate) fn remove_fields(object: &mut Value, fields: Set, owned: &Set, schema: &Schema) {
    let mut paths: Vec<Path> = fields.into_iter().collect();
    paths.sort_by_key(Vec::len);
    for path in paths {
        remove(object, (&[], &path), owned, schema);
    }
}

/// Removes the field at the rest of a path. `above` leads to the value.
fn remove(value: &mut Value, (above, rest): (&[Arc<str>], &[Arc<str>]), owned: &Set, schema: &Schema) {
    let any = Schema::any();
    let Some((first, rest)) = rest.split_first() else { return };
    let here = [above, std::slice::from_ref(first)].concat();
    if let (Some(name), Value::Object(map)) = (first.strip_prefix("f:"), &mut *value) {
        if rest.is_empty() {
            map.shift_remove(name);
        } else if let Some(child) = map.get_mut(name) {
            remove(child, (&here, rest), owned, schema.child(name).map_or(&any, |s| s));
            if !is_empty(child) {
                return;
            }
            if owned.contains(&here) {
                *child = Value::Null;
            } else {
                map.shift_remove(name);
            }
        }
    } else if let Value::Array(list) = value {
        let Some(at) = list.iter().position(|item| *field_set::item_key(item, schema) == **first) else {
            return;
        };
        if rest.is_empty() {
            list.remove(at);
        } else if let Some(item) = list.get_mut(at) {
            remove(item, (&here, rest), owned, schema.items.as_deref().unwrap_or(&any));
        }
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(paths: &[&[&str]]) -> Set {
        paths.iter().map(|path| path.iter().map(|&part| Arc::from(part)).collect()).collect()
    }

    #[test]
    fn a_map_goes_with_its_last_field_and_is_null_if_it_has_an_owner() {
        let fields = || set(&[&["f:spec", "f:size"], &["f:spec", "f:inner", "f:a"], &["f:other", "f:b"]]);
        let object = json!({"spec": {"size": 1, "inner": {"a": 1}}, "other": {"b": 1, "c": 1}});
        for (owned, expected) in [
            (set(&[]), json!({"other": {"c": 1}})),
            (set(&[&["f:spec"]]), json!({"spec": null, "other": {"c": 1}})),
            (set(&[&["f:spec", "f:inner"]]), json!({"spec": {"inner": null}, "other": {"c": 1}})),
        ] {
            let mut pruned = object.clone();
            remove_fields(&mut pruned, fields(), &owned, &Schema::any());
            assert_eq!(pruned, expected);
        }
    }
}
