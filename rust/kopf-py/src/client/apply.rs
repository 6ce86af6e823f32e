//! The children of an owner, and the result of applying them.

use kopf_core::apply::{ChildKey, ConflictPolicy, PlanOptions};
use kopf_engine::apply::{Applied, ChildError, ObjectRef, Options, Request};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::failure::CallFailure;
use crate::convert::{python_to_value, value_to_python};

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
    Ok(Request { owner: python_to_value(owner)?, children, options })
}

/// An object: group, kind, name, namespace, uid.
type Reference = (String, String, String, Option<String>, Option<String>);

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
    fn objects<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.0.objects.iter().map(|applied| value_to_python(py, &applied.object)).collect()
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
