//! `Object`: a Kubernetes object as Python sees it. Only accessed stanzas are converted.

use std::sync::{Arc, OnceLock};

use kopf_core::object::{self, Found};
use pyo3::exceptions::PyKeyError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{
    PyDict, PyDictMethods, PyIterator, PyNotImplemented, PySequenceMethods, PyString, PyTuple, PyType,
};

use crate::errors::decoding;
use crate::json_text::{SharedStrings, text_to_python};

/// A read-only mapping over an object of the engine.
///
/// Accessed stanzas become real dicts and lists on first access; the others are not converted. Each value keeps its identity,
/// regardless of how it is accessed.
///
/// Authors may store anything in the values, even what refers to this object: the garbage collector visits them.
#[pyclass(frozen, mapping, module = "kopf._kopf")]
pub(crate) struct Object {
    native: Arc<object::Object>,
    /// The converted stanzas, by their keys.
    stanzas: OnceLock<Py<PyDict>>,
    /// The converted parts of stanzas that are not converted as a whole, by their paths.
    parts: OnceLock<Py<PyDict>>,
}

impl Object {
    pub(crate) fn new(native: Arc<object::Object>) -> Self {
        Self { native, stanzas: OnceLock::new(), parts: OnceLock::new() }
    }

    /// The object itself.
    pub(crate) fn object(&self) -> &object::Object {
        &self.native
    }

    fn stanzas<'py>(&self, py: Python<'py>) -> &Bound<'py, PyDict> {
        dict_in(&self.stanzas, py)
    }

    fn find<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Ok(key) = key.cast::<PyString>() else { return Ok(None) };
        let stanzas = self.stanzas(key.py());
        if let Some(known) = stanzas.get_item(key)? {
            return Ok(Some(known));
        }
        // A key which is not valid Unicode cannot be in JSON.
        let Some(text) = key.to_str().ok().and_then(|key| self.native.top_level(key)) else {
            return Ok(None);
        };
        let value = text_to_python(key.py(), text)?;
        self.overlay_parts(key, &value)?;
        // Converting may have run other code; the first value is kept.
        if let Some(known) = stanzas.get_item(key)? {
            return Ok(Some(known));
        }
        stanzas.set_item(key, &value)?;
        Ok(Some(value))
    }
}

impl Object {
    /// Converts one part of a stanza without the rest of it.
    fn part<'py>(&self, path: &Bound<'py, PyTuple>, keys: &[&str]) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = path.py();
        let parts = dict_in(&self.parts, py);
        // A larger part may be converted already.
        for length in (2..=keys.len()).rev() {
            if let Some(known) = parts.get_item(path.get_slice(0, length))? {
                return descend(known, path, length);
            }
        }
        match self.native.text_at(keys) {
            Found::Text(text) => {
                let value = text_to_python(py, text)?;
                for (known, inner) in parts.iter() {
                    overlay(&value, path, known.cast::<PyTuple>()?, &inner)?;
                }
                parts.call_method1(pyo3::intern!(py, "setdefault"), (path, value)).map(Some)
            }
            Found::Missing(index) => Err(PyKeyError::new_err(path.get_item(index)?.unbind())),
            Found::NotAMapping => Ok(None),
        }
    }

    /// Merges the already converted parts into the stanza that is being converted, so that they keep their identity.
    fn overlay_parts(&self, stanza: &Bound<'_, PyString>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = stanza.py();
        let Some(parts) = self.parts.get() else { return Ok(()) };
        let path = PyTuple::new(py, [stanza])?;
        for (known, inner) in parts.bind(py).iter() {
            overlay(value, &path, known.cast::<PyTuple>()?, &inner)?;
        }
        Ok(())
    }
}

/// The dict in a cell; a new one if there is none yet.
fn dict_in<'py, 'c>(cell: &'c OnceLock<Py<PyDict>>, py: Python<'py>) -> &'c Bound<'py, PyDict> {
    if let Some(known) = cell.get() {
        return known.bind(py);
    }
    // To make it can run other code, which may fill the cell.
    let made = PyDict::new(py).unbind();
    cell.get_or_init(|| made).bind(py)
}

/// The value at the rest of the path; `None` if the path leads through a value without keys.
fn descend<'py>(
    mut value: Bound<'py, PyAny>,
    path: &Bound<'py, PyTuple>,
    from: usize,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    for index in from..path.len() {
        let Ok(dict) = value.cast::<PyDict>() else { return Ok(None) };
        let key = path.get_item(index)?;
        let Some(inner) = dict.get_item(&key)? else { return Err(PyKeyError::new_err(key.unbind())) };
        value = inner;
    }
    Ok(Some(value))
}

