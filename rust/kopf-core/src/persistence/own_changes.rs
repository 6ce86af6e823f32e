//! Which changes of an object are our own: those that our patch has made, and those of the handlers' own clients.
//!
//! A change of the essence is followed by an update only if others have made it. So the essences that handlers have seen are
//! carried over to the state after each write of ours: with all fields of the patch as the server has them now, and with the
//! fields that changed in the time of the cycle, if the server names only clients of Python as their managers. That is how
//! handlers write when they do not use the patch; there is no other sign of it. Without managed fields, a change of
//! a field that is not in the patch is of others.

use crate::json::path::FieldPath;
use crate::json::value::{Map, Value, equal};
use crate::object::Object;
use crate::persistence::annotation_keys::drop_empty_stanzas;

/// The beginnings of the managers' names, in lower case, by which clients of Python go unless they are given other ones.
const PYTHON_CLIENTS: [&str; 9] = [
    "python",
    "openapi-generator",
    "swagger-codegen",
    "pykube",
    "lightkube",
    "kr8s",
    "aiohttp",
    "httpx",
    "urllib3",
];
/// The same as a whole name, of our patches.
const OWN_MANAGER: &str = "kopf";

/// One write of ours.
pub(super) struct OwnWrite<'w> {
    /// The essence as the cycle has seen it.
    pub(super) before: &'w Value,
    /// The essence as the write has left it.
    pub(super) after: &'w Value,
    /// What was merged into the object.
    pub(super) patch: &'w Map<String, Value>,
    /// Who manages which fields afterwards.
    pub(super) managers: &'w Managers,
}

impl OwnWrite<'_> {
    /// An essence that handlers have seen, with what is our own of the changes since then.
    pub(super) fn carry(&self, seen: &Value) -> Value {
        let patch = Value::Object(self.patch.clone());
        let mut keys = Vec::new();
        let mut carried = self
            .field(&mut keys, Some(seen), Some(self.before), Some(self.after), Some(&patch))
            .unwrap_or_else(|| Value::Object(Map::new()));
        drop_empty_stanzas(&mut carried);
        carried
    }

    fn field<'v>(
        &self,
        keys: &mut Vec<&'v str>,
        seen: Option<&'v Value>,
        before: Option<&'v Value>,
        after: Option<&'v Value>,
        patch: Option<&'v Value>,
    ) -> Option<Value> {
        let is_mapping = |value: Option<&Value>| value.is_some_and(Value::is_object);
        let is_same = match (before, after) {
            (Some(before), Some(after)) => equal(before, after),
            (before, after) => before.is_none() && after.is_none(),
        };
        // What only our own notes are about is not made by the patch: labels may come from others in the same time.
        let is_there = is_mapping(seen) || is_mapping(before) || keys.first() == Some(&"metadata");
        match patch {
            // Only what is inside is ours, unless the patch has made it.
            Some(Value::Object(_)) if is_there || keys.is_empty() => {}
            Some(_) => return after.cloned(),
            None if is_same => return seen.cloned(),
            None if is_mapping(after) && (is_mapping(seen) || is_mapping(before)) => {}
            None if after.is_some() && self.managers.are_python_clients(keys) => return after.cloned(),
            None => return seen.cloned(),
        }
        let sides = [after, seen, before, patch].map(|value| value.and_then(Value::as_object));
        let mut carried = Map::new();
        for (key, _) in sides.iter().flatten().flat_map(|map| map.iter()) {
            if carried.contains_key(key) {
                continue;
            }
            let [after, seen, before, patch] = sides.map(|map| map.and_then(|map| map.get(key)));
            keys.push(key);
            if let Some(value) = self.field(keys, seen, before, after, patch) {
                carried.insert(key.clone(), value);
            }
            keys.pop();
        }
        let is_left = !carried.is_empty() || is_mapping(after) || (is_mapping(seen) && patch.is_none());
        is_left.then_some(Value::Object(carried))
    }
}

/// Who manages which fields of an object, as far as the server says so.
#[derive(Debug, Default)]
pub(super) struct Managers(Vec<(bool, Value)>);

impl Managers {
    /// Reads them.
    pub(super) fn of(object: &Object) -> Self {
        let entries = object.field(&FieldPath::from_keys(["metadata", "managedFields"]));
        let entries = entries.as_ref().and_then(Value::as_array).into_iter().flatten();
        let entry = |entry: &Value| {
            let name = entry.get("manager").and_then(Value::as_str).unwrap_or_default();
            Some((is_python_client(name), entry.get("fieldsV1")?.clone()))
        };
        Self(entries.filter_map(entry).collect())
    }

