//! The fields of one write with their values, to recognise that another client has changed them back.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::json::path::FieldPath;
use crate::json::value::Value;
use crate::object::Object;
use crate::persistence::own_changes::has_field;

/// The fields that identify an object, or that the server sets.
const IDENTITY: [&[&str]; 7] = [
    &["apiVersion"],
    &["kind"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "uid"],
    &["metadata", "resourceVersion"],
    &["metadata", "managedFields"],
];

/// The fields of one write, with hashes of their values in the response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenFields {
    manager: Box<str>,
    fields: Vec<(FieldPath, u64)>,
}

impl WrittenFields {
    /// The fields of a request of this field manager: an object, a merge patch, or a JSON patch. Lists count as a whole.
    pub fn of(request: &Value, response: &Object, manager: &str) -> Self {
        let mut paths = vec![];
        match request.as_array() {
            Some(operations) => {
                let pointers =
                    operations.iter().filter_map(|operation| operation.get("path").and_then(Value::as_str));
                paths.extend(pointers.map(path_of_pointer));
            }
            None => collect(request, &mut vec![], &mut paths),
        }
        let is_identity =
            |path: &Vec<String>| IDENTITY.iter().any(|identity| path.iter().eq(identity.iter()));
        let fields = paths.into_iter().filter(|path| !path.is_empty() && !is_identity(path));
        let fields = fields.map(|path| {
            let path = FieldPath::from_keys(path);
            let hash = hash_at(response, &path);
            (path, hash)
        });
        Self { manager: manager.into(), fields: fields.collect() }
    }

    /// The field manager that has written them.
    pub fn manager(&self) -> &str {
        &self.manager
    }

    /// The fields whose values in this state differ from the written ones. If only the metadata is known, these are the fields
    /// that the manager does not own any more.
    pub fn differing<'f>(&'f self, state: &'f Object) -> impl Iterator<Item = &'f FieldPath> {
        let is_whole = state.stanzas().any(|(key, _)| !matches!(key, "apiVersion" | "kind" | "metadata"));
        let differs = move |path: &FieldPath, hash: u64| {
            if is_whole || path.keys().first().is_some_and(|key| &**key == "metadata") {
                hash_at(state, path) != hash
            } else {
                !managers(state, path).contains(&self.manager.to_string())
            }
        };
        self.fields.iter().filter(move |(path, hash)| differs(path, *hash)).map(|(path, _)| path)
    }

    /// The fields that an earlier write has not written, or with other values.
    pub fn changed_since(&self, before: &Self) -> Vec<&FieldPath> {
        self.fields.iter().filter(|field| !before.fields.contains(field)).map(|(path, _)| path).collect()
    }
}

/// The names of the managers that own a field of the object, without this one.
pub(super) fn other_managers(object: &Object, path: &FieldPath, own: &str) -> Vec<String> {
    managers(object, path).into_iter().filter(|name| name != own).collect()
}

