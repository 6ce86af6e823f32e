//! Objects and merge patches: the object with a patch, and the part of a patch that an object does not have.

use std::sync::Arc;

use crate::json::json_patch::apply_merge;
use crate::json::merge_patch::missing_part;
use crate::json::value::{Map, Value};
use crate::object::Object;

/// The object with the patch applied; none if the result is no object.
pub(crate) fn overlaid(object: &Object, patch: &Map<String, Value>) -> Option<Arc<Object>> {
    let mut value = object.to_value();
    apply_merge(&mut value, patch);
    Object::decode(&value.to_string()).ok().map(Arc::new)
}

/// The part of a merge patch that the object does not have.
pub(super) fn missing(object: &Object, patch: &Map<String, Value>) -> Map<String, Value> {
    let object = object.to_value();
    missing_part(patch, |key| object.get(key))
}
