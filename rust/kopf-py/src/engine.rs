//! `Engine`: one operator's engine, in the verbs that Python drives it with: start, poll, complete, stop.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::process;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kopf_core::handler::Handler;
use kopf_core::lifecycle::Lifecycle;
use kopf_core::registry::Registry;
use kopf_core::resource::Resource;
use kopf_core::settings::Settings;
use kopf_engine::admission::Desk;
use kopf_engine::error::FailureKind;
use kopf_engine::invoke::{Invoker, Job};
use kopf_engine::operator::{Config, Operator};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use pythonize::{depythonize, pythonize};

use crate::admission::review::{self, Review};
use crate::border::{Border, Item};
use crate::convert::python_to_value;
use crate::errors::{declaration, misuse, system};
use crate::logging::Log;
use crate::runtime::{check_process, runtime};
use crate::task::requests::{Cancel, Close, Forget, Login, Select, Transform};
use crate::task::script::Script;

/// The engine of one operator.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct Engine {
    border: Arc<Border>,
    desk: Arc<Desk>,
    config: Mutex<Option<Config>>,
    operator: OnceLock<Operator>,
    make_resource: Py<PyAny>,
    resources: Mutex<Resources>,
    home: u32,
}

/// The resources that Python has already seen, by the address of their native twin, which is kept alive with them.
type Resources = HashMap<usize, (Arc<Resource>, Py<PyAny>)>;

/// Every rediscovery makes new twins; the old ones are dropped when there are too many.
const MAX_RESOURCES: usize = 4096;

#[pymethods]
impl Engine {
    /// Takes what was declared: handlers and settings as dicts, the name of the lifecycle, the patterns of namespaces
    /// (none for the whole cluster), and what the server is told of who asks.
    ///
    /// `make_resource` turns a dict of a resource's fields into what handlers get.
    #[new]
    #[pyo3(signature = (*, handlers, settings, lifecycle, namespaces, agent, make_resource))]
    fn new(
        handlers: &Bound<'_, PyList>,
        settings: &Bound<'_, PyDict>,
        lifecycle: &Bound<'_, PyString>,
        namespaces: Vec<String>,
        agent: String,
        make_resource: Py<PyAny>,
    ) -> PyResult<Self> {
        let handlers = handlers.iter().map(|declared| read_handler(&declared)).collect::<PyResult<_>>()?;
        let settings: Settings = depythonize(settings).map_err(|error| declaration("settings", error))?;
        let lifecycle: Lifecycle = depythonize(lifecycle).map_err(|error| declaration("lifecycle", error))?;
        let registry = Arc::new(Registry { handlers });
        let border = Border::new().map_err(|error| system("The border's queue cannot be made", error))?;
        let border = Arc::new(border);
        let invoker = Arc::clone(&border) as Arc<dyn Invoker>;
        let desk = Arc::new(Desk::new(Arc::clone(&registry), invoker));
        let config =
            Config { registry, settings, lifecycle, namespaces, admission: Arc::clone(&desk), agent };
        Ok(Self {
            border,
            desk,
            config: Mutex::new(Some(config)),
            operator: OnceLock::new(),
            make_resource,
            resources: Mutex::default(),
            home: process::id(),
        })
    }

