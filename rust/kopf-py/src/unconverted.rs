//! Items of the engine that cannot be converted to Python.

use std::sync::Arc;

use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_engine::host::{LogRecord, Logger};
use pyo3::prelude::*;

use crate::logging::Log;

/// The log record that replaces an item that cannot be converted. The item's sender gets the error as the reply, or no reply.
pub(crate) fn unconverted(py: Python<'_>, object: Option<Arc<Object>>, error: &PyErr) -> PyResult<Py<PyAny>> {
    let text = format!("Internal error: a request of the engine cannot be converted to Python: {error}");
    let entry = match object {
        Some(object) => LogRecord::local(Level::Error, &object, text),
        None => LogRecord::general(Level::Error, Logger::Running, text),
    };
    Ok(Py::new(py, Log::new(py, entry)?)?.into_any())
}
