//! Delays, retries and back-offs, of the lengths used in production.

use kopf_core::handling::attempt::CallResult;
use serde_json::json;

use crate::world::{World, handler};

const DAY: f64 = 86_400.0;

fn temporary(delay: f64) -> CallResult {
    CallResult::Temporary { message: "not yet".to_owned(), delay: Some(delay) }
}

fn arbitrary() -> CallResult {
    CallResult::Arbitrary { message: "oops".to_owned() }
}

#[tokio::test]
async fn a_delay_of_three_days_takes_three_days() {
    let mut world = World::new().await;
    world.stage.let_raise(0, [temporary(3.0 * DAY)]);
    world.serve(vec![handler("make", "create")], |_| {}).await;
    world.create("slow", json!({"x": 1})).await;
    world.until("the first attempt", |world| world.stage.called(0) == 1).await;
    world.pass_until("the second attempt", 600.0, 4.0 * DAY, |world| world.stage.called(0) == 2).await;
    let calls = world.stage.calls();
    let waited = calls[1].at - calls[0].at;
    assert!((3.0 * DAY..3.0 * DAY + 2400.0).contains(&waited), "waited {waited}");
    assert_eq!(calls[1].retry, 1);
    world.settle().await;
    assert!(world.is_handled("slow").await);
}

#[tokio::test]
async fn exceptions_are_retried_after_the_back_off_up_to_the_limit() {
    let mut world = World::new().await;
    world.stage.let_raise(0, vec![arbitrary(); 10]);
    let mut limited = handler("make", "create");
    limited["backoff"] = json!(40);
    limited["retries"] = json!(3);
    world.serve(vec![limited], |_| {}).await;
    world.create("stubborn", json!({})).await;
    world.pass_until("three attempts", 1.0, 200.0, |world| world.stage.called(0) == 3).await;
    let times: Vec<f64> = world.stage.calls().iter().map(|call| call.at).collect();
    for pair in times.windows(2) {
        assert!((40.0..45.0).contains(&(pair[1] - pair[0])), "{times:?}");
    }
    world.pass(100.0).await;
    assert_eq!(world.stage.called(0), 3, "the limit of retries");
    assert!(world.is_handled("stubborn").await, "a permanent failure ends the handling");
}

#[tokio::test]
async fn a_sleeping_object_needs_no_requests() {
    let mut world = World::new().await;
    world.stage.let_raise(0, [temporary(60.0)]);
    world
        .serve(vec![handler("make", "create")], |settings| settings.watching.inactivity_timeout = None)
        .await;
    world.create("sleeper", json!({})).await;
    world.until("the attempt", |world| world.stage.called(0) == 1).await;
    world.pass(1.0).await;
    let before = world.server.request_log().entries().len();
    for _ in 0..10 {
        world.pass(5.0).await;
    }
    assert_eq!(world.server.request_log().entries().len(), before);
    assert_eq!(world.stage.called(0), 1);
}

#[tokio::test]
async fn a_change_wakes_a_sleeping_object_up() {
    let mut world = World::new().await;
    world.stage.let_raise(0, [temporary(DAY)]);
    world.serve(vec![handler("make", "create"), handler("change", "update")], |_| {}).await;
    world.create("sleeper", json!({"x": 1})).await;
    world.until("the attempt", |world| world.stage.called(0) == 1).await;
    world.pass(1.0).await;
    let closed = world.stage.closed();
    world.patch("sleeper", json!({"spec": {"x": 2}})).await;
    world.until("another cycle", |world| world.stage.closed() > closed).await;
    world.settle().await;
    assert_eq!(world.stage.called(0), 1, "the handler waits for its delay");
    world.pass_until("the second attempt", 600.0, 2.0 * DAY, |world| world.stage.called(0) == 2).await;
    assert_eq!(world.stage.calls().last().unwrap().spec.as_deref(), Some("{\"x\":2}"));
}
