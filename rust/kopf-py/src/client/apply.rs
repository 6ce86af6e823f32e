//! The children of an owner, and the result of applying them.

use std::sync::Arc;

use kopf_core::apply::{ChildKey, ConflictPolicy, PlanOptions};
use kopf_core::json::value::{Map, Value};
use kopf_core::object::{self, Found};
use kopf_engine::apply::{Applied, AppliedObject, ChildError, ObjectRef, Options, Request};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::failure::CallFailure;
use crate::convert::python_to_value;
use crate::views::Object;

/// The options from Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
#[expect(clippy::struct_excessive_bools, reason = "keyword arguments of Python")]
pub(crate) struct ApplyOptions {
    name: String,
    prune: bool,
    conflict: String,
    yields: Option<Vec<String>>,
    recreate: bool,
    takeover: Vec<String>,
    share: bool,
    order: bool,
    version: String,
}

/// Reads a call from Python.
pub(crate) fn read(
    owner: &Bound<'_, PyAny>,
    children: &Bound<'_, PyList>,
    options: ApplyOptions,
) -> PyResult<Request> {
    let conflict = match options.conflict.as_str() {
        "fail" => ConflictPolicy::Fail,
        "force" => ConflictPolicy::Force,
        "yield" => ConflictPolicy::Yield(options.yields),
        other => return Err(PyValueError::new_err(format!("There is no conflict policy {other:?}."))),
    };
    let children = children.iter().map(|child| python_to_value(&child)).collect::<PyResult<Vec<_>>>()?;
    let plan = PlanOptions { name: options.name, prune: options.prune, order: options.order, conflict };
    let options = Options {
        plan,
        recreate: options.recreate,
        takeover: options.takeover,
        share: options.share,
        version: options.version,
    };
    let owner = match owner.cast::<Object>() {
        Ok(view) => owner_of(view.get().object()),
        Err(_) => python_to_value(owner)?,
    };
    Ok(Request { owner, children, options })
}

/// The fields of an owner that matter.
const OWNER_METADATA: [&str; 8] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "deletionTimestamp",
    "labels",
    "annotations",
    "finalizers",
];

/// The parts of an owner that matter, without the rest of the object.
fn owner_of(object: &object::Object) -> Value {
    let metadata: Map<String, Value> = OWNER_METADATA
        .iter()
        .filter_map(|key| match object.text_at(&["metadata", key]) {
            Found::Text(text) => Some(((*key).to_owned(), serde_json::from_str(text).ok()?)),
            Found::Missing(_) | Found::NotAMapping => None,
        })
        .collect();
    let text = |text: Option<&str>| text.map_or(Value::Null, Value::from);
    let mut owner = Map::new();
    owner.insert("apiVersion".to_owned(), text(object.api_version()));
    owner.insert("kind".to_owned(), text(object.kind()));
    owner.insert("metadata".to_owned(), Value::Object(metadata));
    Value::Object(owner)
}

/// An object: group, kind, name, namespace, uid.
type Reference = (String, String, String, Option<String>, Option<String>);

/// An applied object: kind, namespace, name, object.
type NamedObject<'a> = (&'a str, Option<&'a str>, &'a str, Py<Object>);

/// The result of applying children.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct AppliedChildren(Applied);

impl AppliedChildren {
    pub(crate) fn new(applied: Applied) -> Self {
        Self(applied)
    }
}

#[pymethods]
impl AppliedChildren {
    /// The objects by the names of the lists.
    fn references(&self) -> Vec<(&'static str, Vec<Reference>)> {
        let Applied { created, changed, unchanged, yielded, recreated, pruned, .. } = &self.0;
        let lists = [
            ("created", created),
            ("changed", changed),
            ("unchanged", unchanged),
            ("yielded", yielded),
            ("recreated", recreated),
            ("pruned", pruned),
        ];
        lists.into_iter().map(|(name, list)| (name, list.iter().map(reference).collect())).collect()
    }

    /// The applied objects.
    fn objects(&self, py: Python<'_>) -> PyResult<Vec<NamedObject<'_>>> {
        let objects = self.0.objects.iter().map(|AppliedObject { key, object }| {
            let view = Py::new(py, Object::new(Arc::clone(object)))?;
            Ok((key.kind.as_str(), key.namespace.as_deref(), key.name.as_str(), view))
        });
        objects.collect()
    }

    /// The failures: the texts that name the objects, and the failures.
    fn failures(&self, py: Python<'_>) -> PyResult<Vec<(String, Py<CallFailure>)>> {
        let failures = self.0.failures.iter().map(|(key, error)| {
            let failure = match error.clone() {
                ChildError::Call(error) => CallFailure::new(error),
                ChildError::OwnedByAnother(text) => CallFailure::plain("OwnedByAnother", text),
                ChildError::Leaving(text) => CallFailure::plain("Requeue", text),
            };
            Ok((key.to_string(), Py::new(py, failure)?))
        });
        failures.collect()
    }
}

fn reference(object: &ObjectRef) -> Reference {
    let ChildKey { group, kind, namespace, name } = object.key.clone();
    (group, kind, name, namespace, object.uid.clone())
}
