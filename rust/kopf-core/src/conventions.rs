//! Naming of annotations.
use crate::object::Object;
/// Keys.
pub fn make_keys(_prefix: &str, _key: &str, _v1: bool, _object: Option<&Object>) -> Vec<String> {
    todo!()
}
