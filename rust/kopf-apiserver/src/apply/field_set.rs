//! Field sets and the comparison of objects, as in structured-merge-diff.
//!
//! A change owns the fields that it adds or modifies; a removed field has no owners. Items of associative lists have
//! paths; other lists are one value.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::schema::{ListType, Schema};

/// Path of a field. Elements are `f:name`, `k:{..}` and `v:..`, shared among the paths of one object.
pub(crate) type Path = Vec<Arc<str>>;
/// A set of paths.
pub(crate) type Set = BTreeSet<Path>;

/// Difference between two objects.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) added: Set,
    pub(crate) modified: Set,
    pub(crate) removed: Set,
}

impl Comparison {
    /// Whether the change owns this field.
    pub(crate) fn takes(&self, path: &Path) -> bool {
        self.added.contains(path) || self.modified.contains(path)
    }
    /// Fields that the change owns.
    pub(crate) fn taken(&self) -> Set {
        self.added.union(&self.modified).cloned().collect()
    }
}

/// How a value is compared: as a whole, by members or by items.
enum NodeKind {
    Leaf,
    Map,
    List,
}

fn node_kind(value: Option<&Value>, other: Option<&Value>, schema: &Schema) -> NodeKind {
    let empty = |v: Option<&Value>| match v {
        None | Some(Value::Null) => true,
        Some(Value::Object(m)) => m.is_empty(),
        Some(Value::Array(l)) => l.is_empty(),
        Some(_) => false,
    };
    let all = |f: fn(&Value) -> bool| [value, other].into_iter().flatten().all(|v| v.is_null() || f(v));
    if schema.atomic || (empty(value) && empty(other)) {
        NodeKind::Leaf
    } else if all(Value::is_object) {
        NodeKind::Map
    } else if all(Value::is_array) && schema.list != ListType::Atomic {
        NodeKind::List
    } else {
        NodeKind::Leaf
    }
}

/// Path element of a list item.
pub(crate) fn item_key(item: &Value, schema: &Schema) -> String {
    match &schema.list {
        ListType::Map(keys) => {
            let mut sorted: Vec<&String> = keys.iter().collect();
            sorted.sort();
            let mut out = Map::new();
            for key in sorted {
                let default = schema.items.as_ref().and_then(|s| s.properties.get(key)).and_then(|p| {
                    p.default
                        .clone()
                        .or_else(|| p.always_written.clone().filter(|w| *w != json!("") && *w != json!(0)))
                });
                if let Some(value) = item.get(key).cloned().or(default) {
                    out.insert(key.clone(), value);
                }
            }
            format!("k:{}", Value::Object(out))
        }
        _ => format!("v:{item}"),
    }
}

/// Whether an item of an associative list has none of the list's keys.
pub(crate) fn has_keyless_item(value: &Value, schema: &Schema) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, child)| {
            let has_members = child.is_object() || child.is_array();
            has_members && schema.child(key).is_some_and(|known| has_keyless_item(child, known))
        }),
        Value::Array(list) => {
            let is_map = matches!(schema.list, ListType::Map(_));
            let Some(items) = &schema.items else { return false };
            list.iter()
                .any(|item| (is_map && item_key(item, schema) == "k:{}") || has_keyless_item(item, items))
        }
        _ => false,
    }
}

fn children<'v>(value: Option<&'v Value>, schema: &Schema, list: bool) -> Vec<(Arc<str>, &'v Value)> {
    match value {
        Some(Value::Object(map)) => map.iter().map(|(k, v)| (format!("f:{k}").into(), v)).collect(),
        Some(Value::Array(items)) if list => items.iter().map(|v| (item_key(v, schema).into(), v)).collect(),
        _ => Vec::new(),
    }
}

fn child_schema<'s>(schema: &'s Schema, element: &str, any: &'s Schema) -> &'s Schema {
    match element.strip_prefix("f:") {
        Some(name) => schema.child(name).map_or(any, |s| s),
        None => schema.items.as_deref().unwrap_or(any),
    }
}

