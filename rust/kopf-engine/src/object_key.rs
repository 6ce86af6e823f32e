//! The key of an object within the operator.

use std::sync::Arc;

use kopf_core::object::Object;

/// The key that identifies an object: the uid, or a key of its other identifying fields if it has no uid.
pub fn key_of(object: &Object) -> Arc<str> {
    if let Some(uid) = object.uid() {
        return Arc::from(uid);
    }
    let part = |value: Option<&str>| value.filter(|value| !value.is_empty()).unwrap_or("-").to_owned();
    let parts = [
        part(object.kind()),
        part(object.api_version()),
        part(object.name()),
        part(object.namespace()),
        part(object.creation_timestamp()),
    ];
    Arc::from(parts.join("//"))
}
