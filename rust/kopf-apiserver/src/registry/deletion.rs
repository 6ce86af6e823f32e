//! What holds the deletion of an object, and its grace period.

use serde_json::Value;

use crate::base::json::text;

use crate::scheme::resources::Resource;

/// Whether finalizers hold the object. Those in the spec of a namespace hold it while it has contents.
pub(crate) fn is_held(resource: &Resource, object: &Value) -> bool {
    let has =
        |path: &str| object.pointer(path).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    has("/metadata/finalizers") || (resource.is("", "namespaces") && has("/spec/finalizers"))
}

/// Whether the object remains, although it is deleted: for finalizers, or for the kubelet, until the end of the grace period.
pub(crate) fn remains(resource: &Resource, object: &Value) -> bool {
    is_held(resource, object) || pending_grace_period(object).is_some()
}

/// The grace period, in seconds, of an object whose graceful deletion has begun.
pub(crate) fn pending_grace_period(object: &Value) -> Option<i64> {
    object.pointer("/metadata/deletionTimestamp")?;
    object.pointer("/metadata/deletionGracePeriodSeconds")?.as_i64().filter(|seconds| *seconds > 0)
}

/// The grace period, in seconds, of a deletion that begins now, as requested or else as in the spec. Only pods on a node that have
/// not ended have one.
pub(crate) fn grace_period(resource: &Resource, object: &Value, requested: Option<i64>) -> i64 {
    let has_node = resource.is("", "pods") && !text(object, "/spec/nodeName").is_empty();
    if !has_node || matches!(text(object, "/status/phase"), "Succeeded" | "Failed") {
        return 0;
    }
    let own = || object.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30);
    at_least_one(requested.unwrap_or_else(own))
}

/// The requested grace period of a further deletion, if it is shorter than the pending one: it cannot become longer.
pub(crate) fn shortened(pending: i64, requested: Option<i64>) -> Option<i64> {
    requested.map(at_least_one).filter(|requested| *requested < pending)
}

/// Negative periods count as one second.
fn at_least_one(seconds: i64) -> i64 {
    if seconds < 0 { 1 } else { seconds }
}
