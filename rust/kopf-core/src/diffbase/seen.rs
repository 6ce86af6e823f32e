//! The essence that the first handlers of a sequence have seen, while others are still to be called: beside the diff-base.
//!
//! If the operator dies in between, and the object changes meanwhile, the next operator knows by this that those who have
//! finished have missed a change. It is short: what is long is replaced by its digest. Storages in the status have none.

use super::condensed::{brief, restored};
use super::{DiffBaseStorage, purge_annotation};
use crate::conventions::{make_keys, store_marker};
use crate::object::Object;
use crate::patch::Patch;
use crate::value::Value;

/// What is added to the key of the diff-base.
const SUFFIX: &str = ".seen";

impl DiffBaseStorage {
    /// Puts it into the patch.
    pub fn store_seen(&self, object: &Object, patch: &mut Patch, essence: &Value) {
        match self {
            Self::Annotations { prefix, .. } => {
                for key in self.seen_keys(object) {
                    patch.set_annotation(&key, Some(brief(object, essence)));
                }
                store_marker(prefix, object, patch);
            }
            Self::Status { .. } | Self::Foreign => {}
            Self::Multi { storages } => storages.iter().for_each(|it| it.store_seen(object, patch, essence)),
        }
    }

    /// What was seen, as far as it can be known from the present essence. What cannot be read is none.
    pub fn fetch_seen(&self, object: &Object, present: impl FnOnce() -> Value) -> Option<Value> {
        let texts = self.seen_keys(object);
        let text = texts.iter().find_map(|key| object.annotation(key))?;
        Some(restored(serde_json::from_str(&text).ok()?, &present()))
    }

    /// Removes it.
    pub fn purge_seen(&self, object: &Object, patch: &mut Patch) {
        for key in self.seen_keys(object) {
            purge_annotation(object, patch, &key);
        }
    }

    /// The keys of the annotations where it is.
    pub(crate) fn seen_keys(&self, object: &Object) -> Vec<String> {
        match self {
            Self::Annotations { prefix, key, .. } => {
                make_keys(prefix, &[key, SUFFIX].concat(), false, Some(object))
            }
            Self::Status { .. } | Self::Foreign => Vec::new(),
            Self::Multi { storages } => storages.iter().flat_map(|it| it.seen_keys(object)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const KEY: &str = "kopf.zalando.org/last-handled-configuration.seen";

    fn object(kind: &str, annotations: &Value) -> Object {
        let body =
            json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "n", "annotations": annotations}});
        Object::decode(&body.to_string()).unwrap()
    }

    fn stored(kind: &str, essence: &Value) -> Value {
        let mut patch = Patch::default();
        DiffBaseStorage::default().store_seen(&object(kind, &json!({})), &mut patch, essence);
        patch.get(&["metadata", "annotations"]).cloned().unwrap()
    }

    fn fetched(annotations: &Value, present: &Value) -> Option<Value> {
        DiffBaseStorage::default().fetch_seen(&object("K", annotations), || present.clone())
    }

    #[test]
    fn what_is_short_is_kept_as_it_is() {
        let essence = json!({"spec": {"x": 1}});
        assert_eq!(fetched(&stored("K", &essence), &json!({"spec": {"x": 2}})), Some(essence));
        assert_eq!(fetched(&json!({}), &json!({})), None);
        assert_eq!(fetched(&json!({KEY: "{"}), &json!({})), None);
    }

    #[test]
    fn what_is_long_is_short_and_tells_what_has_changed() {
        let essence = |value: &str, x: u8| json!({"spec": {"long": value.repeat(2000), "same": "s".repeat(2000), "x": x}});
        let annotations = stored("K", &essence("a", 1));
        assert!(annotations[KEY].as_str().unwrap().len() < 1024);
        assert_eq!(fetched(&annotations, &essence("a", 1)), Some(essence("a", 1)));
        let mut expected = essence("a", 1);
        expected["spec"].as_object_mut().unwrap().shift_remove("long");
        assert_eq!(fetched(&annotations, &essence("b", 2)), Some(expected));
    }

    #[test]
    fn payloads_of_secrets_are_not_copied() {
        let annotations = stored("Secret", &json!({"data": {"password": "cGxhbnRlZA=="}}));
        assert!(!annotations[KEY].as_str().unwrap().contains("cGxhbnRlZA"));
    }

    #[test]
    fn it_is_removed_if_it_is_there() {
        let storage = DiffBaseStorage::default();
        let mut patch = Patch::default();
        storage.purge_seen(&object("K", &json!({})), &mut patch);
        assert!(patch.is_empty());
        storage.purge_seen(&object("K", &json!({KEY: "{}"})), &mut patch);
        assert_eq!(Value::Object(patch.0), json!({"metadata": {"annotations": {KEY: null}}}));
    }
}
