//! Strategic merge patch: lists merge by merge keys, with the directives `$patch`, `$deleteFromPrimitiveList/…`,
//! `$setElementOrder/…` and `$retainKeys`.

use serde_json::{Map, Value};

use crate::schema::Schema;

const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// Merges a patch into an object of a built-in kind. The error is a malformed directive.
pub(crate) fn merge(target: &mut Value, patch: &Value, schema: &Schema) -> Result<(), String> {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return Ok(());
    };
    match changes.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            *target = without_directives(changes);
            return Ok(());
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(format!("unknown patch type: {other} in map: {}", go_map(changes))),
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(map) = target else { return Ok(()) };
    if let Some(Value::Array(kept)) = changes.get("$retainKeys") {
        map.retain(|key, _| kept.iter().any(|k| k == key));
    }
    for (key, change) in changes.iter().filter(|(k, _)| !k.starts_with('$')) {
        merge_member(map, key, change, schema)?;
    }
    for (key, change) in changes {
        if let (Some(field), Value::Array(gone)) = (key.strip_prefix(DELETE_FROM), change)
            && let Some(Value::Array(list)) = map.get_mut(field)
        {
            list.retain(|item| !gone.contains(item));
        }
    }
    for (key, change) in changes {
        if let (Some(field), Value::Array(order)) = (key.strip_prefix(ORDER), change)
            && let Some(Value::Array(list)) = map.get_mut(field)
        {
            let merge_key = schema.properties.get(field).map_or("", |s| s.merge_key.as_str());
            reorder(list, order, merge_key);
        }
    }
    Ok(())
}

/// Formats a map as Go does.
fn go_map(map: &Map<String, Value>) -> String {
    let mut pairs: Vec<String> = map
        .iter()
        .map(|(k, v)| format!("{k}:{}", v.as_str().map_or_else(|| v.to_string(), str::to_owned)))
        .collect();
    pairs.sort();
    format!("map[{}]", pairs.join(" "))
}

fn without_directives(map: &Map<String, Value>) -> Value {
    Value::Object(
        map.iter().filter(|(k, _)| !k.starts_with('$')).map(|(k, v)| (k.clone(), v.clone())).collect(),
    )
}

fn merge_member(
    map: &mut Map<String, Value>,
    key: &str,
    change: &Value,
    schema: &Schema,
) -> Result<(), String> {
    let any = Schema::any();
    let child = schema.child(key).map_or(&any, |s| s);
    match change {
        Value::Null => {
            map.shift_remove(key);
        }
        Value::Array(items) if child.patch.iter().any(|p| p == "merge") => {
            let place = map.entry(key.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
            if !place.is_array() {
                *place = Value::Array(Vec::new());
            }
            if let Value::Array(list) = place {
                merge_list(list, items, child)?;
            }
        }
        Value::Object(_) => merge(map.entry(key.to_owned()).or_insert(Value::Null), change, child)?,
        other => {
            map.insert(key.to_owned(), other.clone());
        }
    }
    Ok(())
}

fn merge_list(list: &mut Vec<Value>, items: &[Value], schema: &Schema) -> Result<(), String> {
    let any = Schema::any();
    let item_schema = schema.items.as_deref().unwrap_or(&any);
    if items.iter().any(|i| i.get("$patch").and_then(Value::as_str) == Some("replace")) {
        *list = items.iter().filter(|i| i.get("$patch").is_none()).cloned().collect();
        return Ok(());
    }
    let before = list.clone();
    for item in items {
        if schema.merge_key.is_empty() {
            if !list.contains(item) {
                list.push(item.clone());
            }
            continue;
        }
        let Some(id) = item.get(&schema.merge_key) else {
            let shown = item.as_object().map(go_map).unwrap_or_default();
            return Err(format!("map: {shown} does not contain declared merge key: {}", schema.merge_key));
        };
        let found = list.iter().position(|other| other.get(&schema.merge_key) == Some(id));
        let delete = item.get("$patch").and_then(Value::as_str) == Some("delete");
        match (found.and_then(|i| list.get_mut(i)), delete) {
            (Some(_), true) => list.retain(|other| other.get(&schema.merge_key) != Some(id)),
            (Some(place), false) => merge(place, item, item_schema)?,
            (None, true) => {}
            (None, false) => {
                let mut fresh = Value::Null;
                merge(&mut fresh, item, item_schema)?;
                list.push(fresh);
            }
        }
    }
    settle(list, &before, items, &schema.merge_key);
    Ok(())
}

/// Orders merged items: new items of the patch come before items of the server that they follow; others keep their
/// order.
fn settle(list: &mut Vec<Value>, before: &[Value], items: &[Value], merge_key: &str) {
    let id = |v: &Value| {
        if merge_key.is_empty() { v.clone() } else { v.get(merge_key).cloned().unwrap_or_default() }
    };
    let place = |v: &Value| before.iter().position(|b| id(b) == id(v));
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        std::mem::take(list).into_iter().partition(|v| items.iter().any(|i| id(i) == id(v)));
    named.reverse();
    others.reverse();
    while let (Some(left), Some(right)) = (others.last(), named.last()) {
        let from_server = place(right).is_some_and(|r| place(left).is_some_and(|l| l < r));
        list.extend(if from_server { others.pop() } else { named.pop() });
    }
    list.extend(named.into_iter().rev());
    list.extend(others.into_iter().rev());
}

/// Orders items by `$setElementOrder`; other items follow in their order.
fn reorder(list: &mut Vec<Value>, order: &[Value], merge_key: &str) {
    let id = |v: &Value| {
        if merge_key.is_empty() { v.clone() } else { v.get(merge_key).cloned().unwrap_or_default() }
    };
    let rank = |v: &Value| order.iter().position(|o| id(o) == id(v));
    let mut named: Vec<Value> = list.iter().filter(|v| rank(v).is_some()).cloned().collect();
    named.sort_by_key(|v| rank(v));
    let others: Vec<Value> = list.iter().filter(|v| rank(v).is_none()).cloned().collect();
    list.clear();
    list.extend(named);
    list.extend(others);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(before: &Value, patch: &Value, after: &Value) {
        let mut found = before.clone();
        assert_eq!(merge(&mut found, patch, &crate::scheme::builtin::schema("core.v1.PodSpec")), Ok(()));
        assert_eq!(found, *after, "{patch}");
    }

    #[test]
    fn lists_merge_by_merge_keys() {
        let pod = json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]});
        check(
            &pod,
            &json!({"containers": [{"name": "b", "image": "3"}]}),
            &json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "3"}]}),
        );
        check(
            &pod,
            &json!({"containers": [{"name": "a", "$patch": "delete"}]}),
            &json!({"containers": [{"name": "b", "image": "2"}]}),
        );
        check(
            &pod,
            &json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}),
            &json!({"containers": [{"name": "b", "image": "2"}, {"name": "a", "image": "1"}]}),
        );
        check(&pod, &json!({"containers": [{"$patch": "replace"}]}), &json!({"containers": []}));
    }
}
