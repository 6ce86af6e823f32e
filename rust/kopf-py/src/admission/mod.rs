//! Admission at the border: reviews for the operator's handlers, and the server of webhooks for whoever answers them.

pub(crate) mod certificates;
pub(crate) mod review;
pub(crate) mod server;

use kopf_core::value::Value;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::convert::value_to_python;

/// The headers as a dict.
fn headers_to_python<'py>(py: Python<'py>, headers: &[(String, String)]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in headers {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}

/// A certificate as `getpeercert()` gives it: with tuples where JSON has lists.
fn peer_to_python<'py>(py: Python<'py>, peer: &Value) -> PyResult<Bound<'py, PyAny>> {
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
