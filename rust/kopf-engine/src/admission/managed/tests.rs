//! Managed configurations, from the creation to the clean-up, against scripted responses.

use std::sync::Mutex;

use kopf_core::json::value::Value;

use super::*;
use crate::fence::Fence;
use crate::testing::{FakeResponse, Fixture, Got, lock, resource};
use crate::time::clock::Clock;

const SETTINGS: &str = r#"{"networking": {"error_backoffs": []}}"#;

fn fixture(respond: impl Fn(&Got) -> FakeResponse + Send + Sync + Clone + 'static) -> Fixture {
    Fixture::new(&serde_json::from_str(SETTINGS).unwrap(), respond)
}

fn fine(_: &Got) -> FakeResponse {
    (200, Some(json!({})))
}

fn managed(fixture: &Fixture) -> Managed {
    managed_with(fixture, Some(REPETITION))
}

fn managed_with(fixture: &Fixture, repetition: Option<Duration>) -> Managed {
    let handlers = serde_json::from_value(json!([
        {"id": "v", "kind": "webhook", "reason": "validating"},
        {"id": "p", "kind": "webhook", "reason": "validating", "persistent": true},
    ]));
    let registry = Arc::new(Registry { handlers: handlers.unwrap() });
    let (client, host) = (fixture.shared.base.client.clone(), Arc::clone(&fixture.shared.base.host));
    Managed::new(client, host, registry, fixture.admission.subscribe(), "a.b.c".to_owned(), repetition)
}

fn serve(fixture: &Fixture, plural: &str) {
    fixture.admission.serve(AdmissionResources(vec![(resource("kopf.dev", plural, true), vec![0, 1])]));
}

fn publish_endpoint(fixture: &Fixture, url: &str) {
    fixture.admission.publish_endpoint(json!({"url": url}));
}

/// Runs until the management is idle or fails.
async fn run(managed: &mut Managed) -> Option<Failure> {
    timeout(Duration::from_secs(5), managed.run()).await.ok()
}

/// The methods and the paths of the requests since the previous call.
fn new_requests(fixture: &Fixture) -> Vec<String> {
    let requests = std::mem::take(&mut *lock(&fixture.requests));
    let kind = |got: &Got| got.path.trim_start_matches(COLLECTION).trim_start_matches('/').to_owned();
    requests.iter().map(|got| format!("{} {}", got.method, kind(got))).collect()
}

fn names(got: &Got) -> Vec<&str> {
    let webhooks = got.body["webhooks"].as_array().unwrap();
    webhooks.iter().map(|webhook| webhook["name"].as_str().unwrap()).collect()
}

// contract: api 9.3, observed 10
#[tokio::test(start_paused = true)]
async fn configurations_are_written_when_they_change_and_only_then() {
    let fixture = fixture(fine);
    let mut managed = managed(&fixture);
    publish_endpoint(&fixture, "https://one");
    assert!(run(&mut managed).await.is_none());
    assert!(new_requests(&fixture).is_empty(), "the cluster is not known yet");

    serve(&fixture, "ks");
    assert!(run(&mut managed).await.is_none());
    let [create, write] = ["POST", "PATCH"];
    assert_eq!(
        new_requests(&fixture),
        [
            format!("{create} validatingwebhookconfigurations"),
            format!("{create} mutatingwebhookconfigurations"),
            format!("{write} validatingwebhookconfigurations/a.b.c"),
            format!("{write} mutatingwebhookconfigurations/a.b.c"),
        ]
    );
    assert_eq!(fixture.lines("INFO Reconfiguring the validating webhook a.b.c.").len(), 1);

    let writes =
        |lines: Vec<String>| lines.into_iter().filter(|line| line.starts_with(write)).collect::<Vec<_>>();
    serve(&fixture, "ks");
    publish_endpoint(&fixture, "https://one");
    assert!(run(&mut managed).await.is_none());
    assert!(writes(new_requests(&fixture)).is_empty());

    publish_endpoint(&fixture, "https://two");
    assert!(run(&mut managed).await.is_none());
    // There are no mutating handlers, so the mutating configuration has not changed.
    assert_eq!(writes(new_requests(&fixture)), ["PATCH validatingwebhookconfigurations/a.b.c"]);
}

