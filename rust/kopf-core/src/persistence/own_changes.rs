//! Recognition of changes that this operator made itself: by its patches, and by clients that handlers use directly.
//!
//! Only changes by others cause an update. So the essences that handlers were called with are rebased onto each write of
//! this operator: fields of the patch get their values from the API server's response; and so do fields that changed during
//! the cycle if all their field managers are Python clients, because handlers write so without the patch. There is no other
//! sign of such writes. Without managed fields, a change of a field outside of the patch is attributed to others.

use crate::json::path::FieldPath;
use crate::json::value::{Map, Value, equal};
use crate::object::Object;
use crate::persistence::annotation_keys::drop_empty_stanzas;

/// Prefixes of the default field manager names of Python clients, in lower case.
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
/// The field manager of Kopf's patches.
const OWN_MANAGER: &str = "kopf";

/// A write of this operator: a patch, or writes of handlers with other clients during a cycle.
pub(super) struct OwnWrite<'w> {
    /// The essence at the start of the cycle.
    pub(super) before: &'w Value,
    /// The essence after the write.
    pub(super) after: &'w Value,
    /// The merge patch.
    pub(super) patch: &'w Map<String, Value>,
    /// The field managers after the write.
    pub(super) managers: &'w Managers,
}

impl OwnWrite<'_> {
    /// Carries an observed essence over the write: applies only those changes since then that are ours.
    pub(super) fn rebase(&self, observed: &Value) -> Value {
        let patch = Value::Object(self.patch.clone());
        let mut keys = Vec::new();
        let mut rebased = self
            .field(&mut keys, Some(observed), Some(self.before), Some(self.after), Some(&patch))
            .unwrap_or_else(|| Value::Object(Map::new()));
        drop_empty_stanzas(&mut rebased);
        rebased
    }

    fn field<'v>(
        &self,
        keys: &mut Vec<&'v str>,
        observed: Option<&'v Value>,
        before: Option<&'v Value>,
        after: Option<&'v Value>,
        patch: Option<&'v Value>,
    ) -> Option<Value> {
        let is_mapping = |value: Option<&Value>| value.is_some_and(Value::is_object);
        let is_same = match (before, after) {
            (Some(before), Some(after)) => equal(before, after),
            (before, after) => before.is_none() && after.is_none(),
        };
        // Kopf's annotations in the patch do not make all metadata ours: labels can be changed by others at the same time.
        let is_there = is_mapping(observed) || is_mapping(before) || keys.first() == Some(&"metadata");
        match patch {
            // The mapping existed before the patch: only the patched fields in it are ours.
            Some(Value::Object(_)) if is_there || keys.is_empty() => {}
            Some(_) => return after.cloned(),
            None if is_same => return observed.cloned(),
            None if is_mapping(after) && (is_mapping(observed) || is_mapping(before)) => {}
            None if after.is_some() && self.managers.are_python_clients(keys) => return after.cloned(),
            None => return observed.cloned(),
        }
        let sides = [after, observed, before, patch].map(|value| value.and_then(Value::as_object));
        let mut rebased = Map::new();
        for (key, _) in sides.iter().flatten().flat_map(|map| map.iter()) {
            if rebased.contains_key(key) {
                continue;
            }
            let [after, observed, before, patch] = sides.map(|map| map.and_then(|map| map.get(key)));
            keys.push(key);
            if let Some(value) = self.field(keys, observed, before, after, patch) {
                rebased.insert(key.clone(), value);
            }
            keys.pop();
        }
        let is_left = !rebased.is_empty() || is_mapping(after) || (is_mapping(observed) && patch.is_none());
        is_left.then_some(Value::Object(rebased))
    }
}

/// The field managers of an object by `metadata.managedFields`: whether each is a Python client, and its `fieldsV1`.
#[derive(Debug, Default)]
pub(super) struct Managers(Vec<(bool, Value)>);

impl Managers {
    /// Parses `metadata.managedFields`.
    pub(super) fn of(object: &Object) -> Self {
        let entries = object.field(&FieldPath::from_keys(["metadata", "managedFields"]));
        let entries = entries.as_ref().and_then(Value::as_array).into_iter().flatten();
        let entry = |entry: &Value| {
            let name = entry.get("manager").and_then(Value::as_str).unwrap_or_default();
            Some((is_python_client(name), entry.get("fieldsV1")?.clone()))
        };
        Self(entries.filter_map(entry).collect())
    }

    /// Whether the field has managers, and all of them are Python clients.
    fn are_python_clients(&self, keys: &[&str]) -> bool {
        let mut managers = self.0.iter().filter(|(_, fields)| has_field(fields, keys)).peekable();
        managers.peek().is_some() && managers.all(|(is_python, _)| *is_python)
    }

