//! The reconcilers of the workloads R1, R2 and R3 with kube-rs: the same decisions and the same writes as those in `operators/`.
//!
//! It obeys the environment variables of `operators/reporting.py`; `BENCH_MODE` is `requeue`, `owned` or `apply`.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::client::ConfigExt as _;
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};

const MANAGER: &str = "kube-rs-peer";

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Error(#[from] kube::Error);

/// What `operators/reporting.py` counts.
#[derive(Default)]
struct Counts {
    reported: HashSet<&'static str>,
    seen: HashSet<String>,
    fired: HashMap<String, Instant>,
    window: Option<Instant>,
    late: Vec<f64>,
}

struct Context {
    client: Client,
    benches: ApiResource,
    children: Store<ConfigMap>,
    mode: String,
    expected: usize,
    window: Duration,
    out: Mutex<File>,
    counts: Mutex<Counts>,
}

impl Context {
    fn report(&self, what: &str, mut line: Value) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        line["what"] = what.into();
        line["t"] = now.as_secs_f64().into();
        let _ = self.out.lock().map(|mut out| writeln!(out, "{line}"));
    }

    fn once(&self, counts: &mut Counts, what: &'static str, line: Value) {
        if counts.reported.insert(what) {
            self.report(what, line);
        }
    }

    fn saw(&self, name: &str) {
        let Ok(mut counts) = self.counts.lock() else { return };
        self.once(&mut counts, "ready", json!({}));
        if !name.starts_with("probe")
            && counts.seen.insert(name.to_owned())
            && counts.seen.len() == self.expected
        {
            self.once(&mut counts, "done", json!({}));
        }
    }

    fn fire(&self, name: String) {
        let now = Instant::now();
        let Ok(mut counts) = self.counts.lock() else { return };
        let last = counts.fired.insert(name, now);
        if counts.window.is_none() && counts.fired.len() >= self.expected {
            counts.window = Some(now);
            self.once(&mut counts, "window_start", json!({}));
        }
        let (Some(start), Some(last)) = (counts.window, last) else { return };
        if now - start <= self.window {
            counts.late.push((now - last).as_secs_f64() - 1.0);
        } else if !counts.reported.contains("window_end") {
            counts.late.sort_by(f64::total_cmp);
            let (calls, late) = (counts.late.len(), &counts.late);
            let line = json!({"invocations": calls, "late_p50": late[calls / 2], "late_p99": late[calls * 99 / 100]});
            self.once(&mut counts, "window_end", line);
        }
    }
}

fn is_ready(object: &DynamicObject) -> bool {
    let generation = object.meta().generation;
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|it| {
        it["type"] == "Ready" && it["status"] == "True" && it["observedGeneration"].as_i64() == generation
    })
}

async fn reconcile(object: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action, Error> {
    let name = object.name_any();
    if context.mode == "requeue" {
        context.fire(name);
        return Ok(Action::requeue(Duration::from_secs(1)));
    }
    context.saw(&name);
    if name.starts_with("probe") {
        return Ok(Action::await_change());
    }
    let namespace = object.namespace().unwrap_or_default();
    let image = object.data["spec"]["image"].as_str().unwrap_or_default();
    let child = context.children.get(&ObjectRef::new(&name).within(&namespace));
    let is_desired =
        child.and_then(|it| it.data.as_ref()?.get("image").map(|value| value == image)).unwrap_or_default();
    let params = PatchParams::apply(MANAGER).force();
    if !is_desired {
        let owner = json!({"apiVersion": "bench.example.com/v1", "kind": "Bench", "name": &name, "uid": object.uid(),
                           "controller": true, "blockOwnerDeletion": true});
        let child = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"image": image},
                           "metadata": {"name": &name, "ownerReferences": [owner]}});
        Api::<ConfigMap>::namespaced(context.client.clone(), &namespace)
            .patch(&name, &params, &Patch::Apply(&child))
            .await?;
    }
    if context.mode == "apply" && !is_ready(&object) {
        let condition = json!({"type": "Ready", "status": "True", "reason": "Applied", "message": "",
                               "lastTransitionTime": k8s_openapi::jiff::Timestamp::now().to_string(),
                               "observedGeneration": object.meta().generation});
        let api = Api::<DynamicObject>::namespaced_with(context.client.clone(), &namespace, &context.benches);
        let patch = json!({"status": {"conditions": [condition]}});
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    }
    Ok(Action::await_change())
}

fn failed(_: Arc<DynamicObject>, error: &Error, context: Arc<Context>) -> Action {
    context.report("error", json!({"error": error.to_string()}));
    Action::requeue(Duration::from_millis(100))
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

fn variable(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

#[tokio::main]
async fn main() -> Result<()> {
    let client = connect().await?;
    let kind = GroupVersionKind::gvk("bench.example.com", "v1", "Bench");
    let benches = ApiResource::from_gvk_with_plural(&kind, "benches");
    let (children, writer) = store::<ConfigMap>();
    let context = Arc::new(Context {
        client: client.clone(),
        benches: benches.clone(),
        children: children.clone(),
        mode: variable("BENCH_MODE", "apply"),
        expected: variable("BENCH_EXPECT", "0").parse()?,
        window: Duration::from_secs_f64(variable("BENCH_WINDOW", "10").parse()?),
        out: Mutex::new(
            OpenOptions::new().create(true).append(true).open(variable("BENCH_OUT", "bench.out"))?,
        ),
        counts: Mutex::default(),
    });
    let all = Api::<DynamicObject>::all_with(client.clone(), &benches);
    let controller = Controller::new_with(all, watcher::Config::default(), benches)
        .with_config(Config::default().concurrency(0));
    let controller = if context.mode == "requeue" {
        controller
    } else {
        let maps = watcher(Api::<ConfigMap>::all(client), watcher::Config::default());
        let maps = maps.default_backoff().reflect(writer).touched_objects().boxed();
        controller.owns_stream(maps)
    };
    controller.run(reconcile, failed, context).for_each(|_| futures::future::ready(())).await;
    Ok(())
}
