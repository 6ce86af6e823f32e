//! Kopf's finalizer, which blocks the deletion of an object until its deletion handlers have finished.

use serde_json::json;

use crate::json::path::{self, FieldPath};
use crate::json::value::{Value, equal};
use crate::object::Object;
use crate::persistence::Persistence;
use crate::persistence::essence::essence;

/// A change of Kopf's finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Edit {
    /// Add the finalizer: block the deletion.
    Block,
    /// Remove the finalizer: allow the deletion.
    Allow,
}

/// Whether an edit that was decided for one state of an object can be applied to a later state without another cycle. A
/// finalizer cannot be removed if the essence has changed: deletion handlers whose filters did not match before may match
/// now.
pub fn holds(
    edit: Edit,
    decided: &Object,
    latest: &Object,
    persistence: &Persistence,
    extra: &[FieldPath],
) -> bool {
    let is_deleting = |object: &Object| object.deletion_timestamp().is_some();
    let essence = |object: &Object| essence(object, persistence, extra);
    decided.resource_version() == latest.resource_version()
        || (is_deleting(decided) == is_deleting(latest)
            && (edit == Edit::Block || equal(&essence(decided), &essence(latest))))
}

/// Edits the finalizers of an object in place; finalizers of others are kept.
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
    fn an_edit_holds_for_later_states_with_an_equal_essence() {
        let object = |version: &str, label: &str, deleted: Option<&str>| {
            let metadata =
                json!({"resourceVersion": version, "labels": {"x": label}, "deletionTimestamp": deleted});
            let body = json!({"metadata": metadata, "status": {"seen": version}});
            Object::decode(&body.to_string()).unwrap()
        };
        let holds = |edit, latest: &Object| {
            holds(edit, &object("1", "a", None), latest, &Persistence::default(), &[])
        };
        for (latest, allow, block) in [
            (object("1", "a", None), true, true),
            (object("2", "a", None), true, true),
            (object("2", "b", None), false, true),
            (object("2", "a", Some("now")), false, false),
        ] {
            assert_eq!(
                (holds(Edit::Allow, &latest), holds(Edit::Block, &latest)),
                (allow, block),
                "{latest:?}"
            );
        }
    }

    #[test]
    fn blocking_appends_once() {
        let mut doc = json!({"metadata": {"finalizers": ["other"]}});
        edit(&mut doc, "ours", Edit::Block);
        edit(&mut doc, "ours", Edit::Block);
        assert_eq!(doc, json!({"metadata": {"finalizers": ["other", "ours"]}}));
    }

    // contract: engine 3.5
    #[test]
    fn allowing_removes_our_finalizer_and_an_empty_list() {
        let mut doc = json!({"metadata": {"finalizers": ["ours", "other", "ours"], "name": "n"}});
        edit(&mut doc, "ours", Edit::Allow);
        assert_eq!(doc, json!({"metadata": {"finalizers": ["other"], "name": "n"}}));
        edit(&mut doc, "other", Edit::Allow);
        assert_eq!(doc, json!({"metadata": {"name": "n"}}));
    }

    #[test]
    fn absent_and_null_lists_are_replaced() {
        for mut doc in [json!({}), json!({"metadata": null}), json!({"metadata": {"finalizers": null}})] {
            edit(&mut doc, "ours", Edit::Allow);
            edit(&mut doc, "ours", Edit::Block);
            assert_eq!(doc, json!({"metadata": {"finalizers": ["ours"]}}));
        }
    }
}
