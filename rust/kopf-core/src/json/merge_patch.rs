//! The merge patch under construction: all changes that a cycle makes to its object.

use crate::json::path;
use crate::json::value::{Map, Value, equal};

/// A JSON merge patch: it sets the fields that it contains, or removes those that are `null`.
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub struct Patch(pub Map<String, Value>);

impl Patch {
    /// Sets a field; `null` means its removal from the object.
    pub fn set<S: AsRef<str>>(&mut self, keys: &[S], value: Value) {
        path::ensure_in(&mut self.0, keys, value);
    }

    /// Drops a field from the patch, so that the object keeps its value.
    pub fn unset<S: AsRef<str>>(&mut self, keys: &[S]) {
        path::remove_in(&mut self.0, keys);
    }

    /// The value of a field in the patch; `None` if the patch does not contain it.
    pub fn get<S: AsRef<str>>(&self, keys: &[S]) -> Option<&Value> {
        let (first, rest) = keys.split_first()?;
        path::resolve(self.0.get(first.as_ref())?, rest)
    }

    /// Sets an annotation; `None` removes it from the object.
    pub fn set_annotation(&mut self, key: &str, value: Option<String>) {
        self.set(&["metadata", "annotations", key], value.map_or(Value::Null, Value::String));
    }

    /// Merges another patch into this one; if both contain a field, the other one wins.
    pub fn merge(&mut self, other: Map<String, Value>) {
        merge_into(&mut self.0, other);
    }

    /// Whether the patch changes nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn merge_into(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge_into(old, new),
            (Some(old), new) => *old = new,
            (None, new) => {
                into.insert(key, new);
            }
        }
    }
}

/// The merge patch that sets the fields of another patch to their present values.
pub(crate) fn reverted(patch: &Map<String, Value>, present: Option<&Value>) -> Map<String, Value> {
    let field = |(key, value): (&String, &Value)| {
        let present = present.and_then(|present| present.get(key));
        let reverted = match (value, present) {
            (Value::Object(deeper), Some(Value::Object(_))) => Value::Object(reverted(deeper, present)),
            (_, present) => present.cloned().unwrap_or_default(),
        };
        (key.clone(), reverted)
    };
    patch.iter().map(field).collect()
}

/// Whether the patch contains only removals.
pub(crate) fn is_removal(patch: &Map<String, Value>) -> bool {
    patch.values().all(|value| match value {
        Value::Object(deeper) => is_removal(deeper),
        value => value.is_null(),
    })
}

pub(crate) fn without_nulls(patch: Map<String, Value>) -> Map<String, Value> {
    let part = patch.into_iter().filter_map(|(key, value)| match value {
        Value::Null => None,
        Value::Object(deeper) => {
            let deeper = without_nulls(deeper);
            (!deeper.is_empty()).then_some((key, Value::Object(deeper)))
        }
        value => Some((key, value)),
    });
    part.collect()
}

pub(crate) fn missing_part<'p>(
    patch: &Map<String, Value>,
    present: impl Fn(&str) -> Option<&'p Value>,
) -> Map<String, Value> {
    let part = patch.iter().filter_map(|(key, expected)| {
        let part = match (expected, present(key)) {
            (Value::Object(expected), present) => {
                let deeper = missing_in(expected, present);
                (!deeper.is_empty()).then_some(Value::Object(deeper))
            }
            (Value::Null, None | Some(Value::Null)) => None,
            (expected, Some(present)) if equal(expected, present) => None,
            (expected, _) => Some(expected.clone()),
        };
        Some((key.clone(), part?))
    });
    part.collect()
}

fn missing_in(expected: &Map<String, Value>, present: Option<&Value>) -> Map<String, Value> {
    missing_part(expected, |key| present?.get(key))
}

/// The part of a merge patch that changes the present value, if there is any. An empty object is a change if there is none.
pub(crate) fn changing_part(patch: Value, present: Option<&Value>) -> Option<Value> {
    let Value::Object(fields) = patch else {
        return (!equal(&patch, present.unwrap_or(&Value::Null))).then_some(patch);
    };
    let is_created = fields.is_empty() && !present.is_some_and(Value::is_object);
    let part = fields.into_iter().filter_map(|(key, value)| {
        let part = changing_part(value, present.and_then(|present| present.get(&key)))?;
        Some((key, part))
    });
    let part: Map<String, Value> = part.collect();
    (is_created || !part.is_empty()).then_some(Value::Object(part))
}

/// The part of a patch with the fields that the other patch does not contain.
pub fn subtract(patch: Map<String, Value>, other: &Map<String, Value>) -> Map<String, Value> {
    let rest = patch.into_iter().filter_map(|(key, value)| match (value, other.get(&key)) {
        (value, None) => Some((key, value)),
        (Value::Object(mine), Some(Value::Object(theirs))) => {
            let rest = subtract(mine, theirs);
            (!rest.is_empty()).then_some((key, Value::Object(rest)))
        }
        (_, Some(_)) => None,
    });
    rest.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_set_unset_and_removed() {
        let mut patch = Patch::default();
        patch.set(&["spec", "a"], json!(1));
        patch.set_annotation("x/y", Some("v".into()));
        patch.set_annotation("x/z", None);
        assert_eq!(
            Value::Object(patch.0.clone()),
            json!({"spec": {"a": 1}, "metadata": {"annotations": {"x/y": "v", "x/z": null}}})
        );
        assert_eq!(patch.get(&["spec", "a"]), Some(&json!(1)));
        patch.unset(&["metadata", "annotations", "x/y"]);
        patch.unset(&["metadata", "annotations", "x/z"]);
        patch.unset(&["spec", "a"]);
        assert!(patch.is_empty());
    }

    #[test]
    fn the_later_patch_wins_field_by_field() {
        let mut patch = Patch::default();
        patch.set(&["status", "a", "b"], json!(1));
        patch.set(&["status", "c"], json!({"x": 1}));
        let Value::Object(other) = json!({"status": {"a": {"d": 2}, "c": null}, "spec": 3}) else { panic!() };
        patch.merge(other);
        let merged = json!({"status": {"a": {"b": 1, "d": 2}, "c": null}, "spec": 3});
        assert_eq!(Value::Object(patch.0), merged);
    }
}
