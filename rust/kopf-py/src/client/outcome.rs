//! Outcomes of requests, as Python sees them.

use std::sync::Arc;

use http::HeaderMap;
use kopf_core::resource::Resource;
use kopf_engine::apply::{Applied, ApplyError};
use kopf_engine::user_client::{CallError, Response};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyList};
use pythonize::pythonize;

use super::apply::AppliedChildren;
use super::document::json_to_python;
use super::failure::CallFailure;
use crate::errors::declaration;

/// The outcome of a request.
pub(crate) enum Outcome {
    /// A response.
    Response(Response),
    /// Resources.
    Resources(Vec<Arc<Resource>>),
    /// Whether something is allowed.
    Allowed(bool),
    /// The items of a watch are ready.
    Ready,
    /// Applied children.
    Applied(Box<Applied>),
    /// A rejection by the engine: the name of the exception, and the text.
    Rejected(&'static str, String),
    /// A failure.
    Error(CallError),
}

impl From<Result<Applied, ApplyError>> for Outcome {
    fn from(result: Result<Applied, ApplyError>) -> Self {
        match result {
            Ok(applied) => Self::Applied(Box::new(applied)),
            Err(ApplyError::Call(error)) => Self::Error(error),
            Err(ApplyError::OwnerGone(text)) => Self::Rejected("LookupError", text),
            Err(ApplyError::OwnedByAnother(text)) => Self::Rejected("OwnedByAnother", text),
        }
    }
}

impl Outcome {
    pub(crate) fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self {
            Self::Response(response) => Py::new(py, ApiResponse(response))?.into_any(),
            Self::Resources(found) => {
                let list = PyList::empty(py);
                for resource in found {
                    list.append(pythonize(py, &*resource).map_err(|error| declaration("resource", error))?)?;
                }
                list.into_any().unbind()
            }
            Self::Allowed(is_allowed) => PyBool::new(py, is_allowed).to_owned().into_any().unbind(),
            Self::Ready => py.None(),
            Self::Applied(applied) => Py::new(py, AppliedChildren::new(*applied))?.into_any(),
            Self::Rejected(kind, text) => Py::new(py, CallFailure::plain(kind, text))?.into_any(),
            Self::Error(error) => Py::new(py, CallFailure::new(error))?.into_any(),
        })
    }
}

/// A response.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct ApiResponse(Response);

#[pymethods]
impl ApiResponse {
    /// The HTTP status.
    #[getter]
    fn status(&self) -> u16 {
        self.0.status
    }

    /// The headers, with names in lower case. The values of a repeated header are joined.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        headers_to_python(py, &self.0.headers)
    }

    /// The `apiVersion` and the `kind` of the resource, if it is the response of a verb.
    #[getter]
    fn type_meta(&self) -> Option<(String, String)> {
        let resource = self.0.resource.as_ref()?;
        let version = &resource.version;
        let api_version =
            if resource.group.is_empty() { version.clone() } else { format!("{}/{version}", resource.group) };
        Some((api_version, resource.kind.clone()?))
    }

    /// The body.
    #[getter]
    fn content<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.body)
    }

    /// The decoded body.
    fn json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json_to_python(py, &self.0.body)
    }
}

fn headers_to_python<'py>(py: Python<'py>, headers: &HeaderMap) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for name in headers.keys() {
        let values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        dict.set_item(name.as_str(), values.collect::<Vec<_>>().join(", "))?;
    }
    Ok(dict)
}
