//! Delays, retries and back-offs, of the lengths used in production.

use kopf_core::handling::attempt::CallResult;
use serde_json::json;

use crate::fixture::{Fixture, handler};

const DAY: f64 = 86_400.0;

fn temporary(delay: f64) -> CallResult {
    CallResult::Temporary { message: "not yet".to_owned(), delay: Some(delay) }
}

fn arbitrary() -> CallResult {
    CallResult::Arbitrary { message: "oops".to_owned() }
}

// contract: engine 7.7
#[tokio::test]
async fn a_delay_of_three_days_takes_three_days() {
    let mut fixture = Fixture::new().await;
    fixture.host.let_raise(0, [temporary(3.0 * DAY)]);
    fixture.serve(vec![handler("make", "create")], |_| {}).await;
    fixture.create("slow", json!({"x": 1})).await;
    fixture.until("the first attempt", |fixture| fixture.host.called(0) == 1).await;
    fixture.pass_until("the second attempt", 600.0, 4.0 * DAY, |fixture| fixture.host.called(0) == 2).await;
    let calls = fixture.host.calls();
    let waited = calls[1].at - calls[0].at;
    assert!((3.0 * DAY..3.0 * DAY + 2400.0).contains(&waited), "waited {waited}");
    assert_eq!(calls[1].retry, 1);
    fixture.settle().await;
    assert!(fixture.is_handled("slow").await);
}

// contract: engine 7.8
#[tokio::test]
async fn exceptions_are_retried_after_the_back_off_up_to_the_limit() {
    let mut fixture = Fixture::new().await;
    fixture.host.let_raise(0, vec![arbitrary(); 10]);
    let mut limited = handler("make", "create");
    limited["backoff"] = json!(40);
    limited["retries"] = json!(3);
    fixture.serve(vec![limited], |_| {}).await;
    fixture.create("stubborn", json!({})).await;
    fixture.pass_until("three attempts", 1.0, 200.0, |fixture| fixture.host.called(0) == 3).await;
    let times: Vec<f64> = fixture.host.calls().iter().map(|call| call.at).collect();
    for pair in times.windows(2) {
        assert!((40.0..45.0).contains(&(pair[1] - pair[0])), "{times:?}");
    }
    fixture.pass(100.0).await;
    assert_eq!(fixture.host.called(0), 3, "the limit of retries");
    assert!(fixture.is_handled("stubborn").await, "a permanent failure ends the handling");
}

// contract: engine 7.7
#[tokio::test]
async fn a_sleeping_object_needs_no_requests() {
    let mut fixture = Fixture::new().await;
    fixture.host.let_raise(0, [temporary(60.0)]);
    fixture
        .serve(vec![handler("make", "create")], |settings| settings.watching.inactivity_timeout = None)
        .await;
    fixture.create("sleeper", json!({})).await;
    fixture.until("the attempt", |fixture| fixture.host.called(0) == 1).await;
    fixture.pass(1.0).await;
    let before = fixture.server.request_log().entries().len();
    for _ in 0..10 {
        fixture.pass(5.0).await;
    }
    assert_eq!(fixture.server.request_log().entries().len(), before);
    assert_eq!(fixture.host.called(0), 1);
}

// contract: engine 2.5, observed 7
#[tokio::test]
async fn a_change_wakes_a_sleeping_object_up() {
    let mut fixture = Fixture::new().await;
    fixture.host.let_raise(0, [temporary(DAY)]);
    fixture.serve(vec![handler("make", "create"), handler("change", "update")], |_| {}).await;
    fixture.create("sleeper", json!({"x": 1})).await;
    fixture.until("the attempt", |fixture| fixture.host.called(0) == 1).await;
    fixture.pass(1.0).await;
    let closed = fixture.host.closed();
    fixture.patch("sleeper", json!({"spec": {"x": 2}})).await;
    fixture.until("another cycle", |fixture| fixture.host.closed() > closed).await;
    fixture.settle().await;
    assert_eq!(fixture.host.called(0), 1, "the handler waits for its delay");
    fixture.pass_until("the second attempt", 600.0, 2.0 * DAY, |fixture| fixture.host.called(0) == 2).await;
    assert_eq!(fixture.host.calls().last().unwrap().spec.as_deref(), Some("{\"x\":2}"));
}