fn managers(object: &Object, path: &FieldPath) -> Vec<String> {
    let keys: Vec<&str> = path.keys().iter().map(|key| &**key).collect();
    let mut names: Vec<String> = entries_of(object)
        .iter()
        .filter(|entry| entry.get("fieldsV1").is_some_and(|fields| has_field(fields, &keys)))
        .filter_map(|entry| entry.get("manager")?.as_str().map(str::to_owned))
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Whether the last write of the object is that of this manager, by `metadata.managedFields`. The times have a resolution of one
/// second: within the same second, the answer is no.
pub fn is_last_writer(object: &Object, manager: &str) -> bool {
    let entries = entries_of(object);
    let is_own = |entry: &&Value| entry.get("manager").and_then(Value::as_str) == Some(manager);
    let time = |entry: &Value| entry.get("time").and_then(Value::as_str).unwrap_or_default().to_owned();
    let own = entries.iter().filter(is_own).map(time).max();
    let others = entries.iter().filter(|entry| !is_own(entry)).map(time).max();
    own.is_some() && own > others
}

fn entries_of(object: &Object) -> Vec<Value> {
    let managed = object.field(&FieldPath::from_keys(["metadata", "managedFields"]));
    managed.and_then(|managed| managed.as_array().cloned()).unwrap_or_default()
}

fn collect(value: &Value, keys: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    match value.as_object().filter(|map| !map.is_empty()) {
        Some(map) => {
            for (key, value) in map {
                keys.push(key.clone());
                collect(value, keys, paths);
                keys.pop();
            }
        }
        None => paths.push(keys.clone()),
    }
}

/// The keys of a JSON pointer, up to the first index of a list.
fn path_of_pointer(pointer: &str) -> Vec<String> {
    let keys = pointer.split('/').skip(1).map(|key| key.replace("~1", "/").replace("~0", "~"));
    keys.take_while(|key| key != "-" && key.parse::<usize>().is_err()).collect()
}

fn hash_at(object: &Object, path: &FieldPath) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.field(path).map(|value| value.to_string()).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: &Value) -> Object {
        Object::decode(&value.to_string()).unwrap()
    }

    fn paths(fields: &WrittenFields) -> Vec<String> {
        fields.changed_since(&WrittenFields::default()).into_iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_fields_of_requests_are_their_leaves() {
        let response = object(&json!({"spec": {"a": 1, "b": [1]}}));
        let applied = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x", "labels": {"l": "1"}},
                             "spec": {"a": 1, "b": [1], "c": {}}});
        let fields = WrittenFields::of(&applied, &response, "kopf");
        assert_eq!(paths(&fields), ["metadata.labels.l", "spec.a", "spec.b", "spec.c"]);
        let patch = json!([{"op": "add", "path": "/spec/b/0", "value": 1}, {"op": "remove", "path": "/metadata/labels/a~1b"}]);
        let fields = WrittenFields::of(&patch, &response, "kopf");
        assert_eq!(fields.fields.len(), 2);
        assert_eq!(fields.fields[0].0, FieldPath::from_keys(["spec", "b"]));
        assert_eq!(fields.fields[1].0, FieldPath::from_keys(["metadata", "labels", "a/b"]));
    }

    #[test]
    fn fields_that_others_change_back_differ() {
        let response = object(&json!({"spec": {"a": 1, "b": [1], "other": 1}}));
        let fields = WrittenFields::of(&json!({"spec": {"a": 1, "b": [1], "gone": null}}), &response, "kopf");
        let differing = |state: &Value| {
            let state = object(state);
            fields.differing(&state).map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(differing(&json!({"spec": {"a": 1, "b": [1], "other": 2}})).is_empty());
        assert_eq!(differing(&json!({"spec": {"a": 0, "b": [1], "gone": 1}})), ["spec.a", "spec.gone"]);
    }

    #[test]
    fn without_their_values_fields_that_others_own_differ() {
        let response = object(&json!({"spec": {"a": 1}}));
        let fields = WrittenFields::of(&json!({"spec": {"a": 1}}), &response, "kopf");
        let of = |manager: &str| {
            let managed = json!([{"manager": manager, "fieldsV1": {"f:spec": {"f:a": {}}}}]);
            object(&json!({"kind": "PartialObjectMetadata", "metadata": {"managedFields": managed}}))
        };
        assert_eq!(fields.differing(&of("kopf")).count(), 0);
        assert_eq!(fields.differing(&of("other")).count(), 1);
    }

    #[test]
    fn the_last_writer_is_known_by_the_times_of_managers() {
        let of = |entries: Value| object(&json!({"metadata": {"managedFields": entries}}));
        let entry = |manager: &str, second: u8| json!({"manager": manager, "time": format!("2026-01-01T00:00:0{second}Z"), "fieldsV1": {"f:spec": {"f:a": {}}}});
        assert!(is_last_writer(&of(json!([entry("kopf", 1)])), "kopf"));
        assert!(is_last_writer(&of(json!([entry("kopf", 2), entry("x", 1)])), "kopf"));
        assert!(!is_last_writer(&of(json!([entry("kopf", 1), entry("x", 1)])), "kopf"), "the same second");
        assert!(!is_last_writer(&of(json!([entry("x", 1)])), "kopf"));
        let both = of(json!([entry("kopf", 1), entry("x", 1), entry("y", 1)]));
        assert_eq!(other_managers(&both, &FieldPath::from_keys(["spec", "a"]), "kopf"), ["x", "y"]);
        assert!(other_managers(&both, &FieldPath::from_keys(["spec", "b"]), "kopf").is_empty());
    }
}
