//! Partial object metadata.

use serde_json::{Value, json};

use crate::http::accept::MetaVersion;

/// Converts an object to `PartialObjectMetadata`.
pub(crate) fn partial(value: &Value, version: MetaVersion) -> Value {
    let api_version = version.api_version();
    json!({"kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": value.get("metadata")})
}
