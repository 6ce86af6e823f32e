//! `TaskCoroutine`: a coroutine for a task whose end must be known in any case.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyStopIteration;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PySendResult, PyString};

use crate::calls::awaited::{Awaited, Input, thrown};
use crate::calls::coroutine_attributes::{name_of, of_awaited};
use crate::errors::misuse;

/// A coroutine that calls a function if its task is cancelled before its first step. Then, nothing of the coroutine in it is
/// executed.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct TaskCoroutine {
    awaited: Awaited,
    unbegun: Py<PyAny>,
    has_begun: AtomicBool,
}

#[pymethods]
impl TaskCoroutine {
    #[new]
    fn new(coroutine: &Bound<'_, PyAny>, unbegun: Py<PyAny>) -> PyResult<Self> {
        let awaited = Awaited::begin(coroutine)?.ok_or_else(|| misuse("This is no coroutine."))?;
        Ok(Self { awaited, unbegun, has_begun: AtomicBool::new(false) })
    }

    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.resume(py, Input::Send(py.None().into_bound(py)))
    }

    fn send<'py>(&self, py: Python<'py>, value: Bound<'py, PyAny>) -> PyResult<Py<PyAny>> {
        self.resume(py, Input::Send(value))?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    #[pyo3(signature = (kind, value=None, traceback=None, /))]
    fn throw<'py>(
        &self,
        py: Python<'py>,
        kind: Bound<'py, PyAny>,
        value: Option<Bound<'py, PyAny>>,
        traceback: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let error = thrown(kind, value, traceback)?;
        self.resume(py, Input::Throw(error))?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.awaited.close(py)
    }

    #[getter]
    fn cr_await(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.attribute(py, "cr_await")
    }

    #[getter]
    fn cr_frame(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.attribute(py, "cr_frame")
    }

    #[getter]
    fn cr_code(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.attribute(py, "cr_code")
    }

    #[getter]
    fn cr_origin(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.attribute(py, "cr_origin")
    }

    #[getter]
    fn cr_running(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.attribute(py, "cr_running")
    }

    #[getter]
    fn cr_suspended(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.attribute(py, "cr_suspended")
    }

    #[getter]
    fn __name__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        name_of(self.awaited.awaitable.bind(py))
    }

    #[getter]
    fn __qualname__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        name_of(self.awaited.awaitable.bind(py))
    }

    #[expect(clippy::needless_pass_by_value, reason = "the signature of pyo3")]
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.awaited.awaitable)?;
        visit.call(&self.awaited.steps)?;
        visit.call(&self.unbegun)
    }
}

impl TaskCoroutine {
    /// Makes the next step; the yielded object, or none at the end.
    fn resume<'py>(&self, py: Python<'py>, input: Input<'py>) -> PyResult<Option<Py<PyAny>>> {
        let is_unbegun = !self.has_begun.swap(true, Ordering::Relaxed) && matches!(input, Input::Throw(_));
        let step = self.awaited.resume(py, input);
        if is_unbegun {
            self.unbegun.bind(py).call0()?;
        }
        Ok(match step? {
            PySendResult::Next(yielded) => Some(yielded.unbind()),
            PySendResult::Return(_) => None,
        })
    }

    fn attribute(&self, py: Python<'_>, name: &str) -> PyResult<Option<Py<PyAny>>> {
        let name = PyString::new(py, name);
        of_awaited(py, Some(self.awaited.awaitable.clone_ref(py)), &name)
    }
}