#[tokio::test(start_paused = true)]
async fn a_configuration_deleted_by_another_client_is_created_again() {
    let deleted = Arc::new(Mutex::new(true));
    let fixture = fixture(move |got| {
        let gone = got.method == "PATCH" && std::mem::take(&mut *lock(&deleted));
        (if gone { 404 } else { 200 }, Some(json!({})))
    });
    let mut managed = managed(&fixture);
    serve(&fixture, "ks");
    publish_endpoint(&fixture, "https://one");
    assert!(run(&mut managed).await.is_none());
    assert_eq!(
        new_requests(&fixture)[2..],
        [
            "PATCH validatingwebhookconfigurations/a.b.c",
            "POST validatingwebhookconfigurations",
            "PATCH validatingwebhookconfigurations/a.b.c",
            "PATCH mutatingwebhookconfigurations/a.b.c",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn existing_configurations_are_taken_over() {
    let fixture = fixture(|got| (if got.method == "POST" { 409 } else { 200 }, Some(json!({}))));
    let mut managed = managed(&fixture);
    serve(&fixture, "ks");
    publish_endpoint(&fixture, "https://one");
    assert!(run(&mut managed).await.is_none());
    assert_eq!(new_requests(&fixture).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn temporary_failures_are_retried() {
    let broken = Arc::new(Mutex::new(true));
    let fails = Arc::clone(&broken);
    let fixture = fixture(move |_| (if *lock(&fails) { 500 } else { 200 }, Some(json!({}))));
    let mut managed = managed(&fixture);
    serve(&fixture, "ks");
    publish_endpoint(&fixture, "https://one");
    assert!(run(&mut managed).await.is_none());
    assert_eq!(fixture.lines("Will try again in 10 seconds.").len(), 1);
    *lock(&broken) = false;
    assert!(timeout(Duration::from_secs(10), managed.run()).await.is_err());
    assert_eq!(
        new_requests(&fixture).last().map(String::as_str),
        Some("PATCH mutatingwebhookconfigurations/a.b.c")
    );
}

#[tokio::test(start_paused = true)]
async fn rejections_are_fatal_and_logged() {
    for (status, line) in [
        (
            403,
            Some(
                "ERROR Not enough RBAC permissions to create a validatingwebhookconfigurations.v1.admissionregistration.k8s.io.",
            ),
        ),
        (422, None),
    ] {
        let fixture = fixture(move |_| (status, Some(json!({}))));
        let mut managed = managed(&fixture);
        serve(&fixture, "ks");
        assert!(run(&mut managed).await.is_some());
        assert!(line.is_none_or(|line| !fixture.lines(line).is_empty()));
    }
}

#[tokio::test(start_paused = true)]
async fn only_persistent_webhooks_stay_after_the_exit() {
    let fixture = fixture(fine);
    let mut managed = managed(&fixture);
    managed.clean_up().await;
    assert!(new_requests(&fixture).is_empty(), "configurations that were never written are not cleaned up");

    serve(&fixture, "ks");
    publish_endpoint(&fixture, "https://one");
    assert!(run(&mut managed).await.is_none());
    assert_eq!(names(&fixture.requests()[2]), ["v.a.b.c", "p.a.b.c"]);
    new_requests(&fixture);
    managed.clean_up().await;
    let last: Vec<Got> = fixture.requests();
    assert_eq!((names(&last[0]), names(&last[1])), (vec!["p.a.b.c"], vec![]));
    assert_eq!(last[0].body["webhooks"][0]["clientConfig"], Value::clone(&json!({"url": "https://one/p"})));
    assert_eq!(fixture.lines("INFO Cleaning up the admission webhook a.b.c.").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn configurations_are_written_again_at_intervals() {
    for (repetition, repeated) in [(Some(REPETITION), 2), (None, 0)] {
        let fixture = fixture(fine);
        let mut managed = managed_with(&fixture, repetition);
        serve(&fixture, "ks");
        publish_endpoint(&fixture, "https://one");
        assert!(run(&mut managed).await.is_none());
        new_requests(&fixture);
        // Scans without changes do not delay it.
        let scans = async {
            for _ in 0..11 {
                serve(&fixture, "ks");
                tokio::time::sleep(Duration::from_mins(1)).await;
            }
        };
        let (ended, ()) = tokio::join!(timeout(Duration::from_mins(11), managed.run()), scans);
        assert!(ended.is_err());
        let writes: Vec<String> =
            new_requests(&fixture).into_iter().filter(|it| it.starts_with("PATCH")).collect();
        assert_eq!(writes.len(), repeated, "{writes:?}");
        assert_eq!(fixture.lines("INFO Reconfiguring").len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeated_write_that_is_rejected_is_logged_and_not_fatal() {
    let rejects = Arc::new(Mutex::new(false));
    let rejecting = Arc::clone(&rejects);
    let fixture = fixture(move |got| {
        let is_rejected = got.method == "PATCH" && *lock(&rejecting);
        (if is_rejected { 403 } else { 200 }, Some(json!({})))
    });
    let mut managed = managed(&fixture);
    serve(&fixture, "ks");
    publish_endpoint(&fixture, "https://one");
    assert!(run(&mut managed).await.is_none());
    *lock(&rejects) = true;
    assert!(timeout(Duration::from_mins(11), managed.run()).await.is_err());
    assert_eq!(fixture.lines("ERROR Cannot check the validating webhook a.b.c: APIForbiddenError").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_replica_whose_term_has_ended_leaves_its_webhooks_to_the_next_leader() {
    let fixture = fixture(fine);
    let mut managed = managed(&fixture);
    serve(&fixture, "ks");
    publish_endpoint(&fixture, "https://one");
    assert!(run(&mut managed).await.is_none());
    new_requests(&fixture);
    let fence = Arc::new(Fence::new(Clock::start()));
    managed.client = managed.client.clone().fenced_by(Some(fence));
    managed.clean_up().await;
    assert!(new_requests(&fixture).is_empty());
    assert!(fixture.lines("the admission webhook").is_empty());
}
