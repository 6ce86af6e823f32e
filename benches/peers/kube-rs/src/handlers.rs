//! Controllers with the effects of Kopf's handlers: the workloads W1 to W8.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::watcher;
use serde_json::{Value, json};

use crate::bench::{Bench, Error, is_probe};

const LAST_HANDLED: &str = "kopf.zalando.org/last-handled-configuration";

struct Context {
    bench: Bench,
    daemons: Mutex<HashSet<String>>,
}

/// Runs the controller until the process ends.
pub async fn run(bench: Bench) -> Result<()> {
    let controller = bench.controller();
    let context = Arc::new(Context { bench, daemons: Mutex::default() });
    let failed = |_: Arc<DynamicObject>, error: &Error, context: Arc<Context>| context.bench.failed(error);
    controller.run(handle, failed, context).for_each(|_| futures::future::ready(())).await;
    Ok(())
}

/// Counts each watch event of a config map: an event handler without a queue.
pub async fn run_firehose(bench: Bench) -> Result<()> {
    let maps = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
    let api = Api::<DynamicObject>::all_with(bench.client.clone(), &maps);
    let mut events = watcher(api, watcher::Config::default()).boxed();
    while let Some(event) = events.try_next().await? {
        if let watcher::Event::Apply(map) | watcher::Event::InitApply(map) = event {
            let revision = map.data["data"]["rev"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
            bench.saw(&map.name_any(), revision);
        }
    }
    Ok(())
}

async fn handle(object: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action, Error> {
    let bench = &context.bench;
    let name = object.name_any();
    bench.saw(&name, object.data["spec"]["rev"].as_u64().unwrap_or(0));
    if is_probe(&name) {
        return Ok(Action::await_change());
    }
    match bench.mode.as_str() {
        "timers" => return Ok(bench.fire(name)),
        "daemons" => return Ok(context.spawn_daemon(name)),
        _ => {}
    }
    let essence = json!({"spec": object.data["spec"]});
    let last: Option<Value> =
        object.annotations().get(LAST_HANDLED).and_then(|text| serde_json::from_str(text).ok());
    if last.as_ref() == Some(&essence) {
        return Ok(Action::await_change());
    }
    if bench.mode == "latency" {
        bench.report("start", json!({"name": &name}));
    }
    if bench.mode == "sleepers" {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let api = bench.api(&object.namespace().unwrap_or_default());
    let patch = json!({"metadata": {"annotations": {LAST_HANDLED: format!("{essence}\n")}}});
    api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    if last.is_none() {
        let patch = json!({"status": {"bench_create": {"ok": true, "name": &name}}});
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    }
    if bench.posting {
        let cause = if last.is_none() { "create" } else { "update" };
        post_event(bench, &object, &format!("Handler 'bench_{cause}' succeeded.")).await?;
        post_event(bench, &object, &format!("{cause} is processed: 1 succeeded; 0 failed.")).await?;
    }
    Ok(Action::await_change())
}

impl Context {
    /// Spawns a task for the object unless it has one.
    fn spawn_daemon(&self, name: String) -> Action {
        let mut daemons = self.daemons.lock().unwrap_or_else(PoisonError::into_inner);
        if daemons.insert(name) {
            tokio::spawn(async {
                loop {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            });
            if daemons.len() == self.bench.expected {
                self.bench.once("window_start", json!({}));
            }
        }
        Action::await_change()
    }
}

/// Posts a Kubernetes event with the fields that Kopf sets.
async fn post_event(bench: &Bench, object: &DynamicObject, message: &str) -> Result<(), Error> {
    let namespace = object.namespace().unwrap_or_default();
    let time = format!("{:.6}", k8s_openapi::jiff::Timestamp::now()); // other precisions are rejected
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"namespace": &namespace, "generateName": "kopf-event-"},
        "action": "Action?", "type": "Normal", "reason": "Logging", "message": message,
        "reportingComponent": "kopf", "reportingInstance": "dev", "source": {"component": "kopf"},
        "involvedObject": {"apiVersion": "bench.example.com/v1", "kind": "Bench", "name": object.name_any(),
                           "uid": object.uid(), "namespace": &namespace},
        "firstTimestamp": &time, "lastTimestamp": &time, "eventTime": &time,
    });
    let request = http::Request::post(format!("/api/v1/namespaces/{namespace}/events"))
        .header("content-type", "application/json")
        .body(event.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    bench.client.request::<Value>(request).await?;
    Ok(())
}
