//! JSON values with Python's notions of equality, truth and text.
pub use serde_json::{Map, Value};
/// Python's `==`.
pub fn equal(_a: &Value, _b: &Value) -> bool {
    todo!()
}
/// `json.dumps(v, separators=(',', ':'))`.
pub fn to_python_json(_v: &Value) -> String {
    todo!()
}
/// `bool(v)`.
pub fn truthy(_v: &Value) -> bool {
    todo!()
}
/// `repr(v)`.
pub fn python_repr(_v: &Value) -> String {
    todo!()
}
