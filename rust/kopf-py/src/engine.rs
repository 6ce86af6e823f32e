//! `Engine`: one operator's engine, as Python drives it: start, poll, complete, stop.

use std::os::fd::RawFd;
use std::process;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kopf_core::handler::lifecycle::Lifecycle;
use kopf_core::handler::registry::Registry;
use kopf_core::k8s_event::K8sEvent;
use kopf_core::settings::Settings;
use kopf_engine::admission::AdmissionRouter;
use kopf_engine::discovery::namespaces::NamespaceScope;
use kopf_engine::host::Host;
use kopf_engine::operator::commands::Command;
use kopf_engine::operator::{Config, Operator};
use kopf_engine::status::{HostLoad, Threads};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use pythonize::depythonize;

use crate::bridge::HostQueue;
use crate::caches::CacheReader;
use crate::client::ApiClient;
use crate::commands::login::read_credentials;
use crate::commands::reconcile;
use crate::commands::reply::Reply;
use crate::commands::review;
use crate::convert::{python_to_map, python_to_value, read_handler};
use crate::errors::{declaration, misuse, system};
use crate::item_converter::ItemConverter;
use crate::leadership::Election;
use crate::runtime::{check_process, runtime};
use crate::status::StatusServer;
use crate::time::{clock, now};
use crate::trace;

/// The engine of one operator.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct Engine {
    host_queue: Arc<HostQueue>,
    admission_router: Arc<AdmissionRouter>,
    config: Mutex<Option<Config>>,
    operator: OnceLock<Operator>,
    item_converter: ItemConverter,
    process_id: u32,
}

