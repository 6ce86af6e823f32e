//! Builders of objects.
use crate::object::Object;
use crate::value::Value;
use std::sync::Arc;
/// An object under construction.
#[derive(Clone, Debug)]
pub struct ObjectBuilder {
    body: Value,
}
/// Starts.
pub fn object(name: &str) -> ObjectBuilder {
    ObjectBuilder { body: serde_json::json!({"metadata": {"name": name}}) }
}
#[expect(missing_docs, reason = "they read as adjectives")]
impl ObjectBuilder {
    #[must_use]
    pub fn of_kind(self, _api_version: &str, _kind: &str) -> Self {
        todo!()
    }
    #[must_use]
    pub fn in_namespace(self, _namespace: &str) -> Self {
        todo!()
    }
    #[must_use]
    pub fn labelled(self, _key: &str, _value: &str) -> Self {
        todo!()
    }
    #[must_use]
    pub fn annotated(self, _key: &str, _value: &str) -> Self {
        todo!()
    }
    #[must_use]
    pub fn at_version(self, _version: &str) -> Self {
        todo!()
    }
    #[must_use]
    pub fn owned_by(self, _kind: &str, _name: &str) -> Self {
        todo!()
    }
    #[must_use]
    pub fn spec(self, _spec: Value) -> Self {
        todo!()
    }
    #[must_use]
    pub fn status(self, _status: Value) -> Self {
        todo!()
    }
    #[must_use]
    pub fn with(self, _keys: &[&str], _value: Value) -> Self {
        todo!()
    }
    #[must_use]
    pub fn handled(self) -> Self {
        todo!()
    }
    #[must_use]
    pub fn deleting(self) -> Self {
        todo!()
    }
    #[must_use]
    pub fn finalized(self) -> Self {
        todo!()
    }
    pub fn value(&self) -> &Value {
        &self.body
    }
    pub fn build(self) -> Arc<Object> {
        todo!()
    }
}
