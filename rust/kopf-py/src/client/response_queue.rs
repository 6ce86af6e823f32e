//! The queue of responses for one event loop. Its descriptor is readable while there are any.

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyList;
use tokio::task::AbortHandle;

use super::outcome::Outcome;
use crate::bridge::WakeFd;
use crate::errors::system;

/// The responses, with the tickets of their requests.
pub(crate) struct Queue {
    outcomes: Mutex<Vec<(u64, Outcome)>>,
    wake_fd: WakeFd,
}

impl Queue {
    /// Adds an outcome, from any thread.
    pub(crate) fn put(&self, ticket: u64, outcome: Outcome) {
        let is_first = {
            let mut outcomes = self.outcomes();
            outcomes.push((ticket, outcome));
            outcomes.len() == 1
        };
        if is_first {
            self.wake_fd.notify();
        }
    }

    fn outcomes(&self) -> MutexGuard<'_, Vec<(u64, Outcome)>> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queue of responses for one event loop.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct ResponseQueue(Arc<Queue>);

impl ResponseQueue {
    pub(crate) fn queue(&self) -> Arc<Queue> {
        Arc::clone(&self.0)
    }
}

#[pymethods]
impl ResponseQueue {
    #[new]
    fn new() -> PyResult<Self> {
        let wake_fd =
            WakeFd::new().map_err(|error| system("The queue of responses cannot be created", error))?;
        Ok(Self(Arc::new(Queue { outcomes: Mutex::default(), wake_fd })))
    }

    /// The descriptor that is readable while there are outcomes.
    fn fileno(&self) -> RawFd {
        self.0.wake_fd.fileno()
    }

    /// Takes the outcomes with their tickets.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.0.wake_fd.clear();
        let outcomes = std::mem::take(&mut *self.0.outcomes());
        let list = PyList::empty(py);
        for (ticket, outcome) in outcomes {
            list.append((ticket, outcome.into_python(py)?))?;
        }
        Ok(list)
    }
}

/// A running request.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct RunningCall(AbortHandle);

impl RunningCall {
    pub(crate) fn new(handle: AbortHandle) -> Self {
        Self(handle)
    }
}

#[pymethods]
impl RunningCall {
    /// Cancels the request. If it was sent already, its outcome is unknown. A completed one is not affected.
    fn cancel(&self) {
        self.0.abort();
    }
}