/// Compares two values recursively.
pub(crate) fn compare<'v>(
    old: Option<&'v Value>,
    new: Option<&'v Value>,
    schema: &Schema,
    path: &mut Path,
    out: &mut Comparison,
) {
    // Members of maps are compared one by one anyway.
    let maps = !schema.atomic && old.is_some_and(Value::is_object) && new.is_some_and(Value::is_object);
    if maps || old.is_none() || old != new {
        compare_unequal(old, new, schema, path, out);
    }
}

/// Compares values that are not equal, or are maps.
fn compare_unequal<'v>(
    old: Option<&'v Value>,
    new: Option<&'v Value>,
    schema: &Schema,
    path: &mut Path,
    out: &mut Comparison,
) {
    let any = Schema::any();
    match node_kind(old, new, schema) {
        NodeKind::Leaf => {
            match (old, new) {
                (None, Some(_)) => out.added.insert(path.clone()),
                (Some(_), None) => out.removed.insert(path.clone()),
                (Some(a), Some(b)) if a != b => out.modified.insert(path.clone()),
                _ => false,
            };
            return;
        }
        NodeKind::Map => {
            let nothing = Map::new();
            let members = |v: Option<&'v Value>| v.and_then(Value::as_object);
            let (left, right) = (members(old).unwrap_or(&nothing), members(new).unwrap_or(&nothing));
            let added =
                right.iter().filter(|(key, _)| !left.contains_key(*key)).map(|(k, v)| (k, None, Some(v)));
            // Unchanged members need no path.
            let kept = left.iter().map(|(k, v)| (k, Some(v), right.get(k))).filter(|(_, a, b)| a != b);
            for (key, before, after) in kept.chain(added) {
                path.push(["f:", key].concat().into());
                compare_unequal(before, after, schema.child(key).map_or(&any, |s| s), path, out);
                path.pop();
            }
        }
        NodeKind::List => {
            let right = children(new, schema, true);
            let mut positions: HashMap<Arc<str>, VecDeque<usize>> = HashMap::new();
            for (i, (key, _)) in right.iter().enumerate() {
                positions.entry(key.clone()).or_default().push_back(i);
            }
            let items = schema.items.as_deref().unwrap_or(&any);
            let mut paired = vec![false; right.len()];
            for (key, value) in children(old, schema, true) {
                // Duplicate items are paired in order.
                let place = positions.get_mut(&key).and_then(VecDeque::pop_front);
                let other = place.and_then(|i| right.get(i)).map(|(_, other)| *other);
                if let Some(paired) = place.and_then(|i| paired.get_mut(i)) {
                    *paired = true;
                }
                path.push(key);
                compare(Some(value), other, items, path, out);
                path.pop();
            }
            for ((key, value), _) in right.into_iter().zip(paired).filter(|(_, paired)| !paired) {
                path.push(key);
                compare(None, Some(value), items, path, out);
                path.pop();
            }
        }
    }
    match (old, new) {
        (None, Some(_)) => out.added.insert(path.clone()),
        (Some(_), None) => out.removed.insert(path.clone()),
        _ => false,
    };
}

/// Collects the fields of an applied configuration.
pub(crate) fn collect_fields(value: &Value, schema: &Schema, path: &mut Path, out: &mut Set) {
    let any = Schema::any();
    let listed = match node_kind(Some(value), None, schema) {
        NodeKind::Leaf => {
            // An empty list whose items have owners has none itself.
            let has_items = value.is_array() && schema.list != ListType::Atomic;
            if !path.is_empty() && !has_items {
                out.insert(path.clone());
            }
            return;
        }
        NodeKind::Map => false,
        NodeKind::List => true,
    };
    for (key, child) in children(Some(value), schema, listed) {
        let known = key.strip_prefix("f:").is_some_and(|n| schema.properties.contains_key(n));
        path.push(key.clone());
        let empty = child.is_null() || child.as_object().is_some_and(Map::is_empty);
        if listed || empty || !known {
            out.insert(path.clone());
        }
        collect_fields(child, child_schema(schema, &key, &any), path, out);
        path.pop();
    }
}

