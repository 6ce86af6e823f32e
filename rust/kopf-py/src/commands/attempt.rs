//! `Attempt` and `Outcome`: the rules of one attempt of one handler, called synchronously.
//!
//! Python calls the function and logs. The core decides how an exception is treated and which line is logged.

use std::sync::{Mutex, PoisonError};

use kopf_core::handler::ErrorsMode;
use kopf_core::handling::attempt::{self, AttemptResult, CallResult, Limit};
use kopf_core::schedule::ReconcileResult;
use kopf_core::time::Timestamp;
use kopf_engine::metrics::outcome_name;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDateTime, PyDict, PyString, PyTzInfo};

use tracing::Span;

use crate::commands::reconcile::name_and_delay;
use crate::logging::number;
use crate::time::now;

/// One attempt of one handler.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct Attempt(pub(crate) attempt::Attempt, Mutex<Span>);

impl Attempt {
    /// An attempt of the engine, with the span in which its call is traced.
    pub(crate) fn new_in(attempt: attempt::Attempt, span: Span) -> Self {
        Self(attempt, Mutex::new(span))
    }

    /// Takes the span out: the attempt may exist for longer than the call, such as in the traceback of an error.
    pub(crate) fn take_span(&self) -> Span {
        std::mem::replace(&mut *self.1.lock().unwrap_or_else(PoisonError::into_inner), Span::none())
    }
}

#[pymethods]
impl Attempt {
    /// An attempt outside of the engine's cycles, such as of an activity's handler.
    #[new]
    #[pyo3(signature = (*, label, errors, backoff, started, retry=0, timeout=None, retries=None, handler=0))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments, with their names at the call")]
    fn new(
        label: &str,
        errors: &str,
        backoff: Option<f64>,
        started: i64,
        retry: u64,
        timeout: Option<f64>,
        retries: Option<u64>,
        handler: usize,
    ) -> PyResult<Self> {
        let errors = errors_mode(errors)?;
        let started = Timestamp::from_micros(started);
        let label = label.into();
        let attempt = attempt::Attempt { handler, label, errors, timeout, retries, backoff, started, retry };
        Ok(Self::new_in(attempt, Span::none()))
    }

    /// The handler's index.
    #[getter]
    fn handler(&self) -> usize {
        self.0.handler
    }

    /// The label of the handler in log lines.
    #[getter]
    fn label(&self) -> &str {
        &self.0.label
    }

    /// Number of earlier attempts.
    #[getter]
    fn retry(&self) -> u64 {
        self.0.retry
    }

    /// The start of the first attempt, in microseconds since the epoch.
    #[getter]
    fn started(&self) -> i64 {
        self.0.started.micros()
    }

    /// The current time, in microseconds since the epoch.
    #[staticmethod]
    fn now() -> i64 {
        now().micros()
    }

    /// Adds the arguments of the attempt to those of its handler, with the value of `param=`.
    ///
    /// The indices among the arguments win over all others.
    pub(crate) fn add_arguments(
        &self,
        arguments: &Bound<'_, PyDict>,
        param: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = param.py();
        add(arguments, intern!(py, "param"), || Ok(param.clone()))?;
        add(arguments, intern!(py, "retry"), || Ok(self.0.retry.into_pyobject(py)?.into_any()))?;
        let started = self.0.started;
        add(arguments, intern!(py, "runtime"), || duration(py, now().micros() - started.micros()))?;
        add(arguments, intern!(py, "started"), || datetime(py, started))
    }

    /// The outcome of the call after an exception of this kind: `temporary`, `permanent`, `subhandlers`, or `unexpected`.
    ///
    /// `message` is stored on the object, `shown` is logged.
    fn settle(&self, kind: &str, message: &str, delay: Option<f64>, shown: &str) -> PyResult<Outcome> {
        let text = shown.to_owned();
        let result = match kind {
            "temporary" => CallResult::Temporary { message: text, delay },
            "permanent" => CallResult::Permanent { message: text },
            "subhandlers" => CallResult::Children { message: text, delay },
            "unexpected" => CallResult::Arbitrary { message: text },
            other => return Err(PyValueError::new_err(format!("Unknown kind of an exception: {other}"))),
        };
        let mut settled = self.0.evaluate(&result, now());
        if settled.outcome.message.as_deref() == Some(shown) {
            settled.outcome.message = Some(message.to_owned());
        }
        Ok(Outcome(settled))
    }
}

