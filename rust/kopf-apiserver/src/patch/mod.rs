//! Patch types, as pure functions over JSON values. Server-side apply is in `apply`.

pub(crate) mod json;
pub(crate) mod strategic;

use serde_json::{Map, Value};

/// Patch type of a content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    pub(crate) fn of(content_type: &str) -> Option<Self> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            "application/apply-patch+yaml" => Some(Self::Apply),
            _ => None,
        }
    }
}

/// JSON merge patch (RFC 7386). As in kube-apiserver, objects in lists lose their nulls, too.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        drop_nulls_in_items(target);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(map) = target else { return };
    for (key, change) in changes {
        if change.is_null() {
            map.shift_remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}

fn drop_nulls_in_items(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(drop_nulls_in_items),
        Value::Object(map) => {
            map.retain(|_, child| !child.is_null());
            map.values_mut().for_each(drop_nulls_in_items);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn merge_patches_drop_nulls_but_not_null_items() {
        let mut value = json!({"a": 1, "b": [{"c": 1}]});
        merge(&mut value, &json!({"a": null, "b": [{"c": null, "d": [null, {"e": null, "f": 1}]}, null]}));
        assert_eq!(value, json!({"b": [{"d": [null, {"f": 1}]}, null]}));
    }
}
