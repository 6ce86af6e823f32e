//! Writes that are rejected, fail, or whose responses are lost: finished handlers are not called again.

use kopf_apiserver::{Fault, Injection};
use kopf_core::log_level::Level;
use serde_json::json;

use crate::world::{World, handler};

const LAST: &str = "kopf.zalando.org/last-handled-configuration";

/// Creates an object while so many patches fail; returns the seconds until all is written. The handlers are called once.
async fn handled_in_spite_of(fault: Fault, times: u32) -> f64 {
    let mut world = World::new().await;
    world.serve(vec![handler("make", "create"), handler("change", "update")], |_| {}).await;
    let injection = Injection::always(fault).on_verb("patch").on_resource("widgets").times(times);
    world.server.faults().inject(injection);
    world.create("contended", json!({"x": 1})).await;
    let mut passed = 0.0;
    while !world.is_handled("contended").await {
        assert!(passed < 300.0, "it is never written");
        world.pass(0.2).await;
        passed += 0.2;
    }
    world.pass(30.0).await;
    assert_eq!(world.stage.called(0), 1, "the outcome is known");
    assert_eq!(world.stage.called(1), 0);
    passed
}

#[tokio::test]
async fn a_conflict_is_resolved() {
    let passed = handled_in_spite_of(Fault::Conflict, 1).await;
    assert!(passed < 1.0, "{passed}");
}

#[tokio::test]
async fn many_conflicts_are_resolved() {
    handled_in_spite_of(Fault::Conflict, 10).await;
}

#[tokio::test]
async fn a_rejected_patch_is_sent_again() {
    let passed = handled_in_spite_of(Fault::Code(422), 2).await;
    assert!((1.0..5.0).contains(&passed), "{passed}");
}

#[tokio::test]
async fn writes_are_retried_while_the_server_fails_for_minutes() {
    handled_in_spite_of(Fault::Code(500), 15).await;
}

#[tokio::test]
async fn a_deletion_is_released_in_spite_of_rejections() {
    let mut world = World::new().await;
    world.serve(vec![handler("on_delete", "delete")], |_| {}).await;
    world.create("parting", json!({})).await;
    world.until("the finalizer", |world| !world.asked("patch").is_empty()).await;
    world.settle().await;
    let injection = Injection::always(Fault::Code(422)).on_verb("patch").on_resource("widgets").times(5);
    world.server.faults().inject(injection);
    world.delete("parting").await;
    let mut passed = 0.0;
    while world.find("parting").await.is_some() {
        assert!(passed < 60.0, "it is stuck");
        world.pass(0.5).await;
        passed += 0.5;
    }
    assert_eq!(world.stage.called(0), 1);
}

#[tokio::test]
async fn removed_progress_is_kept_in_memory_and_written_again_later() {
    let mut world = World::new().await;
    world.serve(vec![handler("make", "create"), handler("change", "update")], |_| {}).await;
    world.create("stripped", json!({"x": 1})).await;
    world.until("the handling", |world| world.stage.called(0) == 1).await;
    world.settle().await;
    for _ in 0..5 {
        world.patch("stripped", json!({"metadata": {"annotations": {LAST: null}}})).await;
        world.pass(1.0).await;
        assert!(!world.is_handled("stripped").await, "no write race between two writers");
    }
    for _ in 0..12 {
        world.pass(0.5).await;
    }
    assert!(world.is_handled("stripped").await);
    assert_eq!((world.stage.called(0), world.stage.called(1)), (1, 0));
    assert!(world.stage.has_logged(Level::Warning, "Another client has removed"));
}

#[tokio::test]
async fn credentials_rejected_for_a_while_are_tried_again() {
    let mut world = World::new().await;
    world.serve(vec![handler("make", "create")], |_| {}).await;
    world.server.faults().inject(Injection::always(Fault::Code(401)));
    world.server.faults().cut_watches("widgets");
    for _ in 0..10 {
        world.pass(0.5).await;
    }
    world.server.faults().clear();
    world.create("late", json!({})).await;
    world.pass_until("the handling", 0.5, 30.0, |world| world.stage.called(0) == 1).await;
    assert!(world.stage.has_logged(Level::Warning, "The credentials are read again"));
}

#[tokio::test]
async fn a_conflicting_release_does_not_call_the_deletion_handlers_again() {
    let mut world = World::new().await;
    world.serve(vec![handler("clean", "delete")], |_| {}).await;
    world.create("contended", json!({})).await;
    world.settle().await;
    world.stage.hold();
    world.delete("contended").await;
    world.until("the deletion", |world| world.stage.held() == 1).await;
    world.patch("contended", json!({"metadata": {"labels": {"other": "was-here"}}})).await;
    world.settle().await;
    world.stage.release();
    world.settle().await;
    world.pass(20.0).await;
    assert!(world.find("contended").await.is_none(), "the object is released nevertheless");
    assert_eq!(world.stage.called(0), 1);
}

#[tokio::test]
async fn a_finalizer_that_is_needed_again_is_not_removed() {
    let mut world = World::new().await;
    let mut clean = handler("clean", "delete");
    clean["labels"] = json!([["kept", {"present": true}]]);
    let look = json!({"id": "look", "kind": "watching", "selector": clean["selector"]});
    world.serve(vec![clean, look], |_| {}).await;
    world.create("contended", json!({})).await;
    let keep = json!({"metadata": {"labels": {"kept": "yes"}}});
    world.patch("contended", keep.clone()).await;
    world.settle().await;
    world.stage.hold();
    world.patch("contended", json!({"metadata": {"labels": null}})).await;
    world.until("the look", |world| world.stage.held() == 1).await;
    world.patch("contended", keep).await;
    world.delete("contended").await;
    world.settle().await;
    world.stage.release();
    world.settle().await;
    world.pass(20.0).await;
    assert!(world.find("contended").await.is_none(), "the object is released in the end");
    assert_eq!(world.stage.called(0), 1);
}

#[tokio::test]
async fn a_deletion_with_a_rejected_write_does_not_call_its_handlers_again() {
    let mut world = World::new().await;
    world.serve(vec![handler("make", "create"), handler("clean", "delete")], |_| {}).await;
    world.stage.hold();
    world.create("short-lived", json!({})).await;
    world.until("the creation", |world| world.stage.held() == 1).await;
    let injection = Injection::always(Fault::Code(500)).on_verb("patch").on_resource("widgets").times(40);
    world.server.faults().inject(injection);
    world.stage.release();
    world.settle().await;
    // The results of the creation are still unwritten when the deletion handlers are done.
    world.delete("short-lived").await;
    let mut passed = 0.0;
    while world.find("short-lived").await.is_some() {
        assert!(passed < 300.0, "it is stuck");
        world.pass(0.5).await;
        passed += 0.5;
    }
    assert_eq!((world.stage.called(0), world.stage.called(1)), (1, 1));
}
