//! The keyword arguments of handlers about their objects, and the attributes of causes that they are made of.

use std::sync::OnceLock;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use crate::views::ObjectView;

/// The names of the arguments about an object.
const NAMES: [&str; 13] = [
    "logger",
    "memo",
    "resource",
    "patch",
    "body",
    "spec",
    "meta",
    "status",
    "uid",
    "name",
    "namespace",
    "labels",
    "annotations",
];

/// The arguments about the object of a cause, as a new dict: the body with its views, and what is made for the object.
///
/// `cause` has its logger and its patch; `source` has the memo, the resource and the body; `values` is the mapping with the
/// values of the body; `own_names` are the attributes of the cause that are arguments, too.
#[pyfunction]
pub(crate) fn object_arguments<'py>(
    cause: &Bound<'py, PyAny>,
    source: &Bound<'py, PyAny>,
    values: &Bound<'py, PyAny>,
    own_names: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyDict>> {
    let py = cause.py();
    let arguments = template(py)?.copy()?;
    let body = source.getattr(intern!(py, "body"))?;
    let meta = body.getattr(intern!(py, "metadata"))?;
    arguments.set_item(intern!(py, "logger"), cause.getattr(intern!(py, "logger"))?)?;
    arguments.set_item(intern!(py, "memo"), source.getattr(intern!(py, "memo"))?)?;
    arguments.set_item(intern!(py, "resource"), source.getattr(intern!(py, "resource"))?)?;
    arguments.set_item(intern!(py, "patch"), cause.getattr(intern!(py, "patch"))?)?;
    for name in [intern!(py, "spec"), intern!(py, "status")] {
        arguments.set_item(name, body.getattr(name)?)?;
    }
    for name in [intern!(py, "labels"), intern!(py, "annotations")] {
        arguments.set_item(name, meta.getattr(name)?)?;
    }
    match values.cast::<ObjectView>() {
        Ok(object) => {
            let object = object.get();
            arguments.set_item(intern!(py, "uid"), object.uid())?;
            arguments.set_item(intern!(py, "name"), object.name())?;
            arguments.set_item(intern!(py, "namespace"), object.namespace())?;
        }
        Err(_) => {
            for name in [intern!(py, "uid"), intern!(py, "name"), intern!(py, "namespace")] {
                arguments.set_item(name, meta.getattr(name)?)?;
            }
        }
    }
    arguments.set_item(intern!(py, "meta"), meta)?;
    arguments.set_item(intern!(py, "body"), body)?;
    for name in own_names {
        let value = cause.getattr(name.cast::<PyString>()?)?;
        arguments.set_item(name, value)?;
    }
    Ok(arguments)
}

/// A dict with all names. Its copies have room for the other arguments of a handler, so that they never grow.
fn template(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    static TEMPLATE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let template = TEMPLATE.get_or_try_init(py, || {
        let template = PyDict::new(py);
        for name in NAMES {
            template.set_item(PyString::intern(py, name), py.None())?;
        }
        PyResult::Ok(template.unbind())
    })?;
    Ok(template.bind(py))
}

/// An attribute of a cause that is read from the source of the cause at the first access, and kept in the cause.
///
/// It can be assigned, too: it is a descriptor without `__set__`.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct LazyAttribute {
    /// The attribute of the cause that is the source.
    source: Py<PyString>,
    /// The attribute of the source; by default, it has the name of this attribute.
    attribute: OnceLock<Py<PyString>>,
    /// Converts the value.
    convert: Option<Py<PyAny>>,
    name: OnceLock<Py<PyString>>,
}

#[pymethods]
impl LazyAttribute {
    #[new]
    #[pyo3(signature = (source, attribute=None, convert=None))]
    fn new(
        source: Bound<'_, PyString>,
        attribute: Option<Bound<'_, PyString>>,
        convert: Option<Py<PyAny>>,
    ) -> Self {
        let attribute = attribute.map_or_else(OnceLock::new, |attribute| OnceLock::from(attribute.unbind()));
        Self { source: source.unbind(), attribute, convert, name: OnceLock::new() }
    }

    fn __set_name__(&self, _owner: &Bound<'_, PyType>, name: &Bound<'_, PyString>) {
        self.name.get_or_init(|| name.clone().unbind());
        self.attribute.get_or_init(|| name.clone().unbind());
    }

    #[pyo3(signature = (cause, owner=None, /))]
    fn __get__<'py>(
        slf: &Bound<'py, Self>,
        cause: &Bound<'py, PyAny>,
        owner: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = owner;
        let py = slf.py();
        let this = slf.get();
        let (Some(name), Some(attribute)) = (this.name.get(), this.attribute.get()) else {
            return Ok(slf.clone().into_any());
        };
        if cause.is_none() {
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
