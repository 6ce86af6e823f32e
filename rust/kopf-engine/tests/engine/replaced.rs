//! Objects that are deleted and created again while their handlers run: the writes for the first one do not reach the second one.

use kopf_apiserver::{Fault, Injection};
use kopf_core::handling::attempt::CallResult;
use kopf_core::log_level::Level;
use kopf_core::persistence::progress::ProgressStorage;
use kopf_core::settings::Settings;
use serde_json::{Value, json};

use crate::fixture::{Fixture, handler};

fn any() -> Value {
    json!({"x-kubernetes-preserve-unknown-fields": true, "type": "object"})
}

fn later() -> CallResult {
    CallResult::Temporary { message: "later".to_owned(), delay: Some(2.0) }
}

fn with_progress_in_status(settings: &mut Settings) {
    let storage = json!({"type": "Status", "field": ["status", "kopf"], "touch_field": ["status", "dummy"]});
    settings.persistence.progress_storage = serde_json::from_value::<ProgressStorage>(storage).unwrap();
}

/// Replaces an object while its handler runs, ends the handler, and returns the successor as it is then. With `is_silent`, the
/// operator does not receive the deletion.
async fn replaced(fixture: &mut Fixture, is_silent: bool, tune: impl FnOnce(&mut Settings)) -> Value {
    fixture.host.let_report(0, json!({"made": "by the first"}));
    fixture.serve(vec![handler("make", "create"), handler("change", "update")], tune).await;
    fixture.host.hold();
    fixture.create("same", json!({"x": 1})).await;
    fixture.until("the first call", |fixture| fixture.host.held() == 1).await;
    if is_silent {
        fixture.server.faults().inject(Injection::always(Fault::Silence).on_resource("widgets"));
    }
    fixture.delete("same").await;
    fixture.create("same", json!({"x": 2})).await;
    fixture.settle().await;
    fixture.host.release();
    fixture.settle().await;
    fixture.find("same").await.unwrap()
}