#[pymethods]
impl Engine {
    /// Creates the engine from the declarations: handlers and settings as dicts, the name of the lifecycle, the patterns of
    /// namespaces (none for the whole cluster; `foreign` if there are others that only Python can match), and the `User-Agent`
    /// of all requests.
    ///
    /// `identity` is the operator's identity among its peers; `status` is its status server, and `probes` is whether there are
    /// probes; `credentials` are used before any login handler is called; `command` is a one-shot command to run instead of the
    /// operator.
    ///
    /// `make_resource` converts a dict of a resource's fields to the object that handlers get.
    #[new]
    #[pyo3(signature = (*, handlers, settings, lifecycle, namespaces, agent, make_resource, foreign=false, identity="",
                        status=None, probes=false, credentials=None, command=None))]
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
        status: Option<&StatusServer>,
        probes: bool,
        credentials: Option<Vec<(String, Bound<'_, PyDict>)>>,
        command: Option<&str>,
    ) -> PyResult<Self> {
        let handlers = handlers.iter().map(|declared| read_handler(&declared)).collect::<PyResult<_>>()?;
        let settings: Settings = depythonize(settings).map_err(|error| declaration("settings", error))?;
        let lifecycle: Lifecycle = depythonize(lifecycle).map_err(|error| declaration("lifecycle", error))?;
        let registry = Arc::new(Registry { handlers });
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
            status: status.map(StatusServer::server),
            has_probes: probes,
            credentials,
            command,
        };
        Ok(Self {
            host_queue,
            admission_router,
            config: Mutex::new(Some(config)),
            operator: OnceLock::new(),
            item_converter: ItemConverter::new(make_resource),
            process_id: process::id(),
        })
    }

    /// Starts the engine and returns at once.
    fn start(&self) -> PyResult<()> {
        check_process(self.process_id)?;
        let handle = runtime()?;
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner).take();
        let config = config.ok_or_else(|| misuse("The engine is started already."))?;
        let operator = Operator::start(handle, config, Arc::<HostQueue>::clone(&self.host_queue));
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

    /// The API client for users' code, with the engine's connections; it ends with the engine.
    fn client(&self) -> PyResult<ApiClient> {
        check_process(self.process_id)?;
        ApiClient::of_operator(self.operator.get())
    }

    /// The cache with this number among the handlers, after the start.
    fn cache(&self, number: usize) -> PyResult<CacheReader> {
        let operator = self.operator.get().ok_or_else(|| misuse("The engine is not started."))?;
        Ok(CacheReader::new(operator.clone(), number))
    }

    /// The part in a leader election; none without it, and before the start.
    fn election(&self) -> Option<Election> {
        self.operator.get().and_then(Election::of)
    }

    /// Records that the event loop runs, with the running calls (the id of the handler, and the age in seconds), and the
    /// threads of synchronous handlers: the functions that run, those that wait, and the limit.
    #[pyo3(signature = (calls=Vec::new(), threads=(0, 0, None)))]
    fn heartbeat(&self, calls: Vec<(String, f64)>, threads: (usize, usize, Option<usize>)) {
        if let Some(operator) = self.operator.get() {
            let (active, waiting, limit) = threads;
            operator.heartbeat(HostLoad { calls, threads: Threads { active, waiting, limit } });
        }
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

    /// The streams whose first listing is still awaited: for tests that wait until all work is done.
    fn awaited_streams(&self) -> Vec<String> {
        self.operator.get().map(Operator::awaited_streams).unwrap_or_default()
    }

    /// From now on, the descriptor becomes readable for every item at once: for tests that wait until all work is done.
    fn wake_for_everything(&self) {
        self.host_queue.wake_for_everything();
    }

    /// Log records below this level (of Python's `logging`) are dropped before they are formatted.
    fn set_log_level(&self, level: u8) {
        self.host_queue.set_threshold(level);
    }

    /// Whether the engine's traces are logged, as debug lines of the logger `kopf.engine`.
    fn set_tracing(&self, is_enabled: bool) {
        trace::set_enabled(&self.host_queue, is_enabled);
    }

    /// Takes the next batch of items, in order.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        check_process(self.process_id)?;
        let list = PyList::empty(py);
        let items = self.host_queue.take();
        for item in items {
            list.append(self.item_converter.convert(py, item)?)?;
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
            self.item_converter.resource(py, resource)
        })
    }

    /// Publishes the client configuration under which the cluster reaches the webhook server.
    fn publish_webhook(&self, client: &Bound<'_, PyAny>) -> PyResult<()> {
        self.admission_router.publish_endpoint(python_to_value(client)?);
        Ok(())
    }

    /// Triggers a primary by its namespace, name, and uid, or all primaries; of one reconciler, or of all. Returns whether there
    /// was any.
    #[pyo3(signature = (handler=None, primary=None, kind=None))]
    fn trigger(
        &self,
        handler: Option<usize>,
        primary: Option<reconcile::PrimaryTuple>,
        kind: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<bool> {
        reconcile::trigger(self.operator.get(), handler, primary, kind)
    }

    /// The address and the version of the API server. It blocks the thread with the interpreter detached: to be called in an
    /// executor.
    fn server_info(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let handle = runtime()?;
        py.detach(|| handle.block_on(self.admission_router.locate()))
            .map_err(|error| system("The cluster cannot be recognised", error))
    }

    /// Sends the replies of the completed items, in order. Raises the first error of items without replies, after the others.
    fn complete(&self, py: Python<'_>, completed: &Bound<'_, PyList>) -> PyResult<()> {
        let (mut replies, mut result) = (Vec::with_capacity(completed.len()), Ok(()));
        for item in completed {
            match Reply::take(&item) {
                Ok(reply) => replies.extend(reply),
                // An item without a reply must not affect the others of the batch.
                Err(error) => result = result.and(Err(error)),
            }
        }
        // Sending may wake the engine's threads by a system call, so the interpreter is detached.
        let send = || replies.into_iter().for_each(Reply::send);
        py.detach(|| match self.operator.get() {
            Some(operator) => operator.batch(send),
            None => send(),
        });
        result
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

impl Engine {
    /// The receiver of admission reviews.
    pub(crate) fn admission_router(&self) -> Arc<AdmissionRouter> {
        Arc::clone(&self.admission_router)
    }

    #[cfg(feature = "testing")]
    pub(crate) fn host_queue(&self) -> &Arc<HostQueue> {
        &self.host_queue
    }
}
