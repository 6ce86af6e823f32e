//! What is the author's intent in an object.
use crate::diffbase::DiffBaseStorage;
use crate::object::Object;
use crate::path::FieldPath;
use crate::progress::{Malformed, ProgressStorage};
use crate::value::Value;
/// The two storages that decide what is ours. `&Persistence` of the settings converts into it.
#[derive(Clone, Copy, Debug)]
pub struct Storages<'a> {
    /// Where the last essence is kept.
    pub diffbase: &'a DiffBaseStorage,
    /// Where progress is kept.
    pub progress: &'a ProgressStorage,
}
/// The outcome of comparing.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "names say it")]
pub enum Comparison {
    Absent,
    Same,
    Different { old: Value, new: Value },
}
/// Builds.
pub fn essence<'a>(_object: &Object, _storages: impl Into<Storages<'a>>, _extra: &[FieldPath]) -> Value {
    todo!()
}
/// Compares.
pub fn compare<'a>(
    _object: &Object,
    _storages: impl Into<Storages<'a>>,
    _extra: &[FieldPath],
) -> Result<Comparison, Malformed> {
    todo!()
}
