//! Rebasing the essences that handlers were called with onto a write of the operator.

use std::sync::Arc;

use super::Persistence;
use super::diffbase::SYSTEM_STANZAS;
use super::essence::essence;
use super::own_changes::{Managers, OwnWrite};
use super::pending_state::PendingState;
use crate::handler::registry::ResourceHandlers;
use crate::json::path::FieldPath;
use crate::json::value::{Map, Value};
use crate::object::Object;

impl PendingState {
    /// Rebases the observed essences onto an accepted patch, which has led from the one state of the object to the other. The handlers
    /// were called with this essence, if it is another one than that of the first state.
    pub(super) fn rebase(
        &mut self,
        (object, latest): (&Object, &Object),
        called_with: Option<Arc<Value>>,
        patch: &Map<String, Value>,
        persistence: &Persistence,
        handlers: &ResourceHandlers,
    ) {
        let extra = &handlers.extra_fields;
        let own = OwnAnnotations { keys: persistence.diffbase_storage.own_keys(object), persistence };
        if called_with.is_none() && own.are_all_of(patch) && own.is_rest_equal(object, latest, extra) {
            return;
        }
        let present = || Arc::new(essence(object, persistence, extra));
        let before = called_with.unwrap_or_else(present);
        let after = essence(latest, persistence, extra);
        let managers = Managers::of(latest);
        let write = OwnWrite { before: &before, after: &after, patch, managers: &managers };
        self.observed = self.observed.rebased(&write);
    }

    /// Rebases the observed essences onto the accepted part of a patch, whose rest is unwritten.
    pub(super) fn rebase_part(
        &mut self,
        latest: &Object,
        patch: &Map<String, Value>,
        persistence: &Persistence,
        handlers: &ResourceHandlers,
    ) {
        let Some(before) = self.unwritten.called_with.take() else { return };
        let after = essence(latest, persistence, &handlers.extra_fields);
        let managers = Managers::of(latest);
        let write = OwnWrite { before: &before, after: &after, patch, managers: &managers };
        self.observed = self.observed.rebased(&write);
        self.unwritten.called_with = Some(Arc::new(after));
    }
}

/// The annotations of Kopf, which are no part of the essence.
struct OwnAnnotations<'p> {
    /// The keys of the diff-base.
    keys: Vec<String>,
    persistence: &'p Persistence,
}

impl OwnAnnotations<'_> {
    fn contain(&self, key: &str) -> bool {
        self.keys.iter().any(|own| own == key) || self.persistence.progress_storage.clears_annotation(key)
    }

    /// Whether a patch has nothing else.
    fn are_all_of(&self, patch: &Map<String, Value>) -> bool {
        let only = |map: &Value, is_known: &dyn Fn(&str, &Value) -> bool| {
            map.as_object().is_some_and(|map| map.iter().all(|(key, value)| is_known(key, value)))
        };
        patch.iter().all(|(key, metadata)| {
            key == "metadata"
                && only(metadata, &|key, annotations| {
                    key == "annotations" && only(annotations, &|key, _| self.contain(key))
                })
        })
    }

    /// Whether the essences of both states are equal, by the texts of all that can be a part of them. If not, the values can still
    /// be equal.
    fn is_rest_equal(&self, object: &Object, latest: &Object, extra: &[FieldPath]) -> bool {
        fn stanzas(object: &Object) -> impl Iterator<Item = (&str, &str)> {
            object.stanzas().filter(|(key, _)| !SYSTEM_STANZAS.contains(key))
        }
        let others = |object| Object::raw_annotations(object).filter(|(key, _)| !self.contain(key));
        let is_in_stanzas =
            |field: &FieldPath| field.keys().first().is_some_and(|key| !SYSTEM_STANZAS.contains(&&**key));
        extra.iter().all(is_in_stanzas)
            && stanzas(object).eq(stanzas(latest))
            && object.raw_labels().eq(latest.raw_labels())
            && others(object).eq(others(latest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn own(persistence: &Persistence) -> OwnAnnotations<'_> {
        OwnAnnotations { keys: vec!["kopf.zalando.org/last-handled-configuration".to_owned()], persistence }
    }

    #[test]
    fn patches_of_own_annotations_are_recognized() {
        let persistence = Persistence::default();
        let are_own = |patch: Value| own(&persistence).are_all_of(patch.as_object().unwrap());
        assert!(are_own(json!({"metadata": {"annotations": {"kopf.zalando.org/fn": null}}})));
        for other in [
            json!({"metadata": {"annotations": {"kopf.zalando.org/fn": "{}", "a": "b"}}}),
            json!({"metadata": {"annotations": null}}),
            json!({"metadata": {"annotations": {}, "labels": {}}}),
            json!({"metadata": {}, "spec": {}}),
            json!({"metadata": null}),
        ] {
            assert!(!are_own(other.clone()), "{other}");
        }
    }

    #[test]
    fn changes_outside_of_own_annotations_are_recognized() {
        let persistence = Persistence::default();
        let decoded = |spec: &str, labels: &str, annotations: &str| {
            let metadata = format!(r#"{{"labels":{labels},"annotations":{annotations}}}"#);
            let text =
                format!(r#"{{"kind":"K","metadata":{metadata},"spec":{spec},"status":{{"s":{spec}}}}}"#);
            Object::decode(&text).unwrap()
        };
        let before = decoded("1", "{}", r#"{"a":"b"}"#);
        let is_equal = |latest: &Object, field: &str| {
            own(&persistence).is_rest_equal(&before, latest, &[FieldPath::parse(field)])
        };
        let latest = decoded("1", "{}", r#"{"kopf.zalando.org/fn":"{}","a":"b"}"#);
        assert!(is_equal(&latest, "spec.x"));
        assert!(!is_equal(&latest, "status.s"));
        for (spec, labels, annotations) in [
            ("2", "{}", r#"{"a":"b"}"#),
            ("1", r#"{"l":"m"}"#, r#"{"a":"b"}"#),
            ("1", "{}", r#"{"a":"c"}"#),
            ("1", "{}", "{}"),
        ] {
            assert!(!is_equal(&decoded(spec, labels, annotations), "spec"), "{spec} {labels} {annotations}");
        }
    }
}
