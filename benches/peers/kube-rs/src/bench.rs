//! The client, the options of a workload, and the reports of its progress.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::client::ConfigExt as _;
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::watcher;
use serde_json::{Value, json};

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(#[from] kube::Error);

/// What `operators/reporting.py` counts.
#[derive(Default)]
struct Counts {
    reported: HashSet<&'static str>,
    calls: usize,
    revisions: HashMap<String, u64>,
    complete: usize,
    fired: HashMap<String, Instant>,
    window: Option<Instant>,
    late: Vec<f64>,
}

/// One run of a workload.
pub struct Bench {
    pub client: Client,
    pub benches: ApiResource,
    pub mode: String,
    pub expected: usize,
    pub posting: bool,
    revision: u64,
    window: Duration,
    out: Mutex<File>,
    counts: Mutex<Counts>,
}

impl Bench {
    /// Connects to the cluster of `KUBECONFIG`, and reads the options.
    pub async fn connect() -> Result<Self> {
        let kind = GroupVersionKind::gvk("bench.example.com", "v1", "Bench");
        let path = variable("BENCH_OUT", "bench.out");
        Ok(Self {
            client: connect().await?,
            benches: ApiResource::from_gvk_with_plural(&kind, "benches"),
            mode: variable("BENCH_MODE", "burst"),
            expected: variable("BENCH_EXPECT", "0").parse()?,
            posting: variable("BENCH_POSTING", "0") == "1",
            revision: variable("BENCH_REVISION", "0").parse()?,
            window: Duration::from_secs_f64(variable("BENCH_WINDOW", "10").parse()?),
            out: Mutex::new(OpenOptions::new().create(true).append(true).open(path)?),
            counts: Mutex::default(),
        })
    }

    /// A controller of the objects of the workloads, without a limit of concurrency.
    pub fn controller(&self) -> Controller<DynamicObject> {
        let api = Api::all_with(self.client.clone(), &self.benches);
        Controller::new_with(api, watcher::Config::default(), self.benches.clone())
            .with_config(Config::default().concurrency(0))
    }

    /// The objects of the workloads in a namespace.
    pub fn api(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &self.benches)
    }

    /// Reports a failed call, which is retried.
    pub fn failed(&self, error: &Error) -> Action {
        self.report("error", json!({"error": error.to_string()}));
        Action::requeue(Duration::from_millis(100))
    }

    pub fn report(&self, what: &str, mut line: Value) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        line["what"] = what.into();
        line["t"] = now.as_secs_f64().into();
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = out.write_all(format!("{line}\n").as_bytes());
    }

    pub fn once(&self, what: &'static str, line: Value) {
        self.once_with(&mut self.counts(), what, line);
    }

    fn once_with(&self, counts: &mut Counts, what: &'static str, line: Value) {
        if counts.reported.insert(what) {
            self.report(what, line);
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an object in its revision.
    pub fn saw(&self, name: &str, revision: u64) {
        let mut counts = self.counts();
        counts.calls += 1;
        self.once_with(&mut counts, "ready", json!({}));
        if is_probe(name) {
            return;
        }
        let before = counts.revisions.insert(name.to_owned(), revision);
        if revision == self.revision && before != Some(revision) {
            counts.complete += 1;
            if counts.complete == self.expected {
                let calls = counts.calls;
                self.once_with(&mut counts, "done", json!({"events": calls}));
            }
        }
    }

    /// Counts a call that is repeated every second, and its lateness; returns when the next one is due.
    pub fn fire(&self, name: String) -> Action {
        let now = Instant::now();
        let mut counts = self.counts();
        let last = counts.fired.insert(name, now);
        if counts.window.is_none() && counts.fired.len() >= self.expected {
            counts.window = Some(now);
            self.once_with(&mut counts, "window_start", json!({}));
        }
        if let (Some(start), Some(last)) = (counts.window, last) {
            if now - start <= self.window {
                counts.late.push((now - last).as_secs_f64() - 1.0);
            } else if !counts.reported.contains("window_end") {
                counts.late.sort_by(f64::total_cmp);
                let (calls, late) = (counts.late.len(), &counts.late);
                let line = json!({"invocations": calls, "late_p50": late[calls / 2], "late_p99": late[calls * 99 / 100]});
                self.once_with(&mut counts, "window_end", line);
            }
        }
        Action::requeue(Duration::from_secs(1))
    }
}

/// Whether the object exists only to report that the operator is ready.
pub fn is_probe(name: &str) -> bool {
    name.starts_with("probe")
}

fn variable(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

/// A client that sends requests with a body at once: kube's default leaves Nagle's algorithm on.
async fn connect() -> Result<Client> {
    let config = kube::Config::infer().await?;
    let mut http = hyper_util::client::legacy::connect::HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    let https = config.rustls_https_connector_with_connector(http)?;
    let executor = hyper_util::rt::TokioExecutor::new();
    let service = tower::ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .map_err(tower::BoxError::from)
        .service(hyper_util::client::legacy::Client::builder(executor).build(https));
    Ok(Client::new(service, config.default_namespace))
}
