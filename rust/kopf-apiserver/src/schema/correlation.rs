//! Correlation of the items of an associative list with those of the old object.

use std::collections::HashMap;

use serde_json::Value;

use super::{ListType, Schema};

/// The items of an old associative list by their keys. Other lists have none.
pub(super) struct OldItems<'v> {
    keys: &'v [String],
    items: HashMap<Vec<Option<&'v Value>>, &'v Value>,
}

impl<'v> OldItems<'v> {
    pub(super) fn new(old: Option<&'v Value>, schema: &'v Schema) -> Self {
        let ListType::Map(keys) = &schema.list else { return Self { keys: &[], items: HashMap::new() } };
        let mut items = HashMap::new();
        for item in old.and_then(Value::as_array).into_iter().flatten() {
            // Of duplicate items, the first one counts.
            items.entry(identity(item, keys)).or_insert(item);
        }
        Self { keys, items }
    }

    /// The old item with the keys of this one.
    pub(super) fn get(&self, item: &Value) -> Option<&'v Value> {
        self.items.get(&identity(item, self.keys)).copied()
    }
}

fn identity<'v>(item: &'v Value, keys: &[String]) -> Vec<Option<&'v Value>> {
    keys.iter().map(|key| item.get(key)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn items_are_correlated_by_their_keys() {
        let list = |kind: &str| {
            Schema::from_json(&json!({"type": "array", "x-kubernetes-list-type": kind,
                "x-kubernetes-list-map-keys": ["a", "b"], "items": {"type": "object"}}))
        };
        let old = json!([{"a": 1, "b": 1, "v": 1}, {"a": 1, "v": 2}, {"a": 1, "b": 1, "v": 3}]);
        for (kind, item, expected) in [
            ("map", json!({"a": 1, "b": 1, "v": 9}), Some(1)),
            ("map", json!({"a": 1}), Some(2)),
            ("map", json!({"a": 1, "b": null}), None),
            ("map", json!({"a": 2, "b": 1}), None),
            ("atomic", json!({"a": 1, "b": 1}), None),
        ] {
            let schema = list(kind);
            let found = OldItems::new(Some(&old), &schema).get(&item).map(|found| found["v"].clone());
            assert_eq!(found, expected.map(Value::from), "{kind} {item}");
        }
    }
}
