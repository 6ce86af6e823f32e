//! Many objects, many events, and limits.

use kopf_core::handling::attempt::CallResult;
use serde_json::json;

use crate::world::{World, handler};

#[tokio::test]
async fn the_worker_limit_is_kept_and_all_objects_are_handled() {
    let mut world = World::new().await;
    world.stage.hold();
    world.serve(vec![handler("make", "create")], |settings| settings.queueing.worker_limit = Some(2)).await;
    for index in 0..7 {
        world.create(&format!("w{index}"), json!({})).await;
    }
    world.until("two workers", |world| world.stage.held() == 2).await;
    world.settle().await;
    assert_eq!((world.stage.held(), world.stage.called(0)), (2, 2));
    world.stage.release();
    world.pass_until("the others", 0.5, 60.0, |world| world.stage.called(0) == 7).await;
    assert_eq!(world.stage.most_held(), 2);
}

#[tokio::test]
async fn a_burst_of_changes_ends_with_the_last_state_of_each_object() {
    const OBJECTS: usize = 50;
    const CHANGES: usize = 10;
    let mut world = World::new().await;
    world.serve(vec![handler("make", "create"), handler("change", "update")], |_| {}).await;
    for round in 0..=CHANGES {
        for index in 0..OBJECTS {
            let name = format!("w{index}");
            if round == 0 {
                world.create(&name, json!({"x": 0})).await;
            } else {
                world.patch(&name, json!({"spec": {"x": round}})).await;
            }
        }
        tokio::task::yield_now().await;
    }
    let last = format!("{{\"x\":{CHANGES}}}");
    world
        .pass_until("the last states", 0.5, 120.0, |world| {
            let calls = world.stage.calls();
            (0..OBJECTS).all(|index| {
                let name = format!("w{index}");
                let latest = calls.iter().rev().find(|call| call.name == name);
                latest.is_some_and(|call| call.spec.as_deref() == Some(&last))
            })
        })
        .await;
    world.settle().await;
    for index in 0..OBJECTS {
        assert!(world.is_handled(&format!("w{index}")).await, "w{index}");
    }
    assert_eq!(world.stage.called(0), OBJECTS, "each is created once");
    let handlings = world.stage.calls().len();
    assert_eq!(world.asked("patch").len(), handlings, "one patch per handling");
}

#[tokio::test]
async fn handled_objects_are_not_written_again_by_the_next_operator() {
    let mut world = World::new().await;
    world.serve(vec![handler("make", "create")], |_| {}).await;
    for index in 0..20 {
        world.create(&format!("w{index}"), json!({})).await;
    }
    world.until("all of them", |world| world.stage.called(0) == 20).await;
    world.settle().await;
    world.operator().stop();
    world.operator().finished().await.unwrap();
    world.server.request_log().clear();
    world.serve(vec![handler("make", "create")], |_| {}).await;
    world.pass(10.0).await;
    assert_eq!(world.stage.called(0), 20);
    assert!(world.asked("patch").is_empty());
}

#[tokio::test]
async fn changes_are_handled_before_the_initial_objects() {
    let mut world = World::new().await;
    for index in 0..9 {
        world.create(&format!("w{index}"), json!({"x": 0})).await;
    }
    world.stage.hold();
    world.serve(vec![handler("make", "create")], |settings| settings.queueing.worker_limit = Some(1)).await;
    world.until("a worker", |world| world.stage.held() == 1).await;
    world.settle().await;
    let begun: Vec<String> = world.stage.calls().into_iter().map(|call| call.name).collect();
    let waits = |name: &String| !begun.contains(name);
    let changed = (0..9).rev().map(|index| format!("w{index}")).find(waits).unwrap();
    world.patch(&changed, json!({"spec": {"x": 1}})).await;
    world.settle().await;
    world.stage.release();
    world.pass_until("all of them", 0.5, 60.0, |world| world.stage.called(0) == 9).await;
    let calls = world.stage.calls();
    assert_eq!((&calls[1].name, calls[1].spec.as_deref()), (&changed, Some("{\"x\":1}")));
    world.settle().await;
    for index in 0..9 {
        assert!(world.is_handled(&format!("w{index}")).await, "w{index}");
    }
    assert_eq!(world.stage.called(0), 9);
}

#[tokio::test]
async fn objects_deleted_in_the_backlog_are_not_handled() {
    let mut world = World::new().await;
    for index in 0..5 {
        world.create(&format!("w{index}"), json!({})).await;
    }
    world.stage.hold();
    world.serve(vec![handler("make", "create")], |settings| settings.queueing.worker_limit = Some(1)).await;
    world.until("a worker", |world| world.stage.held() == 1).await;
    world.settle().await;
    let begun = world.stage.calls().remove(0).name;
    for name in (0..5).map(|index| format!("w{index}")).filter(|name| *name != begun) {
        world.delete(&name).await;
    }
    world.settle().await;
    world.stage.release();
    world.pass(10.0).await;
    assert_eq!(world.stage.called(0), 1);
    assert_eq!(world.stage.forgotten(), 4);
}

#[tokio::test]
async fn a_retry_delay_does_not_hold_the_backlog() {
    let mut world = World::new().await;
    for index in 0..4 {
        world.create(&format!("w{index}"), json!({})).await;
    }
    let later = || CallResult::Temporary { message: "later".to_owned(), delay: Some(1000.0) };
    world.stage.let_raise(0, [later(), later()]);
    world.serve(vec![handler("make", "create")], |settings| settings.queueing.worker_limit = None).await;
    world.pass(1.0).await;
    assert_eq!(world.stage.called(0), 4);
}

#[tokio::test]
async fn a_hot_object_delays_no_others_and_is_handled_in_its_newest_state() {
    let mut world = World::new().await;
    world.serve(vec![handler("make", "create"), handler("change", "update")], |_| {}).await;
    world.stage.hold_only("hot");
    world.create("hot", json!({"x": 0})).await;
    world.until("its handler", |world| world.stage.held() == 1).await;
    for round in 1..=300 {
        world.patch("hot", json!({"spec": {"x": round}})).await;
    }
    for index in 0..10 {
        world.create(&format!("w{index}"), json!({})).await;
    }
    world.until("the others", |world| world.stage.called(0) == 11).await;
    world.stage.release();
    world.until("its newest state", |world| world.stage.called(1) == 1).await;
    world.settle().await;
    assert!(world.is_handled("hot").await);
    let hot: Vec<_> = world.stage.calls().into_iter().filter(|call| call.name == "hot").collect();
    assert_eq!(hot.len(), 2);
    assert_eq!(hot[1].spec.as_deref(), Some("{\"x\":300}"));
}

#[tokio::test]
async fn a_slow_event_handler_gets_a_bounded_number_of_events_and_the_newest() {
    let mut world = World::new().await;
    let watching = json!({
        "id": "peek", "key": 1, "kind": "watching",
        "selector": {"group": "example.com", "version": "v1", "plural": "widgets"},
    });
    world.serve(vec![watching], |_| {}).await;
    world.stage.hold();
    world.create("hot", json!({"x": 0})).await;
    world.until("its handler", |world| world.stage.held() == 1).await;
    for round in 1..=300 {
        world.patch("hot", json!({"spec": {"x": round}})).await;
    }
    world.settle().await;
    world.stage.release();
    let is_newest =
        |world: &World| world.stage.calls().last().unwrap().spec.as_deref() == Some("{\"x\":300}");
    world.until("the newest state", is_newest).await;
    assert_eq!(world.stage.called(0), 101);
}
