//! The attributes by which `inspect`, `asyncio` and other packages look into coroutines.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// An attribute of the awaited coroutine; none if there is none, or if it is another awaitable.
pub(crate) fn of_awaited(
    py: Python<'_>,
    awaitable: Option<Py<PyAny>>,
    name: &Bound<'_, PyString>,
) -> PyResult<Option<Py<PyAny>>> {
    let Some(awaitable) = awaitable else { return Ok(None) };
    Ok(awaitable.bind(py).getattr_opt(name)?.map(Bound::unbind))
}

/// The name of the function for representations.
pub(crate) fn name_of(function: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    let py = function.py();
    let name = function.getattr_opt(intern!(py, "__qualname__"))?;
    let name = name.map_or_else(|| Ok(function.get_type().qualname()?.into_any()), PyResult::Ok)?;
    Ok(name.unbind())
}