/// Message about the first list with duplicate items.
pub(crate) fn first_duplicate_item(value: &Value, schema: &Schema, path: &mut Path) -> Option<String> {
    let any = Schema::any();
    let listed = matches!(node_kind(Some(value), None, schema), NodeKind::List);
    if matches!(node_kind(Some(value), None, schema), NodeKind::Leaf) {
        return None;
    }
    let all = children(Some(value), schema, listed);
    let mut seen = BTreeSet::new();
    for (key, child) in &all {
        if listed && !seen.insert(key) {
            let key_text = format_path(&vec![key.clone()]);
            return Some(format!("{}: duplicate entries for key {key_text}", format_path(path)));
        }
        path.push(key.clone());
        let found = first_duplicate_item(child, child_schema(schema, key, &any), path);
        path.pop();
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Removes fields without owners: identity, system metadata, and the root field that this endpoint cannot write.
pub(crate) fn strip_unmanaged(set: &mut Set, excluded_field: &str) {
    const META: [&str; 8] = [
        "f:name",
        "f:namespace",
        "f:creationTimestamp",
        "f:selfLink",
        "f:uid",
        "f:generation",
        "f:managedFields",
        "f:resourceVersion",
    ];
    set.retain(|path| {
        let mut elements = path.iter().map(|element| &**element);
        match (elements.next(), elements.next()) {
            (None, _) | (Some("f:apiVersion" | "f:kind" | "f:metadata"), None) => false,
            (Some(first), _) if first == excluded_field => false,
            (Some("f:metadata"), Some(name)) => !META.contains(&name),
            _ => true,
        }
    });
}

/// Decodes `fieldsV1`.
pub(crate) fn from_json(json: &Value, path: &mut Path, out: &mut Set) {
    let Some(map) = json.as_object() else { return };
    if map.is_empty() && !path.is_empty() {
        out.insert(path.clone());
    }
    for (key, child) in map {
        if key == "." {
            out.insert(path.clone());
            continue;
        }
        path.push(key.as_str().into());
        from_json(child, path, out);
        path.pop();
    }
}

/// Encodes `fieldsV1`.
pub(crate) fn to_json(set: &Set) -> Value {
    let paths: Vec<&Path> = set.iter().collect();
    to_json_below(&paths, 0)
}

/// Encodes paths that are equal up to this depth. They are sorted: common prefixes are adjacent, the shortest first.
fn to_json_below(paths: &[&Path], depth: usize) -> Value {
    let mut out = Map::new();
    let member = paths.first().is_some_and(|p| p.len() == depth);
    let longer = paths.get(usize::from(member)..).unwrap_or_default();
    if member && !longer.is_empty() {
        out.insert(".".into(), json!({}));
    }
    for group in longer.chunk_by(|a, b| a.get(depth) == b.get(depth)) {
        if let Some(element) = group.first().and_then(|p| p.get(depth)) {
            out.insert(element.to_string(), to_json_below(group, depth + 1));
        }
    }
    Value::Object(out)
}

/// Formats a path for messages: `.spec.containers[name="c"].image`.
pub(crate) fn format_path(path: &Path) -> String {
    let mut out = String::new();
    for element in path {
        match element.split_at_checked(2) {
            Some(("f:", name)) => {
                out.push('.');
                out.push_str(name);
            }
            Some(("k:", keys)) => {
                let parsed: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let parts: Vec<String> = parsed.iter().map(|(k, v)| format!("{k}={v}")).collect();
                out.push('[');
                out.push_str(&parts.join(","));
                out.push(']');
            }
            Some((_, value)) => {
                out.push_str("[=");
                out.push_str(value);
                out.push(']');
            }
            None => {}
        }
    }
    out
}