/// Puts a converted part into the value of a shorter path, so that both paths lead to the same object.
fn overlay(
    value: &Bound<'_, PyAny>,
    path: &Bound<'_, PyTuple>,
    known: &Bound<'_, PyTuple>,
    inner: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (shorter, longer) = (path.len(), known.len());
    if longer <= shorter || !known.get_slice(0, shorter).eq(path)? {
        return Ok(());
    }
    let parent = descend(value.clone(), &known.get_slice(0, longer - 1), shorter)?;
    if let Some(parent) = parent {
        parent.set_item(known.get_item(longer - 1)?, inner)?;
    }
    Ok(())
}

#[pymethods]
impl Object {
    /// No `__clear__` is needed: the collector clears the dicts.
    #[expect(clippy::needless_pass_by_value, reason = "the signature of pyo3")]
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(self.stanzas.get())?;
        visit.call(self.parts.get())
    }

    /// The value of `item` at `path`, converted without the rest of the stanza.
    ///
    /// `NotImplemented` if that is not possible; a `KeyError` has the first missing key.
    fn _get_path<'py>(
        &self,
        path: &Bound<'py, PyTuple>,
        item: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = path.py();
        let not_implemented = || Ok(PyNotImplemented::get(py).to_owned().into_any());
        if path.is_empty() {
            return self.__getitem__(item);
        }
        let stanza = path.get_item(0)?;
        let Some(stanzas) = self.stanzas(py).get_item(&stanza)? else {
            let whole = path.as_sequence().concat(PyTuple::new(py, [item])?.as_sequence())?.to_tuple()?;
            let keys: Vec<Bound<'py, PyString>> = match whole.iter().map(Bound::cast_into).collect() {
                Ok(keys) => keys,
                Err(_) => return not_implemented(),
            };
            let keys = keys.iter().map(|key| key.to_str()).collect::<PyResult<Vec<_>>>();
            let Ok(keys) = keys else { return not_implemented() };
            return self.part(&whole, &keys)?.map_or_else(not_implemented, Ok);
        };
        let Some(parent) = descend(stanzas, path, 1)? else { return not_implemented() };
        match parent.cast::<PyDict>() {
            Ok(dict) => dict.get_item(item)?.ok_or_else(|| PyKeyError::new_err(item.clone().unbind())),
            Err(_) => not_implemented(),
        }
    }

    /// Decodes an object from its JSON.
    #[staticmethod]
    fn decode(text: &str) -> PyResult<Self> {
        object::Object::decode(text).map(|object| Self::new(Arc::new(object))).map_err(decoding)
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.find(key)?.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> bool {
        let key = key.cast::<PyString>().ok();
        key.and_then(|key| key.to_str().ok()).is_some_and(|key| self.native.top_level(key).is_some())
    }

    fn __len__(&self) -> usize {
        self.native.stanzas().count()
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
        PyTuple::new(py, self.native.stanzas().map(|(key, _)| key).collect::<Vec<_>>())
    }

    /// The values, in the order of the keys.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.to_dict(py)?.call_method0(pyo3::intern!(py, "values"))
    }

    /// The keys with their values.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.to_dict(py)?.call_method0(pyo3::intern!(py, "items"))
    }

    /// A dict of the same values, shared with this view.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (key, _) in self.native.stanzas() {
            let key = SharedStrings::lock().key(py, key).into_any();
            let value = self.find(&key)?;
            dict.set_item(key, value)?;
        }
        Ok(dict)
    }

    /// The uid, the name, and the namespace.
    fn identity(&self) -> (Option<&str>, Option<&str>, Option<&str>) {
        (self.uid(), self.name(), self.namespace())
    }

    /// Drops the converted values, which take several times the memory of the JSON; they are converted again on access.
    fn release_values(&self, py: Python<'_>) {
        for values in [&self.stanzas, &self.parts] {
            if let Some(values) = values.get() {
                values.bind(py).clear();
            }
        }
    }

    /// The object's JSON, as received.
    #[getter]
    fn text(&self) -> &str {
        self.native.raw()
    }

    #[getter]
    pub(crate) fn name(&self) -> Option<&str> {
        self.native.name()
    }

    #[getter]
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.native.namespace()
    }

    #[getter]
    pub(crate) fn uid(&self) -> Option<&str> {
        self.native.uid()
    }

    #[getter]
    fn api_version(&self) -> Option<&str> {
        self.native.api_version()
    }

    #[getter]
    fn kind(&self) -> Option<&str> {
        self.native.kind()
    }
}
