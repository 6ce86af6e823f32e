//! The rarer kinds of work: transformations of an object, credentials, selectors that are functions, and notices.

use std::sync::{Arc, Mutex, PoisonError};

use kopf_core::json::value::Value;
use kopf_engine::host::credentials::{Credentials, Login as Provided};
use kopf_engine::host::{LoginTask, MatchNamespacesTask, MatchResourcesTask, ProbeTask, TransformTask};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio::sync::oneshot;

use crate::convert::python_to_value;
use crate::errors::declaration;
use crate::views::ObjectView;

/// A one-shot sender of a reply. The receiver may be gone.
pub(crate) struct ReplySender<T>(Mutex<Option<oneshot::Sender<T>>>);

impl<T> ReplySender<T> {
    pub(crate) fn new(sender: oneshot::Sender<T>) -> Self {
        Self(Mutex::new(Some(sender)))
    }

    pub(crate) fn send(&self, reply: T) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sender) = sender {
            let _gone = sender.send(reply);
        }
    }
}

/// Apply the functions of a cycle's patch to an object.
#[pyclass(frozen, name = "ApplyPatchFns", module = "kopf._kopf")]
pub(crate) struct Transform {
    #[pyo3(get)]
    cycle: u64,
    #[pyo3(get)]
    object: Py<ObjectView>,
    reply: ReplySender<Result<Value, String>>,
}

impl Transform {
    pub(crate) fn new(py: Python<'_>, job: TransformTask) -> PyResult<Self> {
        let object = Py::new(py, ObjectView::new(Arc::clone(&job.object)))?;
        Ok(Self { cycle: job.cycle, object, reply: ReplySender::new(job.reply) })
    }
}

#[pymethods]
impl Transform {
    /// Gives the object as it should be.
    fn complete(&self, object: &Bound<'_, PyAny>) -> PyResult<()> {
        self.reply.send(Ok(python_to_value(object)?));
        Ok(())
    }

    /// Says what the functions raised.
    fn fail(&self, error: String) {
        self.reply.send(Err(error));
    }
}

/// Get credentials from the login handlers.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct Login {
    reply: ReplySender<Result<Provided, String>>,
}

impl Login {
    pub(crate) fn new(job: LoginTask) -> Self {
        Self { reply: ReplySender::new(job.reply) }
    }
}

#[pymethods]
impl Login {
    /// Gives the credentials by the ids of the handlers, or none to fall back to the engine's own ways.
    fn complete(&self, credentials: Option<Vec<(String, Bound<'_, PyDict>)>>) -> PyResult<()> {
        let Some(credentials) = credentials else {
            self.reply.send(Ok(Provided::Fallback));
            return Ok(());
        };
        let credentials = credentials.into_iter().map(read_credentials).collect::<PyResult<_>>()?;
        self.reply.send(Ok(Provided::Provided(credentials)));
        Ok(())
    }

    /// Says why there are none.
    fn fail(&self, error: String) {
        self.reply.send(Err(error));
    }
}

/// Reads the credentials of one login handler.
pub(crate) fn read_credentials((id, fields): (String, Bound<'_, PyDict>)) -> PyResult<(String, Credentials)> {
    // The error's own text may quote a secret.
    let credentials = pythonize::depythonize::<Credentials>(&fields);
    let credentials = credentials.map_err(|_| declaration("credentials", "a field is of a wrong type"))?;
    Ok((id, credentials))
}

/// Ask the probes how the operator is.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct Probe {
    reply: ReplySender<Option<String>>,
}

impl Probe {
    pub(crate) fn new(job: ProbeTask) -> Self {
        Self { reply: ReplySender::new(job.reply) }
    }
}

#[pymethods]
impl Probe {
    /// Gives the results of all probes, as JSON.
    fn complete(&self, results: String) {
        self.reply.send(Some(results));
    }

    /// Says that a probe has failed.
    fn fail(&self) {
        self.reply.send(None);
    }
}

/// Ask the selectors that are functions.
#[pyclass(frozen, name = "MatchResources", module = "kopf._kopf")]
pub(crate) struct Select {
    #[pyo3(get)]
    handlers: Vec<usize>,
    #[pyo3(get)]
    resources: Vec<Py<PyAny>>,
    reply: ReplySender<Result<Vec<Vec<bool>>, String>>,
}

impl Select {
    pub(crate) fn new(job: MatchResourcesTask, resources: Vec<Py<PyAny>>) -> Self {
        Self { handlers: job.handlers, resources, reply: ReplySender::new(job.reply) }
    }
}

#[pymethods]
impl Select {
    /// Gives an answer for each handler, for each resource.
    fn complete(&self, wanted: Vec<Vec<bool>>) {
        self.reply.send(Ok(wanted));
    }

    /// Says what a function raised.
    fn fail(&self, error: String) {
        self.reply.send(Err(error));
    }
}

/// Ask the patterns of namespaces that are no globs.
#[pyclass(frozen, name = "MatchNamespaces", module = "kopf._kopf")]
pub(crate) struct Locate {
    #[pyo3(get)]
    names: Vec<String>,
    reply: ReplySender<Vec<bool>>,
}

impl Locate {
    pub(crate) fn new(job: MatchNamespacesTask) -> Self {
        Self { names: job.names, reply: ReplySender::new(job.reply) }
    }
}

#[pymethods]
impl Locate {
    /// Gives an answer for each name.
    fn complete(&self, served: Vec<bool>) {
        self.reply.send(served);
    }
}

/// The cycle is over; if the functions of its patch are carried, they go to the object's next cycle.
#[pyclass(frozen, get_all, name = "CycleClosed", module = "kopf._kopf")]
pub(crate) struct Close {
    pub(crate) cycle: u64,
    #[pyo3(name = "keep_fns")]
    pub(crate) carry: bool,
}

/// The operator does not wait for the cycle any longer: what runs of it is to be cancelled.
#[pyclass(frozen, get_all, name = "CancelCycle", module = "kopf._kopf")]
pub(crate) struct Cancel {
    pub(crate) cycle: u64,
}

/// The object is gone.
#[pyclass(frozen, get_all, name = "ObjectDeleted", module = "kopf._kopf")]
pub(crate) struct Forget {
    pub(crate) uid: String,
}

/// The engine has ended: as it was asked to, or by a failure of this kind and with this message.
#[pyclass(frozen, get_all, name = "EngineStopped", module = "kopf._kopf")]
pub(crate) struct Finished {
    pub(crate) failure: Option<(&'static str, String)>,
}
