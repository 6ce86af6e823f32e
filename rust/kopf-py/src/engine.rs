//! `Engine`: one operator's engine, as Python drives it: start, poll, complete, stop.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::process;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kopf_core::activation::Completion;
use kopf_core::handler::Handler;
use kopf_core::handler::lifecycle::Lifecycle;
use kopf_core::handler::registry::Registry;
use kopf_core::k8s_event::K8sEvent;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::resource::Resource;
use kopf_core::settings::Settings;
use kopf_engine::admission::AdmissionRouter;
use kopf_engine::discovery::namespaces::NamespaceScope;
use kopf_engine::error::FailureKind;
use kopf_engine::host::{Host, HostTask, LogRecord, Responder, RunReply};
use kopf_engine::operator::commands::Command;
use kopf_engine::operator::{Config, Operator};
use kopf_engine::probes::Endpoint;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use pythonize::{depythonize, pythonize};

use crate::bridge::{HostQueue, Item, RUNNING};
use crate::commands::requests::{
    Cancel, Close, Finished, Forget, Locate, Login, Probe, Select, Transform, read_credentials,
};
use crate::commands::review::{self, Review};
use crate::commands::run::{Delay, Dismiss, Refresh, Run, Signal};
use crate::commands::script::Script;
use crate::convert::{python_to_map, python_to_value};
use crate::errors::{declaration, misuse, system};
use crate::logging::Log;
use crate::runtime::{check_process, runtime};
use crate::time::{clock, now};
use crate::trace;
use crate::views::ObjectView;

/// The engine of one operator.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct Engine {
    host_queue: Arc<HostQueue>,
    admission_router: Arc<AdmissionRouter>,
    config: Mutex<Option<Config>>,
    operator: OnceLock<Operator>,
    make_resource: Py<PyAny>,
    resources: Mutex<Resources>,
    home: u32,
}

/// The resources already converted to Python, by the address of the native resource, which is kept alive with them.
type Resources = HashMap<usize, (Arc<Resource>, Py<PyAny>)>;

/// Each rediscovery creates new native resources; the old ones are dropped above this number.
const MAX_RESOURCES: usize = 4096;

#[pymethods]
impl Engine {
    /// Creates the engine from the declarations: handlers and settings as dicts, the name of the lifecycle, the patterns of
    /// namespaces (none for the whole cluster; `foreign` if there are others that only Python can match), and the `User-Agent`
    /// of all requests.
    ///
    /// `identity` is the operator's identity among its peers; `liveness` is the host, the port and the path of the probes;
    /// `credentials` are used before any login handler is called; `command` is a one-shot command to run instead of the
    /// operator.
    ///
    /// `make_resource` converts a dict of a resource's fields to the object that handlers get.
    #[new]
    #[pyo3(signature = (*, handlers, settings, lifecycle, namespaces, agent, make_resource, foreign=false, identity="",
                        liveness=None, credentials=None, command=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments, with their names at the call")]
    fn new(
        handlers: &Bound<'_, PyList>,
        settings: &Bound<'_, PyDict>,
        lifecycle: &Bound<'_, PyString>,
        namespaces: Vec<String>,
        agent: String,
        make_resource: Py<PyAny>,
        foreign: bool,
        identity: &str,
        liveness: Option<(String, u16, String)>,
        credentials: Option<Vec<(String, Bound<'_, PyDict>)>>,
        command: Option<&str>,
    ) -> PyResult<Self> {
        let handlers = handlers.iter().map(|declared| read_handler(&declared)).collect::<PyResult<_>>()?;
        let settings: Settings = depythonize(settings).map_err(|error| declaration("settings", error))?;
        let lifecycle: Lifecycle = depythonize(lifecycle).map_err(|error| declaration("lifecycle", error))?;
        let registry = Arc::new(Registry { handlers });
        let liveness = liveness.map(|(host, port, path)| Endpoint { host, port, path });
        let credentials = credentials.unwrap_or_default().into_iter().map(read_credentials);
        let credentials = credentials.collect::<PyResult<_>>()?;
        let command = match command {
            None => None,
            Some("freeze") => Some(Command::Freeze),
            Some("resume") => Some(Command::Resume),
            Some(other) => return Err(declaration("command", other)),
        };
        let identity = identity.to_owned();
        let namespace_scope = if namespaces.is_empty() && !foreign {
            NamespaceScope::Cluster
        } else {
            NamespaceScope::Namespaces { patterns: namespaces, foreign }
        };
        let host_queue =
            HostQueue::new().map_err(|error| system("The queue to Python cannot be created", error))?;
        let host_queue = Arc::new(host_queue);
        let host = Arc::clone(&host_queue) as Arc<dyn Host>;
        let admission_router =
            Arc::new(AdmissionRouter::new(Arc::clone(&registry), host).with_compat(settings.compat));
        let config = Config {
            registry,
            settings,
            lifecycle,
            clock: clock().clone(),
            namespace_scope,
            admission: Arc::clone(&admission_router),
            agent,
            identity,
            liveness,
            credentials,
            command,
        };
        Ok(Self {
            host_queue,
            admission_router,
            config: Mutex::new(Some(config)),
            operator: OnceLock::new(),
            make_resource,
            resources: Mutex::default(),
            home: process::id(),
        })
    }

    /// Starts the engine and returns at once.
    fn start(&self) -> PyResult<()> {
        check_process(self.home)?;
        let handle = runtime()?.handle();
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner).take();
        let config = config.ok_or_else(|| misuse("The engine is started already."))?;
        let operator = Operator::start(handle, config, Arc::<HostQueue>::clone(&self.host_queue));
        let (host_queue, ending) = (Arc::clone(&self.host_queue), operator.clone());
        handle.spawn(async move {
            host_queue.finish(ending.finished().await.err());
        });
        let _first = self.operator.set(operator);
        Ok(())
    }

