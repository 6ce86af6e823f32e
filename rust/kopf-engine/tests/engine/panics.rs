//! Panics of the engine's tasks, and objects that cannot be handled: their effects, and the limits of these.

use kopf_apiserver::{Fault, Injection};
use kopf_core::log_level::Level;
use kopf_engine::discovery::namespaces::NamespaceScope;
use serde_json::{Value, json};

use crate::fixture::{Fixture, handler};

fn make() -> Vec<Value> {
    vec![handler("make", "create")]
}

#[tokio::test]
async fn a_panic_of_a_worker_delays_its_object_only() {
    let mut fixture = Fixture::new().await;
    fixture.serve(make(), |settings| settings.queueing.error_delays = vec![7.0]).await;
    fixture.host.explode_on("script", 1);
    fixture.create("poison", json!({})).await;
    fixture.create("other", json!({})).await;
    fixture.until("the other one", |fixture| fixture.host.called(0) == 1).await;
    fixture.settle().await;
    assert_eq!(fixture.host.calls()[0].name, "other");
    assert!(fixture.host.has_logged(
        Level::Error,
        "Throttling for 7 seconds due to an unexpected error: The cycle of the object has panicked: an injected panic"
    ));
    let passed = fixture.pass_until("the handling", 0.5, 30.0, |fixture| fixture.host.called(0) == 2).await;
    assert!((6.0..9.0).contains(&passed), "{passed}");
    assert!(fixture.is_handled("poison").await);
}

#[tokio::test]
async fn a_panic_of_a_watch_is_followed_by_a_pause_and_a_listing() {
    let mut fixture = Fixture::new().await;
    fixture.serve(make(), |_| {}).await;
    let lists = fixture.asked("list").len();
    fixture.host.explode_on("stream", 1);
    fixture.create("first", json!({})).await;
    fixture
        .until("the panic", |fixture| {
            fixture.host.has_logged(Level::Error, "has panicked: an injected panic")
        })
        .await;
    fixture.create("second", json!({})).await;
    fixture.pass_until("both", 0.5, 30.0, |fixture| fixture.host.called(0) == 2).await;
    assert_eq!(fixture.asked("list").len(), lists + 1);
    assert!(
        fixture.host.has_logged(Level::Error, "The watch-stream for widgets.v1.example.com cluster-wide")
    );
}

/// The message of the failure that ends the operator.
async fn end_of(fixture: &Fixture) -> String {
    fixture.operator().finished().await.expect_err("it must fail").message
}

#[tokio::test]
async fn a_panic_of_the_scheduler_of_timers_ends_the_operator() {
    let mut fixture = Fixture::new().await;
    let selector = json!({"group": "example.com", "version": "v1", "plural": "widgets"});
    let timer = json!({"id": "tick", "kind": "timer", "interval": 5, "selector": selector});
    fixture.serve(vec![timer], |settings| settings.execution.default_backoff = 0.0).await;
    // The host does not support timers here: it panics when the worker submits the call, and again when the scheduler repeats it.
    fixture.create("ticking", json!({})).await;
    let message = end_of(&fixture).await;
    assert!(message.starts_with("The scheduler of daemons and timers has panicked: "), "{message}");
}

#[tokio::test]
async fn a_panic_of_the_orchestrator_ends_the_operator() {
    let mut fixture = Fixture::new().await;
    fixture.host.explode_on("select", 1);
    let selector = json!({"callable": true});
    let declared = json!({"id": "make", "kind": "changing", "reason": "create", "selector": selector});
    fixture.start(vec![declared], |_| {}).await;
    let message = end_of(&fixture).await;
    assert!(
        message.starts_with("The orchestrator of the watch-streams has panicked: an injected panic."),
        "{message}"
    );
}

#[tokio::test]
async fn exact_namespaces_need_no_listing_of_namespaces() {
    let mut fixture = Fixture::new().await;
    fixture.server.faults().inject(Injection::always(Fault::Code(403)).on_resource("namespaces"));
    fixture.create("there", json!({})).await;
    let namespace_scope = NamespaceScope::Namespaces { patterns: vec!["default".to_owned()], foreign: false };
    fixture.start_in(namespace_scope, make(), |_| {}).await;
    fixture.until("the handling, without any time", |fixture| fixture.host.called(0) == 1).await;
    fixture
        .pass_until("the warning", 1.0, 90.0, |fixture| {
            fixture.host.has_logged(Level::Warning, "Not enough permissions to watch for namespaces")
        })
        .await;
    fixture.create("late", json!({})).await;
    fixture.pass_until("the handling", 0.5, 30.0, |fixture| fixture.host.called(0) == 2).await;
}

#[tokio::test]
async fn the_watch_of_crds_continues_while_a_scan_of_their_group_waits() {
    let mut fixture = Fixture::new().await;
    fixture.serve(make(), |_| {}).await;
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
    fixture
        .server
        .create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd("gadgets"))
        .await
        .unwrap();
    fixture.create("meanwhile", json!({})).await;
    fixture.until("the handling", |fixture| fixture.host.called(0) == 1).await;
}
