//! Fields that were changed and reverted during a handling.
//!
//! If the handler of such a field was called in between, it must be called for the reversal, even if the rest of the object has
//! changed meanwhile. It is called if the diff-base has the value that the handler was called with.

use super::Cycle;
use crate::json::value::{Map, Value, equal};
use std::sync::Arc;

impl Cycle {
    /// An essence with other values for its fields that are the same in `other`: those of the later essence. Unchanged if no handler
    /// is for a field: the other handlers are called for any difference.
    pub(super) fn with_reversals(
        &self,
        essence: &Arc<Value>,
        other: Option<&Arc<Value>>,
        later: Option<&Arc<Value>>,
    ) -> Arc<Value> {
        let has_field = |index: &usize| self.handler(*index).is_some_and(|handler| handler.field.is_some());
        let (Some(other), Some(later)) = (other, later) else { return Arc::clone(essence) };
        if !self.resource_handlers.changing.iter().any(has_field) {
            return Arc::clone(essence);
        }
        combined(Some(essence), Some(other), Some(later)).map_or_else(|| Arc::clone(essence), Arc::new)
    }
}

/// The value; but where it is the same in `other`, the value in `later`.
fn combined(value: Option<&Value>, other: Option<&Value>, later: Option<&Value>) -> Option<Value> {
    match (value, other) {
        (None, None) => later.cloned(),
        (Some(value), Some(other)) if equal(value, other) => later.cloned(),
        (Some(Value::Object(value)), Some(Value::Object(other))) => {
            let empty = Map::new();
            let later = later.and_then(Value::as_object).unwrap_or(&empty);
            let added = later.keys().filter(|key| !value.contains_key(*key));
            let fields = value.keys().chain(added).filter_map(|key| {
                Some((key.clone(), combined(value.get(key), other.get(key), later.get(key))?))
            });
            Some(Value::Object(fields.collect()))
        }
        _ => value.cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reverted_fields_have_the_later_values() {
        let present = json!({"spec": {"x": 1, "y": 2, "list": [1], "same": 1, "added": 1}});
        let first = json!({"spec": {"x": 1, "y": 1, "list": [1, 2], "same": 1, "removed": 1}});
        for (later, expected) in [
            // Nothing is reverted.
            (first.clone(), first.clone()),
            (json!({"spec": {"x": 1, "y": 3, "list": [2], "same": 1, "added": 1}}), first.clone()),
            // Changed, removed, and added in between.
            (
                json!({"spec": {"x": 2, "y": 3, "between": {"a": 1}}}),
                json!({"spec": {"x": 2, "y": 1, "list": [1, 2], "removed": 1, "between": {"a": 1}}}),
            ),
            (json!({}), json!({"spec": {"y": 1, "list": [1, 2], "removed": 1}})),
        ] {
            let found = combined(Some(&first), Some(&present), Some(&later)).unwrap();
            assert!(equal(&found, &expected), "{found}, not {expected}");
        }
    }
}