    /// Whether the field has managers, and none of them is a Python client.
    pub(super) fn are_others(&self, keys: &[&str]) -> bool {
        let mut managers = self.0.iter().filter(|(_, fields)| has_field(fields, keys)).peekable();
        managers.peek().is_some() && managers.all(|(is_python, _)| !is_python)
    }
}

fn is_python_client(manager: &str) -> bool {
    let name = manager.to_ascii_lowercase();
    name == OWN_MANAGER || PYTHON_CLIENTS.iter().any(|known| name.starts_with(known))
}

/// Whether the `fieldsV1` set contains the field or one of its parents as a whole.
pub(crate) fn has_field(fields: &Value, keys: &[&str]) -> bool {
    let Some((key, rest)) = keys.split_first() else { return true };
    match fields.as_object() {
        Some(map) if map.is_empty() => true,
        Some(map) => map.get(&format!("f:{key}")).is_some_and(|deeper| has_field(deeper, rest)),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rebase(observed: &Value, before: &Value, after: &Value, patch: &Value, managers: &Value) -> Value {
        let object = json!({"metadata": {"managedFields": managers}}).to_string();
        let managers = Managers::of(&Object::decode(&object).unwrap());
        let patch = patch.as_object().unwrap();
        OwnWrite { before, after, patch, managers: &managers }.rebase(observed)
    }

    #[test]
    fn fields_of_our_patch_are_ours_with_the_values_of_the_server() {
        let observed = json!({"spec": {"x": 1, "y": 1}, "metadata": {"labels": {"a": "1"}}});
        let after = json!({"spec": {"x": 2, "y": "one", "z": {"default": 1}}});
        let patch =
            json!({"spec": {"y": 1.0, "z": {}}, "metadata": {"labels": {"a": null}}, "status": {"s": 1}});
        let expected = json!({"spec": {"x": 1, "y": "one", "z": {"default": 1}}});
        assert_eq!(rebase(&observed, &observed, &after, &patch, &json!([])), expected);
    }

    #[test]
    fn fields_of_others_in_the_same_mapping_are_theirs() {
        let observed = json!({"spec": {}});
        let before = json!({"spec": {"m": {"theirs": 1}}});
        let after = json!({"spec": {"m": {"theirs": 1, "ours": 2}, "n": 3}});
        let patch = json!({"spec": {"m": {"ours": 2}}});
        let expected = json!({"spec": {"m": {"ours": 2}}});
        assert_eq!(rebase(&observed, &before, &after, &patch, &json!([])), expected);
    }

    #[test]
    fn labels_of_others_are_theirs_even_if_our_patch_adds_annotations() {
        let observed = json!({"spec": {}});
        let after = json!({"spec": {}, "metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}}});
        let patch = json!({"metadata": {"annotations": {"a": "1", "kopf.zalando.org/h": "{}"}}});
        let expected = json!({"spec": {}, "metadata": {"annotations": {"a": "1"}}});
        assert_eq!(rebase(&observed, &observed, &after, &patch, &json!([])), expected);
    }

    #[test]
    fn changes_by_python_clients_are_attributed_to_handlers() {
        let observed = json!({"spec": {"x": 1}, "metadata": {"labels": {"l": "1"}}});
        let after = json!({"spec": {"x": 2, "list": [1]}, "metadata": {"labels": {"l": "2"}}});
        let by = |manager: &str, fields: Value| json!({"manager": manager, "fieldsV1": fields});
        let managers = json!([
            by("kubectl-edit", json!({"f:spec": {"f:x": {}}})),
            by("OpenAPI-Generator", json!({"f:metadata": {"f:labels": {"f:l": {}}}})),
            by("python-httpx", json!({"f:spec": {"f:list": {}}})),
        ]);
        let expected = json!({"spec": {"x": 1, "list": [1]}, "metadata": {"labels": {"l": "2"}}});
        assert_eq!(rebase(&observed, &observed, &after, &json!({}), &managers), expected);
    }

    #[test]
    fn fields_with_other_managers_or_without_managers_are_of_others() {
        let observed = json!({"spec": {"x": 1, "gone": 1}});
        let after = json!({"spec": {"x": 2}});
        let both = json!({"f:spec": {"f:x": {}}});
        let managers = json!([
            {"manager": "kopf", "fieldsV1": both}, {"manager": "argocd-controller", "fieldsV1": both}, {"manager": "kopf"},
        ]);
        assert_eq!(rebase(&observed, &observed, &after, &json!({}), &managers), observed);
    }
}
