//! Failures of requests, as Python sees them.

use kopf_core::user_request::{Class, Failure, KindError, field_conflicts};
use kopf_engine::user_client::CallError;
use pyo3::prelude::*;

use super::document::json_to_python;
use crate::convert::value_to_python;

/// A failure: its kind, which selects the exception, and its content.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct CallFailure {
    kind: &'static str,
    text: String,
    failure: Failure,
}

impl CallFailure {
    /// A failure that is no response.
    pub(crate) fn plain(kind: &'static str, text: String) -> Self {
        Self { kind, text, failure: Failure::unanswered(Class::Rejected, "") }
    }

    pub(crate) fn new(error: CallError) -> Self {
        let plain = Self::plain;
        match error {
            CallError::Misuse(text) => plain("ValueError", text),
            CallError::Kind(KindError::Unknown(text)) => plain("UnknownKind", text),
            CallError::Kind(KindError::Ambiguous(text)) => plain("AmbiguousKind", text),
            CallError::Login(text) => plain("LoginError", text),
            CallError::Closed => {
                plain("RuntimeError", "The client is closed, or its operator has ended.".to_owned())
            }
            CallError::Panicked(panicked) => {
                plain("RuntimeError", format!("{panicked}. This is a bug in Kopf; please report it."))
            }
            CallError::TooManyStreams(limit) => plain(
                "RuntimeError",
                format!(
                    "{limit} watches and logs are open, which is the limit: close some, or select more objects with each."
                ),
            ),
            CallError::Failed(failure) => {
                Self { kind: failure.class.name(), text: failure.text(), failure: *failure }
            }
        }
    }
}

#[pymethods]
impl CallFailure {
    /// The name of the exception.
    #[getter]
    fn kind(&self) -> &'static str {
        self.kind
    }

    /// The whole message.
    #[getter]
    fn text(&self) -> &str {
        &self.text
    }

    /// The HTTP status; 0 if there is no response.
    #[getter]
    fn code(&self) -> u16 {
        self.failure.code
    }

    /// The machine-readable reason.
    #[getter]
    fn reason(&self) -> &str {
        &self.failure.reason
    }

    /// The server's message.
    #[getter]
    fn message(&self) -> &str {
        &self.failure.message
    }

    /// The server's details.
    #[getter]
    fn details<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        value_to_python(py, &self.failure.details)
    }

    /// The causes: reason, message, field.
    #[getter]
    fn causes(&self) -> Vec<(String, String, String)> {
        let causes = self.failure.causes.iter();
        causes.map(|it| (it.reason.clone(), it.message.clone(), it.field.clone())).collect()
    }

    /// The conflicts with other field managers: manager, field, subresource.
    #[getter]
    fn managers(&self) -> Vec<(String, String, String)> {
        let conflicts = field_conflicts(&self.failure.causes).into_iter();
        conflicts.map(|it| (it.manager, it.field, it.subresource)).collect()
    }

    /// The delay that the server requests, in seconds.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.failure.retry_after
    }

    /// Whether the server may have executed the request.
    #[getter]
    fn uncertain(&self) -> bool {
        self.failure.is_uncertain
    }

    /// The object that exists already.
    #[getter]
    fn existing<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.failure.existing.as_deref().map(|body| json_to_python(py, body)).transpose()
    }
}
