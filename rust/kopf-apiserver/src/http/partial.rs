//! Partial objects.

use serde_json::{Value, json};

/// Only the metadata.
pub(crate) fn partial(value: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value.get("metadata")})
}
