//! Differences.
use crate::path::FieldPath;
use crate::value::Value;
use std::fmt;
/// Op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "names say it")]
pub enum Op {
    Add,
    Change,
    Remove,
}
/// Item.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "names say it")]
pub struct DiffItem {
    pub op: Op,
    pub path: FieldPath,
    pub old: Option<Value>,
    pub new: Option<Value>,
}
impl serde::Serialize for DiffItem {
    fn serialize<S: serde::Serializer>(&self, _s: S) -> Result<S::Ok, S::Error> {
        todo!()
    }
}
impl fmt::Display for DiffItem {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}
/// Full.
pub fn diff(_a: Option<&Value>, _b: Option<&Value>) -> Vec<DiffItem> {
    todo!()
}
/// Left.
pub fn diff_left(_a: Option<&Value>, _b: Option<&Value>) -> Vec<DiffItem> {
    todo!()
}
/// Reduced.
pub fn reduce(_diff: &[DiffItem], _path: &FieldPath) -> Vec<DiffItem> {
    todo!()
}
/// `repr` of the whole, as a tuple of tuples.
pub fn python_repr(_diff: &[DiffItem]) -> String {
    todo!()
}
