//! Another operator that handles the same objects: one warning per resource.

use kopf_apiserver::{Fault, Injection};
use kopf_core::log_level::Level;
use serde_json::{Value, json};

use crate::fixture::{Fixture, handler};

const LAST: &str = "kopf.zalando.org/last-handled-configuration";
const WARNING: &str = "Another operator handles objects of Widget, too";

/// Another operator completes the handling of this object; with a progress record if `is_slow`.
async fn other_handles(fixture: &Fixture, name: &str, is_slow: bool, manager: &str) {
    let spec = fixture.find(name).await.unwrap()["spec"].clone();
    let record = json!({"started": "2100-01-01T00:00:00.000001+00:00", "purpose": "create", "retries": 1});
    let annotations = if is_slow {
        json!({"kopf.zalando.org/make": record.to_string()})
    } else {
        json!({LAST: json!({"spec": spec}).to_string()})
    };
    fixture.patch_as(name, json!({"metadata": {"annotations": annotations}}), manager).await;
}

/// Creates the object, and lets the other operator handle it while our handler runs.
async fn handled_twice(fixture: &Fixture, name: &str, is_slow: bool, manager: &str) {
    fixture.host.hold();
    fixture.create(name, json!({"x": 1})).await;
    fixture.until("the call", |fixture| fixture.host.held() == 1).await;
    other_handles(fixture, name, is_slow, manager).await;
    fixture.settle().await;
    fixture.host.release();
    fixture.settle().await;
}

async fn serving() -> Fixture {
    let mut fixture = Fixture::new().await;
    fixture.serve(vec![handler("make", "create"), handler("change", "update")], |_| {}).await;
    fixture
}

#[tokio::test]
async fn the_diffbase_of_another_operator_is_reported_once() {
    let fixture = serving().await;
    for name in ["a", "b", "c"] {
        handled_twice(&fixture, name, false, "kopf").await;
    }
    assert_eq!(fixture.host.count_logged(WARNING), 1);
    assert!(fixture.host.has_logged(Level::Warning, "it has written the last handled configuration"));
}

#[tokio::test]
async fn the_progress_of_another_operator_is_reported_once() {
    let fixture = serving().await;
    for name in ["a", "b", "c"] {
        handled_twice(&fixture, name, true, "kopf").await;
    }
    assert_eq!(fixture.host.count_logged(WARNING), 1);
    assert!(fixture.host.has_logged(Level::Warning, "it has written the progress of the handler 'make'"));
}

#[tokio::test]
async fn users_who_edit_annotations_are_not_reported() {
    let fixture = serving().await;
    handled_twice(&fixture, "a", false, "kubectl-annotate").await;
    handled_twice(&fixture, "b", true, "kubectl-annotate").await;
    assert_eq!(fixture.host.count_logged(WARNING), 0);
}

#[tokio::test]
async fn the_compatibility_mode_reports_nothing() {
    let mut fixture = Fixture::new().await;
    fixture.serve(vec![handler("make", "create")], |settings| settings.compat = true).await;
    handled_twice(&fixture, "a", false, "kopf").await;
    assert_eq!(fixture.host.count_logged(WARNING), 0);
}

/// Handles an object with retries while patches fail so; nothing is reported.
async fn is_silent_in_spite_of(fault: Fault) {
    let fixture = serving().await;
    let later =
        kopf_core::handling::attempt::CallResult::Temporary { message: "later".to_owned(), delay: Some(1.0) };
    fixture.host.let_raise(0, [later.clone(), later]);
    let injection = Injection::always(fault).on_verb("patch").on_resource("widgets").times(3);
    fixture.server.faults().inject(injection);
    fixture.create("alone", json!({"x": 1})).await;
    fixture.pass(1.0).await;
    fixture.server.faults().cut_watches("widgets");
    fixture.patch("alone", json!({"metadata": {"labels": {"by": "another"}}})).await;
    let mut passed = 0.0;
    while !fixture.is_handled("alone").await {
        assert!(passed < 120.0, "it is never handled: {:?}", fixture.find("alone").await);
        fixture.pass(0.5).await;
        passed += 0.5;
    }
    fixture.patch("alone", json!({"spec": {"x": 2}})).await;
    fixture.pass(30.0).await;
    let found: Option<Value> = fixture.find("alone").await;
    assert!(fixture.is_handled("alone").await, "{found:?}");
    assert_eq!(fixture.host.count_logged(WARNING), 0);
}

#[tokio::test]
async fn conflicts_are_not_reported() {
    is_silent_in_spite_of(Fault::Conflict).await;
}

#[tokio::test]
async fn failed_writes_are_not_reported() {
    is_silent_in_spite_of(Fault::Code(500)).await;
}

#[tokio::test]
async fn lost_responses_are_not_reported() {
    is_silent_in_spite_of(Fault::Lost).await;
}
