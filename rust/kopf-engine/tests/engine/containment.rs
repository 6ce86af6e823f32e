//! Panics of the engine's tasks, and objects that cannot be handled: their effects, and the limits of these.

use kopf_apiserver::{Fault, Injection};
use kopf_core::log_level::Level;
use kopf_engine::discovery::namespaces::NamespaceScope;
use serde_json::{Value, json};

use crate::world::{World, handler};

fn make() -> Vec<Value> {
    vec![handler("make", "create")]
}

#[tokio::test]
async fn a_panic_of_a_worker_delays_its_object_only() {
    let mut world = World::new().await;
    world.serve(make(), |settings| settings.queueing.error_delays = vec![7.0]).await;
    world.stage.explode_on("script", 1);
    world.create("poison", json!({})).await;
    world.create("other", json!({})).await;
    world.until("the other one", |world| world.stage.called(0) == 1).await;
    world.settle().await;
    assert_eq!(world.stage.calls()[0].name, "other");
    assert!(world.stage.has_logged(
        Level::Error,
        "Throttling for 7 seconds due to an unexpected error: The cycle of the object has panicked: an injected panic"
    ));
    let passed = world.pass_until("the handling", 0.5, 30.0, |world| world.stage.called(0) == 2).await;
    assert!((6.0..9.0).contains(&passed), "{passed}");
    assert!(world.is_handled("poison").await);
}

#[tokio::test]
async fn a_panic_of_a_watch_is_followed_by_a_pause_and_a_listing() {
    let mut world = World::new().await;
    world.serve(make(), |_| {}).await;
    let lists = world.asked("list").len();
    world.stage.explode_on("stream", 1);
    world.create("first", json!({})).await;
    world
        .until("the panic", |world| world.stage.has_logged(Level::Error, "has panicked: an injected panic"))
        .await;
    world.create("second", json!({})).await;
    world.pass_until("both", 0.5, 30.0, |world| world.stage.called(0) == 2).await;
    assert_eq!(world.asked("list").len(), lists + 1);
    assert!(world.stage.has_logged(Level::Error, "The watch-stream for widgets.v1.example.com cluster-wide"));
}

/// The message of the failure that ends the operator.
async fn end_of(world: &World) -> String {
    world.operator().finished().await.expect_err("it must fail").message
}

#[tokio::test]
async fn a_panic_of_the_scheduler_of_timers_ends_the_operator() {
    let mut world = World::new().await;
    let selector = json!({"group": "example.com", "version": "v1", "plural": "widgets"});
    let timer = json!({"id": "tick", "kind": "timer", "interval": 5, "selector": selector});
    world.serve(vec![timer], |settings| settings.execution.default_backoff = 0.0).await;
    // The host does not support timers here: it panics when the worker submits the call, and again when the scheduler repeats it.
    world.create("ticking", json!({})).await;
    let message = end_of(&world).await;
    assert!(message.starts_with("The scheduler of daemons and timers has panicked: "), "{message}");
}

#[tokio::test]
async fn a_panic_of_the_orchestrator_ends_the_operator() {
    let mut world = World::new().await;
    world.stage.explode_on("select", 1);
    let selector = json!({"callable": true});
    let declared = json!({"id": "make", "kind": "changing", "reason": "create", "selector": selector});
    world.start(vec![declared], |_| {}).await;
    let message = end_of(&world).await;
    assert!(
        message.starts_with("The orchestrator of the watch-streams has panicked: an injected panic."),
        "{message}"
    );
}

#[tokio::test]
async fn exact_namespaces_need_no_listing_of_namespaces() {
    let mut world = World::new().await;
    world.server.faults().inject(Injection::always(Fault::Code(403)).on_resource("namespaces"));
    world.create("there", json!({})).await;
    let namespace_scope = NamespaceScope::Namespaces { patterns: vec!["default".to_owned()], foreign: false };
    world.start_in(namespace_scope, make(), |_| {}).await;
    world.until("the handling, without any time", |world| world.stage.called(0) == 1).await;
    world
        .pass_until("the warning", 1.0, 90.0, |world| {
            world.stage.has_logged(Level::Warning, "Not enough permissions to watch for namespaces")
        })
        .await;
    world.create("late", json!({})).await;
    world.pass_until("the handling", 0.5, 30.0, |world| world.stage.called(0) == 2).await;
}

#[tokio::test]
async fn the_watch_of_crds_continues_while_a_scan_of_their_group_waits() {
    let mut world = World::new().await;
    world.serve(make(), |_| {}).await;
    let crd = |name: &str| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{name}.example.com")},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": name, "singular": name, "kind": name.to_uppercase(), "listKind": format!("{name}List")},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }}}],
            },
        })
    };
    world
        .server
        .create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd("gadgets"))
        .await
        .unwrap();
    world.create("meanwhile", json!({})).await;
    world.until("the handling", |world| world.stage.called(0) == 1).await;
}
