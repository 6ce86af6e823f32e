//! The unwritten patch: a merge patch that was not written, or whose result is unknown. The next write contains what is missing of it.
//!
//! All of it is forgotten together: the final progress, the rejections in a row, and the essence are those of the patch.

use std::sync::Arc;

use super::Persistence;
use super::consistency::ViewAge;
use super::own_annotations::{annotations_of, has_base, progress_records, with_whole_records};
use super::patched::missing;
use crate::json::merge_patch::Patch;
use crate::json::value::{Map, Value};
use crate::object::Object;

/// A patch that was not written, or whose result is unknown: the input of `UnwrittenPatch`.
#[derive(Clone, Debug, Default)]
pub struct Unwritten {
    /// The merge patch.
    pub patch: Map<String, Value>,
    /// The final progress that belongs to it: see [`merge_requests`](super::merge_requests::merge_requests).
    pub final_progress: Map<String, Value>,
    /// Whether the API server rejected it.
    pub is_rejected: bool,
}

/// The patch of the last write, if that has failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UnwrittenPatch {
    /// The merge patch.
    pub(super) patch: Map<String, Value>,
    /// The final progress that belongs to it: see [`merge_requests`](super::merge_requests::merge_requests).
    pub(super) final_progress: Map<String, Value>,
    /// How often in a row the API server has rejected a patch.
    pub(super) rejections: u32,
    /// The essence with which handlers were called whose outcomes are in it.
    pub(super) called_with: Option<Arc<Value>>,
}

impl UnwrittenPatch {
    /// The patch of one more write that has failed, in place of this one.
    pub(super) fn followed_by(self, next: Unwritten, called_with: Option<Arc<Value>>) -> Self {
        let Unwritten { patch, final_progress, is_rejected } = next;
        let rejections = if is_rejected { self.rejections.saturating_add(1) } else { 0 };
        Self { patch, final_progress, rejections, called_with }
    }

    /// Whether it contains the diff-base, so that it completes a handling.
    pub(super) fn is_closing(&self, object: &Object, persistence: &Persistence) -> bool {
        has_base(object, &self.patch, persistence)
    }

    /// The part that is missing on the object, with whole progress records.
    pub(super) fn missing(
        &self,
        object: &Object,
        view_age: ViewAge,
        persistence: &Persistence,
    ) -> Map<String, Value> {
        if self.patch.is_empty() {
            return Map::new();
        }
        with_whole_records(unconfirmed(object, &self.patch, view_age), &self.patch, persistence)
    }

    /// The final progress, if some of it is missing on the object.
    pub(super) fn missing_final_progress(
        &self,
        object: &Object,
        view_age: ViewAge,
    ) -> Option<&Map<String, Value>> {
        (!unconfirmed(object, &self.final_progress, view_age).is_empty()).then_some(&self.final_progress)
    }

    /// Adds what follows the final progress: the removal of its records, although they are not on the object yet.
    pub(super) fn with_final_records(&self, mut missing_patch: Patch, persistence: &Persistence) -> Patch {
        let unwritten = Patch(self.patch.clone());
        for key in annotations_of(&self.final_progress).map(|(key, _)| key) {
            let keys = ["metadata", "annotations", key];
            if let Some(value) = unwritten.get(&keys).filter(|_| missing_patch.get(&keys).is_none()) {
                missing_patch.set(&keys, value.clone());
            }
        }
        for (field, _) in progress_records(&self.final_progress, persistence) {
            let keys = field.keys();
            if let Some(value) = unwritten.get(keys).filter(|_| missing_patch.get(keys).is_none()) {
                missing_patch.set(keys, value.clone());
            }
        }
        missing_patch
    }
}

