//! `HandlerState`: the progress of a handler, as lifecycles see it.

use std::sync::Arc;

use kopf_core::persistence::progress::Record;
use kopf_core::time::Timestamp;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::commands::attempt::{datetime, duration};
use crate::time::now;

/// The state of a handler.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct HandlerState {
    record: Record,
    started: Timestamp,
}

/// The states of handlers, by their ids.
pub(crate) fn handler_states<'py, 'r>(
    py: Python<'py>,
    records: impl Iterator<Item = (&'r Arc<str>, &'r Record)>,
) -> PyResult<Bound<'py, PyDict>> {
    let states = PyDict::new(py);
    for (id, record) in records {
        let started = record.started.unwrap_or_else(now);
        states.set_item(&**id, HandlerState { record: record.clone(), started })?;
    }
    Ok(states)
}

#[pymethods]
impl HandlerState {
    /// The time of the first selection of the handler.
    #[getter]
    fn started<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        datetime(py, self.started)
    }

    /// The time of the final outcome.
    #[getter]
    fn stopped<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.record.stopped.map(|at| datetime(py, at)).transpose()
    }

    /// The time before which the handler is not retried.
    #[getter]
    fn delayed<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.record.delayed.map(|at| datetime(py, at)).transpose()
    }

    /// The reason of the handling.
    #[getter]
    fn purpose(&self) -> Option<&str> {
        self.record.purpose.as_deref()
    }

    /// The number of finished attempts.
    #[getter]
    fn retries(&self) -> u64 {
        self.record.retries
    }

    /// Whether the handler has succeeded.
    #[getter]
    fn success(&self) -> bool {
        self.record.success
    }

    /// Whether the handler has failed permanently.
    #[getter]
    fn failure(&self) -> bool {
        self.record.failure
    }

    /// The error message of the last attempt.
    #[getter]
    fn message(&self) -> Option<&str> {
        self.record.message.as_deref()
    }

    /// The ids of all sub-handlers.
    #[getter]
    fn subrefs(&self) -> Vec<String> {
        self.record.subrefs.clone()
    }

    /// Whether the handler has succeeded or failed.
    #[getter]
    fn finished(&self) -> bool {
        self.record.success || self.record.failure
    }

    /// Whether the handler waits for its next attempt.
    #[getter]
    fn sleeping(&self) -> bool {
        !self.finished() && self.record.delayed.is_some_and(|delayed| delayed > now())
    }

    /// Whether the handler can be called now.
    #[getter]
    fn awakened(&self) -> bool {
        !self.finished() && !self.sleeping()
    }

    /// The time since the first selection.
    #[getter]
    fn runtime<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        duration(py, now().micros().saturating_sub(self.started.micros()))
    }

    fn __repr__(&self) -> String {
        format!("<HandlerState: {}>", self.record.to_json(false))
    }
}
