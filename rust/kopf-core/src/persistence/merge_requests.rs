//! The requests that write one patch if the resource has a status subresource.
//!
//! The operator can crash between two requests; with `consistency_timeout = 0` it can even continue with the state in
//! between. So no handler counts as finished before its results are written, and no progress is removed or replaced before
//! the diff-base is written. The order is: first the changes and results of handlers; then the diff-base; then progress. Two
//! requests suffice, unless the first and the last of these steps belong to one endpoint (main or status) and the second
//! step to the other.
//!
//! If the diff-base is in the status, and only the status is rejected, the progress waits for both: see
//! [`deferred_progress`].

use crate::json::merge_patch::{Patch, subtract};
use crate::json::path::resolve;
use crate::json::value::{Map, Value};
use crate::object::Object;
use crate::persistence::Persistence;

use super::own_annotations::{annotations_of, own_annotations, own_base, progress_records};
use super::patched::overlaid;

/// One merge patch.
#[derive(Clone, Debug, PartialEq)]
pub struct MergeRequest {
    /// Whether it goes to the status subresource. Then it contains only the status.
    pub is_status: bool,
    /// The merge patch.
    pub patch: Map<String, Value>,
}

/// The number of ordered steps: changes of handlers, the diff-base, progress.
const STEPS: usize = 3;

/// The requests for a patch to a resource with a status subresource, in order. A status of `null` is left out.
///
/// `final_progress` are the progress records of a completed handling, which are written before the diff-base if it is written by
/// another request. An operator that takes over between the requests recognizes the records as completed by the observed
/// essences in them; and with progress in the status, it repeats no finished handler. They are empty if neither is
/// needed, as this can add a request.
pub fn merge_requests(
    object: &Object,
    patch: &Map<String, Value>,
    final_progress: &Map<String, Value>,
    persistence: &Persistence,
) -> Vec<MergeRequest> {
    let own = own_annotations(object, patch, persistence);
    let base = own_base(object, patch, persistence);
    let mut changes = subtract(patch.clone(), &own);
    let progress = subtract(own, &base);
    let is_apart = !base.is_empty() && base.contains_key("status") != progress.contains_key("status");
    if is_apart && let Some(final_progress) = needed_progress(&progress, final_progress, persistence) {
        let mut whole = Patch(changes);
        whole.merge(final_progress.0);
        changes = whole.0;
    }
    let parts = [changes, base, progress];
    let split = |is_status: bool| {
        parts.each_ref().map(|part| {
            let fields = part.iter().filter(|(key, _)| (key.as_str() == "status") == is_status);
            let fields = fields.filter(|(_, value)| !is_status || !value.is_null());
            fields.map(|(key, value)| (key.clone(), value.clone())).collect::<Map<_, _>>()
        })
    };
    let starting_with = |is_status: bool| {
        let (mut these, mut others) = (split(is_status), split(!is_status));
        let mut requests = Vec::new();
        let mut is_status = is_status;
        while first(&these).or(first(&others)).is_some() {
            // Stop at the first step that the other endpoint still has to write.
            let until = first(&others).unwrap_or(STEPS);
            let mut patch = Patch::default();
            for part in these.iter_mut().take(until.saturating_add(1)) {
                patch.merge(std::mem::take(part));
            }
            if !patch.is_empty() {
                requests.push(MergeRequest { is_status, patch: patch.0 });
            }
            std::mem::swap(&mut these, &mut others);
            is_status = !is_status;
        }
        requests
    };
    let (one, other) = (starting_with(true), starting_with(false));
    if other.len() < one.len() { other } else { one }
}

/// Whether a patch has progress or a diff-base in fields. Otherwise, [`merge_requests`] are the status and then the rest.
pub fn has_state_in_fields(patch: &Map<String, Value>, persistence: &Persistence) -> bool {
    let (progress, diffbase) = (&persistence.progress_storage, &persistence.diffbase_storage);
    let mut fields =
        progress.fields().into_iter().chain(progress.touch_fields()).chain(diffbase.own_fields());
    fields.any(|field| {
        let value = field.keys().split_first().and_then(|(first, rest)| resolve(patch.get(&**first)?, rest));
        value.is_some()
    })
}