/// Waits until the successor is handled: by its own call, from the start.
async fn successor_is_handled(fixture: &Fixture) {
    let mut passed = 0.0;
    while !fixture.is_handled("same").await {
        assert!(passed < 60.0, "it is never handled: {:?}", fixture.find("same").await);
        fixture.pass(0.5).await;
        passed += 0.5;
    }
    let calls: Vec<_> =
        fixture.host.calls().iter().map(|call| (call.handler, call.spec.clone().unwrap())).collect();
    assert_eq!(calls, [(0, r#"{"x":1}"#.to_owned()), (0, r#"{"x":2}"#.to_owned())]);
    assert!(!fixture.host.has_logged(Level::Error, ""), "the deletion is no error");
}

/// The codes of the patches if the deletion is received.
async fn codes_after_deletion(mut fixture: Fixture) -> Vec<u16> {
    replaced(&mut fixture, false, |_| {}).await;
    successor_is_handled(&fixture).await;
    fixture.asked("patch").iter().map(|entry| entry.code).collect()
}

#[tokio::test]
async fn nothing_is_sent_for_an_object_whose_deletion_was_received() {
    assert_eq!(codes_after_deletion(Fixture::new().await).await, [200], "only the successor is patched");
}

#[tokio::test]
async fn no_status_is_sent_for_an_object_whose_deletion_was_received() {
    let codes = codes_after_deletion(Fixture::with_status(any()).await).await;
    assert_eq!(codes, [200, 200], "only the successor is patched");
}

#[tokio::test]
async fn the_server_rejects_a_patch_for_an_object_whose_deletion_was_not_received() {
    let mut fixture = Fixture::new().await;
    let successor = replaced(&mut fixture, true, |_| {}).await;
    assert!(successor.get("status").is_none() && successor["metadata"].get("annotations").is_none());
    let codes: Vec<_> = fixture.asked("patch").iter().map(|entry| entry.code).collect();
    assert_eq!(codes, [422]);
    fixture.server.faults().clear();
    fixture.server.faults().cut_watches("widgets");
    successor_is_handled(&fixture).await;
}

#[tokio::test]
async fn results_in_the_status_never_reach_the_successor() {
    let mut fixture = Fixture::with_status(any()).await;
    let successor = replaced(&mut fixture, true, |_| {}).await;
    assert!(successor.get("status").is_none(), "no foreign results: {successor}");
    assert!(
        successor["metadata"].get("annotations").is_none(),
        "no foreign progress and diff-base: {successor}"
    );
    let codes: Vec<_> = fixture.asked("patch").iter().map(|entry| entry.code).collect();
    assert_eq!(codes, [409], "the version of another object is another one");
    fixture.server.faults().clear();
    fixture.server.faults().cut_watches("widgets");
    successor_is_handled(&fixture).await;
}

#[tokio::test]
async fn later_results_in_the_status_never_reach_the_successor() {
    let mut fixture = Fixture::with_status(any()).await;
    fixture.host.let_report(0, json!({"made": "by the first"}));
    fixture.serve(vec![handler("make", "create"), handler("change", "update")], |_| {}).await;
    fixture.create("same", json!({"x": 1})).await;
    fixture.pass_until("the creation", 0.5, 30.0, |fixture| fixture.host.called(0) == 1).await;
    fixture.settle().await;
    assert!(fixture.is_handled("same").await);
    fixture.host.let_report(1, json!({"made": "later by the first"}));
    fixture.host.hold();
    fixture.patch("same", json!({"spec": {"x": 3}})).await;
    fixture.until("the update", |fixture| fixture.host.held() == 1).await;
    fixture.server.faults().inject(Injection::always(Fault::Silence).on_resource("widgets"));
    fixture.delete("same").await;
    fixture.create("same", json!({"x": 2})).await;
    fixture.patch_status("same", json!({"status": {"made": "by its own"}})).await;
    fixture.host.release();
    fixture.settle().await;
    let successor = fixture.find("same").await.unwrap();
    assert_eq!(successor["status"], json!({"made": "by its own"}));
    assert!(successor["metadata"].get("annotations").is_none(), "{successor}");
    assert_eq!(fixture.asked("patch").last().unwrap().code, 422, "the uid is tested");
}

#[tokio::test]
async fn changes_by_others_cost_no_further_requests_for_results() {
    let mut fixture = Fixture::with_status(any()).await;
    fixture.host.let_report(0, json!({"made": 1}));
    fixture.serve(vec![handler("make", "create"), handler("change", "update")], |_| {}).await;
    fixture.create("busy", json!({"x": 1})).await;
    fixture.pass_until("the creation", 0.5, 30.0, |fixture| fixture.host.called(0) == 1).await;
    fixture.settle().await;
    fixture.host.let_report(1, json!({"made": 2, "more": 1}));
    fixture.host.hold();
    fixture.patch("busy", json!({"spec": {"x": 2}})).await;
    fixture.until("the update", |fixture| fixture.host.held() == 1).await;
    let (patches, lists) = (fixture.asked("patch").len(), fixture.asked("list").len());
    fixture.patch_status("busy", json!({"status": {"by": "another"}})).await;
    fixture.host.release();
    fixture.settle().await;
    let object = fixture.find("busy").await.unwrap();
    assert_eq!(object["status"], json!({"made": 2, "more": 1, "by": "another"}));
    let sent = fixture.asked("patch").split_off(patches);
    let sent: Vec<_> = sent.iter().map(|entry| (entry.path.ends_with("/status"), entry.code)).collect();
    assert_eq!(sent, [(true, 200), (false, 200)]);
    assert_eq!(fixture.asked("list").len(), lists);
}

#[tokio::test]
async fn records_in_the_status_never_reach_the_successor() {
    let mut fixture = Fixture::with_status(any()).await;
    fixture.host.let_raise(0, [later()]);
    let successor = replaced(&mut fixture, true, with_progress_in_status).await;
    assert!(successor.get("status").is_none(), "{successor}");
    assert!(successor["metadata"].get("annotations").is_none(), "{successor}");
    fixture.server.faults().clear();
    fixture.server.faults().cut_watches("widgets");
    successor_is_handled(&fixture).await;
}

#[tokio::test]
async fn records_in_the_status_are_written_in_spite_of_concurrent_changes() {
    let mut fixture = Fixture::with_status(any()).await;
    fixture.host.let_raise(0, [later()]);
    fixture.host.let_report(0, json!({"made": 1}));
    fixture.serve(vec![handler("make", "create")], with_progress_in_status).await;
    fixture.host.hold();
    fixture.create("busy", json!({"x": 1})).await;
    fixture.until("the call", |fixture| fixture.host.held() == 1).await;
    fixture.patch("busy", json!({"metadata": {"labels": {"by": "another"}}})).await;
    fixture.host.release();
    fixture.settle().await;
    let patches = fixture.asked("patch");
    let codes: Vec<_> = patches.iter().map(|entry| (entry.path.ends_with("/status"), entry.code)).collect();
    assert_eq!(codes, [(true, 409), (true, 200)]);
    let object = fixture.find("busy").await.unwrap();
    assert!(object["status"]["kopf"]["make"]["retries"] == 1, "{object}");
    fixture.pass_until("the second call", 0.5, 30.0, |fixture| fixture.host.called(0) == 2).await;
    fixture.settle().await;
    assert_eq!(fixture.find("busy").await.unwrap()["status"]["made"], 1);
    assert!(fixture.is_handled("busy").await && !fixture.host.has_logged(Level::Warning, ""));
}