    /// Whether the field has managers, and all of them are clients of Python.
    fn are_python_clients(&self, keys: &[&str]) -> bool {
        let mut managers = self.0.iter().filter(|(_, fields)| contains(fields, keys)).peekable();
        managers.peek().is_some() && managers.all(|(is_python, _)| *is_python)
    }
}

fn is_python_client(manager: &str) -> bool {
    let name = manager.to_ascii_lowercase();
    name == OWN_MANAGER || PYTHON_CLIENTS.iter().any(|known| name.starts_with(known))
}

/// Whether the set has the field, or something above it as a whole.
fn contains(fields: &Value, keys: &[&str]) -> bool {
    let Some((key, rest)) = keys.split_first() else { return true };
    match fields.as_object() {
        Some(map) if map.is_empty() => true,
        Some(map) => map.get(&format!("f:{key}")).is_some_and(|deeper| contains(deeper, rest)),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn carry(seen: &Value, before: &Value, after: &Value, patch: &Value, managers: &Value) -> Value {
        let object = json!({"metadata": {"managedFields": managers}}).to_string();
        let managers = Managers::of(&Object::decode(&object).unwrap());
        let patch = patch.as_object().unwrap();
        OwnWrite { before, after, patch, managers: &managers }.carry(seen)
    }

    #[test]
    fn fields_of_our_patch_are_ours_as_the_server_has_them() {
        let seen = json!({"spec": {"x": 1, "y": 1}, "metadata": {"labels": {"a": "1"}}});
        let after = json!({"spec": {"x": 2, "y": "one", "z": {"default": 1}}});
        let patch =
            json!({"spec": {"y": 1.0, "z": {}}, "metadata": {"labels": {"a": null}}, "status": {"s": 1}});
        let expected = json!({"spec": {"x": 1, "y": "one", "z": {"default": 1}}});
        assert_eq!(carry(&seen, &seen, &after, &patch, &json!([])), expected);
    }

    #[test]
    fn what_others_have_made_in_the_same_mapping_is_theirs() {
        let seen = json!({"spec": {}});
        let before = json!({"spec": {"m": {"theirs": 1}}});
        let after = json!({"spec": {"m": {"theirs": 1, "ours": 2}, "n": 3}});
        let patch = json!({"spec": {"m": {"ours": 2}}});
        let expected = json!({"spec": {"m": {"ours": 2}}});
        assert_eq!(carry(&seen, &before, &after, &patch, &json!([])), expected);
    }

    #[test]
    fn labels_of_others_are_theirs_though_we_write_the_first_annotation() {
        let seen = json!({"spec": {}});
        let after = json!({"spec": {}, "metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}}});
        let patch = json!({"metadata": {"annotations": {"a": "1", "kopf.zalando.org/h": "{}"}}});
        let expected = json!({"spec": {}, "metadata": {"annotations": {"a": "1"}}});
        assert_eq!(carry(&seen, &seen, &after, &patch, &json!([])), expected);
    }

    #[test]
    fn what_clients_of_python_have_changed_meanwhile_is_of_the_handlers() {
        let seen = json!({"spec": {"x": 1}, "metadata": {"labels": {"l": "1"}}});
        let after = json!({"spec": {"x": 2, "list": [1]}, "metadata": {"labels": {"l": "2"}}});
        let by = |manager: &str, fields: Value| json!({"manager": manager, "fieldsV1": fields});
        let managers = json!([
            by("kubectl-edit", json!({"f:spec": {"f:x": {}}})),
            by("OpenAPI-Generator", json!({"f:metadata": {"f:labels": {"f:l": {}}}})),
            by("python-httpx", json!({"f:spec": {"f:list": {}}})),
        ]);
        let expected = json!({"spec": {"x": 1, "list": [1]}, "metadata": {"labels": {"l": "2"}}});
        assert_eq!(carry(&seen, &seen, &after, &json!({}), &managers), expected);
    }

    #[test]
    fn what_is_managed_by_others_too_or_by_nobody_is_of_others() {
        let seen = json!({"spec": {"x": 1, "gone": 1}});
        let after = json!({"spec": {"x": 2}});
        let both = json!({"f:spec": {"f:x": {}}});
        let managers = json!([
            {"manager": "kopf", "fieldsV1": both}, {"manager": "argocd-controller", "fieldsV1": both}, {"manager": "kopf"},
        ]);
        assert_eq!(carry(&seen, &seen, &after, &json!({}), &managers), seen);
    }
}
