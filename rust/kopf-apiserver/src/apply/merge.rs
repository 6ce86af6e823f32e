//! Merge of an applied configuration, and removal of fields that are no longer applied.

use std::collections::{HashMap, HashSet};
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
            merge_items(list, config, schema);
        }
        (place, value) => *place = value.clone(),
    }
}

/// Merges the items of a set or an associative list, in the order of structured-merge-diff: items of both lists are in the order of
/// the configuration, and the other live items follow the same items as before, as far as this order permits.
fn merge_items(list: &mut Vec<Value>, config: &[Value], schema: &Schema) {
    let any = Schema::any();
    let items = schema.items.as_deref().unwrap_or(&any);
    let keys = |list: &[Value]| -> Vec<String> {
        list.iter().map(|item| field_set::item_key(item, schema)).collect()
    };
    let (left, right) = (keys(list), keys(config));
    let applied: HashSet<&String> = right.iter().collect();
    // Duplicate items of the live list are not merged.
    let mut positions: HashMap<&String, Option<usize>> = HashMap::new();
    for (i, key) in left.iter().enumerate() {
        positions.entry(key).and_modify(|position| *position = None).or_insert(Some(i));
    }
    let mut live: Vec<Value> = std::mem::take(list);
    let mut take = |i: usize| live.get_mut(i).map(Value::take);
    let mut left = left.iter().enumerate().peekable();
    // The items of both lists that are not merged yet.
    let mut shared = right.iter().filter(|key| positions.contains_key(key)).peekable();
    for (key, item) in right.iter().zip(config) {
        while let Some((i, live_key)) = left.next_if(|(_, live_key)| shared.peek() != Some(live_key)) {
            if !applied.contains(live_key) {
                list.extend(take(i));
            } else if shared.peek().is_none() {
                break;
            }
        }
        if shared.next_if_eq(&key).is_some() {
            left.next_if(|(_, live_key)| *live_key == key);
        }
        let known = positions.get(key).copied().flatten().and_then(&mut take);
        list.push(match known {
            Some(mut known) => {
                merge(&mut known, item, items);
                known
            }
            None => item.clone(),
        });
    }
    list.extend(left.filter(|(_, key)| !applied.contains(key)).filter_map(|(i, _)| take(i)));
}

/// Fields that no owner has. A field that contains an owned one is owned.
pub(crate) fn unowned_fields(fields: &Set, owned: &Set) -> Set {
    let is_owned = |path: &Path| owned.range(path.clone()..).next().is_some_and(|p| p.starts_with(path));
    fields.iter().filter(|path| !is_owned(path)).cloned().collect()
}

/// Removes fields of an object; items before their fields. A map or list goes with its last field. If it has an owner itself, it becomes
/// null: kube-apiserver rejects this, unless the field is nullable.
pub(crate) fn remove_fields(object: &mut Value, fields: &Set, owned: &Set, schema: &Schema) {
    let paths: Vec<&[Arc<str>]> = fields.iter().map(Vec::as_slice).filter(|path| !path.is_empty()).collect();
    remove_below(object, &mut Path::new(), &paths, owned, schema);
}

/// Removes the fields at the ends of the paths, which are sorted and begin at the value. `place` is the path of the value.
fn remove_below(value: &mut Value, place: &mut Path, paths: &[&[Arc<str>]], owned: &Set, schema: &Schema) {
    let any = Schema::any();
    // Common prefixes are adjacent, the shortest first.
    let groups = paths.chunk_by(|a, b| a.first() == b.first()).filter_map(|group| {
        let (first, rest) = group.first()?.split_first()?;
        let below: Vec<&[Arc<str>]> = group.iter().filter_map(|path| path.get(1..)).collect();
        Some((first, (!rest.is_empty()).then_some(below)))
    });
    match value {
        Value::Object(map) => {
            for (element, below) in groups {
                let Some(name) = element.strip_prefix("f:") else { continue };
                let Some(below) = below else {
                    map.shift_remove(name);
                    continue;
                };
                let Some(child) = map.get_mut(name) else { continue };
                place.push(element.clone());
                remove_below(child, place, &below, owned, schema.child(name).map_or(&any, |s| s));
                let is_owned = owned.contains(place);
                place.pop();
                if is_empty(child) && is_owned {
                    *child = Value::Null;
                } else if is_empty(child) {
                    map.shift_remove(name);
                }
            }
        }
        Value::Array(list) => {
            let groups: HashMap<&str, _> = groups.map(|(element, below)| (&**element, below)).collect();
            let items = schema.items.as_deref().unwrap_or(&any);
            list.retain_mut(|item| {
                let key = field_set::item_key(item, schema);
                match groups.get(key.as_str()) {
                    None => true,
                    Some(None) => false,
                    Some(Some(below)) => {
                        place.push(key.into());
                        remove_below(item, place, below, owned, items);
                        place.pop();
                        true
                    }
                }
            });
        }
        _ => {}
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
            remove_fields(&mut pruned, &fields(), &owned, &Schema::any());
            assert_eq!(pruned, expected);
        }
    }

    fn ports() -> Schema {
        let port =
            json!({"type": "object", "properties": {"n": {"type": "string"}, "p": {"type": "integer"}}});
        Schema::from_json(&json!({"type": "array", "items": port, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["n"]}))
    }

    #[test]
    fn items_get_the_order_of_the_configuration() {
        let set = Schema::from_json(
            &json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
        );
        let letters = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        for (live, config, expected) in [
            ("ac", "abc", "abc"),
            ("abc", "cba", "cba"),
            ("abc", "ca", "bca"),
            ("axc", "abc", "axbc"),
            ("abc", "d", "abcd"),
            ("xay", "bac", "xbayc"),
            ("cx", "abc", "abcx"),
            ("ax", "cdab", "cdaxb"),
            ("bax", "ab12", "axb12"),
            ("aax", "a12", "a1x2"),
            ("aab", "a", "ab"),
            ("", "ba", "ba"),
        ] {
            let mut merged = json!(letters(live));
            merge(&mut merged, &json!(letters(config)), &set);
            assert_eq!(merged, json!(letters(expected)), "{live} {config}");
            let objects =
                |text: &str| -> Value { letters(text).iter().map(|n| json!({"n": n, "p": 1})).collect() };
            let mut merged = objects(live);
            merge(&mut merged, &letters(config).iter().map(|n| json!({"n": n})).collect(), &ports());
            let names: Vec<&str> =
                merged.as_array().unwrap().iter().map(|i| i["n"].as_str().unwrap()).collect();
            assert_eq!(names, letters(expected), "{live} {config}");
        }
    }

    #[test]
    fn items_are_merged_by_their_keys() {
        let mut merged = json!([{"n": "a", "p": 1}, {"n": "b", "p": 1}, {"n": "b", "p": 2}]);
        // Those of duplicate items are replaced.
        merge(&mut merged, &json!([{"n": "b"}, {"n": "a"}]), &ports());
        assert_eq!(merged, json!([{"n": "b"}, {"n": "a", "p": 1}]));
    }

    #[test]
    fn items_and_their_fields_are_removed() {
        let fields = set(&[&["k:{\"n\":\"a\"}"], &["k:{\"n\":\"a\"}", "f:p"], &["k:{\"n\":\"c\"}", "f:p"]]);
        let mut list = json!([{"n": "a", "p": 1}, {"n": "b", "p": 1}, {"n": "c", "p": 1}]);
        remove_fields(&mut list, &fields, &Set::new(), &ports());
        assert_eq!(list, json!([{"n": "b", "p": 1}, {"n": "c"}]));
    }
}
