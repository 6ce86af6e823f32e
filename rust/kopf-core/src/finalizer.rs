//! The finalizer.
use crate::value::Value;
/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "names say it")]
pub enum Edit {
    Block,
    Allow,
}
/// Edits.
pub fn edit(_doc: &mut Value, _finalizer: &str, _edit: Edit) {
    todo!()
}
