//! A server and another side of the border that do what a test says, in the test's time.
//!
//! Nothing here waits or talks: requests are answered by a function, jobs are kept, and log lines are collected.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kopf_core::cycle::Rules;
use kopf_core::lifecycle::Lifecycle;
use kopf_core::notes::Level;
use kopf_core::registry::Registry;
use kopf_core::resource::Resource;
use kopf_core::settings::Settings;
use kopf_core::value::Value;
use kube::Client;
use kube::client::Body;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::Desk;
use crate::api::Api;
use crate::client::Connection;
use crate::clock::Clock;
use crate::daemons::Background;
use crate::dispatch::Shared;
use crate::invoke::{Entry, Invoker, Job};
use crate::rules::CurrentRules;
use crate::vault::Vault;

/// A request as the server has got it.
#[derive(Debug, Clone)]
pub(crate) struct Got {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) body: Value,
    /// Seconds since the start of the test.
    pub(crate) at: u64,
}

/// The status and the body; a stream that never ends, if there is no body.
pub(crate) type Answer = (u16, Option<Value>);

/// Everything around a part of the engine.
pub(crate) struct Stage {
    pub(crate) shared: Arc<Shared>,
    pub(crate) requests: Arc<Mutex<Vec<Got>>>,
    pub(crate) other_side: Arc<OtherSide>,
    pub(crate) vault: Arc<Vault>,
}

/// The other side of the border.
#[derive(Default)]
pub(crate) struct OtherSide {
    pub(crate) jobs: Mutex<Vec<Job>>,
    /// How much waits, as far as the test says.
    pub(crate) backlog: AtomicUsize,
    lines: Mutex<Vec<String>>,
}

impl OtherSide {
    /// The log lines with this in them.
    pub(crate) fn lines(&self, part: &str) -> Vec<String> {
        lock(&self.lines).iter().filter(|line| line.contains(part)).cloned().collect()
    }
}

impl Invoker for OtherSide {
    fn submit(&self, job: Job) {
        lock(&self.jobs).push(job);
    }

    fn log(&self, entry: Entry) {
        lock(&self.lines).push(format!("{} {}", entry.level.as_str(), entry.text));
    }

    fn backlog(&self) -> usize {
        self.backlog.load(Ordering::Relaxed)
    }

    fn enabled(&self, _: Level) -> bool {
        true
    }
}

impl Stage {
    /// Sets the settings as Python would, and the server.
    pub(crate) fn new(
        settings: &Value,
        answer: impl Fn(&Got) -> Answer + Send + Sync + Clone + 'static,
    ) -> Self {
        Self::with_handlers(vec![], settings, answer)
    }

    /// The same, with handlers.
    pub(crate) fn with_handlers(
        handlers: Vec<Value>,
        settings: &Value,
        answer: impl Fn(&Got) -> Answer + Send + Sync + Clone + 'static,
    ) -> Self {
        let handlers = handlers.into_iter().map(|one| serde_json::from_value(one).unwrap()).collect();
        let settings: Settings = serde_json::from_value(settings.clone()).unwrap();
        let settings = Arc::new(settings);
        let other_side = Arc::new(OtherSide::default());
        let invoker: Arc<dyn Invoker> = Arc::<OtherSide>::clone(&other_side);
        let vault =
            Arc::new(Vault::new(Arc::clone(&invoker), "test".to_owned(), &[], Clock::start()).unwrap());
        let requests: Arc<Mutex<Vec<Got>>> = Arc::default();
        vault.admit(Connection::fake("first", client(&requests, answer)));
        let registry = Arc::new(Registry { handlers });
        let rules = Rules { registry, settings, lifecycle: Lifecycle::Asap };
        let shared = shared(rules, Arc::clone(&vault), invoker);
        Self { shared, requests, other_side, vault }
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<Got> {
        lock(&self.requests).clone()
    }

    /// The log lines with this in them.
    pub(crate) fn lines(&self, part: &str) -> Vec<String> {
        self.other_side.lines(part)
    }
}

/// What all share in an operator that has just started.
pub(crate) fn shared(rules: Rules, vault: Arc<Vault>, invoker: Arc<dyn Invoker>) -> Arc<Shared> {
    let settings = Arc::clone(&rules.settings);
    let current = CurrentRules::new(Arc::new(rules));
    let rules = current.get();
    Arc::new(Shared {
        admission: Arc::new(Desk::new(Arc::clone(&rules.registry), Arc::clone(&invoker))),
        rules,
        current,
        api: Api::new(vault, settings, Arc::clone(&invoker), Clock::start()),
        invoker,
        clock: Clock::start(),
        stopping: CancellationToken::new(),
        killing: CancellationToken::new(),
        workers: TaskTracker::new(),
        freed: Notify::new(),
        dozing: AtomicUsize::new(0),
        background: Background::default(),
        cycles: AtomicU64::new(1),
        pause: Arc::default(),
        health: Arc::new(crate::health::Health::new(crate::clock::Clock::start())),
        identity: "me".to_owned(),
        barrier: None,
        absentees: crate::dispatch::Absentees::default(),
    })
}

/// A client whose server is a function.
pub(crate) fn client(
    requests: &Arc<Mutex<Vec<Got>>>,
    answer: impl Fn(&Got) -> Answer + Send + Sync + Clone + 'static,
) -> Client {
    let requests = Arc::clone(requests);
    let start = Instant::now();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (requests, answer) = (Arc::clone(&requests), answer.clone());
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let got = Got {
                method: parts.method.to_string(),
                path: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
                body: serde_json::from_slice(&bytes).unwrap_or_default(),
                at: start.elapsed().as_secs(),
            };
            let (status, body) = answer(&got);
            lock(&requests).push(got);
            Ok::<_, Infallible>(Response::builder().status(status).body(body_of(body)).unwrap())
        }
    });
    Client::new(service, "default")
}

fn body_of(body: Option<Value>) -> BoxBody<Bytes, Infallible> {
    match body {
        Some(value) => Full::new(Bytes::from(value.to_string())).boxed(),
        None => BodyExt::boxed(StreamBody::new(futures::stream::pending())),
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
