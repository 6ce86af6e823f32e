//! The end of a call of a handler: its outcome, its log line, its result.

use kopf_core::handling::attempt::CallResult;
use pyo3::exceptions::asyncio::CancelledError;
use pyo3::exceptions::{PyGeneratorExit, PyKeyboardInterrupt, PySystemExit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use tracing::Span;

use crate::calls::handler_call::{HandlerCall, Stage, Step};
use crate::commands::attempt::Outcome;
use crate::time::now;

/// Whether the exception ends the process or the coroutine. All others are errors of the handler, also if they are no
/// `Exception`, such as the panics of other extensions.
fn is_ending(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyKeyboardInterrupt>(py)
        || error.is_instance_of::<PySystemExit>(py)
        || error.is_instance_of::<PyGeneratorExit>(py)
}

impl HandlerCall {
    /// Determines the outcome, and logs it.
    ///
    /// # Errors
    /// If the call is cancelled, or if the exception must end the task.
    pub(super) fn settle(&self, py: Python<'_>, step: PyResult<Step<'_>>) -> PyResult<()> {
        let invoker = self.invoker.bind(py);
        self.unlist(py)?;
        let is_rejected = matches!(step, Ok(Step::Rejected(_)));
        let (outcome, error) = match step {
            Ok(Step::Yielded(..)) => return Ok(()),
            Ok(Step::Rejected(outcome)) => (outcome, None),
            Ok(Step::Returned) => {
                let settled = self.attempt.get().0.evaluate(&CallResult::Nothing, now());
                (Py::new(py, Outcome(settled))?, None)
            }
            Err(error) if error.is_instance_of::<CancelledError>(py) => {
                self.state().span.record("outcome", "cancelled");
                invoker.call_method1(intern!(py, "log_cancelled"), (&self.attempt, &self.logger))?;
                return Err(error);
            }
            Err(error) if !is_ending(py, &error) => {
                // Of a function whose `after_call` has failed.
                let result = self.state().result.take();
                drop(result);
                let error = error.into_value(py);
                let arguments = (&self.prepared, &self.attempt, &error, &self.logger);
                let outcome = invoker.call_method1(intern!(py, "settle_error"), arguments)?;
                (outcome.cast::<Outcome>()?.clone().unbind(), Some(error.into_any()))
            }
            Err(error) => return Err(error),
        };
        if error.is_none() {
            self.log(py, outcome.get())?;
            self.add_result(py)?;
        }
        if self.keep_error && (is_rejected || error.is_some()) {
            let kept = invoker.call_method1(intern!(py, "kept_error"), (&outcome, error))?;
            self.state().error = Some(kept.unbind());
        }
        let mut state = self.state();
        state.span.record("outcome", outcome.get().name());
        state.outcome = Some(outcome);
        Ok(())
    }

    fn log(&self, py: Python<'_>, outcome: &Outcome) -> PyResult<()> {
        let Some((level, text)) = outcome.line() else { return Ok(()) };
        let text = PyString::new(py, text);
        let log_line = self.invoker.bind(py).getattr(intern!(py, "log_line"))?;
        log_line.call1((&self.logger, level, text)).map(drop)
    }

    fn add_result(&self, py: Python<'_>) -> PyResult<()> {
        let returned = self.result(py).filter(|returned| !returned.is_none(py));
        let (Some(all), Some(returned)) = (&self.results, returned) else { return Ok(()) };
        let arguments = (all, returned, &self.prepared, &self.logger);
        self.invoker.bind(py).call_method1(intern!(py, "add_result"), arguments).map(drop)
    }

    /// Removes the attempt from the running ones.
    fn unlist(&self, py: Python<'_>) -> PyResult<()> {
        if std::mem::take(&mut self.state().is_listed) {
            let running = self.invoker.bind(py).getattr(intern!(py, "running"))?;
            running.cast::<PyDict>()?.del_item(&self.attempt)?;
        }
        Ok(())
    }

    /// Ends the call, and notifies `ended`.
    pub(super) fn end(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, call) = (slf.py(), slf.get());
        call.unlist(py)?;
        let stage = std::mem::replace(&mut call.state().stage, Stage::Ended);
        drop(stage);
        let span = std::mem::replace(&mut call.state().span, Span::none());
        drop(span);
        if let Some(ended) = &call.ended {
            ended.bind(py).call1((slf,))?;
        }
        Ok(())
    }
}
