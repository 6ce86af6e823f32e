//! Less frequent commands: transformations of an object, credentials, callable selectors, and notifications.

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

/// A one-shot sender of a reply. The receiver may be dropped.
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
    /// Replies with the transformed object.
    fn complete(&self, object: &Bound<'_, PyAny>) -> PyResult<()> {
        self.reply.send(Ok(python_to_value(object)?));
        Ok(())
    }

    /// Replies with the error of the functions.
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
    /// Replies with the credentials by the ids of the handlers, or none to use the engine's fallbacks (service account,
    /// kubeconfig).
    fn complete(&self, credentials: Option<Vec<(String, Bound<'_, PyDict>)>>) -> PyResult<()> {
        let Some(credentials) = credentials else {
            self.reply.send(Ok(Provided::Fallback));
            return Ok(());
        };
        let credentials = credentials.into_iter().map(read_credentials).collect::<PyResult<_>>()?;
        self.reply.send(Ok(Provided::Provided(credentials)));
        Ok(())
    }

    /// Replies with the error of the login.
    fn fail(&self, error: String) {
        self.reply.send(Err(error));
    }
}

/// Reads the credentials of one login handler.
pub(crate) fn read_credentials((id, fields): (String, Bound<'_, PyDict>)) -> PyResult<(String, Credentials)> {
    // The error's own message may contain a secret.
    let credentials = pythonize::depythonize::<Credentials>(&fields);
    let credentials = credentials.map_err(|_| declaration("credentials", "a field is of a wrong type"))?;
    Ok((id, credentials))
}

/// Call the probes.
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
    /// Replies with the results of all probes, as JSON.
    fn complete(&self, results: String) {
        self.reply.send(Some(results));
    }

    /// Replies that a probe has failed.
    fn fail(&self) {
        self.reply.send(None);
    }
}

/// Call the selectors that are functions.
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
    /// Replies with the results: for each handler, whether it selects each resource.
    fn complete(&self, matches: Vec<Vec<bool>>) {
        self.reply.send(Ok(matches));
    }

    /// Replies with the error of a function.
    fn fail(&self, error: String) {
        self.reply.send(Err(error));
    }
}

/// Match namespaces with the patterns that are not globs.
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
    /// Replies with the results for each name.
    fn complete(&self, served: Vec<bool>) {
        self.reply.send(served);
    }
}

/// The cycle has ended; if the functions of its patch are carried, they are kept for the object's next cycle.
#[pyclass(frozen, get_all, name = "CycleClosed", module = "kopf._kopf")]
pub(crate) struct Close {
    pub(crate) cycle: u64,
    #[pyo3(name = "keep_fns")]
    pub(crate) carry: bool,
}

/// The operator does not wait for the cycle any longer: its running handlers are to be cancelled.
#[pyclass(frozen, get_all, name = "CancelCycle", module = "kopf._kopf")]
pub(crate) struct Cancel {
    pub(crate) cycle: u64,
}

/// The object is deleted.
#[pyclass(frozen, get_all, name = "ObjectDeleted", module = "kopf._kopf")]
pub(crate) struct Forget {
    pub(crate) uid: String,
}

/// The engine has ended: after a stop, or by a failure of this kind and with this message.
#[pyclass(frozen, get_all, name = "EngineStopped", module = "kopf._kopf")]
pub(crate) struct Finished {
    pub(crate) failure: Option<(&'static str, String)>,
}
