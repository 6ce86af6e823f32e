//! Rules of the core that Python asks for without an engine: JSON patches, essences, selectors, and namespace patterns.

use std::collections::BTreeSet;
use std::sync::Arc;

use kopf_core::json::json_patch::operations;
use kopf_core::json::value::Value;
use kopf_core::persistence::diffbase::restored;
use kopf_core::resource::{self, Resource, Selector};
use pyo3::exceptions::PyLookupError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use pythonize::depythonize;

use crate::convert::{python_to_value, value_to_python};
use crate::errors::declaration;

/// The operations (RFC 6902) that turn one document into another. Their values are those of the new document, so that integers are
/// exact; but two integers beyond 64 bits are equal if they are the same float, as for the API server.
///
/// # Errors
/// A `TypeError` or `ValueError` if a document is not JSON.
#[pyfunction]
pub(crate) fn json_patch<'py>(
    old: &Bound<'py, PyAny>,
    new: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    let found = operations(&python_to_value(old)?, &python_to_value(new)?);
    let result = PyList::empty(old.py());
    for operation in &found {
        let converted = value_to_python(old.py(), operation)?;
        if operation.get("value").is_some()
            && let Some(path) = operation.get("path").and_then(Value::as_str)
            && let Some(exact) = value_at(new, path)?
        {
            converted.set_item("value", exact)?;
        }
        result.append(converted)?;
    }
    Ok(result)
}

/// The value at a JSON pointer; `None` if the keys of its mappings are not strings.
fn value_at<'py>(document: &Bound<'py, PyAny>, pointer: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    let mut value = document.clone();
    for part in pointer.split('/').skip(1) {
        let is_list = value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>();
        let item = match part.parse::<usize>() {
            Ok(index) if is_list => value.get_item(index),
            _ => value.get_item(part.replace("~1", "/").replace("~0", "~")),
        };
        match item {
            Ok(item) => value = item,
            Err(error) if error.is_instance_of::<PyLookupError>(value.py()) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(value))
}

/// The stored essence, restored with values of the present one if it is condensed.
///
/// # Errors
/// A `TypeError` or `ValueError` if an essence is not JSON.
#[pyfunction]
pub(crate) fn restore_essence<'py>(
    stored: &Bound<'py, PyAny>,
    present: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    value_to_python(stored.py(), &restored(python_to_value(stored)?, &python_to_value(present)?))
}

/// The positions of the resources that the selector selects, apart from its function.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "arguments as Python gives them")]
pub(crate) fn select_resources(
    selector: &Bound<'_, PyDict>,
    resources: Vec<Bound<'_, PyDict>>,
) -> PyResult<Vec<usize>> {
    let selector: Selector = depythonize(selector).map_err(|error| declaration("selector", error))?;
    let resources = resources.iter().map(|resource| depythonize::<Resource>(resource).map(Arc::new));
    let resources: Result<Vec<_>, _> = resources.collect();
    let resources = resources.map_err(|error| declaration("resource", error))?;
    let selected = selector.select(&resources);
    let is_selected = |resource: &Arc<Resource>| selected.iter().any(|one| Arc::ptr_eq(one, resource));
    let positions = resources.iter().enumerate().filter(|(_, resource)| is_selected(resource));
    Ok(positions.map(|(position, _)| position).collect())
}

/// Whether the namespace matches the comma-separated globs.
#[pyfunction]
pub(crate) fn match_namespace(name: &str, globs: &str) -> bool {
    resource::match_namespace(name, globs)
}

/// Whether the globs are the name of one namespace.
#[pyfunction]
pub(crate) fn is_exact_namespace(globs: &str) -> bool {
    resource::is_exact_namespace(globs)
}

/// A sentence for each of these globs that none of the namespaces matches.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "arguments as Python gives them")]
pub(crate) fn unmatched_namespaces(globs: Vec<String>, names: BTreeSet<String>) -> Vec<String> {
    resource::unmatched_namespaces(&globs, &names)
}
