//! The diff-base.
use crate::object::Object;
use crate::patch::Patch;
use crate::path::FieldPath;
use crate::progress::Malformed;
use crate::value::Value;
use serde::{Deserialize, Serialize};
/// Where.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(tag = "type")]
#[expect(missing_docs, reason = "names say it")]
pub enum DiffBaseStorage {
    Annotations {
        prefix: String,
        key: String,
        #[serde(default)]
        ignored_fields: Vec<FieldPath>,
        v1: bool,
    },
    Status {
        field: FieldPath,
        #[serde(default)]
        ignored_fields: Vec<FieldPath>,
    },
    Multi {
        storages: Vec<DiffBaseStorage>,
    },
}
impl Default for DiffBaseStorage {
    fn default() -> Self {
        Self::Annotations {
            prefix: "kopf.zalando.org".into(),
            key: "last-handled-configuration".into(),
            ignored_fields: vec![],
            v1: true,
        }
    }
}
impl DiffBaseStorage {
    /// Build.
    pub fn build(&self, _object: &Object, _extra: &[FieldPath]) -> Value {
        todo!()
    }
    /// Fetch.
    pub fn fetch(&self, _object: &Object) -> Result<Option<Value>, Malformed> {
        todo!()
    }
    /// Store.
    pub fn store(&self, _object: &Object, _patch: &mut Patch, _essence: &Value) {
        todo!()
    }
}
