//! `HandlerCall`: one call of one handler, as a coroutine.
//!
//! The core decides on limits and outcomes. The methods of the `Invoker` do the parts that need Python: other threads, optional
//! arguments, errors and their tracebacks.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyStopIteration, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySendResult};
use tracing::{Span, field};

use crate::calls::awaited::{Awaited, Input, thrown};
use crate::calls::coroutine_attributes::{name_of, of_awaited};
use crate::commands::attempt::{Attempt, Outcome};
use crate::errors::misuse;
use crate::time::now;

/// One call of one handler: a coroutine, which is awaited, or is that of a task.
///
/// At its end, it calls `ended` with itself, also if it is cancelled before its first step. Without such a function, it returns
/// itself.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct HandlerCall {
    pub(super) invoker: Py<PyAny>,
    pub(super) prepared: Py<PyAny>,
    pub(super) attempt: Py<Attempt>,
    pub(super) logger: Py<PyAny>,
    /// The results of handlers, to which the result of this one is added.
    pub(super) results: Option<Py<PyList>>,
    pub(super) keep_error: bool,
    pub(super) ended: Option<Py<PyAny>>,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) stage: Stage,
    /// Called without arguments after the function has returned; what it returns is awaited, as a part of the handler.
    after_call: Option<Py<PyAny>>,
    /// Whether the attempt is among the running ones.
    pub(super) is_listed: bool,
    pub(super) outcome: Option<Py<Outcome>>,
    pub(super) result: Option<Py<PyAny>>,
    pub(super) error: Option<Py<PyAny>>,
    /// The span of the traces of the call.
    pub(super) span: Span,
}

pub(super) enum Stage {
    /// The first step was not made: with the arguments.
    Created(Py<PyDict>),
    /// A step is being made, with the awaited coroutine; the first step has none.
    Running(Option<Awaited>),
    Suspended(Awaited),
    Ended,
}

impl Stage {
    fn awaited(&self) -> Option<&Awaited> {
        match self {
            Self::Running(awaited) => awaited.as_ref(),
            Self::Suspended(awaited) => Some(awaited),
            Self::Created(_) | Self::Ended => None,
        }
    }
}

/// The result of a step of a call.
pub(super) enum Step<'py> {
    /// It waits for what it has yielded.
    Yielded(Awaited, Bound<'py, PyAny>),
    Returned,
    /// The function must not be called.
    Rejected(Py<Outcome>),
}

