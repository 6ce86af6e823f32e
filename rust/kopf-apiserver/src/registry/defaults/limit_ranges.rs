//! Defaults of limit ranges.

use serde_json::{Value, json};

use super::{each, set};

/// Limits of containers default to the maximum, requests to the limits or the minimum.
pub(super) fn fill_defaults(value: &mut Value) {
    for item in each(value, "/spec/limits").filter(|item| item["type"] == "Container") {
        copy(item, "max", "default");
        copy(item, "default", "defaultRequest");
        copy(item, "min", "defaultRequest");
    }
}

/// Copies the quantities that the other member does not have.
fn copy(item: &mut Value, from: &str, to: &str) {
    let quantities = item.get(from).and_then(Value::as_object).cloned();
    for (name, quantity) in quantities.into_iter().flatten() {
        set(item, to, json!({}));
        if let Some(target) = item.get_mut(to) {
            set(target, &name, quantity);
        }
    }
}
