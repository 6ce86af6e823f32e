//! `ItemConverter`: the items of the queue, as Python gets them: each host task as the class of the same name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kopf_core::log_level::Level;
use kopf_core::object;
use kopf_core::resource::Resource;
use kopf_engine::host::{HostTask, LogRecord, Logger};
use pyo3::prelude::*;
use pythonize::pythonize;

use crate::bridge::HostItem;
use crate::commands::activation::Activation;
use crate::commands::caching::ComputeKeys;
use crate::commands::daemons::{CallDaemon, DaemonEnded, GetInitialDelay, ObjectUpdated, StopDaemons};
use crate::commands::login::Login;
use crate::commands::matching::{MatchNamespaces, MatchResources};
use crate::commands::notifications::{
    CancelCycle, CycleClosed, EngineStopped, ObjectDeleted, PeeringWritten,
};
use crate::commands::patch_fns::ApplyPatchFns;
use crate::commands::probe::Probe;
use crate::commands::reconcile::{CallReconciler, InspectObject, ReconcilerEnded, StopReconciler};
use crate::commands::review::AdmissionReview;
use crate::errors::declaration;
use crate::logging::Log;
use crate::views::Object;

/// Each rediscovery creates new native resources; the old ones are dropped above this number.
const MAX_RESOURCES: usize = 4096;

/// Converts items to Python, with one Python object per native resource.
pub(crate) struct ItemConverter {
    make_resource: Py<PyAny>,
    resources: Mutex<Resources>,
}

/// The resources already converted to Python, by the address of the native resource, which is kept alive with them.
type Resources = HashMap<usize, (Arc<Resource>, Py<PyAny>)>;

impl ItemConverter {
    /// A converter that calls the function with the dict of a resource's fields.
    pub(crate) fn new(make_resource: Py<PyAny>) -> Self {
        Self { make_resource, resources: Mutex::default() }
    }

    /// Converts an item. An item that cannot be converted must not affect the others of its batch: it is replaced with a log
    /// record, and its sender gets the error as the reply, or no reply.
    ///
    /// # Errors
    /// If that log record cannot be converted either.
    pub(crate) fn convert(&self, py: Python<'_>, item: HostItem) -> PyResult<Py<PyAny>> {
        let object = item.object();
        let converted = match item {
            HostItem::EngineStopped(failure) => Py::new(py, EngineStopped::new(failure)).map(Py::into_any),
            HostItem::Log(entry) => Log::new(py, entry).and_then(|log| Py::new(py, log)).map(Py::into_any),
            HostItem::Task(task) => self.task_to_python(py, task),
        };
        converted.or_else(|error| unconverted(py, object, &error))
    }

    fn task_to_python(&self, py: Python<'_>, task: HostTask) -> PyResult<Py<PyAny>> {
        Ok(match task {
            HostTask::Activation(task) => {
                let resource = self.resource(py, &task.resource);
                Py::new(py, Activation::new(py, task, resource)?)?.into_any()
            }
            HostTask::CallDaemon(task) => {
                let resource = self.resource(py, &task.resource);
                Py::new(py, CallDaemon::new(py, task, resource)?)?.into_any()
            }
            HostTask::GetInitialDelay(task) => {
                let resource = self.resource(py, &task.resource)?;
                Py::new(py, GetInitialDelay::new(py, task, resource)?)?.into_any()
            }
            HostTask::StopDaemons(task) => Py::new(py, StopDaemons::new(task))?.into_any(),
            HostTask::ObjectUpdated { runs, object } => {
                let object = Py::new(py, Object::new(object))?;
                Py::new(py, ObjectUpdated { runs, object })?.into_any()
            }
            HostTask::DaemonEnded { run, reasons } => {
                Py::new(py, DaemonEnded { run, reasons: reasons.bits() })?.into_any()
            }
            HostTask::ApplyPatchFns(task) => Py::new(py, ApplyPatchFns::new(py, task)?)?.into_any(),
            HostTask::CycleClosed { cycle, keep_fns } => {
                Py::new(py, CycleClosed { cycle, keep_fns })?.into_any()
            }
            HostTask::CancelCycle(task) => Py::new(py, CancelCycle::new(task))?.into_any(),
            HostTask::ObjectDeleted(uid) => Py::new(py, ObjectDeleted { uid: uid.to_string() })?.into_any(),
            HostTask::PeeringWritten { resource, namespace, name } => {
                let resource = self.resource(py, &resource)?;
                Py::new(py, PeeringWritten { resource, namespace, name })?.into_any()
            }
            HostTask::Login(task) => Py::new(py, Login::new(task))?.into_any(),
            HostTask::AdmissionReview(task) => {
                let resource = self.resource(py, &task.review.resource)?;
                Py::new(py, AdmissionReview::received(py, *task, resource)?)?.into_any()
            }
            HostTask::MatchResources(task) => {
                let resources = task.resources.iter().map(|resource| self.resource(py, resource));
                let resources = resources.collect::<PyResult<_>>()?;
                Py::new(py, MatchResources::new(task, resources))?.into_any()
            }
            HostTask::Probe(task) => Py::new(py, Probe::new(task))?.into_any(),
            HostTask::MatchNamespaces(task) => Py::new(py, MatchNamespaces::new(task))?.into_any(),
            HostTask::CallReconciler(task) => {
                let resource = self.resource(py, &task.resource)?;
                Py::new(py, CallReconciler::new(py, *task, resource)?)?.into_any()
            }
            HostTask::StopReconciler { run, reasons, cancel } => {
                Py::new(py, StopReconciler::new(run, reasons, cancel))?.into_any()
            }
            HostTask::ReconcilerEnded(run) => Py::new(py, ReconcilerEnded { run })?.into_any(),
            HostTask::InspectObject(task) => {
                let resource = self.resource(py, &task.resource)?;
                Py::new(py, InspectObject::new(py, *task, resource)?)?.into_any()
            }
            HostTask::ComputeKeys(task) => {
                let resource = self.resource(py, &task.resource)?;
                Py::new(py, ComputeKeys::new(py, *task, resource)?)?.into_any()
            }
        })
    }

    /// The Python object of a resource; the same one for the same native resource.
    ///
    /// # Errors
    /// If the resource cannot be converted.
    pub(crate) fn resource(&self, py: Python<'_>, resource: &Arc<Resource>) -> PyResult<Py<PyAny>> {
        let address = Arc::as_ptr(resource).addr();
        if let Some((_, known)) = self.resources().get(&address) {
            return Ok(known.clone_ref(py));
        }
        let fields = pythonize(py, &**resource).map_err(|error| declaration("resource", error))?;
        let converted = self.make_resource.call1(py, (fields,))?;
        let mut resources = self.resources();
        if resources.len() >= MAX_RESOURCES {
            resources.clear();
        }
        resources.insert(address, (Arc::clone(resource), converted.clone_ref(py)));
        Ok(converted)
    }

    fn resources(&self) -> MutexGuard<'_, Resources> {
        self.resources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The log record that replaces an item that cannot be converted.
fn unconverted(py: Python<'_>, object: Option<Arc<object::Object>>, error: &PyErr) -> PyResult<Py<PyAny>> {
    let text = format!("Internal error: a request of the engine cannot be converted to Python: {error}");
    let entry = match object {
        Some(object) => LogRecord::local(Level::Error, &object, text),
        None => LogRecord::general(Level::Error, Logger::Running, text),
    };
    Ok(Py::new(py, Log::new(py, entry)?)?.into_any())
}
