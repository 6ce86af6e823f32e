//! The merge patch.
use crate::value::{Map, Value};
/// A merge patch.
#[derive(Default, Clone, Debug, PartialEq)]
pub struct Patch(pub Map<String, Value>);
impl Patch {
    /// Sets.
    pub fn set<S: AsRef<str>>(&mut self, _keys: &[S], _value: Value) {
        todo!()
    }
    /// Sets or deletes.
    pub fn set_annotation(&mut self, _key: &str, _value: Option<String>) {
        todo!()
    }
    /// Merges.
    pub fn merge(&mut self, _other: Map<String, Value>) {
        todo!()
    }
    /// Empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Splits.
    pub fn split_status(self) -> (Map<String, Value>, Option<Value>) {
        todo!()
    }
}
