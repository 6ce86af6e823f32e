//! The merge patch under construction: everything that a cycle wants to change in its object.
//!
//! Owns: collecting changes. Must not know: how the patch travels.

use crate::path;
use crate::value::{Map, Value};

/// A JSON merge patch: what is named is set, `null` removes, what is not named stays.
#[derive(Default, Clone, Debug, PartialEq, Eq)]
pub struct Patch(pub Map<String, Value>);

impl Patch {
    /// Sets a field; `null` means its removal from the object.
    pub fn set<S: AsRef<str>>(&mut self, keys: &[S], value: Value) {
        path::ensure_in(&mut self.0, keys, value);
    }

    /// Takes a field out of the patch, so that it stays in the object as it is.
    pub fn unset<S: AsRef<str>>(&mut self, keys: &[S]) {
        path::remove_in(&mut self.0, keys);
    }

    /// What the patch says about a field.
    pub fn get<S: AsRef<str>>(&self, keys: &[S]) -> Option<&Value> {
        let (first, rest) = keys.split_first()?;
        path::resolve(self.0.get(first.as_ref())?, rest)
    }

    /// Sets an annotation, or removes it.
    pub fn set_annotation(&mut self, key: &str, value: Option<String>) {
        self.set(&["metadata", "annotations", key], value.map_or(Value::Null, Value::String));
    }

    /// Adds another patch; where both speak about a field, the other one wins.
    pub fn merge(&mut self, other: Map<String, Value>) {
        merge_into(&mut self.0, other);
    }

    /// Whether there is nothing to change.
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
