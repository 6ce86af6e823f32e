//! The attributes of causes, which are the keyword arguments of handlers.

use std::sync::OnceLock;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

/// The attribute of a cause with its source.
const SOURCE: &str = "_source";

fn is_class_access(cause: &Bound<'_, PyAny>, owner: Option<&Bound<'_, PyAny>>) -> bool {
    cause.is_none() && owner.is_some()
}

/// An attribute of a cause that is read from its source, or from another attribute of the cause, and kept in the cause.
///
/// It can be assigned, too: it is a descriptor without `__set__`.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct LazyAttribute {
    /// The attribute of the source; by default, it has the name of this attribute.
    attribute: OnceLock<Py<PyString>>,
    /// The attribute of the cause that has the source.
    source: Py<PyString>,
    /// Converts the value.
    convert: Option<Py<PyAny>>,
    name: OnceLock<Py<PyString>>,
}

#[pymethods]
impl LazyAttribute {
    #[new]
    #[pyo3(signature = (attribute=None, *, source=None, convert=None))]
    fn new(
        py: Python<'_>,
        attribute: Option<Py<PyString>>,
        source: Option<Py<PyString>>,
        convert: Option<Py<PyAny>>,
    ) -> Self {
        Self {
            attribute: attribute.map_or_else(OnceLock::new, OnceLock::from),
            source: source.unwrap_or_else(|| intern!(py, SOURCE).clone().unbind()),
            convert,
            name: OnceLock::new(),
        }
    }

    fn __set_name__(&self, _owner: &Bound<'_, PyType>, name: &Bound<'_, PyString>) {
        self.name.get_or_init(|| name.clone().unbind());
        self.attribute.get_or_init(|| name.clone().unbind());
    }

    fn __get__<'py>(
        slf: &Bound<'py, Self>,
        cause: &Bound<'py, PyAny>,
        owner: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let (Some(name), Some(attribute)) = (this.name.get(), this.attribute.get()) else {
            return Ok(slf.clone().into_any());
        };
        if is_class_access(cause, owner) {
            return Ok(slf.clone().into_any());
        }
        let value = cause.getattr(this.source.bind(py))?.getattr(attribute.bind(py))?;
        let value = match &this.convert {
            Some(convert) => convert.bind(py).call1((value,))?,
            None => value,
        };
        cause.setattr(name.bind(py), &value)?;
        Ok(value)
    }

    #[expect(clippy::needless_pass_by_value, reason = "the signature of pyo3")]
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.convert)
    }
}
