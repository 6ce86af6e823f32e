//! Builders of Kubernetes objects for tests.

use std::sync::Arc;

use serde_json::json;

use crate::json::merge_patch::Patch;
use crate::json::path;
use crate::json::value::{Map, Value};
use crate::object::Object;
use crate::persistence::diffbase::DiffBaseStorage;
use crate::persistence::essence::{Storages, essence};
use crate::persistence::finalizer::{Edit, edit};
use crate::persistence::progress::ProgressStorage;

/// The finalizer of an operator with default settings.
pub const FINALIZER: &str = "kopf.zalando.org/KopfFinalizerMarker";

/// An object under construction.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct ObjectBuilder {
    body: Value,
}

/// A minimal object of kind `KopfExample` with this name.
pub fn object(name: &str) -> ObjectBuilder {
    let body = json!({
        "apiVersion": "kopf.dev/v1",
        "kind": "KopfExample",
        "metadata": {
            "name": name,
            "uid": format!("uid-of-{name}"),
            "resourceVersion": "101",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
    });
    ObjectBuilder { body }
}

impl ObjectBuilder {
    /// Sets the API version and kind.
    pub fn of_kind(self, api_version: &str, kind: &str) -> Self {
        self.with(&["apiVersion"], json!(api_version)).with(&["kind"], json!(kind))
    }

    /// Sets the namespace.
    pub fn in_namespace(self, namespace: &str) -> Self {
        self.with(&["metadata", "namespace"], json!(namespace))
    }

    /// Adds a label.
    pub fn labelled(self, key: &str, value: &str) -> Self {
        self.with(&["metadata", "labels", key], json!(value))
    }

    /// Adds an annotation.
    pub fn annotated(self, key: &str, value: &str) -> Self {
        self.with(&["metadata", "annotations", key], json!(value))
    }

    /// Sets the resource version.
    pub fn at_version(self, version: &str) -> Self {
        self.with(&["metadata", "resourceVersion"], json!(version))
    }

    /// Sets the owner reference.
    pub fn owned_by(self, kind: &str, name: &str) -> Self {
        self.with(&["metadata", "ownerReferences"], json!([{"kind": kind, "name": name}]))
    }

    /// Sets the spec.
    pub fn spec(self, spec: Value) -> Self {
        self.with(&["spec"], spec)
    }

    /// Sets the status.
    pub fn status(self, status: Value) -> Self {
        self.with(&["status"], status)
    }

    /// Sets the value of the field with this path.
    pub fn with(mut self, keys: &[&str], value: Value) -> Self {
        path::ensure(&mut self.body, keys, value);
        self
    }

    /// Stores the current essence as the diff-base, as if all handlers had finished.
    pub fn handled(mut self) -> Self {
        let (diffbase, progress) = (DiffBaseStorage::default(), ProgressStorage::default());
        let object = self.clone().build();
        let current = essence(&object, Storages { diffbase: &diffbase, progress: &progress }, &[]);
        let mut patch = Patch::default();
        diffbase.store(&object, &mut patch, &current);
        crate::json::json_patch::apply_merge(&mut self.body, &patch.0);
        self
    }

    /// Marks the object for deletion.
    pub fn deleting(self) -> Self {
        self.with(&["metadata", "deletionTimestamp"], json!("2026-01-02T00:00:00Z"))
    }

    /// Adds Kopf's finalizer.
    pub fn finalized(mut self) -> Self {
        edit(&mut self.body, FINALIZER, Edit::Block);
        self
    }

    /// Applies a merge patch and increments the resource version.
    pub fn patched(mut self, patch: &Map<String, Value>) -> Self {
        crate::json::json_patch::apply_merge(&mut self.body, patch);
        let version: u64 =
            self.body["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).unwrap_or(0);
        self.at_version(&(version + 1).to_string())
    }

    /// The body as a JSON value.
    pub fn value(&self) -> &Value {
        &self.body
    }

    /// The decoded object.
    ///
    /// # Panics
    /// If the body cannot be decoded, for example since it is nested too deep.
    #[expect(clippy::panic, reason = "an invalid object is an error of the test")]
    pub fn build(self) -> Arc<Object> {
        match Object::decode(&self.body.to_string()) {
            Ok(object) => Arc::new(object),
            Err(error) => panic!("the object cannot be decoded: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::persistence::essence::{Comparison, compare};

    #[test]
    fn builder_methods_combine() {
        let widget = object("w")
            .of_kind("example.com/v1", "Widget")
            .in_namespace("ns")
            .labelled("a", "b")
            .spec(json!({"x": 1}))
            .handled()
            .finalized()
            .deleting()
            .build();
        assert_eq!(
            (widget.kind(), widget.namespace(), widget.name()),
            (Some("Widget"), Some("ns"), Some("w"))
        );
        assert!(widget.has_finalizer(FINALIZER) && widget.deletion_timestamp().is_some());
        assert_eq!(widget.label("a").as_deref(), Some("b"));
        let (diffbase, progress) = (DiffBaseStorage::default(), ProgressStorage::default());
        let storages = Storages { diffbase: &diffbase, progress: &progress };
        assert_eq!(compare(&widget, storages, &[]), Ok(Comparison::Same));
    }

    #[test]
    fn patches_increment_the_resource_version() {
        let Value::Object(patch) = json!({"spec": {"x": 2}}) else { panic!() };
        let patched = object("w").spec(json!({"x": 1})).patched(&patch).build();
        assert_eq!((patched.resource_version(), patched.top_level("spec")), (Some("102"), Some("{\"x\":2}")));
    }
}
