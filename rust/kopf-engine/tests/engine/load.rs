//! Many objects, many events, and limits.

use kopf_core::handling::attempt::CallResult;
use kopf_core::settings::Settings;
use serde_json::json;

use crate::fixture::{Fixture, handler};

// contract: engine 2.2
#[tokio::test]
async fn the_worker_limit_is_kept_and_all_objects_are_handled() {
    let mut fixture = Fixture::new().await;
    fixture.host.hold();
    fixture.serve(vec![handler("make", "create")], |settings| settings.queueing.worker_limit = Some(2)).await;
    for index in 0..7 {
        fixture.create(&format!("w{index}"), json!({})).await;
    }
    fixture.until("two workers", |fixture| fixture.host.held() == 2).await;
    fixture.settle().await;
    assert_eq!((fixture.host.held(), fixture.host.called(0)), (2, 2));
    fixture.host.release();
    fixture.pass_until("the others", 0.5, 60.0, |fixture| fixture.host.called(0) == 7).await;
    assert_eq!(fixture.host.most_held(), 2);
}

// contract: engine 2.2
#[tokio::test]
async fn a_burst_of_changes_ends_with_the_last_state_of_each_object() {
    const OBJECTS: usize = 50;
    const CHANGES: usize = 10;
    let mut fixture = Fixture::new().await;
    fixture.serve(vec![handler("make", "create"), handler("change", "update")], |_| {}).await;
    for round in 0..=CHANGES {
        for index in 0..OBJECTS {
            let name = format!("w{index}");
            if round == 0 {
                fixture.create(&name, json!({"x": 0})).await;
            } else {
                fixture.patch(&name, json!({"spec": {"x": round}})).await;
            }
        }
        tokio::task::yield_now().await;
    }
    let last = format!("{{\"x\":{CHANGES}}}");
    fixture
        .pass_until("the last states", 0.5, 120.0, |fixture| {
            let calls = fixture.host.calls();
            (0..OBJECTS).all(|index| {
                let name = format!("w{index}");
                let latest = calls.iter().rev().find(|call| call.name == name);
                latest.is_some_and(|call| call.spec.as_deref() == Some(&last))
            })
        })
        .await;
    fixture.settle().await;
    for index in 0..OBJECTS {
        assert!(fixture.is_handled(&format!("w{index}")).await, "w{index}");
    }
    assert_eq!(fixture.host.called(0), OBJECTS, "each is created once");
    let handlings = fixture.host.calls().len();
    assert_eq!(fixture.asked("patch").len(), handlings, "one patch per handling");
}

#[tokio::test]
async fn handled_objects_are_not_written_again_by_the_next_operator() {
    let mut fixture = Fixture::new().await;
    fixture.serve(vec![handler("make", "create")], |_| {}).await;
    for index in 0..20 {
        fixture.create(&format!("w{index}"), json!({})).await;
    }
    fixture.until("all of them", |fixture| fixture.host.called(0) == 20).await;
    fixture.settle().await;
    fixture.operator().stop();
    fixture.operator().finished().await.unwrap();
    fixture.server.request_log().clear();
    fixture.serve(vec![handler("make", "create")], |_| {}).await;
    fixture.pass(10.0).await;
    assert_eq!(fixture.host.called(0), 20);
    assert!(fixture.asked("patch").is_empty());
}

#[tokio::test]
async fn changes_are_handled_before_the_initial_objects() {
    let mut fixture = Fixture::new().await;
    for index in 0..9 {
        fixture.create(&format!("w{index}"), json!({"x": 0})).await;
    }
    fixture.host.hold();
    fixture.serve(vec![handler("make", "create")], |settings| settings.queueing.worker_limit = Some(1)).await;
    fixture.until("a worker", |fixture| fixture.host.held() == 1).await;
    fixture.settle().await;
    let begun: Vec<String> = fixture.host.calls().into_iter().map(|call| call.name).collect();
    let waits = |name: &String| !begun.contains(name);
    let changed = (0..9).rev().map(|index| format!("w{index}")).find(waits).unwrap();
    fixture.patch(&changed, json!({"spec": {"x": 1}})).await;
    fixture.settle().await;
    fixture.host.release();
    fixture.pass_until("all of them", 0.5, 60.0, |fixture| fixture.host.called(0) == 9).await;
    let calls = fixture.host.calls();
    assert_eq!((&calls[1].name, calls[1].spec.as_deref()), (&changed, Some("{\"x\":1}")));
    fixture.settle().await;
    for index in 0..9 {
        assert!(fixture.is_handled(&format!("w{index}")).await, "w{index}");
    }
    assert_eq!(fixture.host.called(0), 9);
}

#[tokio::test]
async fn objects_deleted_in_the_backlog_are_not_handled() {
    let mut fixture = Fixture::new().await;
    for index in 0..5 {
        fixture.create(&format!("w{index}"), json!({})).await;
    }
    fixture.host.hold();
    fixture.serve(vec![handler("make", "create")], |settings| settings.queueing.worker_limit = Some(1)).await;
    fixture.until("a worker", |fixture| fixture.host.held() == 1).await;
    fixture.settle().await;
    let begun = fixture.host.calls().remove(0).name;
    for name in (0..5).map(|index| format!("w{index}")).filter(|name| *name != begun) {
        fixture.delete(&name).await;
    }
    fixture.settle().await;
    fixture.host.release();
    fixture.pass(10.0).await;
    assert_eq!(fixture.host.called(0), 1);
    assert_eq!(fixture.host.forgotten(), 4);
}

