//! `SubHandlers`: the rules of sub-handlers that are executed together, called synchronously during the parent's call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kopf_core::cause::Reason;
use kopf_core::handling::sub_handlers::{self, SubHandler};
use kopf_core::json::value::Value;
use kopf_core::persistence::progress::Record;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tracing::Span;

use crate::commands::attempt::{Attempt, Outcome, errors_mode};
use crate::commands::handler_state::handler_states;
use crate::convert::{python_to_value, value_to_python};
use crate::time::now;

/// A sub-handler as a tuple from Python: id, label, error mode, timeout, retries, backoff.
type SubHandlerTuple = (String, String, String, Option<f64>, Option<u64>, f64);

/// The sub-handlers that are executed together.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct SubHandlers {
    sub_handlers: Mutex<sub_handlers::SubHandlers>,
    malformed: Vec<(String, String)>,
}

impl SubHandlers {
    fn sub_handlers(&self) -> MutexGuard<'_, sub_handlers::SubHandlers> {
        self.sub_handlers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl SubHandlers {
    /// Starts the sub-handlers: with the reason, the progress records on the object by the ids of the sub-handlers, and the sub-handlers
    /// selected for this change.
    #[new]
    fn new(reason: &str, records: &Bound<'_, PyDict>, children: Vec<SubHandlerTuple>) -> PyResult<Self> {
        let reason = Reason::HANDLED
            .into_iter()
            .find(|one| one.as_str() == reason)
            .ok_or_else(|| PyValueError::new_err(format!("Nothing is handled for this reason: {reason}")))?;
        let mut found: Vec<(Arc<str>, Record)> = Vec::new();
        let mut malformed = Vec::new();
        for (id, record) in records.iter() {
            let id: String = id.extract()?;
            match Record::from_value(&python_to_value(&record)?) {
                Ok(record) => found.push((id.into(), record)),
                Err(problem) => malformed.push((id, problem)),
            }
        }
        let children = children.into_iter().map(|(id, label, errors, timeout, retries, backoff)| {
            let errors = errors_mode(&errors)?;
            Ok(SubHandler { id: id.into(), label: label.into(), errors, timeout, retries, backoff })
        });
        let children = children.collect::<PyResult<_>>()?;
        Ok(Self {
            sub_handlers: Mutex::new(sub_handlers::SubHandlers::open(reason, found, children, now())),
            malformed,
        })
    }

    /// The records that cannot be decoded and are ignored: the ids with the errors.
    #[getter]
    fn malformed(&self) -> Vec<(String, String)> {
        self.malformed.clone()
    }

    /// The sub-handlers that may be called now: their positions, with the numbers of their attempts.
    fn due(&self) -> Vec<(usize, u64)> {
        self.sub_handlers().due(now())
    }

    /// The states of all known sub-handlers, by their ids.
    fn states<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let sub_handlers = self.sub_handlers();
        handler_states(py, sub_handlers.records())
    }

    /// The next attempt of the sub-handler at this position.
    fn attempt(&self, index: usize) -> PyResult<Attempt> {
        let attempt = self.sub_handlers().attempt(index);
        // Its span is inside that of the parent's call, which calls it.
        attempt
            .map(|attempt| Attempt::new_in(attempt, Span::none()))
            .ok_or_else(|| PyIndexError::new_err("There is no such sub-handler."))
    }

    /// Records the outcome of an attempt.
    fn record_outcome(&self, outcome: &Bound<'_, Outcome>) {
        self.sub_handlers().record_outcome(&outcome.get().outcome());
    }

    /// The progress records to write, by their ids.
    fn changed<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        let changed: Vec<_> =
            self.sub_handlers().changed().map(|(id, record)| (id.to_string(), record.to_map())).collect();
        changed.into_iter().map(|(id, map)| Ok((id, value_to_python(py, &Value::Object(map))?))).collect()
    }

    /// Whether all sub-handlers are done.
    #[getter]
    fn done(&self) -> bool {
        self.sub_handlers().is_done()
    }

    /// Seconds until the next call of the parent; none if its sub-handlers are done.
    fn delay(&self) -> Option<f64> {
        self.sub_handlers().delay(now())
    }
}
