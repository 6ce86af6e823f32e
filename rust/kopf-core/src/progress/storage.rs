//! Where.
use super::record::{Malformed, Record};
use crate::object::Object;
use crate::patch::Patch;
use crate::path::FieldPath;
use crate::value::Value;
use serde::{Deserialize, Serialize};
/// Where.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(tag = "type")]
#[expect(missing_docs, reason = "names say it")]
pub enum ProgressStorage {
    Annotations {
        prefix: String,
        #[serde(default)]
        verbose: bool,
        touch_key: String,
        v1: bool,
    },
    Status {
        field: FieldPath,
        touch_field: FieldPath,
        #[serde(default)]
        read_only: bool,
    },
    Multi {
        storages: Vec<ProgressStorage>,
    },
}
impl Default for ProgressStorage {
    fn default() -> Self {
        Self::Multi {
            storages: vec![
                Self::Annotations {
                    prefix: "kopf.zalando.org".into(),
                    verbose: false,
                    touch_key: "touch-dummy".into(),
                    v1: true,
                },
                Self::Status {
                    field: FieldPath::from_keys(["status", "kopf", "progress"]),
                    touch_field: FieldPath::from_keys(["status", "kopf", "dummy"]),
                    read_only: true,
                },
            ],
        }
    }
}
impl ProgressStorage {
    /// Fetch.
    pub fn fetch(&self, _object: &Object, _id: &str) -> Result<Option<Record>, Malformed> {
        todo!()
    }
    /// Store.
    pub fn store(&self, _object: &Object, _patch: &mut Patch, _id: &str, _record: &Record) {
        todo!()
    }
    /// Purge.
    pub fn purge(&self, _object: &Object, _patch: &mut Patch, _id: &str) {
        todo!()
    }
    /// Touch.
    pub fn touch(&self, _object: &Object, _patch: &mut Patch, _value: Option<&str>) {
        todo!()
    }
    /// Clear.
    pub fn clear(&self, _essence: &mut Value) {
        todo!()
    }
}
