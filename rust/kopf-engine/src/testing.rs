//! A scripted API server and a scripted host, in the test's time.
//!
//! Nothing here waits or sends: requests are answered by a function, tasks are kept, and log lines are collected.

use crate::admission::AdmissionRouter;
use crate::daemons::DaemonContext;
use std::collections::BTreeSet;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use allocation_counter::opt_out;
use futures::future::ready;
use kopf_core::cycle::OperatorConfig;
use kopf_core::handler::lifecycle::Lifecycle;
use kopf_core::handler::registry::Registry;
use kopf_core::health::trackers::QueuePosition;
use kopf_core::json::value::Value;
use kopf_core::log_level::Level;
use kopf_core::resource::Resource;
use kopf_core::settings::Settings;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::client::connection::{Connection, ConnectionOptions};
use crate::client::credentials::{CredentialStore, CredentialStoreOptions};
use crate::client::http1::{Connector, Transport};
use crate::context::DispatchContext;
use crate::daemons::DaemonManager;
use crate::host::{Host, HostTask, LogRecord};
use crate::live_config::LiveConfig;
use crate::task_context::TaskContext;
use crate::time::clock::Clock;
use crate::watch_health::WatchHealth;

/// A request as received by the server.
#[derive(Debug, Clone)]
pub(crate) struct Got {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) body: Value,
    /// Seconds since the start of the test.
    pub(crate) at: u64,
}

/// The status and the body of a response; without a body, it never ends.
pub(crate) type FakeResponse = (u16, Option<Value>);

/// The surroundings of the tested part of the engine.
pub(crate) struct Fixture {
    pub(crate) shared: Arc<DispatchContext>,
    pub(crate) health: Arc<WatchHealth>,
    /// The router of admission reviews.
    pub(crate) admission: Arc<AdmissionRouter>,
    pub(crate) requests: Arc<Mutex<Vec<Got>>>,
    pub(crate) host: Arc<FakeHost>,
    pub(crate) credential_store: Arc<CredentialStore>,
}

/// The scripted host.
#[derive(Default)]
pub(crate) struct FakeHost {
    pub(crate) tasks: Mutex<Vec<HostTask>>,
    /// The backlog that the test has set.
    pub(crate) backlog: AtomicUsize,
    /// The position of the queue that the test has set.
    pub(crate) position: Mutex<QueuePosition>,
    lines: Mutex<Vec<String>>,
    /// A part of the log line at which to panic, once.
    explosive: Mutex<Option<&'static str>>,
}

impl FakeHost {
    /// Panics at the next log line that contains the part.
    pub(crate) fn explode_on(&self, part: &'static str) {
        *lock(&self.explosive) = Some(part);
    }

    /// The log lines that contain the part.
    pub(crate) fn lines(&self, part: &str) -> Vec<String> {
        lock(&self.lines).iter().filter(|line| line.contains(part)).cloned().collect()
    }
}

impl Host for FakeHost {
    fn submit(&self, task: HostTask) {
        lock(&self.tasks).push(task);
    }

    fn log(&self, entry: LogRecord) {
        let explodes = lock(&self.explosive).take_if(|part| entry.text.contains(*part)).is_some();
        assert!(!explodes, "an injected panic");
        lock(&self.lines).push(format!("{} {}", entry.level.as_str(), entry.text));
    }

    fn backlog(&self) -> usize {
        self.backlog.load(Ordering::Relaxed)
    }

    fn queue_position(&self) -> QueuePosition {
        *lock(&self.position)
    }

    fn enabled(&self, _: Level) -> bool {
        true
    }
}

impl Fixture {
    /// A fixture with these settings, as Python passes them, and this server.
    pub(crate) fn new(
        settings: &Value,
        respond: impl Fn(&Got) -> FakeResponse + Send + Sync + Clone + 'static,
    ) -> Self {
        Self::with_handlers(vec![], settings, respond)
    }

