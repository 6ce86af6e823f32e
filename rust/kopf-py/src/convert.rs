//! Conversions of values in both directions: JSON text and `serde_json` values to Python, Python values to `serde_json`.
//!
//! JSON text is converted directly to Python objects, without intermediate values, and keys are shared between documents.

use std::fmt;
use std::sync::Mutex;

use kopf_core::json::value::{Map, Value};
use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyDict, PyDictMethods, PyFloat, PyInt, PyList, PyMapping, PyNone, PyString, PyTuple, PyType,
};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::errors::decoding;

/// Maximum nesting of Python values, the same as of objects; deeper ones are taken for reference cycles.
const MAX_DEPTH: usize = 300;

/// Converts JSON text of an object to Python's dicts, lists and scalars. Its depth was checked when it was decoded.
pub(crate) fn text_to_python<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    let mut keys = KEYS.try_lock().ok();
    let mut source = serde_json::Deserializer::from_str(text);
    source.disable_recursion_limit();
    let value = Seed { py, keys: &mut keys.as_deref_mut() }.deserialize(&mut source).map_err(decoding)?;
    source.end().map_err(decoding)?;
    Ok(value)
}

/// Converts a value to Python's dicts, lists and scalars.
pub(crate) fn value_to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    let mut keys = KEYS.try_lock().ok();
    convert_value(py, value, &mut keys.as_deref_mut())
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
    read(value, &Place::Root, 0)
}

/// Converts a Python mapping, as [`python_to_value`] does.
pub(crate) fn python_to_map(value: &Bound<'_, PyAny>) -> PyResult<Map<String, Value>> {
    match python_to_value(value)? {
        Value::Object(map) => Ok(map),
        _ => Err(PyTypeError::new_err("a mapping is expected here")),
    }
}

/// The keys of JSON objects, which repeat from object to object: a direct-mapped cache of Python strings.
struct Keys(Vec<Option<(Box<str>, Py<PyString>)>>);

const KEY_SLOTS: usize = 2048;
const MAX_CACHED_KEY: usize = 64;

/// If the lock is taken, the cache is not used: a garbage collection during a conversion may run other conversions.
static KEYS: Mutex<Keys> = Mutex::new(Keys(Vec::new()));

impl Keys {
    fn get<'py>(&mut self, py: Python<'py>, key: &str) -> Bound<'py, PyString> {
        if key.len() > MAX_CACHED_KEY {
            return PyString::new(py, key);
        }
        if self.0.is_empty() {
            self.0.resize_with(KEY_SLOTS, || None);
        }
        let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let slot = usize::try_from(hash >> 32).unwrap_or_default() % KEY_SLOTS;
        let Some(entry) = self.0.get_mut(slot) else { return PyString::new(py, key) };
        match entry {
            Some((known, string)) if &**known == key => string.bind(py).clone(),
            _ => {
                let string = PyString::intern(py, key);
                *entry = Some((key.into(), string.clone().unbind()));
                string
            }
        }
    }
}

fn key<'py>(py: Python<'py>, keys: &mut Option<&mut Keys>, key: &str) -> Bound<'py, PyString> {
    match keys {
        Some(keys) => keys.get(py, key),
        None => PyString::new(py, key),
    }
}

struct Seed<'py, 'k, 'g> {
    py: Python<'py>,
    keys: &'k mut Option<&'g mut Keys>,
}

impl<'de, 'py> DeserializeSeed<'de> for Seed<'py, '_, '_> {
    type Value = Bound<'py, PyAny>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, 'py> Visitor<'de> for Seed<'py, '_, '_> {
    type Value = Bound<'py, PyAny>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(PyNone::get(self.py).to_owned().into_any())
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(PyBool::new(self.py, value).to_owned().into_any())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(PyInt::new(self.py, value).into_any())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(PyInt::new(self.py, value).into_any())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(PyFloat::new(self.py, value).into_any())
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(PyString::new(self.py, value).into_any())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let list = PyList::empty(self.py);
        while let Some(item) = items.next_element_seed(Seed { py: self.py, keys: self.keys })? {
            list.append(item).map_err(A::Error::custom)?;
        }
        Ok(list.into_any())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let dict = PyDict::new(self.py);
        while let Some(key) = entries.next_key_seed(KeySeed { py: self.py, keys: self.keys })? {
            let value = entries.next_value_seed(Seed { py: self.py, keys: self.keys })?;
            dict.set_item(key, value).map_err(A::Error::custom)?;
        }
        Ok(dict.into_any())
    }
}

struct KeySeed<'py, 'k, 'g> {
    py: Python<'py>,
    keys: &'k mut Option<&'g mut Keys>,
}

impl<'de, 'py> DeserializeSeed<'de> for KeySeed<'py, '_, '_> {
    type Value = Bound<'py, PyString>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'py> Visitor<'_> for KeySeed<'py, '_, '_> {
    type Value = Bound<'py, PyString>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(key(self.py, self.keys, value))
    }
}

