//! Field paths: reading, writing and removing fields in nested mappings. Lists are leaves: paths do not lead into them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::json::value::{Map, Value};

/// A path of keys from the root of an object. The empty path is the whole object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FieldPath(Vec<Box<str>>);

impl FieldPath {
    /// Splits at every dot. Keys that have dots themselves need [`FieldPath::from_keys`].
    pub fn parse(dotted: &str) -> Self {
        if dotted.is_empty() { Self::default() } else { Self::from_keys(dotted.split('.')) }
    }

    /// Takes the keys as they are.
    pub fn from_keys<I, S>(keys: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<Box<str>>,
    {
        Self(keys.into_iter().map(Into::into).collect())
    }

    /// The keys, from the root.
    pub fn keys(&self) -> &[Box<str>] {
        &self.0
    }

    /// Whether it is the empty path.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// This path continued by another.
    #[must_use]
    pub fn join(&self, tail: &FieldPath) -> FieldPath {
        Self(self.0.iter().chain(&tail.0).cloned().collect())
    }

    /// This path continued by one key.
    #[must_use]
    pub fn child(&self, key: &str) -> FieldPath {
        let mut keys = self.0.clone();
        keys.push(key.into());
        Self(keys)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, key) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(".")?;
            }
            f.write_str(key)?;
        }
        Ok(())
    }
}

/// The value at the path, also `null`; `None` if a key is missing or a value on the path is not a mapping.
pub fn resolve<'v, S: AsRef<str>>(value: &'v Value, keys: &[S]) -> Option<&'v Value> {
    keys.iter().try_fold(value, |level, key| level.as_object()?.get(key.as_ref()))
}

/// Sets the value at the path. Missing levels are created, levels that are not mappings are replaced.
pub fn ensure<S: AsRef<str>>(value: &mut Value, keys: &[S], new: Value) {
    if keys.is_empty() {
        *value = new;
    } else if let Value::Object(map) = value {
        ensure_in(map, keys, new);
    } else {
        let mut map = Map::new();
        ensure_in(&mut map, keys, new);
        *value = Value::Object(map);
    }
}

/// Sets the value at the path in a mapping; does nothing for the empty path.
pub(crate) fn ensure_in<S: AsRef<str>>(map: &mut Map<String, Value>, keys: &[S], new: Value) {
    if let [key, rest @ ..] = keys {
        ensure(map.entry(key.as_ref()).or_insert(Value::Null), rest, new);
    }
}

/// Removes the leaf, and then its parents if they became empty. A missing field is not an error.
pub fn remove<S: AsRef<str>>(value: &mut Value, keys: &[S]) {
    if let Value::Object(map) = value {
        remove_in(map, keys);
    }
}

/// Removes the leaf and emptied parents in a mapping.
pub(crate) fn remove_in<S: AsRef<str>>(map: &mut Map<String, Value>, keys: &[S]) {
    match keys {
        [] => {}
        [leaf] => {
            map.shift_remove(leaf.as_ref());
        }
        [key, rest @ ..] => {
            let Some(Value::Object(level)) = map.get_mut(key.as_ref()) else { return };
            remove_in(level, rest);
            if level.is_empty() {
                map.shift_remove(key.as_ref());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // contract: engine 0.3
    #[test]
    fn paths_are_read_from_dots_and_lists() {
        assert_eq!(FieldPath::parse("a.b").keys(), FieldPath::from_keys(["a", "b"]).keys());
        assert_eq!(serde_json::from_value::<FieldPath>(json!(["a", "b.c"])).unwrap().to_string(), "a.b.c");
        assert!(FieldPath::parse("").is_empty());
        assert_eq!(FieldPath::parse("a").child("b.c").join(&FieldPath::parse("d")).keys().len(), 3);
    }

    // contract: engine 0.3
    #[test]
    fn resolving_stops_at_values_that_are_not_mappings() {
        let value = json!({"a": {"b": null, "c": [1]}});
        assert_eq!(resolve(&value, &["a", "b"]), Some(&Value::Null));
        assert_eq!(resolve(&value, &["a", "c", "0"]), None);
        assert_eq!(resolve(&value, &["a", "x"]), None);
        assert_eq!(resolve(&value, &[""; 0]), Some(&value));
    }

    #[test]
    fn ensuring_creates_and_replaces_levels() {
        let mut value = json!({"a": 1});
        ensure(&mut value, &["a", "b"], json!(2));
        ensure(&mut value, &["c"], json!(3));
        assert_eq!(value, json!({"a": {"b": 2}, "c": 3}));
    }

    // contract: engine 0.3
    #[test]
    fn removing_takes_emptied_parents_along_and_keeps_the_order() {
        let mut value = json!({"a": {"b": {"c": 1}}, "x": 1, "y": {}, "z": 5});
        remove(&mut value, &["a", "b", "c"]);
        remove(&mut value, &["z", "deeper"]);
        remove(&mut value, &["nowhere", "at", "all"]);
        assert_eq!(value.to_string(), r#"{"x":1,"y":{},"z":5}"#);
    }
}