    /// The same with handlers.
    pub(crate) fn with_handlers(
        handlers: Vec<Value>,
        settings: &Value,
        respond: impl Fn(&Got) -> FakeResponse + Send + Sync + Clone + 'static,
    ) -> Self {
        let handlers = handlers.into_iter().map(|one| serde_json::from_value(one).unwrap()).collect();
        let settings: Settings = serde_json::from_value(settings.clone()).unwrap();
        let settings = Arc::new(settings);
        let host = Arc::new(FakeHost::default());
        let as_host: Arc<dyn Host> = Arc::<FakeHost>::clone(&host);
        let credential_store =
            Arc::new(CredentialStore::new(Arc::clone(&as_host), credential_store_options(), &[]).unwrap());
        let requests: Arc<Mutex<Vec<Got>>> = Arc::default();
        credential_store.admit(Connection::fake("first", client(&requests, respond)));
        let registry = Arc::new(Registry { handlers });
        let admission = Arc::new(AdmissionRouter::new(Arc::clone(&registry), Arc::clone(&as_host)));
        let config = OperatorConfig { registry, settings, lifecycle: Lifecycle::Asap };
        let shared = shared(config, Arc::clone(&credential_store), as_host);
        let health = Arc::new(WatchHealth::new(Clock::start()));
        Self { shared, health, admission, requests, host, credential_store }
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<Got> {
        lock(&self.requests).clone()
    }

    /// The log lines that contain the part.
    pub(crate) fn lines(&self, part: &str) -> Vec<String> {
        self.host.lines(part)
    }
}

/// The context of the dispatchers of an operator that was just started.
pub(crate) fn shared(
    config: OperatorConfig,
    credential_store: Arc<CredentialStore>,
    host: Arc<dyn Host>,
) -> Arc<DispatchContext> {
    let settings = Arc::clone(&config.settings);
    let current = LiveConfig::new(Arc::new(config));
    let client = Client::new(credential_store, settings, Arc::clone(&host), Clock::start());
    let base = TaskContext::new(current, client, host, Clock::start(), CancellationToken::new());
    let daemons = Arc::new(DaemonContext { base: Arc::clone(&base), manager: DaemonManager::default() });
    Arc::new(DispatchContext::new(base, daemons, None))
}

/// The options of credential stores in tests.
pub(crate) fn credential_store_options() -> CredentialStoreOptions {
    let connections = ConnectionOptions {
        agent: "test".to_owned(),
        trust_env: false,
        compat: false,
        clock: Clock::start(),
    };
    CredentialStoreOptions { connections, login_timeout: 0.0, stopping: CancellationToken::new() }
}

/// A client of a server that is a function; the requests are recorded.
pub(crate) fn client(
    requests: &Arc<Mutex<Vec<Got>>>,
    respond: impl Fn(&Got) -> FakeResponse + Send + Sync + Clone + 'static,
) -> Connector {
    let requests = Arc::clone(requests);
    let start = Instant::now();
    connector(move |method, path, body| {
        let got = Got {
            method: method.to_owned(),
            path: path.to_owned(),
            body: serde_json::from_slice(body).unwrap_or_default(),
            at: start.elapsed().as_secs(),
        };
        let (status, body) = respond(&got);
        lock(&requests).push(got);
        // With `null`, the body is empty.
        (status, body.map(|value| if value.is_null() { vec![] } else { value.to_string().into_bytes() }))
    })
}

/// A server that is a function of the method, the path, and the body, behind in-memory connections. It responds at once
/// in the client's task, and its allocations are not counted. Without a body, the response never ends; with the status
/// 0, it never begins.
pub(crate) fn connector(
    respond: impl Fn(&str, &str, &[u8]) -> (u16, Option<Vec<u8>>) + Send + Sync + 'static,
) -> Connector {
    let respond: Respond = Arc::new(respond);
    Box::new(move || {
        let transport =
            FakeTransport { respond: Arc::clone(&respond), request: vec![], response: vec![], reader: None };
        Box::pin(ready(Ok(Box::new(transport) as Box<dyn Transport>)))
    })
}

type Respond = Arc<dyn Fn(&str, &str, &[u8]) -> (u16, Option<Vec<u8>>) + Send + Sync>;

struct FakeTransport {
    respond: Respond,
    /// The bytes of the request so far.
    request: Vec<u8>,
    /// The bytes of the response that are not read yet.
    response: Vec<u8>,
    reader: Option<Waker>,
}

impl FakeTransport {
    fn respond(&mut self) {
        let Some(end) = self.request.windows(4).position(|part| part == b"\r\n\r\n") else { return };
        let head = String::from_utf8(self.request[..end].to_vec()).unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let whole = end + 4 + length.unwrap_or(0);
        if self.request.len() < whole {
            return;
        }
        let mut words = head.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let (status, body) = (self.respond)(method, path, &self.request[end + 4..whole]);
        let framing = body.as_ref().map_or_else(
            || "transfer-encoding: chunked".to_owned(),
            |body| format!("content-length: {}", body.len()),
        );
        self.request.drain(..whole);
        if status == 0 {
            return;
        }
        self.response.extend(format!("HTTP/1.1 {status} Status\r\n{framing}\r\n\r\n").into_bytes());
        self.response.extend(body.unwrap_or_default());
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl hyper::rt::Write for FakeTransport {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        opt_out(|| {
            this.request.extend_from_slice(data);
            this.respond();
        });
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Read for FakeTransport {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.response.is_empty() {
            this.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let length = this.response.len().min(buffer.remaining());
        buffer.put_slice(&this.response[..length]);
        this.response.drain(..length);
        Poll::Ready(Ok(()))
    }
}

/// A resource by its group, plural name and subresources.
pub(crate) fn resource(group: &str, plural: &str, namespaced: bool) -> Arc<Resource> {
    Arc::new(Resource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        plural: plural.to_owned(),
        kind: None,
        singular: None,
        shortcuts: BTreeSet::new(),
        categories: BTreeSet::new(),
        subresources: BTreeSet::new(),
        verbs: BTreeSet::new(),
        namespaced,
        preferred: true,
    })
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