/// Adds an argument, unless there is one of this name.
fn add<'py>(
    arguments: &Bound<'py, PyDict>,
    name: &Bound<'py, PyString>,
    value: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<()> {
    if arguments.contains(name)? { Ok(()) } else { arguments.set_item(name, value()?) }
}

/// The duration as a `timedelta`.
pub(crate) fn duration(py: Python<'_>, micros: i64) -> PyResult<Bound<'_, PyAny>> {
    static MICROSECOND: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let microsecond = MICROSECOND.get_or_try_init(py, || {
        py.import("datetime")?.getattr("timedelta")?.getattr("resolution").map(Bound::unbind)
    })?;
    microsecond.bind(py).mul(micros)
}

/// The time as a `datetime` in UTC.
pub(crate) fn datetime(py: Python<'_>, at: Timestamp) -> PyResult<Bound<'_, PyAny>> {
    static EPOCH: PyOnceLock<Py<PyDateTime>> = PyOnceLock::new();
    let epoch = EPOCH.get_or_try_init(py, || {
        let utc = PyTzInfo::utc(py)?;
        PyDateTime::new(py, 1970, 1, 1, 0, 0, 0, 0, Some(&utc)).map(Bound::unbind)
    })?;
    epoch.bind(py).add(duration(py, at.micros())?)
}

/// The error mode of this name.
pub(crate) fn errors_mode(name: &str) -> PyResult<ErrorsMode> {
    match name {
        "ignored" => Ok(ErrorsMode::Ignored),
        "temporary" => Ok(ErrorsMode::Temporary),
        "permanent" => Ok(ErrorsMode::Permanent),
        other => Err(PyValueError::new_err(format!("Unknown errors mode: {other}"))),
    }
}

/// The outcome of an attempt, with its log line.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct Outcome(pub(crate) AttemptResult);

impl Outcome {
    pub(crate) fn outcome(&self) -> attempt::Outcome {
        self.0.outcome.clone()
    }

    /// The name of the outcome in traces.
    pub(crate) fn name(&self) -> &'static str {
        outcome_name(&self.0.outcome)
    }

    /// The level and the text of the log line, if there is one.
    pub(crate) fn line(&self) -> Option<(u8, &str)> {
        self.0.log.as_ref().map(|line| (number(line.level), line.text.as_str()))
    }
}

#[pymethods]
impl Outcome {
    /// The same outcome, with the ids of sub-handlers at any depth.
    fn with_subrefs(&self, subrefs: Vec<String>) -> Self {
        let mut settled = self.0.clone();
        settled.outcome.subrefs = subrefs;
        Self(settled)
    }

    /// The result of a reconciler's call that has raised the error, with its delay: see `CallReconciler.reply()`.
    fn reconcile_result(&self, is_timed_out: bool) -> (&'static str, Option<f64>) {
        name_and_delay(ReconcileResult::of_error(&self.0.outcome, is_timed_out))
    }

    /// The level of the log line; 0 if there is nothing to log.
    #[getter]
    fn level(&self) -> u8 {
        self.0.log.as_ref().map_or(0, |line| number(line.level))
    }

    /// The log line.
    #[getter]
    fn text(&self) -> &str {
        self.0.log.as_ref().map_or("", |line| &line.text)
    }

    /// Whether the exception is logged with the line.
    #[getter]
    fn traceback(&self) -> bool {
        self.0.log.as_ref().is_some_and(|line| line.traceback)
    }

    /// The limit that ended the attempts: `timeout` or `retries`; none if there will be more attempts, or for other reasons.
    #[getter]
    fn limit(&self) -> Option<&'static str> {
        self.0.limit.map(|limit| match limit {
            Limit::Timeout => "timeout",
            Limit::Retries => "retries",
        })
    }

    /// Whether there will be no further attempt.
    #[getter(r#final)]
    fn is_final(&self) -> bool {
        self.0.outcome.final_
    }

    /// Whether the attempt ended with an error, final or not.
    #[getter]
    fn failed(&self) -> bool {
        self.0.outcome.failed
    }

    /// Seconds until the next attempt.
    #[getter]
    fn delay(&self) -> Option<f64> {
        self.0.outcome.delay
    }

    /// The message of the error.
    #[getter]
    fn message(&self) -> Option<&str> {
        self.0.outcome.message.as_deref()
    }
}
