//! Rules of the core that Python asks for without an engine: JSON patches, selectors, and namespace patterns.

use std::collections::BTreeSet;
use std::sync::Arc;

use kopf_core::json::json_patch::operations;
use kopf_core::json::value::Value;
use kopf_core::resource::{self, Resource, Selector};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pythonize::depythonize;

use crate::convert::{python_to_value, value_to_python};
use crate::errors::declaration;

/// The operations (RFC 6902) that turn one document into another.
///
/// # Errors
/// A `TypeError` or `ValueError` if a document is not JSON.
#[pyfunction]
pub(crate) fn json_patch<'py>(
    old: &Bound<'py, PyAny>,
    new: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let found = operations(&python_to_value(old)?, &python_to_value(new)?);
    value_to_python(old.py(), &Value::Array(found))
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
