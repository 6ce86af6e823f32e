//! Partial object metadata.

use serde_json::{Value, json};

/// Converts an object to `PartialObjectMetadata`.
pub(crate) fn partial(value: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value.get("metadata")})
}
