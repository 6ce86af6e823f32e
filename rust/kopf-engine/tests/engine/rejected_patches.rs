//! Parts of patches that the server rejects: they block neither progress nor deletions, and are written later.

use kopf_apiserver::{Fault, Injection};
use kopf_core::log_level::Level;
use serde_json::{Value, json};

use crate::fixture::{Fixture, handler};

const CRD_PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";

fn anything() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn reject_status(fixture: &Fixture, code: u16) {
    let injection = Injection::always(Fault::Code(code)).on_verb("patch").on_resource("widgets/status");
    fixture.server.faults().inject(injection);
}

async fn until_handled(fixture: &Fixture, name: &str, at_most: f64) {
    let mut passed = 0.0;
    while !fixture.is_handled(name).await {
        assert!(passed < at_most, "{name} is not handled in {at_most} s: {:?}", fixture.find(name).await);
        fixture.pass(0.2).await;
        passed += 0.2;
    }
}

async fn until_status(fixture: &Fixture, name: &str, status: &Value, at_most: f64) {
    let mut passed = 0.0;
    while fixture.find(name).await.unwrap()["status"] != *status {
        assert!(passed < at_most, "{name} has no such status: {:?}", fixture.find(name).await);
        fixture.pass(0.5).await;
        passed += 0.5;
    }
}

/// Creation, update and deletion while writes of the status are rejected, and after that.
async fn nothing_is_blocked_by_a_status_rejected_with(code: u16) {
    let mut fixture = Fixture::with_status(anything()).await;
    let handlers =
        vec![handler("make", "create"), handler("change", "update"), handler("clean-up", "delete")];
    fixture.serve(handlers, |_| {}).await;
    for position in 0..3 {
        fixture.host.let_report(position, json!({ "by": position }));
    }
    reject_status(&fixture, code);
    fixture.create("going", json!({"x": 1})).await;
    fixture.create("staying", json!({"x": 1})).await;
    until_handled(&fixture, "going", 8.0).await;
    until_handled(&fixture, "staying", 8.0).await;
    fixture.patch("going", json!({"spec": {"x": 2}})).await;
    until_handled(&fixture, "going", 8.0).await;
    fixture.delete("going").await;
    fixture.settle().await;
    assert!(fixture.find("going").await.is_none(), "the deletion does not wait for anything");
    fixture.server.faults().clear();
    until_status(&fixture, "staying", &json!({"by": 0}), 60.0).await;
    fixture.pass(30.0).await;
    assert_eq!([0, 1, 2].map(|position| fixture.host.called(position)), [2, 1, 1]);
}

macro_rules! codes {
    ($($name:ident: $code:literal,)*) => {$(
        #[tokio::test]
        async fn $name() {
            nothing_is_blocked_by_a_status_rejected_with($code).await;
        }
    )*};
}

codes! {
    a_status_that_is_forbidden_holds_nothing: 403,
    a_status_that_is_not_found_holds_nothing: 404,
    a_status_whose_patches_are_not_allowed_holds_nothing: 405,
    a_status_with_conflicts_holds_nothing: 409,
    a_status_that_is_too_large_holds_nothing: 413,
    a_status_of_an_unsupported_media_type_holds_nothing: 415,
    a_status_that_is_invalid_holds_nothing: 422,
    a_status_that_is_limited_holds_nothing: 429,
    a_status_that_fails_holds_nothing: 500,
    a_status_that_is_unavailable_holds_nothing: 503,
}