    /// Changes the settings, except for those that are read only once at the start.
    fn configure(&self, settings: &Bound<'_, PyDict>) -> PyResult<()> {
        let settings: Settings = depythonize(settings).map_err(|error| declaration("settings", error))?;
        if let Some(operator) = self.operator.get() {
            operator.configure(settings);
        }
        Ok(())
    }

    /// Begins the staged shutdown. May be called many times, and before the start.
    fn stop(&self) {
        if let Some(operator) = self.operator.get() {
            operator.stop();
        }
    }

    /// A file descriptor that is readable when there is something to poll.
    fn fileno(&self) -> RawFd {
        self.host_queue.fileno()
    }

    /// Number of items to poll.
    fn pending(&self) -> usize {
        self.host_queue.pending()
    }

    /// From now on, the descriptor becomes readable for every item at once: for tests that wait until all work is done.
    #[pyo3(name = "wake_for_everything")]
    fn be_prompt(&self) {
        self.host_queue.be_prompt();
    }

    /// Log records below this level (of Python's `logging`) are dropped before they are formatted.
    fn set_log_level(&self, level: u8) {
        self.host_queue.set_threshold(level);
    }

    /// Whether the engine's traces are logged, as debug lines of the logger `kopf.engine`.
    #[pyo3(name = "set_tracing")]
    fn set_tracing(&self, is_enabled: bool) {
        trace::set_enabled(&self.host_queue, is_enabled);
    }

    /// Takes the next batch of items, in order.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        check_process(self.home)?;
        let list = PyList::empty(py);
        let items = self.host_queue.take();
        for item in items {
            let object = object_of(&item);
            // An item that cannot be converted must not affect the others of the batch.
            let item = self.item_to_python(py, item).or_else(|error| unconverted(py, object, &error))?;
            list.append(item)?;
        }
        Ok(list)
    }

    /// Decodes an admission review that the user's own server has received. Returns a `Review`, or the kind and the text of the
    /// error.
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
        review::open(&self.admission_router, request, hint, (headers, sslpeer), |resource| {
            self.resource(py, resource)
        })
    }

    /// Publishes the client configuration under which the cluster reaches the webhook server.
    #[pyo3(name = "publish_webhook")]
    fn advertise(&self, client: &Bound<'_, PyAny>) -> PyResult<()> {
        self.admission_router.publish_endpoint(python_to_value(client)?);
        Ok(())
    }

    /// The address and the version of the API server. It blocks the thread with the interpreter detached: to be called in an
    /// executor.
    #[pyo3(name = "server_info")]
    fn locate(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let handle = runtime()?.handle();
        py.detach(|| handle.block_on(self.admission_router.locate()))
            .map_err(|error| system("The cluster cannot be recognised", error))
    }

    /// Sends the replies of the completed items, in order.
    fn complete(&self, py: Python<'_>, answered: &Bound<'_, PyList>) -> PyResult<()> {
        let mut replies = Vec::with_capacity(answered.len());
        for item in answered {
            replies.extend(Answered::take(&item)?);
        }
        // Sending may wake the engine's threads by a system call, so the interpreter is detached.
        let send = || replies.into_iter().for_each(Answered::send);
        py.detach(|| match self.operator.get() {
            Some(operator) => operator.batch(send),
            None => send(),
        });
        Ok(())
    }

    /// Queues Kubernetes events for posting: each with the reference of the object, the type, the reason, the message, and the
    /// delays between attempts in seconds. Returns without waiting for the posting.
    fn post(&self, events: Vec<PostTuple<'_>>) -> PyResult<()> {
        let at = now();
        let read = |(reference, kind, reason, message, backoffs): PostTuple<'_>| -> PyResult<K8sEvent> {
            let reference = python_to_map(reference.as_any())?;
            Ok(K8sEvent { reference, kind, reason, message, backoffs, at })
        };
        let posts = events.into_iter().map(read).collect::<PyResult<_>>()?;
        if let Some(operator) = self.operator.get() {
            operator.event_sender().post(posts);
        }
        Ok(())
    }
}

/// A Kubernetes event: object reference, type, reason, message, delays.
type PostTuple<'py> = (Bound<'py, PyDict>, String, String, String, Vec<f64>);
/// A reply that `complete()` sends, with its receiver.
enum Answered {
    Script(Responder<Option<Completion>>, Completion),
    Run(Responder<Option<RunReply>>, RunReply),
    Signal(Responder<()>),
}

