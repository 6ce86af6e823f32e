//! Field paths.
use crate::value::Value;
use serde::{Deserialize, Serialize};
use std::fmt;
/// A path of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FieldPath(Vec<Box<str>>);
impl FieldPath {
    /// Dotted.
    pub fn parse(_dotted: &str) -> Self {
        todo!()
    }
    /// Keys.
    pub fn from_keys<I, S>(keys: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<Box<str>>,
    {
        Self(keys.into_iter().map(Into::into).collect())
    }
    /// Keys.
    pub fn keys(&self) -> &[Box<str>] {
        &self.0
    }
    /// Root.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Joined.
    pub fn join(&self, _tail: &FieldPath) -> FieldPath {
        todo!()
    }
    /// Child.
    pub fn child(&self, _key: &str) -> FieldPath {
        todo!()
    }
}
impl fmt::Display for FieldPath {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}
/// Reads.
pub fn resolve<'v, S: AsRef<str>>(_value: &'v Value, _keys: &[S]) -> Option<&'v Value> {
    todo!()
}
/// Writes.
pub fn ensure<S: AsRef<str>>(_value: &mut Value, _keys: &[S], _new: Value) {
    todo!()
}
/// Removes.
pub fn remove<S: AsRef<str>>(_value: &mut Value, _keys: &[S]) {
    todo!()
}
/// Copies.
pub fn cherrypick(_src: &Value, _dst: &mut Value, _paths: &[FieldPath]) {
    todo!()
}
