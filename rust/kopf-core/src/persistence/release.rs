//! The removal of an operator's traces from an object: its finalizers, and the annotations with its state.

use serde_json::json;

use super::Persistence;
use super::finalizer::{self, Edit};
use crate::json::json_patch::operations;
use crate::json::value::Value;
use crate::object::Object;

/// The JSON patch that removes these finalizers; with the storages, also the annotations with the state. Those of other
/// operators and tools are kept.
///
/// The server rejects it if the object has changed since. `None` if there is nothing to remove, or if the object has no
/// resource version.
pub fn release(latest: &Object, finalizers: &[String], purged: Option<&Persistence>) -> Option<Vec<Value>> {
    let version = latest.resource_version()?;
    let before = latest.to_value();
    let mut released = before.clone();
    for name in finalizers {
        finalizer::edit(&mut released, name, Edit::Allow);
    }
    if let Some(persistence) = purged {
        remove_state(latest, &mut released, persistence);
    }
    let operations = operations(&before, &released);
    if operations.is_empty() {
        return None;
    }
    let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": version});
    Some(std::iter::once(test).chain(operations).collect())
}

fn remove_state(object: &Object, released: &mut Value, persistence: &Persistence) {
    let own = persistence.diffbase_storage.own_keys(object);
    let is_own =
        |key: &str| persistence.progress_storage.clears_annotation(key) || own.iter().any(|own| own == key);
    let annotations = released.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(Value::Object(annotations)) = annotations {
        annotations.retain(|key, _| !is_own(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "kopf.zalando.org/KopfFinalizerMarker";

    fn released(metadata: &Value, purged: Option<&Persistence>) -> Option<Vec<Value>> {
        let object = Object::decode(&json!({"metadata": metadata}).to_string()).unwrap();
        release(&object, &[OURS.to_owned(), "my.org/mine".to_owned()], purged)
    }

    #[test]
    fn own_finalizers_are_removed_and_others_stay() {
        let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"});
        for (finalizers, edit) in [
            (json!(["other", OURS]), json!({"op": "remove", "path": "/metadata/finalizers/1"})),
            (json!(["my.org/mine", OURS]), json!({"op": "remove", "path": "/metadata/finalizers"})),
        ] {
            let metadata = json!({"resourceVersion": "7", "finalizers": finalizers});
            assert_eq!(released(&metadata, None), Some(vec![test.clone(), edit]));
        }
    }

    #[test]
    fn there_is_no_patch_without_own_traces_or_without_a_version() {
        assert_eq!(released(&json!({"resourceVersion": "7", "finalizers": ["other"]}), None), None);
        assert_eq!(released(&json!({"finalizers": [OURS]}), None), None);
    }

    #[test]
    fn annotations_are_removed_only_with_the_storages() {
        let annotations = json!({
            "kopf.zalando.org/f": "{}", "kopf.zalando.org/last-handled-configuration": "{}", "other/x": "1",
            "kubectl.kubernetes.io/last-applied-configuration": "{}", "kit.kopf.zalando.org/paused": "true",
        });
        let metadata = json!({"resourceVersion": "7", "annotations": annotations});
        assert_eq!(released(&metadata, None), None);
        let patch = released(&metadata, Some(&Persistence::default())).unwrap();
        let removed: Vec<_> = patch.iter().skip(1).map(|edit| edit["path"].as_str().unwrap()).collect();
        assert_eq!(
            removed,
            [
                "/metadata/annotations/kopf.zalando.org~1f",
                "/metadata/annotations/kopf.zalando.org~1last-handled-configuration"
            ]
        );
    }
}