/// The progress in a patch for the main endpoint that is written only after a rejected part of the changes, as that
/// contains the diff-base. It is empty if the patch itself writes the diff-base that the object has afterwards.
pub fn deferred_progress(
    object: &Object,
    patch: &Map<String, Value>,
    rejected: &Map<String, Value>,
    persistence: &Persistence,
) -> Map<String, Value> {
    let storage = &persistence.diffbase_storage;
    let base = own_base(object, patch, persistence);
    let is_written = || {
        let mut whole = Patch(base.clone());
        whole.merge(rejected.clone());
        let base_after = |patch| storage.fetch(overlaid(object, patch)?.as_ref()).ok()?;
        !base.is_empty() && base_after(&base) == base_after(&whole.0)
    };
    if own_base(object, rejected, persistence).is_empty() || is_written() {
        return Map::new();
    }
    subtract(own_annotations(object, patch, persistence), &base)
}

/// The final records that are removed or replaced with the diff-base; others would stay on the object.
fn needed_progress(
    progress: &Map<String, Value>,
    final_progress: &Map<String, Value>,
    persistence: &Persistence,
) -> Option<Patch> {
    let (final_progress, mut needed) = (Patch(final_progress.clone()), Patch::default());
    for (field, _) in progress_records(progress, persistence) {
        if let Some(record) = final_progress.get(field.keys()) {
            needed.set(field.keys(), record.clone());
        }
    }
    for (key, record) in annotations_of(&final_progress.0) {
        if annotations_of(progress).any(|(known, _)| known == key) {
            needed.set_annotation(key, record.as_str().map(str::to_owned));
        }
    }
    (!needed.is_empty()).then_some(needed)
}