/// The part of a patch that the object does not confirm. Fields of an outdated state can be from before our last write: it confirms
/// nothing.
pub(super) fn unconfirmed(
    object: &Object,
    patch: &Map<String, Value>,
    view_age: ViewAge,
) -> Map<String, Value> {
    if view_age == ViewAge::Outdated { patch.clone() } else { missing(object, patch) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::json_patch::apply_merge;
    use crate::persistence::progress::ProgressStorage;
    use proptest::prelude::*;
    use serde_json::json;

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn unwritten(patch: &Value, final_progress: &Value) -> UnwrittenPatch {
        let next = Unwritten { patch: map(patch), final_progress: map(final_progress), is_rejected: false };
        UnwrittenPatch::default().followed_by(next, None)
    }

    fn object(body: &Value) -> Object {
        Object::decode(&body.to_string()).unwrap()
    }

    #[test]
    fn rejections_in_a_row_are_counted_until_another_failure() {
        let mut unwritten = UnwrittenPatch::default();
        for (is_rejected, expected) in [(true, 1), (true, 2), (false, 0), (true, 1)] {
            let called_with = Some(Arc::new(json!(expected)));
            let next = Unwritten { is_rejected, ..Unwritten::default() };
            unwritten = unwritten.followed_by(next, called_with.clone());
            assert_eq!((unwritten.rejections, &unwritten.called_with), (expected, &called_with));
        }
    }

    #[test]
    fn a_patch_that_failed_later_replaces_all_of_the_earlier_one() {
        let earlier = unwritten(&json!({"spec": {"x": 1}}), &json!({"status": {"progress": {}}}));
        let later =
            earlier.followed_by(Unwritten { patch: map(&json!({"a": 1})), ..Unwritten::default() }, None);
        assert_eq!(later, unwritten(&json!({"a": 1}), &json!({})));
    }

    #[test]
    fn only_a_state_that_is_not_outdated_confirms_fields() {
        let patch = json!({"spec": {"x": 1, "y": 1}, "status": {"gone": null}});
        let unwritten = unwritten(&patch, &json!({"spec": {"x": 1}}));
        let object = object(&json!({"spec": {"x": 1}}));
        for (view_age, expected, is_final) in [
            (ViewAge::Consistent, json!({"spec": {"y": 1}}), false),
            (ViewAge::Unknown, json!({"spec": {"y": 1}}), false),
            (ViewAge::Outdated, patch, true),
        ] {
            let missing = unwritten.missing(&object, view_age, &Persistence::default());
            assert_eq!(Value::Object(missing), expected, "{view_age:?}");
            assert_eq!(
                unwritten.missing_final_progress(&object, view_age).is_some(),
                is_final,
                "{view_age:?}"
            );
        }
    }

    #[test]
    fn progress_records_are_missing_as_a_whole() {
        let progress = json!({"type": "Status", "field": ["status", "p"], "touch_field": ["status", "t"]});
        let progress_storage: ProgressStorage = serde_json::from_value(progress).unwrap();
        let persistence = Persistence { progress_storage, ..Persistence::default() };
        let patch = json!({"status": {"p": {"h": {"success": true, "retries": 1}, "gone": null}, "r": {"a": 1, "b": 1}}});
        let object = object(&json!({"status": {"p": {"h": {"retries": 1}}, "r": {"a": 1}}}));
        let unwritten = unwritten(&patch, &json!({}));
        let missing = unwritten.missing(&object, ViewAge::Consistent, &persistence);
        let expected = json!({"status": {"p": {"h": {"success": true, "retries": 1}}, "r": {"b": 1}}});
        assert_eq!(Value::Object(missing), expected);
    }

    /// Objects and patches with few keys, so that they overlap.
    fn fields() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), (0..3).prop_map(Value::from), Just(json!([1]))];
        let nested = leaf.prop_recursive(3, 24, 3, |inner| {
            prop::collection::btree_map("[abc]", inner, 0..4).prop_map(|map| json!(map))
        });
        prop::collection::btree_map("[abc]", nested, 0..4).prop_map(|map| json!(map))
    }

    proptest! {
        #[test]
        fn the_missing_part_does_the_same_as_the_whole_patch_and_is_confirmed_then(body in fields(), patch in fields()) {
            let mut before = json!({});
            apply_merge(&mut before, &map(&body));
            let unwritten = unwritten(&patch, &json!({}));
            let missing = unwritten.missing(&object(&before), ViewAge::Consistent, &Persistence::default());
            let (mut by_part, mut by_whole) = (before.clone(), before);
            apply_merge(&mut by_part, &missing);
            apply_merge(&mut by_whole, &unwritten.patch);
            prop_assert_eq!(&by_part, &by_whole);
            let rest = unwritten.missing(&object(&by_part), ViewAge::Consistent, &Persistence::default());
            prop_assert_eq!(rest, Map::new());
        }
    }
}
