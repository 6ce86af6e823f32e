//! The accepted patches in the metrics.

use std::sync::atomic::Ordering;

use super::*;
use crate::metrics::{Samples, add_metrics};

/// The result of the patch in the metrics, if the server responds with the object in this version, or breaks the connection.
async fn counted_result(patch: Value, version: Option<&'static str>) -> String {
    let fixture = Fixture::new(&json!({}), move |_| match version {
        Some(version) => (200, Some(body(version, json!({})))),
        None => (200, None),
    });
    let operator = &fixture.shared.base.metrics;
    let metrics = operator.resources.named("things.example.com");
    metrics.is_handled.store(true, Ordering::Relaxed);
    let client = fixture.shared.base.client.counting_patches(&metrics);
    let (things, fake) = (resource("example.com", "things", true), Arc::new(FakeHost::default()));
    let host: Arc<dyn Host> = fake;
    let patching = Patching {
        client: &client,
        host: &host,
        resource: &things,
        finalizer: "f",
        compat: false,
        is_versioned: false,
        is_deleted: &|| false,
        release_cleanup: None,
        handling: None,
        partial: None,
        conditions: None,
    };
    let object = Arc::new(Object::decode(&body("1", json!({})).to_string()).unwrap());
    patching.apply(&object, 1, change(patch)).await;
    let mut text = String::new();
    add_metrics(&mut text, operator, &Samples::default());
    let counted =
        text.lines().filter(|line| line.starts_with("kopf_patches_total{") && !line.ends_with(" 0"));
    let counted: Vec<&str> =
        counted.filter_map(|line| line.split_once("part=")).map(|(_, rest)| rest).collect();
    counted.join(" ")
}

#[tokio::test(start_paused = true)]
async fn patches_that_change_nothing_are_counted_separately() {
    let patch = || json!({"spec": {"a": 1}});
    assert_eq!(counted_result(patch(), Some("2")).await, r#""body",result="applied"} 1"#);
    assert_eq!(counted_result(patch(), Some("1")).await, r#""body",result="noop"} 1"#);
    let without_response = counted_result(patch(), None).await;
    assert!(without_response.starts_with(r#""body",result="unknown"} "#), "{without_response}");
}
