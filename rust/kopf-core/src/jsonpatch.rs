//! JSON patches.
use crate::value::{Map, Value};
/// Operations.
pub fn operations(_from: &Value, _to: &Value) -> Vec<Value> {
    todo!()
}
/// Merge.
pub fn apply_merge(_doc: &mut Value, _patch: &Map<String, Value>) {
    todo!()
}