#[tokio::test]
async fn a_missing_permission_for_the_status_is_logged_once_for_all_objects() {
    let mut fixture = Fixture::with_status(anything()).await;
    fixture.serve(vec![handler("make", "create")], |_| {}).await;
    fixture.host.let_report(0, json!({"by": 0}));
    reject_status(&fixture, 403);
    for number in 0..5 {
        fixture.create(&format!("one-{number}"), json!({})).await;
    }
    for _ in 0..20 {
        fixture.pass(5.0).await;
    }
    assert_eq!(fixture.host.called(0), 5);
    assert_eq!(fixture.host.count_logged("may not write the status of widgets"), 1);
    assert_eq!(fixture.host.count_logged("status 403"), 1);
    assert!(fixture.host.has_logged(Level::Warning, r#"resources: ["widgets/status"], verbs: ["patch"]"#));
    let asked = fixture.asked("patch").into_iter().filter(|entry| entry.path.ends_with("/status")).count();
    assert!(asked < 5 * 10, "the delays grow: {asked}");
}

#[tokio::test]
async fn a_field_rejected_by_the_schema_is_logged_and_written_when_accepted() {
    let mut status = anything();
    status["properties"] = json!({"greet": {"type": "integer"}});
    let mut fixture = Fixture::with_status(status).await;
    fixture.serve(vec![handler("make", "create"), handler("change", "update")], |_| {}).await;
    fixture.host.let_report(0, json!({"greet": "hello", "fine": 1}));
    fixture.create("one", json!({"x": 1})).await;
    until_handled(&fixture, "one", 2.0).await;
    assert_eq!(fixture.find("one").await.unwrap()["status"], json!({"fine": 1}));
    assert!(fixture.host.has_logged(Level::Warning, "The CRD's schema rejects status.greet: "));
    for _ in 0..60 {
        fixture.pass(1.0).await;
    }
    let lines = fixture.host.count_logged("The CRD's schema rejects status.greet: ");
    assert!((4..9).contains(&lines), "the delays grow: {lines}");
    // The next patch of the object contains it.
    let mut crd = fixture.server.get(CRD_PATH).await.unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] = anything();
    fixture.server.call("PUT", CRD_PATH, Some(&crd)).await.unwrap();
    fixture.settle().await;
    fixture.patch("one", json!({"spec": {"x": 2}})).await;
    until_status(&fixture, "one", &json!({"fine": 1, "greet": "hello"}), 3.0).await;
    assert_eq!((fixture.host.called(0), fixture.host.called(1)), (1, 1));
}

#[tokio::test]
async fn later_writes_of_other_clients_are_not_overwritten() {
    let mut fixture = Fixture::with_status(anything()).await;
    fixture.serve(vec![handler("make", "create")], |_| {}).await;
    fixture.host.let_report(0, json!({"by": 0}));
    reject_status(&fixture, 422);
    fixture.create("one", json!({"x": 1})).await;
    until_handled(&fixture, "one", 8.0).await;
    fixture.server.faults().clear();
    let path = "/apis/example.com/v1/namespaces/default/widgets/one/status";
    fixture.server.call("PATCH", path, Some(&json!({"status": {"by": 0}}))).await.unwrap();
    fixture.settle().await;
    fixture.server.call("PATCH", path, Some(&json!({"status": {"by": "others"}}))).await.unwrap();
    for _ in 0..20 {
        fixture.pass(1.0).await;
    }
    assert_eq!(fixture.find("one").await.unwrap()["status"], json!({"by": "others"}));
}

#[tokio::test]
async fn functions_with_rejected_results_are_retried_with_back_off_and_dropped() {
    let mut spec = anything();
    spec["properties"] = json!({"made": {"type": "integer"}});
    let mut fixture = Fixture::with_spec(spec).await;
    fixture.serve(vec![handler("make", "create"), handler("change", "update")], |_| {}).await;
    fixture.host.let_transform(Some(json!("text")));
    fixture.create("one", json!({"x": 1})).await;
    for _ in 0..30 {
        fixture.pass(1.0).await;
    }
    assert_eq!(fixture.host.transformed(), 5);
    assert_eq!(fixture.host.count_logged("The server rejects the result of the transformation functions"), 5);
    assert!(fixture.host.has_logged(Level::Error, "Throttling for 3 seconds"), "the delays grow");
    assert!(fixture.host.has_logged(Level::Error, "spec.made"), "the field is named");
    assert!(fixture.host.has_logged(Level::Error, "The functions are given up."));
    fixture.host.let_transform(None);
    fixture.patch("one", json!({"spec": {"x": 2}})).await;
    until_handled(&fixture, "one", 10.0).await;
    assert_eq!((fixture.host.called(0), fixture.host.called(1)), (1, 1));
}
