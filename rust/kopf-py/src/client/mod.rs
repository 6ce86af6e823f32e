//! `Client`: the API client for users' code: of an operator, or with a separate connection.
//!
//! Blocking calls wait in the caller's thread with the interpreter detached. The responses of other calls are put into the queue
//! of an event loop (`response_queue`). Nothing here attaches to the interpreter in the engine's threads.

pub(crate) mod apply;
mod document;
pub(crate) mod failure;
mod host;
pub(crate) mod outcome;
pub(crate) mod references;
pub(crate) mod request;
pub(crate) mod response_queue;
pub(crate) mod stream;

use std::path::PathBuf;
use std::pin::pin;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kopf_core::settings::Settings;
use kopf_engine::apply::KnownState;
use kopf_engine::caches::OperatorChildren;
use kopf_engine::client::Client;
use kopf_engine::client::connection::ConnectionOptions;
use kopf_engine::client::credentials::{CredentialStore, CredentialStoreOptions};
use kopf_engine::host::Host;
use kopf_engine::host::credentials::Login;
use kopf_engine::operator::Operator;
use kopf_engine::reconciling::CallWrites;
use kopf_engine::supervision::guarded;
use kopf_engine::user_client::{Api, CallError, WriteObserver};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pythonize::depythonize;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, Span};

use crate::commands::login::read_credentials;
use crate::errors::{declaration, misuse};
use crate::logging::Log;
use crate::runtime::{check_process, runtime, runtime_unless_exiting};
use crate::time::clock;
use host::ClientHost;
use outcome::Outcome;
use request::{ApiRequest, RequestOptions};
use response_queue::{ResponseQueue, RunningCall};
use stream::UserStream;

/// How often a blocking call lets Python handle signals.
const SIGNALS: Duration = Duration::from_millis(500);

/// Maximum time that closing waits for the tasks. They end at once unless the event loop of a watch was abandoned.
const GRACE_PERIOD: Duration = Duration::from_secs(5);

/// The API client.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct ApiClient {
    /// None after `close()`.
    api: Mutex<Option<Api>>,
    /// Collects the log records, if there is no operator.
    host: Option<Arc<ClientHost>>,
    /// The knowledge about children and owners.
    known: KnownState,
    /// The tasks of calls and watches.
    tasks: TaskTracker,
    pid: u32,
}

impl ApiClient {
    pub(crate) fn new(api: Api, host: Option<Arc<ClientHost>>) -> Self {
        let (api, tasks) = (Mutex::new(Some(api)), TaskTracker::new());
        Self { api, host, known: KnownState::default(), tasks, pid: process::id() }
    }

    /// The client of a running operator, which ends with it.
    pub(crate) fn of_operator(operator: Option<&Operator>) -> PyResult<Self> {
        let client = operator.and_then(Operator::client);
        let (client, closing) =
            client.ok_or_else(|| misuse("The operator is not running, so it has no client."))?;
        let api = Api::new(client, closing);
        let caches = operator.and_then(Operator::caches).cloned();
        let reconcilers = operator.and_then(Operator::reconcilers).cloned();
        let mut observers: Vec<Arc<dyn WriteObserver>> = vec![];
        observers.extend(caches.clone().map(|caches| caches as Arc<dyn WriteObserver>));
        observers.extend(reconcilers.clone().map(|it| Arc::new(CallWrites(it)) as Arc<dyn WriteObserver>));
        let mut client = Self::new(api.with_observers(observers), None);
        client.known.cache =
            Arc::new(OperatorChildren { caches, reconcilers, pause: operator.and_then(Operator::pause) });
        if let Some(operator) = operator {
            client.known.deleted_owners = Arc::clone(operator.deleted_owners());
            client.known.deleted_owners.register(&client.known.memory);
        }
        Ok(client)
    }

    fn guard(&self) -> MutexGuard<'_, Option<Api>> {
        self.api.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> PyResult<Api> {
        check_process(self.pid)?;
        self.guard().clone().ok_or_else(|| misuse("The client is closed."))
    }
}

