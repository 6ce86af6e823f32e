//! Awaitables that a coroutine in native code awaits.

use pyo3::exceptions::PyStopIteration;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PySendResult, PyType};

/// How a coroutine is resumed.
pub(crate) enum Input<'py> {
    Send(Bound<'py, PyAny>),
    Throw(PyErr),
}

/// An awaitable, with the iterator of its steps.
pub(crate) struct Awaited {
    pub(crate) awaitable: Py<PyAny>,
    pub(crate) steps: Py<PyIterator>,
}

impl Awaited {
    /// Begins to await; none if the object has no `__await__()` that returns an iterator.
    pub(crate) fn begin(awaitable: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let Some(method) = awaitable.getattr_opt(intern!(awaitable.py(), "__await__"))? else {
            return Ok(None);
        };
        let steps = method.call0()?;
        let Ok(steps) = steps.cast::<PyIterator>() else { return Ok(None) };
        Ok(Some(Self { awaitable: awaitable.clone().unbind(), steps: steps.clone().unbind() }))
    }

    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self { awaitable: self.awaitable.clone_ref(py), steps: self.steps.clone_ref(py) }
    }

    /// Makes the next step.
    pub(crate) fn resume<'py>(&self, py: Python<'py>, input: Input<'py>) -> PyResult<PySendResult<'py>> {
        let steps = self.steps.bind(py);
        match input {
            Input::Send(value) => steps.send(&value),
            Input::Throw(error) => {
                let error = error.into_value(py);
                match steps.call_method1(intern!(py, "throw"), (error,)) {
                    Ok(yielded) => Ok(PySendResult::Next(yielded)),
                    Err(error) if error.is_instance_of::<PyStopIteration>(py) => {
                        Ok(PySendResult::Return(error.value(py).getattr(intern!(py, "value"))?))
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Ends it, as at the end of the program.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.steps.bind(py).call_method0(intern!(py, "close")).map(drop)
    }
}

/// The exception of the arguments of `throw()`.
pub(crate) fn thrown(
    kind: Bound<'_, PyAny>,
    value: Option<Bound<'_, PyAny>>,
    traceback: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyErr> {
    let py = kind.py();
    let error = match value {
        Some(value) if kind.is_instance_of::<PyType>() => {
            if value.is_instance(&kind)? {
                value
            } else {
                kind.call1((value,))?
            }
        }
        _ => kind,
    };
    let error = PyErr::from_value(error);
    if let Some(traceback) = traceback {
        error.value(py).call_method1(intern!(py, "with_traceback"), (traceback,))?;
    }
    Ok(error)
}
