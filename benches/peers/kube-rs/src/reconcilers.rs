//! The reconcilers of the workloads R1 (`requeue`), R2 (`owned`) and R3 (`apply`).

use std::sync::Arc;

use anyhow::Result;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use crate::bench::{Bench, Error, is_probe};

const MANAGER: &str = "kube-rs-peer";

struct Context {
    bench: Bench,
    children: Store<ConfigMap>,
}

/// Runs the reconcilers until the process ends.
pub async fn run(bench: Bench) -> Result<()> {
    let (children, writer) = store::<ConfigMap>();
    let controller = bench.controller();
    let controller = if bench.mode == "requeue" {
        controller
    } else {
        let maps = watcher(Api::<ConfigMap>::all(bench.client.clone()), watcher::Config::default());
        let maps = maps.default_backoff().reflect(writer).touched_objects().boxed();
        controller.owns_stream(maps)
    };
    let context = Arc::new(Context { bench, children });
    let failed = |_: Arc<DynamicObject>, error: &Error, context: Arc<Context>| context.bench.failed(error);
    controller.run(reconcile, failed, context).for_each(|_| futures::future::ready(())).await;
    Ok(())
}

fn is_ready(object: &DynamicObject) -> bool {
    let generation = object.meta().generation;
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|it| {
        it["type"] == "Ready" && it["status"] == "True" && it["observedGeneration"].as_i64() == generation
    })
}

async fn reconcile(object: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action, Error> {
    let bench = &context.bench;
    let name = object.name_any();
    if bench.mode == "requeue" {
        return Ok(bench.fire(name));
    }
    bench.saw(&name, 0);
    if is_probe(&name) {
        return Ok(Action::await_change());
    }
    let namespace = object.namespace().unwrap_or_default();
    let image = object.data["spec"]["image"].as_str().unwrap_or_default();
    let child = context.children.get(&ObjectRef::new(&name).within(&namespace));
    let is_desired =
        child.and_then(|it| it.data.as_ref()?.get("image").map(|value| value == image)).unwrap_or_default();
    if !is_desired {
        let owner = json!({"apiVersion": "bench.example.com/v1", "kind": "Bench", "name": &name, "uid": object.uid(),
                           "controller": true, "blockOwnerDeletion": true});
        let child = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"image": image},
                           "metadata": {"name": &name, "ownerReferences": [owner]}});
        Api::<ConfigMap>::namespaced(bench.client.clone(), &namespace)
            .patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&child))
            .await?;
    }
    if bench.mode == "apply" && !is_ready(&object) {
        let condition = json!({"type": "Ready", "status": "True", "reason": "Applied", "message": "",
                               "lastTransitionTime": k8s_openapi::jiff::Timestamp::now().to_string(),
                               "observedGeneration": object.meta().generation});
        let patch = json!({"status": {"conditions": [condition]}});
        bench.api(&namespace).patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    }
    Ok(Action::await_change())
}
