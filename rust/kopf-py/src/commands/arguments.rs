//! The keyword arguments of handlers about their objects, and the attributes of causes that they are made of.

use std::sync::OnceLock;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use crate::views::ObjectView;

/// The names of the arguments about an object, which handlers of all kinds get.
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

/// The attribute of a cause with its source.
const SOURCE: &str = "_source";

/// The arguments that a cause gives to handlers, as an attribute of its class: a dict with those about the object, and with the
/// attributes of the cause that have the names given here.
///
/// The logger and the patch are those of the cause; the memo, the resource and the body are those of its source. A cause
/// without a source has all of them.
///
/// If it is kept, the cause has the same dict at each access.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct ObjectArguments {
    names: Py<PyTuple>,
    keep: bool,
    name: OnceLock<Py<PyString>>,
}

#[pymethods]
impl ObjectArguments {
    #[new]
    #[pyo3(signature = (*names, keep=true))]
    fn new(names: Bound<'_, PyTuple>, keep: bool) -> Self {
        Self { names: names.unbind(), keep, name: OnceLock::new() }
    }

    fn __set_name__(&self, _owner: &Bound<'_, PyType>, name: &Bound<'_, PyString>) {
        self.name.get_or_init(|| name.clone().unbind());
    }

    fn __get__<'py>(
        slf: &Bound<'py, Self>,
        cause: &Bound<'py, PyAny>,
        owner: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if is_class_access(cause, owner) {
            return Ok(slf.clone().into_any());
        }
        let (py, this) = (slf.py(), slf.get());
        let arguments = object_arguments(cause)?;
        for name in this.names.bind(py) {
            let value = cause.getattr(name.cast::<PyString>()?)?;
            arguments.set_item(name, value)?;
        }
        if let Some(name) = this.name.get().filter(|_| this.keep) {
            cause.setattr(name.bind(py), &arguments)?;
        }
        Ok(arguments.into_any())
    }
}

fn is_class_access(cause: &Bound<'_, PyAny>, owner: Option<&Bound<'_, PyAny>>) -> bool {
    cause.is_none() && owner.is_some()
}

/// The arguments about the object of a cause, in a new dict.
fn object_arguments<'py>(cause: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let py = cause.py();
    let arguments = template(py)?.copy()?;
    let source = cause.getattr(intern!(py, SOURCE))?;
    let object = if source.is_none() { None } else { Some(source.getattr(intern!(py, "object"))?) };
    let source = if source.is_none() { cause } else { &source };
    let body = source.getattr(intern!(py, "body"))?;
    let meta = body.getattr(intern!(py, "metadata"))?;
    for (owner, names) in [
        (cause, [intern!(py, "logger"), intern!(py, "patch")]),
        (source, [intern!(py, "memo"), intern!(py, "resource")]),
        (&body, [intern!(py, "spec"), intern!(py, "status")]),
        (&meta, [intern!(py, "labels"), intern!(py, "annotations")]),
    ] {
        for name in names {
            arguments.set_item(name, owner.getattr(name)?)?;
        }
    }
    let [uid, name, namespace] = [intern!(py, "uid"), intern!(py, "name"), intern!(py, "namespace")];
    if let Some(object) = object.as_ref().and_then(|object| object.cast::<ObjectView>().ok()) {
        let object = object.get();
        arguments.set_item(uid, object.uid())?;
        arguments.set_item(name, object.name())?;
        arguments.set_item(namespace, object.namespace())?;
    } else {
        for name in [uid, name, namespace] {
            arguments.set_item(name, meta.getattr(name)?)?;
        }
    }
    arguments.set_item(intern!(py, "meta"), meta)?;
    arguments.set_item(intern!(py, "body"), body)?;
    Ok(arguments)
}

/// A dict with all names. Its copies have room for the other arguments of a handler, so that they do not grow.
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