#[tokio::test]
async fn a_retry_delay_does_not_hold_the_backlog() {
    let mut fixture = Fixture::new().await;
    for index in 0..4 {
        fixture.create(&format!("w{index}"), json!({})).await;
    }
    let later = || CallResult::Temporary { message: "later".to_owned(), delay: Some(1000.0) };
    fixture.host.let_raise(0, [later(), later()]);
    fixture.serve(vec![handler("make", "create")], |settings| settings.queueing.worker_limit = None).await;
    fixture.pass(1.0).await;
    assert_eq!(fixture.host.called(0), 4);
}

/// How many of 4 objects are handled by one worker while the handler of the first one is to be retried in 1000 seconds.
async fn handled_during_a_retry_delay(compat: bool) -> usize {
    let mut fixture = Fixture::new().await;
    let later = CallResult::Temporary { message: "later".to_owned(), delay: Some(1000.0) };
    fixture.host.let_raise(0, [later]);
    let limited = |settings: &mut Settings| {
        settings.queueing.worker_limit = Some(1);
        settings.compat = compat;
    };
    fixture.serve(vec![handler("make", "create")], limited).await;
    fixture.create("first", json!({})).await;
    fixture.until("its call", |fixture| fixture.host.called(0) == 1).await;
    fixture.settle().await;
    for index in 0..3 {
        fixture.create(&format!("w{index}"), json!({})).await;
    }
    fixture.pass(1.0).await;
    fixture.host.called(0)
}

#[tokio::test]
async fn objects_that_wait_for_a_retry_do_not_count_towards_the_worker_limit() {
    assert_eq!(handled_during_a_retry_delay(false).await, 4);
}

#[tokio::test]
async fn with_the_behaviour_of_kopf_1_45_objects_that_wait_for_a_retry_count_towards_the_worker_limit() {
    assert_eq!(handled_during_a_retry_delay(true).await, 1);
}

#[tokio::test]
async fn objects_that_wait_after_an_error_do_not_count_towards_the_worker_limit() {
    let mut fixture = Fixture::new().await;
    fixture.host.explode_on("script", 1);
    let limited = |settings: &mut Settings| {
        settings.queueing.worker_limit = Some(1);
        settings.queueing.error_delays = vec![1000.0];
    };
    fixture.serve(vec![handler("make", "create")], limited).await;
    fixture.create("poison", json!({})).await;
    fixture.settle().await;
    for index in 0..3 {
        fixture.create(&format!("w{index}"), json!({})).await;
    }
    fixture.pass(1.0).await;
    assert_eq!(fixture.host.called(0), 3);
    fixture.pass_until("the fourth", 10.0, 1200.0, |fixture| fixture.host.called(0) == 4).await;
}

#[tokio::test]
async fn the_worker_limit_is_kept_after_retry_delays() {
    let mut fixture = Fixture::new().await;
    let later = || CallResult::Temporary { message: "later".to_owned(), delay: Some(100.0) };
    fixture.host.let_raise(0, [later(), later(), later()]);
    fixture.serve(vec![handler("make", "create")], |settings| settings.queueing.worker_limit = Some(1)).await;
    for index in 0..3 {
        fixture.create(&format!("w{index}"), json!({})).await;
    }
    fixture.pass(1.0).await;
    assert_eq!(fixture.host.called(0), 3);
    fixture.host.hold();
    fixture.pass(200.0).await;
    assert_eq!((fixture.host.held(), fixture.host.called(0)), (1, 4));
    fixture.host.release();
    fixture.pass_until("the others", 0.5, 60.0, |fixture| fixture.host.called(0) == 6).await;
    for index in 0..3 {
        assert!(fixture.is_handled(&format!("w{index}")).await, "w{index}");
    }
}

#[tokio::test]
async fn a_hot_object_delays_no_others_and_is_handled_in_its_newest_state() {
    let mut fixture = Fixture::new().await;
    fixture.serve(vec![handler("make", "create"), handler("change", "update")], |_| {}).await;
    fixture.host.hold_only("hot");
    fixture.create("hot", json!({"x": 0})).await;
    fixture.until("its handler", |fixture| fixture.host.held() == 1).await;
    for round in 1..=300 {
        fixture.patch("hot", json!({"spec": {"x": round}})).await;
    }
    for index in 0..10 {
        fixture.create(&format!("w{index}"), json!({})).await;
    }
    fixture.until("the others", |fixture| fixture.host.called(0) == 11).await;
    fixture.host.release();
    fixture.until("its newest state", |fixture| fixture.host.called(1) == 1).await;
    fixture.settle().await;
    assert!(fixture.is_handled("hot").await);
    let hot: Vec<_> = fixture.host.calls().into_iter().filter(|call| call.name == "hot").collect();
    assert_eq!(hot.len(), 2);
    assert_eq!(hot[1].spec.as_deref(), Some("{\"x\":300}"));
}

#[tokio::test]
async fn a_slow_event_handler_gets_a_bounded_number_of_events_and_the_newest() {
    let mut fixture = Fixture::new().await;
    let watching = json!({
        "id": "peek", "key": 1, "kind": "watching",
        "selector": {"group": "example.com", "version": "v1", "plural": "widgets"},
    });
    fixture.serve(vec![watching], |_| {}).await;
    fixture.host.hold();
    fixture.create("hot", json!({"x": 0})).await;
    fixture.until("its handler", |fixture| fixture.host.held() == 1).await;
    for round in 1..=300 {
        fixture.patch("hot", json!({"spec": {"x": round}})).await;
    }
    fixture.settle().await;
    fixture.host.release();
    let is_newest =
        |fixture: &Fixture| fixture.host.calls().last().unwrap().spec.as_deref() == Some("{\"x\":300}");
    fixture.until("the newest state", is_newest).await;
    assert_eq!(fixture.host.called(0), 101);
}