#[pymethods]
impl HandlerCall {
    #[new]
    #[pyo3(signature = (
        invoker, prepared, attempt, kwargs, logger, results=None, after_call=None, keep_error=false, ended=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "all that a call needs")]
    fn new(
        invoker: Py<PyAny>,
        prepared: Py<PyAny>,
        attempt: Py<Attempt>,
        kwargs: Py<PyDict>,
        logger: Py<PyAny>,
        results: Option<Py<PyList>>,
        after_call: Option<Py<PyAny>>,
        keep_error: bool,
        ended: Option<Py<PyAny>>,
    ) -> Self {
        let state = Mutex::new(State {
            stage: Stage::Created(kwargs),
            after_call,
            is_listed: false,
            outcome: None,
            result: None,
            error: None,
            span: Span::none(),
        });
        Self { invoker, prepared, attempt, logger, results, keep_error, ended, state }
    }

    /// The outcome of the call.
    ///
    /// # Errors
    /// If there is none.
    #[getter]
    fn outcome(&self, py: Python<'_>) -> PyResult<Py<Outcome>> {
        self.outcome_or_none(py).ok_or_else(|| misuse("The call has not ended, or was cancelled."))
    }

    /// The outcome; none before the end, and if the call was cancelled.
    #[getter]
    fn outcome_or_none(&self, py: Python<'_>) -> Option<Py<Outcome>> {
        self.state().outcome.as_ref().map(|outcome| outcome.clone_ref(py))
    }

    /// The returned value.
    #[getter]
    pub(super) fn result(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state().result.as_ref().map(|result| result.clone_ref(py))
    }

    /// The error, if it is kept: the one of the limit, if a limit is reached.
    #[getter]
    fn error(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state().error.as_ref().map(|error| error.clone_ref(py))
    }

    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Option<Py<PyAny>>> {
        let step = resume(slf, Input::Send(slf.py().None().into_bound(slf.py())))?;
        if step.is_some() || slf.get().ended.is_some() {
            return Ok(step);
        }
        Err(PyStopIteration::new_err((slf.clone().unbind(),)))
    }

    fn send<'py>(slf: &Bound<'py, Self>, value: Bound<'py, PyAny>) -> PyResult<Py<PyAny>> {
        resume(slf, Input::Send(value))?.ok_or_else(|| returned(slf))
    }

    #[pyo3(signature = (kind, value=None, traceback=None, /))]
    fn throw<'py>(
        slf: &Bound<'py, Self>,
        kind: Bound<'py, PyAny>,
        value: Option<Bound<'py, PyAny>>,
        traceback: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let error = thrown(kind, value, traceback)?;
        resume(slf, Input::Throw(error))?.ok_or_else(|| returned(slf))
    }

    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, call) = (slf.py(), slf.get());
        let stage = std::mem::replace(&mut call.state().stage, Stage::Ended);
        match stage {
            Stage::Created(_) | Stage::Ended => Ok(()),
            Stage::Running(awaited) => {
                call.state().stage = Stage::Running(awaited);
                Err(PyValueError::new_err("coroutine already executing"))
            }
            Stage::Suspended(awaited) => {
                let closed = awaited.close(py);
                drop(awaited);
                HandlerCall::end(slf)?;
                closed
            }
        }
    }

    #[getter]
    fn cr_await(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.awaitable(py)
    }

    #[getter]
    fn cr_frame(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        of_awaited(py, self.awaitable(py), intern!(py, "cr_frame"))
    }

    #[getter]
    fn cr_code(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        of_awaited(py, self.awaitable(py), intern!(py, "cr_code"))
    }

    #[getter]
    fn cr_origin(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        of_awaited(py, self.awaitable(py), intern!(py, "cr_origin"))
    }

    #[getter]
    fn cr_running(&self) -> bool {
        matches!(self.state().stage, Stage::Running(_))
    }

    #[getter]
    fn cr_suspended(&self) -> bool {
        matches!(self.state().stage, Stage::Suspended(_))
    }

    #[getter]
    fn __name__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        name_of(&self.prepared.bind(py).getattr(intern!(py, "fn"))?)
    }

    #[getter]
    fn __qualname__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        name_of(&self.prepared.bind(py).getattr(intern!(py, "fn"))?)
    }

    #[expect(clippy::needless_pass_by_value, reason = "the signature of pyo3")]
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.invoker)?;
        visit.call(&self.prepared)?;
        visit.call(&self.logger)?;
        visit.call(&self.results)?;
        visit.call(&self.ended)?;
        let Ok(state) = self.state.try_lock() else { return Ok(()) };
        visit.call(&state.after_call)?;
        visit.call(&state.result)?;
        visit.call(&state.error)?;
        if let Stage::Created(kwargs) = &state.stage {
            visit.call(kwargs)?;
        }
        if let Some(awaited) = state.stage.awaited() {
            visit.call(&awaited.awaitable)?;
            visit.call(&awaited.steps)?;
        }
        Ok(())
    }
}

/// The exception by which a coroutine returns.
fn returned(call: &Bound<'_, HandlerCall>) -> PyErr {
    if call.get().ended.is_some() {
        return PyStopIteration::new_err(());
    }
    PyStopIteration::new_err((call.clone().unbind(),))
}

/// Makes the next step; the yielded object, or none at the end.
fn resume<'py>(slf: &Bound<'py, HandlerCall>, input: Input<'py>) -> PyResult<Option<Py<PyAny>>> {
    let (py, call) = (slf.py(), slf.get());
    let stage = std::mem::replace(&mut call.state().stage, Stage::Running(None));
    let step = match (stage, input) {
        (Stage::Created(_), Input::Throw(error)) => {
            HandlerCall::end(slf)?;
            return Err(error);
        }
        (Stage::Created(kwargs), Input::Send(value)) => {
            if !value.is_none() {
                call.state().stage = Stage::Created(kwargs);
                return Err(PyTypeError::new_err("can't send non-None value to a just-started coroutine"));
            }
            call.start_span(py);
            match call.check_limits(py) {
                Ok(Some(outcome)) => Ok(Step::Rejected(outcome)),
                Ok(None) => call.begin(kwargs.into_bound(py)),
                Err(error) => {
                    HandlerCall::end(slf)?;
                    return Err(error);
                }
            }
        }
        (Stage::Suspended(awaited), input) => call.step(py, awaited, input),
        (stage @ Stage::Running(_), _) => {
            call.state().stage = stage;
            return Err(PyValueError::new_err("coroutine already executing"));
        }
        (Stage::Ended, _) => {
            call.state().stage = Stage::Ended;
            return Err(PyRuntimeError::new_err("cannot reuse already awaited coroutine"));
        }
    };
    if let Ok(Step::Yielded(awaited, yielded)) = step {
        call.state().stage = Stage::Suspended(awaited);
        return Ok(Some(yielded.unbind()));
    }
    let settled = call.settle(py, step);
    HandlerCall::end(slf)?;
    settled.map(|()| None)
}

