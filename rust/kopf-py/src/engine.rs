//! `Engine`: one operator's engine, in the verbs that Python drives it with: start, poll, complete, stop.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::process;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kopf_core::handler::Handler;
use kopf_core::lifecycle::Lifecycle;
use kopf_core::registry::Registry;
use kopf_core::resource::Resource;
use kopf_core::script::Reply;
use kopf_core::settings::Settings;
use kopf_engine::error::FailureKind;
use kopf_engine::invoke::{Job, Reporter, RunReply};
use kopf_engine::operator::{Config, Operator};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use pythonize::{depythonize, pythonize};
use tokio::sync::oneshot;

use crate::border::{Border, Item};
use crate::errors::{declaration, misuse, system};
use crate::logging::Log;
use crate::runtime::{check_process, runtime};
use crate::task::requests::{Cancel, Close, Forget, Login, Select, Transform};
use crate::task::run::{Delay, Dismiss, Refresh, Run, Signal};
use crate::task::script::Script;
use crate::views::ObjectView;

/// The engine of one operator.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct Engine {
    border: Arc<Border>,
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
        let config = Config { registry, settings, lifecycle, namespaces, agent };
        let border = Border::new().map_err(|error| system("The border's queue cannot be made", error))?;
        Ok(Self {
            border: Arc::new(border),
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

    /// Changes the settings, as far as they are not read only once at the start.
    fn configure(&self, settings: &Bound<'_, PyDict>) -> PyResult<()> {
        let settings: Settings = depythonize(settings).map_err(|error| declaration("settings", error))?;
        if let Some(operator) = self.operator.get() {
            operator.configure(settings);
        }
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

    /// Sends the replies of what has been answered, in order.
    #[expect(clippy::unused_self, reason = "a verb of the engine; where replies go, is the engine's to know")]
    fn complete(&self, py: Python<'_>, answered: &Bound<'_, PyList>) -> PyResult<()> {
        let mut replies = Vec::with_capacity(answered.len());
        for item in answered {
            replies.extend(Answered::take(&item)?);
        }
        // Sending wakes the engine's threads, which is a system call at times: not with the interpreter attached.
        py.detach(|| {
            for answered in replies {
                answered.send();
            }
        });
        Ok(())
    }
}

/// What `complete()` sends, with where to.
enum Answered {
    Script(oneshot::Sender<Reply>, Reply),
    Run(Reporter<RunReply>, RunReply),
    Signal(Reporter<()>),
}

impl Answered {
    fn take(item: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        if let Ok(script) = item.cast::<Script>() {
            return Ok(script.get().take().map(|(sender, reply)| Self::Script(sender, reply)));
        }
        if let Ok(run) = item.cast::<Run>() {
            return Ok(run.get().take().map(|(reporter, reply)| Self::Run(reporter, reply)));
        }
        Ok(item.cast::<Signal>()?.get().take().map(Self::Signal))
    }

    fn send(self) {
        match self {
            Self::Script(sender, reply) => {
                let _gone = sender.send(reply);
            }
            Self::Run(reporter, reply) => reporter.send(reply),
            Self::Signal(reporter) => reporter.send(()),
        }
    }
}

impl Engine {
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
            Item::Job(Job::Run(job)) => {
                let resource = self.resource(py, &job.resource)?;
                Py::new(py, Run::new(py, job, resource)?)?.into_any()
            }
            Item::Job(Job::Delay(job)) => {
                let resource = self.resource(py, &job.resource)?;
                Py::new(py, Delay::new(py, job, resource)?)?.into_any()
            }
            Item::Job(Job::Signal(job)) => Py::new(py, Signal::new(job))?.into_any(),
            Item::Job(Job::Refresh { uid, object }) => {
                let object = Py::new(py, ObjectView::new(object))?;
                Py::new(py, Refresh { uid: uid.to_string(), object })?.into_any()
            }
            Item::Job(Job::Dismiss { run, reasons }) => {
                Py::new(py, Dismiss { run, reasons: reasons.bits() })?.into_any()
            }
            Item::Job(Job::Transform(job)) => Py::new(py, Transform::new(py, job)?)?.into_any(),
            Item::Job(Job::Close { cycle, carry }) => Py::new(py, Close { cycle, carry })?.into_any(),
            Item::Job(Job::Forget(uid)) => Py::new(py, Forget { uid: uid.to_string() })?.into_any(),
            Item::Job(Job::Login(job)) => Py::new(py, Login::new(job))?.into_any(),
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
