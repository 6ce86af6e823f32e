//! Log records of the engine for Python's `logging`: in order with the tasks, and batched with them.
//!
//! Debug lines of the engine's traces are in `trace`.

use std::sync::Arc;

use kopf_core::log_level::Level;
use kopf_engine::host::{LogRecord, Logger};
use pyo3::prelude::*;

use crate::views::Object;

/// The number of a level in Python's `logging`.
pub(crate) fn number(level: Level) -> u8 {
    match level {
        Level::Debug => 10,
        Level::Info => 20,
        Level::Warning => 30,
        Level::Error => 40,
    }
}

/// The names of the loggers whose levels decide which records the engine creates. Its traces are enabled apart from them.
pub(crate) fn names() -> Vec<&'static str> {
    Logger::ALL.iter().filter(|logger| **logger != Logger::Traces).map(|logger| logger.name()).collect()
}

/// A log record of the engine.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct Log {
    /// The level, as numbered by Python's `logging`.
    #[pyo3(get)]
    level: u8,
    /// The logger's name.
    #[pyo3(get)]
    logger: &'static str,
    /// The text.
    #[pyo3(get)]
    text: String,
    /// The object of the record, if there is one.
    #[pyo3(get)]
    object: Option<Py<Object>>,
    /// Whether it may become a Kubernetes event.
    #[pyo3(get)]
    posted: bool,
    /// The cycle whose exception is logged with the record.
    #[pyo3(get)]
    exception_of: Option<u64>,
    /// The id of the cause and the reason of the handling that the record belongs to.
    #[pyo3(get)]
    handling: Option<(String, &'static str)>,
}

impl Log {
    pub(crate) fn new(py: Python<'_>, entry: LogRecord) -> PyResult<Self> {
        let uid = entry.object.as_ref().and_then(|object| object.uid()).unwrap_or_default();
        let object = entry.object.as_ref().map(|object| Py::new(py, Object::new(Arc::clone(object))));
        Ok(Self {
            level: number(entry.level),
            logger: entry.logger.name(),
            text: entry.text,
            object: object.transpose()?,
            posted: entry.posted,
            exception_of: entry.exception_of,
            handling: entry.handling.map(|handling| (handling.cause_id(uid), handling.reason.as_str())),
        })
    }
}