#[pymethods]
impl ApiClient {
    /// A client with a separate connection: with the credentials, or with the kubeconfig and its context, or with those of the
    /// environment. It logs in with its first request.
    #[staticmethod]
    #[pyo3(signature = (*, agent, settings, credentials = None, kubeconfig = None, context = None))]
    fn connect(
        agent: String,
        settings: &Bound<'_, PyDict>,
        credentials: Option<Vec<(String, Bound<'_, PyDict>)>>,
        kubeconfig: Option<PathBuf>,
        context: Option<String>,
    ) -> PyResult<Self> {
        let settings: Settings = depythonize(settings).map_err(|error| declaration("settings", error))?;
        let login = match (credentials, kubeconfig, context) {
            (Some(given), _, _) => {
                let read = given.into_iter().map(read_credentials).collect::<PyResult<_>>()?;
                Login::Provided(read)
            }
            (None, None, None) => Login::Fallback,
            (None, path, context) => Login::Kubeconfig { path, context },
        };
        // It also starts the runtime, and checks the process.
        let _entered = runtime()?.enter();
        let host = Arc::new(ClientHost::new(login));
        let closing = CancellationToken::new();
        let options = CredentialStoreOptions {
            connections: ConnectionOptions {
                agent,
                trust_env: settings.networking.trust_env,
                compat: false,
                clock: clock().clone(),
            },
            login_timeout: settings.networking.login_timeout,
            stopping: closing.clone(),
        };
        let as_host = Arc::clone(&host) as Arc<dyn Host>;
        let store = CredentialStore::new(Arc::clone(&as_host), options, &[])
            .map_err(|error| misuse_of(&error.to_string()))?;
        let client = Client::new(Arc::new(store), Arc::new(settings), as_host, clock().clone());
        Ok(Self::new(Api::new(client, closing), Some(host)))
    }

    /// Executes a request, and blocks the thread until the response. Returns a `Response`, a list of resources, or a `CallFailure`.
    fn execute(
        &self,
        py: Python<'_>,
        request: &Bound<'_, ApiRequest>,
        options: &Bound<'_, RequestOptions>,
    ) -> PyResult<Py<PyAny>> {
        let api = self.open()?;
        let (request, options) = (request.get().action.clone(), Arc::clone(&options.get().0));
        let known = self.known.clone();
        block_on(py, request::run(api, known, request, options))?.into_python(py)
    }

    /// Starts a request; its outcome is put into the queue.
    fn start(
        &self,
        request: &Bound<'_, ApiRequest>,
        options: &Bound<'_, RequestOptions>,
        queue: &Bound<'_, ResponseQueue>,
        ticket: u64,
    ) -> PyResult<RunningCall> {
        let api = self.open()?;
        let (request, options) = (request.get().action.clone(), Arc::clone(&options.get().0));
        let queue = queue.get().queue();
        let known = self.known.clone();
        // In an async handler, its call.
        let span = Span::current();
        let task = async move {
            let running = guarded("The task of a request", request::run(api, known, request, options));
            let outcome = Box::pin(running.instrument(span)).await;
            queue.put(
                ticket,
                outcome.unwrap_or_else(|panicked| Outcome::Error(CallError::Panicked(panicked))),
            );
        };
        Ok(RunningCall::new(self.tasks.spawn_on(task, runtime()?).abort_handle()))
    }

    /// Opens a watch. `timeout` is in seconds.
    #[pyo3(signature = (request, options, *, initial, timeout = None))]
    fn watch(
        &self,
        py: Python<'_>,
        request: &Bound<'_, ApiRequest>,
        options: &Bound<'_, RequestOptions>,
        initial: bool,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let api = self.open()?;
        let call = request.get().verb().ok_or_else(|| misuse("Only kinds can be watched."))?;
        let options = options.get().0.as_ref().clone();
        match api.watch(runtime()?, call, options, (initial, timeout)) {
            Ok(changes) => Ok(Py::new(py, UserStream::new(changes, self.tasks.clone()))?.into_any()),
            Err(error) => Outcome::Error(error).into_python(py),
        }
    }

    /// Reads the log of a container. `timestamps` is whether the times are a part of the lines.
    #[pyo3(signature = (request, options, *, timestamps))]
    fn logs(
        &self,
        py: Python<'_>,
        request: &Bound<'_, ApiRequest>,
        options: &Bound<'_, RequestOptions>,
        timestamps: bool,
    ) -> PyResult<Py<PyAny>> {
        let api = self.open()?;
        let call = request.get().verb().ok_or_else(|| misuse("Only pods have logs."))?;
        let options = options.get().0.as_ref().clone();
        match api.logs(runtime()?, call, options, timestamps) {
            Ok(lines) => Ok(Py::new(py, UserStream::new(lines, self.tasks.clone()))?.into_any()),
            Err(error) => Outcome::Error(error).into_python(py),
        }
    }

    /// The log records since the last call, if the client belongs to no operator.
    fn take_logs(&self, py: Python<'_>) -> PyResult<Vec<Py<Log>>> {
        let records = self.host.as_ref().map(|host| host.take_logs()).unwrap_or_default();
        records.into_iter().map(|record| Py::new(py, Log::new(py, record)?)).collect()
    }

    /// Ends all calls and watches, and closes the connections. Further calls have no effect.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        check_process(self.pid)?;
        let Some(api) = self.guard().take() else { return Ok(()) };
        api.close();
        self.tasks.close();
        let Some(runtime) = runtime_unless_exiting()? else { return Ok(()) };
        py.detach(|| {
            let _late = runtime.block_on(async { timeout(GRACE_PERIOD, self.tasks.wait()).await });
            drop(api);
        });
        Ok(())
    }
}

impl Drop for ApiClient {
    fn drop(&mut self) {
        let api = self.api.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        match api {
            // The connections of an operator's client are those of the operator.
            Some(api) if self.host.is_some() && process::id() == self.pid => api.close(),
            // A fork has copies of the state, but not the tasks.
            Some(api) if process::id() != self.pid => std::mem::forget(api),
            _ => {}
        }
    }
}

/// Waits for a future with the interpreter detached; handles signals meanwhile.
pub(crate) fn block_on<T: Send>(py: Python<'_>, future: impl Future<Output = T> + Send) -> PyResult<T> {
    let runtime = runtime()?;
    let mut future = pin!(future);
    loop {
        let outcome = py.detach(|| runtime.block_on(async { timeout(SIGNALS, &mut future).await }));
        if let Ok(outcome) = outcome {
            return Ok(outcome);
        }
        py.check_signals()?;
    }
}

fn misuse_of(text: &str) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(text.to_owned())
}
