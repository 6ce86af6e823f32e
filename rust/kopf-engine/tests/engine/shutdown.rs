//! Deletion of objects, and shutdown of the operator.

use kopf_core::log_level::Level;
use serde_json::{Value, json};

use crate::fixture::{Fixture, handler};

fn finalizers(object: &Value) -> Vec<String> {
    serde_json::from_value(object["metadata"]["finalizers"].clone()).unwrap_or_default()
}

#[tokio::test]
async fn an_object_deleted_during_its_handling_is_handled_as_deleted_afterwards() {
    let mut fixture = Fixture::new().await;
    fixture.serve(vec![handler("make", "create"), handler("clean", "delete")], |_| {}).await;
    fixture.host.hold();
    fixture.create("brief", json!({})).await;
    fixture.until("the creation", |fixture| fixture.host.held() == 1).await;
    fixture.delete("brief").await;
    fixture.settle().await;
    assert_eq!(finalizers(&fixture.find("brief").await.unwrap()), ["kopf.zalando.org/KopfFinalizerMarker"]);
    assert_eq!(fixture.host.called(1), 0, "one cycle at a time");
    fixture.host.release();
    fixture.pass_until("the deletion", 0.5, 20.0, |fixture| fixture.host.called(1) == 1).await;
    fixture.settle().await;
    assert!(fixture.find("brief").await.is_none());
    assert_eq!(fixture.host.called(0), 1);
}

#[tokio::test]
async fn an_idle_operator_stops_at_once() {
    let mut fixture = Fixture::new().await;
    fixture.serve(vec![handler("make", "create")], |_| {}).await;
    fixture.create("done", json!({})).await;
    fixture.until("the creation", |fixture| fixture.host.called(0) == 1).await;
    fixture.settle().await;
    let start = tokio::time::Instant::now();
    fixture.operator().stop();
    fixture.operator().finished().await.unwrap();
    assert!(start.elapsed().is_zero(), "no virtual time is needed");
}

/// The operator is stopped while the handler runs without end: the handler is cancelled after 30 seconds.
async fn stop_while_it_is_called(endless: Value) -> Fixture {
    let mut fixture = Fixture::new().await;
    fixture.serve(vec![endless], |settings| settings.queueing.exit_timeout = 30.0).await;
    fixture.host.hold();
    fixture.create("endless", json!({})).await;
    fixture.until("the creation", |fixture| fixture.host.held() == 1).await;
    fixture.operator().stop();
    fixture.pass(29.0).await;
    assert_eq!(fixture.host.cancelled(), 0);
    fixture.pass(2.0).await;
    assert_eq!(fixture.host.cancelled(), 1);
    assert!(fixture.host.has_logged(Level::Warning, "Unprocessed streams left for"));
    fixture.operator().finished().await.unwrap();
    fixture
}

// contract: engine 2.4
#[tokio::test]
async fn a_stopping_operator_waits_for_handlers_within_the_grace_period() {
    stop_while_it_is_called(handler("make", "create")).await;
}

#[tokio::test]
async fn event_handlers_have_the_same_grace_period() {
    let watching = json!({
        "id": "see", "kind": "watching", "selector": {"group": "example.com", "version": "v1", "plural": "widgets"},
    });
    let fixture = stop_while_it_is_called(watching).await;
    fixture.host.release();
    fixture.settle().await;
    assert_eq!(fixture.host.closed(), 0, "the completion is ignored");
}

// contract: engine 2.4
#[tokio::test]
async fn results_within_the_grace_period_are_written() {
    let mut fixture = Fixture::new().await;
    fixture.serve(vec![handler("make", "create")], |settings| settings.queueing.exit_timeout = 30.0).await;
    fixture.host.hold();
    fixture.create("last", json!({})).await;
    fixture.until("the creation", |fixture| fixture.host.held() == 1).await;
    fixture.operator().stop();
    fixture.pass(10.0).await;
    fixture.host.release();
    fixture.operator().finished().await.unwrap();
    assert_eq!(fixture.host.cancelled(), 0);
    assert!(fixture.is_handled("last").await);
}

// contract: engine 2.5
#[tokio::test]
async fn a_stopping_operator_does_not_wait_for_delays() {
    let mut fixture = Fixture::new().await;
    let message = "later".to_owned();
    fixture
        .host
        .let_raise(0, [kopf_core::handling::attempt::CallResult::Temporary { message, delay: Some(1e6) }]);
    fixture.serve(vec![handler("make", "create")], |_| {}).await;
    fixture.create("sleeper", json!({})).await;
    fixture.until("the attempt", |fixture| fixture.host.called(0) == 1).await;
    fixture.pass(1.0).await;
    fixture.operator().stop();
    fixture.operator().finished().await.unwrap();
    assert!(!fixture.is_handled("sleeper").await, "the next operator continues it");
}