fn convert_value<'py>(
    py: Python<'py>,
    value: &Value,
    keys: &mut Option<&mut Keys>,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => PyNone::get(py).to_owned().into_any(),
        Value::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => PyInt::new(py, number).into_any(),
            (None, Some(number)) => PyInt::new(py, number).into_any(),
            (None, None) => PyFloat::new(py, number.as_f64().unwrap_or(f64::NAN)).into_any(),
        },
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(items) => {
            let list = PyList::empty(py);
            for item in items {
                list.append(convert_value(py, item, keys)?)?;
            }
            list.into_any()
        }
        Value::Object(entries) => {
            let dict = PyDict::new(py);
            for (name, item) in entries {
                dict.set_item(key(py, keys, name), convert_value(py, item, keys)?)?;
            }
            dict.into_any()
        }
    })
}

/// The path of the current value in a Python value; formatted only for errors.
enum Place<'a> {
    Root,
    Key(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Root => Ok(()),
            Place::Key(Place::Root, key) => write!(f, "{key}"),
            Place::Key(parent, key) => write!(f, "{parent}.{key}"),
            Place::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

impl Place<'_> {
    fn suffix(&self) -> String {
        match self {
            Place::Root => String::new(),
            place => format!(" (at {place})"),
        }
    }
}

fn read(value: &Bound<'_, PyAny>, place: &Place<'_>, depth: usize) -> PyResult<Value> {
    if depth > MAX_DEPTH {
        return Err(PyValueError::new_err(format!(
            "The value is nested too deep or refers to itself{}",
            place.suffix()
        )));
    }
    // Frequent types first; bool before int, as it is a subclass of int.
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Value::String(
            text.to_str().map_err(|error| invalid_unicode(value.py(), &error, place))?.to_owned(),
        ));
    }
    if let Ok(dict) = value.cast::<PyDict>() {
        return read_dict(dict, place, depth);
    }
    if value.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(Value::Bool(flag.is_true()));
    }
    if let Ok(number) = value.cast::<PyInt>() {
        return read_int(number, place);
    }
    if let Ok(number) = value.cast::<PyFloat>() {
        let number = serde_json::Number::from_f64(number.extract()?);
        return number.map(Value::Number).ok_or_else(|| {
            PyValueError::new_err(format!("Infinities and NaN are not JSON{}", place.suffix()))
        });
    }
    if let Ok(list) = value.cast::<PyList>() {
        return read_items(list.iter(), place, depth);
    }
    if let Ok(tuple) = value.cast::<PyTuple>() {
        return read_items(tuple.iter(), place, depth);
    }
    if let Ok(mapping) = value.cast::<PyMapping>() {
        let dict = PyDict::new(value.py());
        dict.update(mapping)?;
        return read_dict(&dict, place, depth);
    }
    let class = value.get_type().name()?;
    Err(PyTypeError::new_err(format!("Object of type {class} is not JSON serializable{}", place.suffix())))
}

fn read_int(number: &Bound<'_, PyInt>, place: &Place<'_>) -> PyResult<Value> {
    if let Ok(number) = number.extract::<i64>() {
        return Ok(Value::from(number));
    }
    if let Ok(number) = number.extract::<u64>() {
        return Ok(Value::from(number));
    }
    // The API server decodes integers beyond 64 bits as floats, so floats are what it stores anyway.
    let float = number.extract::<f64>().ok().and_then(serde_json::Number::from_f64);
    float.map(Value::Number).ok_or_else(|| {
        PyValueError::new_err(format!("Integers beyond the range of floats are not JSON{}", place.suffix()))
    })
}

fn read_items<'py>(
    items: impl Iterator<Item = Bound<'py, PyAny>>,
    place: &Place<'_>,
    depth: usize,
) -> PyResult<Value> {
    let items = items.enumerate().map(|(index, item)| read(&item, &Place::Item(place, index), depth + 1));
    Ok(Value::Array(items.collect::<PyResult<Vec<_>>>()?))
}

fn read_dict(dict: &Bound<'_, PyDict>, place: &Place<'_>, depth: usize) -> PyResult<Value> {
    let mut map = Map::with_capacity(dict.len());
    for (key, item) in dict.iter() {
        let name = match key.cast::<PyString>() {
            Ok(text) => text.to_str().map_err(|error| invalid_unicode(dict.py(), &error, place))?.to_owned(),
            Err(_) => unusual_key(&key, place)?,
        };
        let item = read(&item, &Place::Key(place, &name), depth + 1)?;
        map.insert(name, item);
    }
    Ok(Value::Object(map))
}

/// Keys that are not strings, as `json.dumps` writes them.
fn unusual_key(key: &Bound<'_, PyAny>, place: &Place<'_>) -> PyResult<String> {
    if key.is_none() {
        return Ok("null".to_owned());
    }
    if let Ok(flag) = key.cast::<PyBool>() {
        return Ok(flag.is_true().to_string());
    }
    if key.is_instance_of::<PyInt>() || key.is_instance_of::<PyFloat>() {
        return key.repr()?.extract();
    }
    let class = key.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "Keys must be str, int, float, bool or None, not {class}{}",
        place.suffix()
    )))
}

fn invalid_unicode(py: Python<'_>, error: &PyErr, place: &Place<'_>) -> PyErr {
    PyValueError::new_err(format!("The text is not valid Unicode: {}{}", error.value(py), place.suffix()))
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
#[pyo3(name = "json_copy")]
pub(crate) fn plain<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
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