impl Answered {
    fn take(item: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        if let Ok(script) = item.cast::<Script>() {
            return Ok(script.get().take().map(|(reporter, reply)| Self::Script(reporter, reply)));
        }
        if let Ok(run) = item.cast::<Run>() {
            return Ok(run.get().take().map(|(reporter, reply)| Self::Run(reporter, reply)));
        }
        Ok(item.cast::<Signal>()?.get().take().map(Self::Signal))
    }

    fn send(self) {
        match self {
            Self::Script(reporter, reply) => reporter.send(Some(reply)),
            Self::Run(reporter, reply) => reporter.send(Some(reply)),
            Self::Signal(reporter) => reporter.send(()),
        }
    }
}

impl Engine {
    /// The receiver of admission reviews.
    pub(crate) fn admission_router(&self) -> Arc<AdmissionRouter> {
        Arc::clone(&self.admission_router)
    }

    #[cfg(feature = "testing")]
    pub(crate) fn host_queue(&self) -> &Arc<HostQueue> {
        &self.host_queue
    }

    fn item_to_python(&self, py: Python<'_>, item: Item) -> PyResult<Py<PyAny>> {
        Ok(match item {
            Item::Finished(failure) => {
                let failure = failure.map(|failure| (failure_kind(failure.kind), failure.message));
                Py::new(py, Finished { failure })?.into_any()
            }
            Item::Entry(entry) => Py::new(py, Log::new(py, entry)?)?.into_any(),
            Item::Job(HostTask::Activation(job)) => {
                let resource = self.resource(py, &job.resource);
                Py::new(py, Script::new(py, job, resource)?)?.into_any()
            }
            Item::Job(HostTask::Run(job)) => {
                let resource = self.resource(py, &job.resource);
                Py::new(py, Run::new(py, job, resource)?)?.into_any()
            }
            Item::Job(HostTask::Delay(job)) => {
                let resource = self.resource(py, &job.resource)?;
                Py::new(py, Delay::new(py, job, resource)?)?.into_any()
            }
            Item::Job(HostTask::Signal(job)) => Py::new(py, Signal::new(job))?.into_any(),
            Item::Job(HostTask::Refresh { runs, object }) => {
                let object = Py::new(py, ObjectView::new(object))?;
                Py::new(py, Refresh { runs, object })?.into_any()
            }
            Item::Job(HostTask::Dismiss { run, reasons }) => {
                Py::new(py, Dismiss { run, reasons: reasons.bits() })?.into_any()
            }
            Item::Job(HostTask::Transform(job)) => Py::new(py, Transform::new(py, job)?)?.into_any(),
            Item::Job(HostTask::Close { cycle, carry }) => Py::new(py, Close { cycle, carry })?.into_any(),
            Item::Job(HostTask::Forget(uid)) => Py::new(py, Forget { uid: uid.to_string() })?.into_any(),
            Item::Job(HostTask::Login(job)) => Py::new(py, Login::new(job))?.into_any(),
            Item::Job(HostTask::Review(job)) => {
                let resource = self.resource(py, &job.review.resource)?;
                Py::new(py, Review::arrived(py, *job, resource)?)?.into_any()
            }
            Item::Job(HostTask::Select(job)) => {
                let resources = job.resources.iter().map(|resource| self.resource(py, resource));
                let resources = resources.collect::<PyResult<_>>()?;
                Py::new(py, Select::new(job, resources))?.into_any()
            }
            Item::Job(HostTask::Probe(job)) => Py::new(py, Probe::new(job))?.into_any(),
            Item::Job(HostTask::Locate(job)) => Py::new(py, Locate::new(job))?.into_any(),
            Item::Job(HostTask::Cancel(cycle)) => Py::new(py, Cancel { cycle })?.into_any(),
        })
    }

    /// The Python object of a resource; the same one for the same native resource.
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

/// The object of an item, if it has one.
fn object_of(item: &Item) -> Option<Arc<Object>> {
    let Item::Job(job) = item else { return None };
    match job {
        HostTask::Activation(job) => Some(Arc::clone(&job.object)),
        HostTask::Run(job) => Some(Arc::clone(&job.object)),
        HostTask::Delay(job) => Some(Arc::clone(&job.object)),
        HostTask::Transform(job) => Some(Arc::clone(&job.object)),
        HostTask::Refresh { object, .. } => Some(Arc::clone(object)),
        _ => None,
    }
}

/// The log record that replaces an item that cannot be converted. The item's sender gets the error as the reply, or no reply.
fn unconverted(py: Python<'_>, object: Option<Arc<Object>>, error: &PyErr) -> PyResult<Py<PyAny>> {
    let text = format!("Internal error: a request of the engine cannot be converted to Python: {error}");
    let entry = match object {
        Some(object) => LogRecord::local(Level::Error, &object, text),
        None => LogRecord::general(Level::Error, RUNNING, text),
    };
    Ok(Py::new(py, Log::new(py, entry)?)?.into_any())
}

fn failure_kind(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Login => "login",
        FailureKind::Activity => "activity",
        FailureKind::Api => "api",
        FailureKind::Other => "other",
    }
}
