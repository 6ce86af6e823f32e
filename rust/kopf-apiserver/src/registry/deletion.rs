//! What holds the deletion of an object.

use serde_json::Value;

use crate::scheme::resources::Resource;

/// Whether finalizers hold the object. Those in the spec of a namespace hold it while it has contents.
pub(crate) fn is_held(resource: &Resource, object: &Value) -> bool {
    let has =
        |path: &str| object.pointer(path).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    has("/metadata/finalizers") || (resource.is("", "namespaces") && has("/spec/finalizers"))
}
