//! `Object`: a Kubernetes object as Python sees it, converted stanza by stanza, and only what is touched.

use std::sync::Arc;

use kopf_core::object::Object;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyDictMethods, PyIterator, PyString, PyTuple, PyType};

use crate::convert::text_to_python;
use crate::errors::decoding;

/// A read-only mapping over an object of the engine.
///
/// A stanza becomes real dicts and lists at its first touch and stays the same since then, whoever asks.
#[pyclass(frozen, mapping, name = "Object", module = "kopf._kopf")]
pub(crate) struct ObjectView {
    object: Arc<Object>,
    touched: PyOnceLock<Py<PyDict>>,
}

impl ObjectView {
    pub(crate) fn new(object: Arc<Object>) -> Self {
        Self { object, touched: PyOnceLock::new() }
    }

    fn touched<'py>(&self, py: Python<'py>) -> &Bound<'py, PyDict> {
        self.touched.get_or_init(py, || PyDict::new(py).unbind()).bind(py)
    }

    fn find<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Ok(key) = key.cast::<PyString>() else { return Ok(None) };
        let touched = self.touched(key.py());
        if let Some(known) = touched.get_item(key)? {
            return Ok(Some(known));
        }
        // A key which is not valid Unicode cannot be in JSON.
        let Some(text) = key.to_str().ok().and_then(|key| self.object.stanza(key)) else { return Ok(None) };
        let value = text_to_python(key.py(), text)?;
        // Converting may have run other code; the first value stays.
        touched.call_method1(pyo3::intern!(key.py(), "setdefault"), (key, value)).map(Some)
    }
}

#[pymethods]
impl ObjectView {
    /// Decodes an object from its JSON.
    #[staticmethod]
    fn decode(text: &str) -> PyResult<Self> {
        Object::decode(text).map(|object| Self::new(Arc::new(object))).map_err(decoding)
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.find(key)?.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> bool {
        let key = key.cast::<PyString>().ok();
        key.and_then(|key| key.to_str().ok()).is_some_and(|key| self.object.stanza(key).is_some())
    }

    fn __len__(&self) -> usize {
        self.object.stanzas().count()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.keys(py)?.try_iter()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.to_dict(py)?.repr()?.extract()
    }

    fn __eq__<'py>(&self, py: Python<'py>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let other = match other.cast::<Self>() {
            Ok(other) => other.get().to_dict(py)?.into_any(),
            Err(_) => other.clone(),
        };
        self.to_dict(py)?.rich_compare(other, pyo3::basic::CompareOp::Eq)
    }

    /// Copies are plain dicts.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyType>, (Bound<'py, PyDict>,))> {
        Ok((py.get_type::<PyDict>(), (self.to_dict(py)?,)))
    }

    /// The value of a key, or a default.
    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.find(key)?.or(default))
    }

    /// The top-level keys, in the order of the JSON.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.object.stanzas().map(|(key, _)| key).collect::<Vec<_>>())
    }

    /// The values, in the order of the keys.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.to_dict(py)?.call_method0(pyo3::intern!(py, "values"))
    }

    /// The keys with their values.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.to_dict(py)?.call_method0(pyo3::intern!(py, "items"))
    }

    /// A dict of the same values; it shares them with this view.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (key, _) in self.object.stanzas() {
            let key = PyString::new(py, key);
            let value = self.find(&key)?;
            dict.set_item(key, value)?;
        }
        Ok(dict)
    }

    /// The object's JSON, as it came.
    #[getter]
    fn text(&self) -> &str {
        self.object.raw()
    }

    #[getter]
    fn name(&self) -> Option<&str> {
        self.object.name()
    }

    #[getter]
    fn namespace(&self) -> Option<&str> {
        self.object.namespace()
    }

    #[getter]
    fn uid(&self) -> Option<&str> {
        self.object.uid()
    }

    #[getter]
    fn api_version(&self) -> Option<&str> {
        self.object.api_version()
    }

    #[getter]
    fn kind(&self) -> Option<&str> {
        self.object.kind()
    }
}
