//! Conversions of `serde_json` values to Python, and of Python values to `serde_json` and to declarations.

use std::fmt;

use kopf_core::handler::Handler;
use kopf_core::json::value::{Map, Value};
use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyBytes, PyDict, PyDictMethods, PyFloat, PyInt, PyList, PyMapping, PyNone, PyString, PyTuple,
    PyType,
};
use pythonize::depythonize;

use crate::errors::declaration;
use crate::json_text::{SharedStrings, number_to_python};

/// Maximum nesting of Python values, the same as of objects; deeper ones are taken for reference cycles.
const MAX_DEPTH: usize = 300;

/// Converts a value to Python's dicts, lists and scalars.
pub(crate) fn value_to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    convert_value(py, value, &mut SharedStrings::lock())
}

/// Converts a value that may be absent; `None` if it is.
pub(crate) fn option_to_python<'py>(py: Python<'py>, value: Option<&Value>) -> PyResult<Bound<'py, PyAny>> {
    value.map_or_else(|| Ok(PyNone::get(py).to_owned().into_any()), |value| value_to_python(py, value))
}

/// Converts a Python value as `json.dumps` does; any mapping counts as a dict.
///
/// # Errors
/// A `TypeError` or `ValueError` with the path of the part that is not JSON.
pub(crate) fn python_to_value(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    read(value, &JsonPath::Root, 0)
}

/// Reads the declaration of a handler.
pub(crate) fn read_handler(declared: &Bound<'_, PyAny>) -> PyResult<Handler> {
    depythonize(declared).map_err(|error| {
        let id = declared.get_item("id").and_then(|id| id.extract::<String>()).unwrap_or_default();
        declaration(&format!("handler '{id}'"), error)
    })
}

/// Converts a Python mapping, as [`python_to_value`] does.
pub(crate) fn python_to_map(value: &Bound<'_, PyAny>) -> PyResult<Map<String, Value>> {
    match python_to_value(value)? {
        Value::Object(map) => Ok(map),
        _ => Err(PyTypeError::new_err("a mapping is expected here")),
    }
}

fn convert_value<'py>(
    py: Python<'py>,
    value: &Value,
    strings: &mut SharedStrings,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => PyNone::get(py).to_owned().into_any(),
        Value::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Value::Number(number) => number_to_python(py, number),
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(items) => {
            let list = PyList::empty(py);
            for item in items {
                list.append(convert_value(py, item, strings)?)?;
            }
            list.into_any()
        }
        Value::Object(entries) => {
            let dict = PyDict::new(py);
            for (name, item) in entries {
                dict.set_item(strings.key(py, name), convert_value(py, item, strings)?)?;
            }
            dict.into_any()
        }
    })
}

/// The path of the current value in a Python value; formatted only for errors.
enum JsonPath<'a> {
    Root,
    Key(&'a JsonPath<'a>, &'a str),
    Item(&'a JsonPath<'a>, usize),
}

impl fmt::Display for JsonPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JsonPath::Root => Ok(()),
            JsonPath::Key(JsonPath::Root, key) => write!(f, "{key}"),
            JsonPath::Key(parent, key) => write!(f, "{parent}.{key}"),
            JsonPath::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

impl JsonPath<'_> {
    fn suffix(&self) -> String {
        match self {
            JsonPath::Root => String::new(),
            path => format!(" (at {path})"),
        }
    }
}

fn read(value: &Bound<'_, PyAny>, path: &JsonPath<'_>, depth: usize) -> PyResult<Value> {
    if depth > MAX_DEPTH {
        return Err(PyValueError::new_err(format!(
            "The value is nested too deep or refers to itself{}",
            path.suffix()
        )));
    }
    // Frequent types first; bool before int, as it is a subclass of int.
    if let Ok(text) = value.cast::<PyString>() {
        return unicode(text).map(Value::String);
    }
    if let Ok(dict) = value.cast::<PyDict>() {
        return read_dict(dict, path, depth);
    }
    if value.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(Value::Bool(flag.is_true()));
    }
    if let Ok(number) = value.cast::<PyInt>() {
        return read_int(number, path);
    }
    if let Ok(number) = value.cast::<PyFloat>() {
        let number = serde_json::Number::from_f64(number.extract()?);
        return number.map(Value::Number).ok_or_else(|| {
            PyValueError::new_err(format!("Infinities and NaN are not JSON{}", path.suffix()))
        });
    }
    if let Ok(list) = value.cast::<PyList>() {
        return read_items(list.iter(), path, depth);
    }
    if let Ok(tuple) = value.cast::<PyTuple>() {
        return read_items(tuple.iter(), path, depth);
    }
    if let Ok(mapping) = value.cast::<PyMapping>() {
        let dict = PyDict::new(value.py());
        dict.update(mapping)?;
        return read_dict(&dict, path, depth);
    }
    let class = value.get_type().name()?;
    Err(PyTypeError::new_err(format!("Object of type {class} is not JSON serializable{}", path.suffix())))
}