/// The first step that is not empty.
fn first(parts: &[Map<String, Value>; STEPS]) -> Option<usize> {
    parts.iter().position(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const BASE: &str = "kopf.zalando.org/last-handled-configuration";
    const RECORD: &str = "kopf.zalando.org/h";

    /// The settings with progress in the status or in annotations, and likewise the diff-base.
    fn persistence(progress: bool, diffbase: bool) -> Persistence {
        let mut persistence = Persistence::default();
        if progress {
            let storage = json!({"type": "Status", "field": ["status", "progress"], "touch_field": ["status", "dummy"]});
            persistence.progress_storage = serde_json::from_value(storage).unwrap();
        }
        if diffbase {
            let storage = json!({"type": "Status", "field": ["status", "base"]});
            persistence.diffbase_storage = serde_json::from_value(storage).unwrap();
        }
        persistence
    }

    fn requests(patch: &Value, persistence: &Persistence) -> Vec<Value> {
        let (object, patch_map) = (Object::decode("{}").unwrap(), patch.as_object().unwrap());
        let requests = merge_requests(&object, patch_map, &Map::new(), persistence);
        let is_simple = matches!(&requests[..], [first, rest] if first.is_status && !rest.is_status);
        assert!(is_simple || requests.len() < 2 || has_state_in_fields(patch_map, persistence));
        for request in &requests {
            assert_eq!(request.is_status, request.patch.keys().all(|key| key == "status"));
        }
        let mut whole = Patch::default();
        for request in &requests {
            whole.merge(request.patch.clone());
        }
        assert!(crate::json::value::equal(&Value::Object(whole.0), patch));
        requests.into_iter().map(|request| Value::Object(request.patch)).collect()
    }

    #[test]
    fn with_annotations_the_status_is_written_before_the_progress() {
        let body = json!({"spec": {"x": 1}, "metadata": {"annotations": {RECORD: null, BASE: "{}"}}});
        let status = json!({"status": {"result": 1}});
        let mut patch = body.clone();
        patch["status"] = status["status"].clone();
        assert_eq!(requests(&patch, &persistence(false, false)), [status, body]);
    }

    #[test]
    fn progress_in_the_status_is_written_last() {
        let record = json!({"retries": 1, "success": true, "delayed": null});
        let status = json!({"status": {"result": 1, "progress": {"h": record}}});
        let mut patch = status.clone();
        patch["spec"] = json!({"x": 1});
        assert_eq!(requests(&patch, &persistence(true, false)), [json!({"spec": {"x": 1}}), status]);
    }

    #[test]
    fn progress_in_the_status_is_removed_after_the_diffbase_is_written() {
        let base = json!({"metadata": {"annotations": {BASE: "{}"}}, "spec": {"x": 1}});
        let removal = json!({"status": {"progress": {"h": null}, "dummy": null}});
        let mut patch = base.clone();
        patch["status"] = removal["status"].clone();
        assert_eq!(requests(&patch, &persistence(true, false)), [base.clone(), removal.clone()]);
        patch["status"]["result"] = json!(1);
        let expected = [json!({"status": {"result": 1}}), base, removal];
        assert_eq!(requests(&patch, &persistence(true, false)), expected);
        let final_progress = json!({"status": {"progress": {"h": {"success": true}}}});
        let (object, final_progress) = (Object::decode("{}").unwrap(), final_progress.as_object().unwrap());
        let found =
            merge_requests(&object, patch.as_object().unwrap(), final_progress, &persistence(true, false));
        let first = json!({"status": {"result": 1, "progress": {"h": {"success": true}}}});
        assert_eq!((found.len(), Value::Object(found[0].patch.clone())), (3, first));
    }

    #[test]
    fn a_diffbase_in_the_status_is_written_before_progress_is_removed() {
        let removal = json!({"metadata": {"annotations": {RECORD: null}}});
        let status = json!({"status": {"result": 1, "base": "{}"}});
        let mut patch = removal.clone();
        patch["status"] = status["status"].clone();
        assert_eq!(requests(&patch, &persistence(false, true)), [status.clone(), removal.clone()]);
        patch["spec"] = json!({"x": 1});
        assert_eq!(requests(&patch, &persistence(false, true)), [json!({"spec": {"x": 1}}), status, removal]);
    }

    #[test]
    fn a_patch_of_the_status_only_is_one_request() {
        let patch = json!({"status": {"result": 1, "base": "{}", "progress": {"h": null}}});
        assert_eq!(requests(&patch, &persistence(true, true)), [patch]);
        assert!(requests(&json!({}), &persistence(true, true)).is_empty());
    }

    #[test]
    fn progress_waits_for_a_rejected_diffbase() {
        let (object, keep) = (Object::decode("{}").unwrap(), Map::new());
        let patch = json!({"metadata": {"annotations": {RECORD: null, "mine": null}}, "spec": {"x": 1}});
        let progress = json!({"metadata": {"annotations": {RECORD: null}}});
        let (patch, progress) = (patch.as_object().unwrap(), progress.as_object().unwrap());
        for (rejected, base_in_status, expected) in [
            (json!({"status": {"base": "{}"}}), true, progress),
            (json!({"status": {"result": 1}}), true, &keep),
            (json!({}), true, &keep),
            (json!({"status": {"base": "{}"}}), false, &keep),
        ] {
            let persistence = persistence(false, base_in_status);
            let deferred = deferred_progress(&object, patch, rejected.as_object().unwrap(), &persistence);
            assert_eq!(&deferred, expected, "{rejected}");
        }
    }

    #[test]
    fn progress_does_not_wait_if_the_diffbase_is_also_written_elsewhere() {
        let own = |order: [&str; 2]| {
            let storage = |kind: &str| match kind {
                "Status" => json!({"type": "Status", "field": ["status", "base"]}),
                _ => serde_json::to_value(&Persistence::default().diffbase_storage).unwrap(),
            };
            let storages = json!({"type": "Multi", "storages": order.map(storage)});
            Persistence {
                diffbase_storage: serde_json::from_value(storages).unwrap(),
                ..persistence(false, false)
            }
        };
        let patch = json!({"metadata": {"annotations": {RECORD: null, BASE: "{\"spec\":{}}"}}});
        let rejected = json!({"status": {"base": "{\"spec\":{}}"}});
        let older = r#"{"status": {"base": "{}"}}"#;
        for (object, order, waits) in [
            ("{}", ["Status", "Annotations"], false),
            (older, ["Annotations", "Status"], false),
            // The older diff-base in the status hides the newer one in the annotation.
            (older, ["Status", "Annotations"], true),
        ] {
            let (patch, rejected) = (patch.as_object().unwrap(), rejected.as_object().unwrap());
            let deferred = deferred_progress(&Object::decode(object).unwrap(), patch, rejected, &own(order));
            assert_eq!(!deferred.is_empty(), waits, "{object} {order:?}");
            assert!(
                !waits
                    || deferred == *json!({"metadata": {"annotations": {RECORD: null}}}).as_object().unwrap()
            );
        }
    }
}
