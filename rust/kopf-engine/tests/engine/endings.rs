//! Deletion of objects, and shutdown of the operator.

use kopf_core::log_level::Level;
use serde_json::{Value, json};

use crate::world::{World, handler};

fn finalizers(object: &Value) -> Vec<String> {
    serde_json::from_value(object["metadata"]["finalizers"].clone()).unwrap_or_default()
}

#[tokio::test]
async fn an_object_deleted_during_its_handling_is_handled_as_deleted_afterwards() {
    let mut world = World::new().await;
    world.serve(vec![handler("make", "create"), handler("clean", "delete")], |_| {}).await;
    world.stage.hold();
    world.create("brief", json!({})).await;
    world.until("the creation", |world| world.stage.held() == 1).await;
    world.delete("brief").await;
    world.settle().await;
    assert_eq!(finalizers(&world.find("brief").await.unwrap()), ["kopf.zalando.org/KopfFinalizerMarker"]);
    assert_eq!(world.stage.called(1), 0, "one cycle at a time");
    world.stage.release();
    world.pass_until("the deletion", 0.5, 20.0, |world| world.stage.called(1) == 1).await;
    world.settle().await;
    assert!(world.find("brief").await.is_none());
    assert_eq!(world.stage.called(0), 1);
}

#[tokio::test]
async fn an_idle_operator_stops_at_once() {
    let mut world = World::new().await;
    world.serve(vec![handler("make", "create")], |_| {}).await;
    world.create("done", json!({})).await;
    world.until("the creation", |world| world.stage.called(0) == 1).await;
    world.settle().await;
    let start = tokio::time::Instant::now();
    world.operator().stop();
    world.operator().finished().await.unwrap();
    assert!(start.elapsed().is_zero(), "no virtual time is needed");
}

/// The operator is stopped while the handler runs without end: the handler is cancelled after 30 seconds.
async fn stop_while_it_is_called(endless: Value) -> World {
    let mut world = World::new().await;
    world.serve(vec![endless], |settings| settings.queueing.exit_timeout = 30.0).await;
    world.stage.hold();
    world.create("endless", json!({})).await;
    world.until("the creation", |world| world.stage.held() == 1).await;
    world.operator().stop();
    world.pass(29.0).await;
    assert_eq!(world.stage.cancelled(), 0);
    world.pass(2.0).await;
    assert_eq!(world.stage.cancelled(), 1);
    assert!(world.stage.has_logged(Level::Warning, "Unprocessed streams left for"));
    world.operator().finished().await.unwrap();
    world
}

#[tokio::test]
async fn a_stopping_operator_waits_for_handlers_within_the_grace_period() {
    stop_while_it_is_called(handler("make", "create")).await;
}

#[tokio::test]
async fn event_handlers_have_the_same_grace_period() {
    let watching = json!({
        "id": "see", "kind": "watching", "selector": {"group": "example.com", "version": "v1", "plural": "widgets"},
    });
    let world = stop_while_it_is_called(watching).await;
    world.stage.release();
    world.settle().await;
    assert_eq!(world.stage.closed(), 0, "the completion is ignored");
}

#[tokio::test]
async fn results_within_the_grace_period_are_written() {
    let mut world = World::new().await;
    world.serve(vec![handler("make", "create")], |settings| settings.queueing.exit_timeout = 30.0).await;
    world.stage.hold();
    world.create("last", json!({})).await;
    world.until("the creation", |world| world.stage.held() == 1).await;
    world.operator().stop();
    world.pass(10.0).await;
    world.stage.release();
    world.operator().finished().await.unwrap();
    assert_eq!(world.stage.cancelled(), 0);
    assert!(world.is_handled("last").await);
}

#[tokio::test]
async fn a_stopping_operator_does_not_wait_for_delays() {
    let mut world = World::new().await;
    let message = "later".to_owned();
    world
        .stage
        .let_raise(0, [kopf_core::handling::attempt::CallResult::Temporary { message, delay: Some(1e6) }]);
    world.serve(vec![handler("make", "create")], |_| {}).await;
    world.create("sleeper", json!({})).await;
    world.until("the attempt", |world| world.stage.called(0) == 1).await;
    world.pass(1.0).await;
    world.operator().stop();
    world.operator().finished().await.unwrap();
    assert!(!world.is_handled("sleeper").await, "the next operator continues it");
}
