//! Writes that are rejected, fail, or whose responses are lost: finished handlers are not called again.

use kopf_apiserver::{Fault, Injection};
use kopf_core::log_level::Level;
use serde_json::json;

use crate::fixture::{Fixture, handler};

const LAST: &str = "kopf.zalando.org/last-handled-configuration";

/// Creates an object while so many patches fail; returns the seconds until all is written. The handlers are called once.
async fn handled_in_spite_of(fault: Fault, times: u32) -> f64 {
    let mut fixture = Fixture::new().await;
    fixture.serve(vec![handler("make", "create"), handler("change", "update")], |_| {}).await;
    let injection = Injection::always(fault).on_verb("patch").on_resource("widgets").times(times);
    fixture.server.faults().inject(injection);
    fixture.create("contended", json!({"x": 1})).await;
    let mut passed = 0.0;
    while !fixture.is_handled("contended").await {
        assert!(passed < 300.0, "it is never written");
        fixture.pass(0.2).await;
        passed += 0.2;
    }
    fixture.pass(30.0).await;
    assert_eq!(fixture.host.called(0), 1, "the outcome is known");
    assert_eq!(fixture.host.called(1), 0);
    passed
}

// contract: engine 8.4
#[tokio::test]
async fn a_conflict_is_resolved() {
    let passed = handled_in_spite_of(Fault::Conflict, 1).await;
    assert!(passed < 1.0, "{passed}");
}

// contract: engine 12
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
    let mut fixture = Fixture::new().await;
    fixture.serve(vec![handler("on_delete", "delete")], |_| {}).await;
    fixture.create("parting", json!({})).await;
    fixture.until("the finalizer", |fixture| !fixture.asked("patch").is_empty()).await;
    fixture.settle().await;
    let injection = Injection::always(Fault::Code(422)).on_verb("patch").on_resource("widgets").times(5);
    fixture.server.faults().inject(injection);
    fixture.delete("parting").await;
    let mut passed = 0.0;
    while fixture.find("parting").await.is_some() {
        assert!(passed < 60.0, "it is stuck");
        fixture.pass(0.5).await;
        passed += 0.5;
    }
    assert_eq!(fixture.host.called(0), 1);
}

#[tokio::test]
async fn removed_progress_is_kept_in_memory_and_written_again_later() {
    let mut fixture = Fixture::new().await;
    fixture.serve(vec![handler("make", "create"), handler("change", "update")], |_| {}).await;
    fixture.create("stripped", json!({"x": 1})).await;
    fixture.until("the handling", |fixture| fixture.host.called(0) == 1).await;
    fixture.settle().await;
    for _ in 0..5 {
        fixture.patch("stripped", json!({"metadata": {"annotations": {LAST: null}}})).await;
        fixture.pass(1.0).await;
        assert!(!fixture.is_handled("stripped").await, "no write race between two writers");
    }
    for _ in 0..12 {
        fixture.pass(0.5).await;
    }
    assert!(fixture.is_handled("stripped").await);
    assert_eq!((fixture.host.called(0), fixture.host.called(1)), (1, 0));
    assert!(fixture.host.has_logged(Level::Warning, "Another client has removed"));
}

#[tokio::test]
async fn credentials_rejected_for_a_while_are_tried_again() {
    let mut fixture = Fixture::new().await;
    fixture.serve(vec![handler("make", "create")], |_| {}).await;
    fixture.server.faults().inject(Injection::always(Fault::Code(401)));
    fixture.server.faults().cut_watches("widgets");
    for _ in 0..10 {
        fixture.pass(0.5).await;
    }
    fixture.server.faults().clear();
    fixture.create("late", json!({})).await;
    fixture.pass_until("the handling", 0.5, 30.0, |fixture| fixture.host.called(0) == 1).await;
    assert!(fixture.host.has_logged(Level::Warning, "The credentials are read again"));
}

// contract: engine 8.4
#[tokio::test]
async fn a_conflicting_release_does_not_call_the_deletion_handlers_again() {
    let mut fixture = Fixture::new().await;
    fixture.serve(vec![handler("clean", "delete")], |_| {}).await;
    fixture.create("contended", json!({})).await;
    fixture.settle().await;
    fixture.host.hold();
    fixture.delete("contended").await;
    fixture.until("the deletion", |fixture| fixture.host.held() == 1).await;
    fixture.patch("contended", json!({"metadata": {"labels": {"other": "was-here"}}})).await;
    fixture.settle().await;
    fixture.host.release();
    fixture.settle().await;
    fixture.pass(20.0).await;
    assert!(fixture.find("contended").await.is_none(), "the object is released nevertheless");
    assert_eq!(fixture.host.called(0), 1);
}

#[tokio::test]
async fn a_finalizer_that_is_needed_again_is_not_removed() {
    let mut fixture = Fixture::new().await;
    let mut clean = handler("clean", "delete");
    clean["labels"] = json!([["kept", {"present": true}]]);
    let look = json!({"id": "look", "kind": "watching", "selector": clean["selector"]});
    fixture.serve(vec![clean, look], |_| {}).await;
    fixture.create("contended", json!({})).await;
    let keep = json!({"metadata": {"labels": {"kept": "yes"}}});
    fixture.patch("contended", keep.clone()).await;
    fixture.settle().await;
    fixture.host.hold();
    fixture.patch("contended", json!({"metadata": {"labels": null}})).await;
    fixture.until("the look", |fixture| fixture.host.held() == 1).await;
    fixture.patch("contended", keep).await;
    fixture.delete("contended").await;
    fixture.settle().await;
    fixture.host.release();
    fixture.settle().await;
    fixture.pass(20.0).await;
    assert!(fixture.find("contended").await.is_none(), "the object is released in the end");
    assert_eq!(fixture.host.called(0), 1);
}

#[tokio::test]
async fn a_deletion_with_a_rejected_write_does_not_call_its_handlers_again() {
    let mut fixture = Fixture::new().await;
    fixture.serve(vec![handler("make", "create"), handler("clean", "delete")], |_| {}).await;
    fixture.host.hold();
    fixture.create("short-lived", json!({})).await;
    fixture.until("the creation", |fixture| fixture.host.held() == 1).await;
    let injection = Injection::always(Fault::Code(500)).on_verb("patch").on_resource("widgets").times(40);
    fixture.server.faults().inject(injection);
    fixture.host.release();
    fixture.settle().await;
    // The results of the creation are still unwritten when the deletion handlers are done.
    fixture.delete("short-lived").await;
    let mut passed = 0.0;
    while fixture.find("short-lived").await.is_some() {
        assert!(passed < 300.0, "it is stuck");
        fixture.pass(0.5).await;
        passed += 0.5;
    }
    assert_eq!((fixture.host.called(0), fixture.host.called(1)), (1, 1));
}
