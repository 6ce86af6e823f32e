//! Merge patches with leader election: their versions, and the fence.

use kopf_core::lease::Term;

use super::*;
use crate::fence::Fence;
use crate::time::clock::Clock;

/// The result and the requests of a patch of a replica: the method, and the version in the body.
async fn apply_as_replica(
    fence: Option<Arc<Fence>>,
    respond: impl Fn(&Got) -> FakeResponse + Send + Sync + Clone + 'static,
) -> (Result<WriteOutcome, PatchFailure>, Vec<(String, Value)>) {
    let fixture = Fixture::new(&json!({}), respond);
    let client = fixture.shared.base.client.clone().fenced_by(fence);
    let (things, fake) = (resource("example.com", "things", true), Arc::new(FakeHost::default()));
    let host: Arc<dyn Host> = fake;
    let patching = Patching {
        client: &client,
        host: &host,
        resource: &things,
        finalizer: "f",
        compat: false,
        is_versioned: true,
        is_deleted: &|| false,
        release_cleanup: None,
        handling: None,
        partial: None,
        conditions: None,
    };
    let object = Arc::new(Object::decode(&body("1", json!({})).to_string()).unwrap());
    let result = result_of(patching.apply(&object, 1, change(json!({"spec": {"a": 1}}))).await);
    let sent = |got: Got| (got.method, got.body["metadata"]["resourceVersion"].clone());
    (result, fixture.requests().into_iter().map(sent).collect())
}

/// LEA-5 and LEA-16.
#[tokio::test(start_paused = true)]
async fn a_patch_for_an_older_version_is_sent_again_with_the_latest_one() {
    let (result, requests) = apply_as_replica(None, |got| match &*got.method {
        "GET" => listed("2", json!({})),
        _ if got.body["metadata"]["resourceVersion"] == "2" => {
            (200, Some(body("3", json!({"spec": {"a": 1}}))))
        }
        _ => failure_response(409, None),
    })
    .await;
    assert_eq!(result.unwrap().latest.unwrap().resource_version(), Some("3"));
    let expected = [("PATCH", json!("1")), ("GET", Value::Null), ("PATCH", json!("2"))];
    assert_eq!(requests, expected.map(|(method, version)| (method.to_owned(), version)));
}

#[tokio::test(start_paused = true)]
async fn endless_conflicts_are_a_failure() {
    let (result, requests) = apply_as_replica(None, |got| match &*got.method {
        "GET" => listed("2", json!({})),
        _ => failure_response(409, None),
    })
    .await;
    let failure = result.unwrap_err();
    assert_eq!(failure.error.request().and_then(RequestError::status), Some(409));
    assert_eq!(Value::Object(failure.applied.unwritten), json!({"spec": {"a": 1}}));
    assert_eq!(requests.iter().filter(|(method, _)| method == "PATCH").count(), 4);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_while_the_fence_is_closed() {
    let clock = Clock::start();
    let fence = Arc::new(Fence::new(clock.clone()));
    let respond = |_: &Got| (200, Some(body("2", json!({"spec": {"a": 1}}))));
    let (result, requests) = apply_as_replica(Some(Arc::clone(&fence)), respond).await;
    let failure = result.unwrap_err();
    assert!(!failure.error.is_outcome_unknown() && !failure.error.is_rejection());
    assert_eq!(requests, []);
    assert!(fence.open(Term { number: 0, until: clock.boot_now().plus(10.0) }));
    let (result, requests) = apply_as_replica(Some(Arc::clone(&fence)), respond).await;
    assert!(result.is_ok() && requests.len() == 1);
    tokio::time::advance(std::time::Duration::from_secs(10)).await;
    let (result, requests) = apply_as_replica(Some(fence), respond).await;
    assert!(result.is_err() && requests.is_empty(), "its deadline has passed");
}

#[tokio::test(start_paused = true)]
async fn the_fence_is_passed_again_before_a_patch_is_repeated_after_a_conflict() {
    let clock = Clock::start();
    let fence = Arc::new(Fence::new(clock.clone()));
    assert!(fence.open(Term { number: 0, until: clock.boot_now().plus(10.0) }));
    let closing = Arc::clone(&fence);
    let (result, requests) = apply_as_replica(Some(fence), move |got| match &*got.method {
        "GET" => {
            closing.close();
            listed("2", json!({}))
        }
        _ => failure_response(409, None),
    })
    .await;
    assert!(result.is_err());
    assert_eq!(requests.iter().filter(|(method, _)| method == "PATCH").count(), 1);
}
