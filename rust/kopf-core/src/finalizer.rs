//! Our finalizer: what keeps an object from vanishing before its handlers are done.
//!
//! Owns: editing the list. Must not know: when it is needed.

use serde_json::json;

use crate::path;
use crate::value::Value;

/// What to do with the finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Edit {
    /// Keep the object from being deleted.
    Block,
    /// Let it go.
    Allow,
}

/// Edits the finalizers of an object in place; those of others stay untouched.
pub fn edit(doc: &mut Value, finalizer: &str, edit: Edit) {
    const FIELD: [&str; 2] = ["metadata", "finalizers"];
    let mut finalizers = match path::resolve(doc, &FIELD) {
        Some(Value::Array(items)) => items.clone(),
        _ => Vec::new(),
    };
    let present = finalizers.iter().any(|item| item == finalizer);
    match edit {
        Edit::Block if !present => {
            finalizers.push(json!(finalizer));
            path::ensure(doc, &FIELD, Value::Array(finalizers));
        }
        Edit::Allow if present => {
            finalizers.retain(|item| item != finalizer);
            if !finalizers.is_empty() {
                path::ensure(doc, &FIELD, Value::Array(finalizers));
            } else if let Some(metadata) = doc.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.shift_remove("finalizers");
            }
        }
        Edit::Block | Edit::Allow => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocking_appends_once() {
        let mut doc = json!({"metadata": {"finalizers": ["other"]}});
        edit(&mut doc, "ours", Edit::Block);
        edit(&mut doc, "ours", Edit::Block);
        assert_eq!(doc, json!({"metadata": {"finalizers": ["other", "ours"]}}));
    }

    #[test]
    fn allowing_removes_all_of_ours_and_an_empty_list() {
        let mut doc = json!({"metadata": {"finalizers": ["ours", "other", "ours"], "name": "n"}});
        edit(&mut doc, "ours", Edit::Allow);
        assert_eq!(doc, json!({"metadata": {"finalizers": ["other"], "name": "n"}}));
        edit(&mut doc, "other", Edit::Allow);
        assert_eq!(doc, json!({"metadata": {"name": "n"}}));
    }

    #[test]
    fn absent_or_null_lists_are_no_obstacle() {
        for mut doc in [json!({}), json!({"metadata": null}), json!({"metadata": {"finalizers": null}})] {
            edit(&mut doc, "ours", Edit::Allow);
            edit(&mut doc, "ours", Edit::Block);
            assert_eq!(doc, json!({"metadata": {"finalizers": ["ours"]}}));
        }
    }
}