fn read_int(number: &Bound<'_, PyInt>, path: &JsonPath<'_>) -> PyResult<Value> {
    if let Ok(number) = number.extract::<i64>() {
        return Ok(Value::from(number));
    }
    if let Ok(number) = number.extract::<u64>() {
        return Ok(Value::from(number));
    }
    // The API server decodes integers beyond 64 bits as floats, so floats are what it stores anyway.
    let float = number.extract::<f64>().ok().and_then(serde_json::Number::from_f64);
    float.map(Value::Number).ok_or_else(|| {
        PyValueError::new_err(format!("Integers beyond the range of floats are not JSON{}", path.suffix()))
    })
}

fn read_items<'py>(
    items: impl Iterator<Item = Bound<'py, PyAny>>,
    path: &JsonPath<'_>,
    depth: usize,
) -> PyResult<Value> {
    let items = items.enumerate().map(|(index, item)| read(&item, &JsonPath::Item(path, index), depth + 1));
    Ok(Value::Array(items.collect::<PyResult<Vec<_>>>()?))
}

fn read_dict(dict: &Bound<'_, PyDict>, path: &JsonPath<'_>, depth: usize) -> PyResult<Value> {
    let mut map = Map::with_capacity(dict.len());
    for (key, item) in dict.iter() {
        let name = match key.cast::<PyString>() {
            Ok(text) => unicode(text)?,
            Err(_) => unusual_key(&key, path)?,
        };
        let item = read(&item, &JsonPath::Key(path, &name), depth + 1)?;
        map.insert(name, item);
    }
    Ok(Value::Object(map))
}

/// Keys that are not strings, as `json.dumps` writes them.
fn unusual_key(key: &Bound<'_, PyAny>, path: &JsonPath<'_>) -> PyResult<String> {
    if key.is_none() {
        return Ok("null".to_owned());
    }
    if let Ok(flag) = key.cast::<PyBool>() {
        return Ok(flag.is_true().to_string());
    }
    // Subclasses, such as enumerations, can have another representation.
    let py = key.py();
    if key.is_instance_of::<PyInt>() {
        return py.get_type::<PyInt>().call_method1(intern!(py, "__repr__"), (key,))?.extract();
    }
    if key.is_instance_of::<PyFloat>() {
        return py.get_type::<PyFloat>().call_method1(intern!(py, "__repr__"), (key,))?.extract();
    }
    let class = key.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "Keys must be str, int, float, bool or None, not {class}{}",
        path.suffix()
    )))
}

/// The text as the API server would decode it from the output of `json.dumps`: with a replacement character for each lone surrogate.
fn unicode(text: &Bound<'_, PyString>) -> PyResult<String> {
    if let Ok(text) = text.to_str() {
        return Ok(text.to_owned());
    }
    let encoded = text.call_method1(intern!(text.py(), "encode"), ("utf-16-le", "surrogatepass"))?;
    let encoded = encoded.cast::<PyBytes>()?.as_bytes();
    let units = encoded.as_chunks().0.iter().map(|unit| u16::from_le_bytes(*unit));
    Ok(char::decode_utf16(units).map(|char| char.unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
}

/// Registers a class of ours as `collections.abc.Mapping`.
pub(crate) fn register_mapping<T: PyTypeInfo>(py: Python<'_>) -> PyResult<()> {
    static MAPPING: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let mapping = MAPPING.import(py, "collections.abc", "Mapping")?;
    mapping.call_method1(intern!(py, "register"), (T::type_object(py),))?;
    Ok(())
}

/// A deep copy of a value, as after a round trip through JSON: real dicts, lists and scalars.
///
/// # Errors
/// A `TypeError` or `ValueError` with the path of the part that is not JSON.
#[pyfunction]
pub(crate) fn json_copy<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    value_to_python(value.py(), &python_to_value(value)?)
}

/// The headers as a dict.
pub(crate) fn headers_to_python<'py>(
    py: Python<'py>,
    headers: &[(String, String)],
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in headers {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}

/// A certificate in the format of `getpeercert()`: with tuples where JSON has lists.
pub(crate) fn peer_to_python<'py>(py: Python<'py>, peer: &Value) -> PyResult<Bound<'py, PyAny>> {
    match peer {
        Value::Array(items) => {
            let items = items.iter().map(|item| peer_to_python(py, item)).collect::<PyResult<Vec<_>>>()?;
            Ok(PyTuple::new(py, items)?.into_any())
        }
        Value::Object(entries) => {
            let dict = PyDict::new(py);
            for (key, value) in entries {
                dict.set_item(key, peer_to_python(py, value)?)?;
            }
            Ok(dict.into_any())
        }
        scalar => value_to_python(py, scalar),
    }
}