    /// Starts the engine; returns at once.
    fn start(&self) -> PyResult<()> {
        check_process(self.home)?;
        let handle = runtime()?.handle();
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner).take();
        let config = config.ok_or_else(|| misuse("The engine is started already."))?;
        let invoker = Arc::clone(&self.border);
        let _first = self.operator.set(Operator::start(handle, config, invoker));
        Ok(())
    }

    /// Begins a staged shutdown; may be called many times, and before the start.
    fn stop(&self) {
        if let Some(operator) = self.operator.get() {
            operator.stop();
        }
    }

    /// An awaitable of the engine's end: `None`, or a pair of the failure's kind and message.
    fn finished<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        check_process(self.home)?;
        let operator = self.operator.get().cloned().ok_or_else(|| misuse("The engine is not started."))?;
        pyo3_async_runtimes::tokio::future_into_py(py, async move {
            let failure = operator.finished().await.err();
            Ok(failure.map(|failure| (failure_kind(failure.kind), failure.message)))
        })
    }

    /// A file descriptor that is readable when there is something to poll.
    fn fileno(&self) -> RawFd {
        self.border.fileno()
    }

    /// Lines below this level (of Python's `logging`) are not even formatted.
    fn set_log_level(&self, level: u8) {
        self.border.set_threshold(level);
    }

    /// Takes all that is there to be done, in order.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        check_process(self.home)?;
        let list = PyList::empty(py);
        for item in self.border.take() {
            list.append(self.item_to_python(py, item)?)?;
        }
        Ok(list)
    }

    /// Reads an admission review that a server of the user has received: a `Review`, or the kind and the text of what is
    /// wrong with it.
    #[pyo3(signature = (request, *, webhook, reason, headers, sslpeer))]
    #[expect(clippy::needless_pass_by_value, reason = "arguments as Python gives them")]
    fn review<'py>(
        &self,
        request: &Bound<'py, PyAny>,
        webhook: Option<String>,
        reason: Option<String>,
        headers: Bound<'py, PyAny>,
        sslpeer: Bound<'py, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let hint = (webhook.as_deref(), reason.as_deref());
        let py = request.py();
        review::open(&self.desk, request, hint, (headers, sslpeer), |resource| self.resource(py, resource))
    }

    /// Says how the cluster reaches the server of webhooks.
    fn advertise(&self, client: &Bound<'_, PyAny>) -> PyResult<()> {
        self.desk.advertise(python_to_value(client)?);
        Ok(())
    }

    /// An awaitable of the address and the version of the API server.
    fn locate<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let desk = Arc::clone(&self.desk);
        pyo3_async_runtimes::tokio::future_into_py(py, async move {
            desk.locate().await.map_err(|error| system("The cluster cannot be recognised", error))
        })
    }

    /// Sends the replies of scripts that have been answered.
    #[expect(clippy::unused_self, reason = "a verb of the engine; where replies go, is the engine's to know")]
    fn complete(&self, py: Python<'_>, scripts: &Bound<'_, PyList>) -> PyResult<()> {
        let mut replies = Vec::with_capacity(scripts.len());
        for script in scripts {
            replies.extend(script.cast::<Script>()?.get().take());
        }
        // Sending wakes the engine's threads, which is a system call at times: not with the interpreter attached.
        py.detach(|| {
            for (sender, reply) in replies {
                let _gone = sender.send(reply);
            }
        });
        Ok(())
    }
}

impl Engine {
    /// Where reviews are taken in.
    pub(crate) fn desk(&self) -> Arc<Desk> {
        Arc::clone(&self.desk)
    }

    #[cfg(feature = "testing")]
    pub(crate) fn border(&self) -> &Arc<Border> {
        &self.border
    }

    fn item_to_python(&self, py: Python<'_>, item: Item) -> PyResult<Py<PyAny>> {
        Ok(match item {
            Item::Entry(entry) => Py::new(py, Log::new(py, entry)?)?.into_any(),
            Item::Job(Job::Script(job)) => {
                let resource = self.resource(py, &job.resource)?;
                Py::new(py, Script::new(py, job, resource)?)?.into_any()
            }
            Item::Job(Job::Transform(job)) => Py::new(py, Transform::new(py, job)?)?.into_any(),
            Item::Job(Job::Close { cycle, carry }) => Py::new(py, Close { cycle, carry })?.into_any(),
            Item::Job(Job::Forget(uid)) => Py::new(py, Forget { uid: uid.to_string() })?.into_any(),
            Item::Job(Job::Login(job)) => Py::new(py, Login::new(job))?.into_any(),
            Item::Job(Job::Review(job)) => {
                let resource = self.resource(py, &job.review.resource)?;
                Py::new(py, Review::arrived(py, *job, resource)?)?.into_any()
            }
            Item::Job(Job::Select(job)) => {
                let resources = job.resources.iter().map(|resource| self.resource(py, resource));
                let resources = resources.collect::<PyResult<_>>()?;
                Py::new(py, Select::new(job, resources))?.into_any()
            }
            Item::Job(Job::Cancel(cycle)) => Py::new(py, Cancel { cycle })?.into_any(),
        })
    }

    /// Python's twin of a resource; the same one for the same native one.
    fn resource(&self, py: Python<'_>, resource: &Arc<Resource>) -> PyResult<Py<PyAny>> {
        let address = Arc::as_ptr(resource).addr();
        if let Some((_, known)) = self.resources().get(&address) {
            return Ok(known.clone_ref(py));
        }
        let fields = pythonize(py, &**resource).map_err(|error| declaration("resource", error))?;
        let made = self.make_resource.call1(py, (fields,))?;
        let mut resources = self.resources();
        if resources.len() >= MAX_RESOURCES {
            resources.clear();
        }
        resources.insert(address, (Arc::clone(resource), made.clone_ref(py)));
        Ok(made)
    }

    fn resources(&self) -> std::sync::MutexGuard<'_, Resources> {
        self.resources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_handler(declared: &Bound<'_, PyAny>) -> PyResult<Handler> {
    depythonize(declared).map_err(|error| {
        let id = declared.get_item("id").and_then(|id| id.extract::<String>()).unwrap_or_default();
        declaration(&format!("handler '{id}'"), error)
    })
}

fn failure_kind(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Login => "login",
        FailureKind::Activity => "activity",
        FailureKind::Api => "api",
        FailureKind::Other => "other",
    }
}
