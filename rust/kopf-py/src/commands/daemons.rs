//! `CallDaemon` and related commands: calls of daemons and timers, their initial delays, and their flags.

use std::sync::{Arc, Mutex, PoisonError};

use kopf_core::handling::attempt::CallResult;
use kopf_core::object;
use kopf_engine::host::{CallDaemonReply, CallDaemonTask, GetInitialDelayTask, Responder, StopDaemonsTask};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::commands::attempt::{Attempt, Outcome};
use crate::commands::pending_reply::PendingReply;
use crate::commands::reply_sender::ReplySender;
use crate::convert::python_to_map;
use crate::errors::misuse;
use crate::time::now;
use crate::views::Object;

/// One call of a daemon or a timer.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct CallDaemon {
    /// The id of the run.
    #[pyo3(get)]
    run: u64,
    /// The handler.
    #[pyo3(get)]
    handler: usize,
    /// The resource of the object.
    #[pyo3(get)]
    resource: Py<PyAny>,
    /// The attempt, with its limits.
    #[pyo3(get)]
    attempt: Py<Attempt>,
    /// Whether to keep the transformation functions of the previous call.
    #[pyo3(get)]
    keep_fns: bool,
    uid: Arc<str>,
    object: Mutex<Option<Arc<object::Object>>>,
    reply: PendingReply<CallDaemonReply>,
}

impl CallDaemon {
    /// Converts one call of a daemon or a timer.
    ///
    /// # Errors
    /// If it cannot be converted. The engine treats the call as failed with that error, and retries it accordingly.
    pub(crate) fn new(py: Python<'_>, task: CallDaemonTask, resource: PyResult<Py<PyAny>>) -> PyResult<Self> {
        let resource = match resource {
            Ok(resource) => resource,
            Err(error) => {
                let settled =
                    task.attempt.evaluate(&CallResult::Arbitrary { message: error.to_string() }, now());
                task.reply.send(Some(CallDaemonReply {
                    outcome: Some(settled.outcome),
                    ..CallDaemonReply::default()
                }));
                return Err(error);
            }
        };
        Ok(Self {
            run: task.run,
            handler: task.attempt.handler,
            resource,
            attempt: Py::new(py, Attempt::new_in(task.attempt, task.span))?,
            keep_fns: task.keep_fns,
            uid: task.uid,
            object: Mutex::new(Some(task.object)),
            reply: PendingReply::new(task.reply),
        })
    }

    /// Takes the prepared reply and its sender.
    pub(crate) fn take(&self) -> Option<(Responder<Option<CallDaemonReply>>, CallDaemonReply)> {
        self.reply.take()
    }
}

#[pymethods]
impl CallDaemon {
    /// The key of the object.
    #[getter]
    fn uid(&self) -> &str {
        &self.uid
    }

    /// The current object. It can be taken only once: a call may run for days, and the object is replaced meanwhile.
    ///
    /// # Errors
    /// If it was taken already.
    fn take_object(&self) -> PyResult<Object> {
        let object = self.object.lock().unwrap_or_else(PoisonError::into_inner).take();
        object.map(Object::new).ok_or_else(|| misuse("The object of the run is taken already."))
    }

    /// Drops the current object: for a run whose object Python has already.
    fn release_object(&self) {
        let _object = self.object.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Prepares the reply, which `Engine.complete()` sends. Without an outcome, the call was cancelled.
    ///
    /// # Errors
    /// If the patch is not JSON; nothing is prepared then.
    #[pyo3(signature = (outcome=None, patch=None, fns=false))]
    fn reply(
        &self,
        outcome: Option<PyRef<'_, Outcome>>,
        patch: Option<&Bound<'_, PyDict>>,
        fns: bool,
    ) -> PyResult<()> {
        let patch = patch.map(|patch| python_to_map(patch.as_any())).transpose()?;
        let outcome = outcome.map(|outcome| outcome.outcome());
        self.reply.prepare(CallDaemonReply { outcome, patch, fns })
    }
}

/// Call the function of the initial delay.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct GetInitialDelay {
    /// The id of the run.
    #[pyo3(get)]
    run: u64,
    /// The handler.
    #[pyo3(get)]
    handler: usize,
    /// The key of the object.
    #[pyo3(get)]
    uid: String,
    /// The resource of the object.
    #[pyo3(get)]
    resource: Py<PyAny>,
    /// The current object.
    #[pyo3(get)]
    object: Py<Object>,
    reply: ReplySender<Option<f64>>,
}

impl GetInitialDelay {
    pub(crate) fn new(py: Python<'_>, task: GetInitialDelayTask, resource: Py<PyAny>) -> PyResult<Self> {
        Ok(Self {
            run: task.run,
            handler: task.handler,
            uid: task.uid.to_string(),
            resource,
            object: Py::new(py, Object::new(task.object))?,
            reply: task.reply.into(),
        })
    }
}

#[pymethods]
impl GetInitialDelay {
    /// Authors' functions get its values, and may store in them what refers to it: see `Object`.
    #[expect(clippy::needless_pass_by_value, reason = "the signature of pyo3")]
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.object)
    }

    /// Replies with the delay in seconds; none if the function raised.
    #[pyo3(signature = (delay))]
    fn complete(&self, delay: Option<f64>) {
        self.reply.send(delay);
    }
}

/// Set the stop flags of daemons and timers, and give them a moment to stop.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct StopDaemons {
    /// The ids of the runs, the reasons for their flags, and whether to cancel them too.
    #[pyo3(get)]
    signals: Vec<(u64, u8, bool)>,
    reply: Mutex<Option<Responder<()>>>,
}

impl StopDaemons {
    pub(crate) fn new(task: StopDaemonsTask) -> Self {
        let signals = task.signals.iter().map(|one| (one.run, one.reasons.bits(), one.cancel));
        Self { signals: signals.collect(), reply: Mutex::new(Some(task.reply)) }
    }

    /// Takes the sender of the reply, which is sent when the moment is over.
    pub(crate) fn take(&self) -> Option<Responder<()>> {
        self.reply.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The object has changed: its live body is to be replaced.
#[pyclass(frozen, get_all, module = "kopf._kopf")]
pub(crate) struct ObjectUpdated {
    /// The runs of daemons and timers that share the object.
    pub(crate) runs: Vec<u64>,
    pub(crate) object: Py<Object>,
}

/// A daemon or a timer has ended.
#[pyclass(frozen, get_all, module = "kopf._kopf")]
pub(crate) struct DaemonEnded {
    pub(crate) run: u64,
    pub(crate) reasons: u8,
}