impl HandlerCall {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn awaitable(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        Some(self.state().stage.awaited()?.awaitable.clone_ref(py))
    }

    /// Starts the span of the call: inside that of its activation, or of the call of its parent.
    fn start_span(&self, py: Python<'_>) {
        let outer = self.attempt.get().take_span();
        let span = outer.in_scope(|| {
            tracing::debug_span!(
                target: "kopf_engine::calls",
                "call",
                handler = self.id(py),
                retry = self.attempt.get().0.retry,
                outcome = field::Empty,
            )
        });
        self.state().span = span;
    }

    /// The id of the handler.
    fn id(&self, py: Python<'_>) -> String {
        let handler = self.prepared.bind(py).getattr(intern!(py, "handler"));
        let id = handler.and_then(|handler| handler.getattr(intern!(py, "id"))?.extract());
        id.unwrap_or_else(|_| self.attempt.get().0.label.to_string())
    }

    /// The outcome if a limit does not admit the call.
    fn check_limits(&self, py: Python<'_>) -> PyResult<Option<Py<Outcome>>> {
        let Some(outcome) = self.attempt.get().0.precheck(now()) else { return Ok(None) };
        let arguments = (&self.prepared, &self.attempt, &self.logger);
        self.invoker.bind(py).call_method1(intern!(py, "enter_prevented_call"), arguments)?;
        Py::new(py, Outcome(outcome)).map(Some)
    }

    /// Calls the function. All exceptions here are errors of the handler.
    fn begin<'py>(&self, kwargs: Bound<'py, PyDict>) -> PyResult<Step<'py>> {
        let py = kwargs.py();
        let span = self.state().span.clone();
        let _inside = span.enter();
        let (invoker, prepared) = (self.invoker.bind(py), self.prepared.bind(py));
        let handler = prepared.getattr(intern!(py, "handler"))?;
        self.attempt.get().add_arguments(&kwargs, &handler.getattr(intern!(py, "param"))?)?;
        let (attempt, logger) = (self.attempt.bind(py), self.logger.bind(py));
        let awaitable = if prepared.getattr(intern!(py, "is_direct"))?.is_truthy()? {
            let function =
                invoker.call_method1(intern!(py, "begin_direct_call"), (prepared, attempt, logger))?;
            self.state().is_listed = true;
            function.call((), Some(&kwargs))?
        } else {
            invoker.call_method1(intern!(py, "execute"), (prepared, attempt, &kwargs, logger))?
        };
        // It may wait for days, and needs only what the function keeps of them.
        drop(kwargs);
        self.await_and_step(&awaitable)
    }

    fn await_and_step<'py>(&self, awaitable: &Bound<'py, PyAny>) -> PyResult<Step<'py>> {
        let py = awaitable.py();
        let awaited = if let Some(awaited) = Awaited::begin(awaitable)? {
            awaited
        } else {
            // Such as a coroutine of a generator; for others, it raises the usual error.
            let coroutine = self.invoker.bind(py).call_method1(intern!(py, "await_any"), (awaitable,))?;
            Awaited::begin(&coroutine)?.ok_or_else(|| PyTypeError::new_err("await_any() is a coroutine"))?
        };
        self.step(py, awaited, Input::Send(py.None().into_bound(py)))
    }

    fn step<'py>(&self, py: Python<'py>, awaited: Awaited, input: Input<'py>) -> PyResult<Step<'py>> {
        let span = {
            let mut state = self.state();
            state.stage = Stage::Running(Some(awaited.clone_ref(py)));
            state.span.clone()
        };
        // What the function requests, and the sub-handlers that it calls, are inside.
        let _inside = span.enter();
        match awaited.resume(py, input)? {
            PySendResult::Next(yielded) => Ok(Step::Yielded(awaited, yielded)),
            PySendResult::Return(value) => {
                if !value.is_none() {
                    let arguments = (&self.prepared, &value);
                    self.invoker.bind(py).call_method1(intern!(py, "check_result"), arguments)?;
                }
                let mut state = self.state();
                let after_call = state.after_call.take();
                state.result.get_or_insert_with(|| value.unbind());
                drop(state);
                match after_call {
                    Some(after_call) => self.await_and_step(&after_call.bind(py).call0()?),
                    None => Ok(Step::Returned),
                }
            }
        }
    }
}
