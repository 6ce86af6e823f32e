//! Many objects, many events, and limits.

use serde_json::json;

use crate::world::{World, handler};

#[tokio::test]
async fn the_limit_of_workers_is_kept_and_nobody_starves() {
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
async fn a_storm_of_changes_ends_with_the_last_state_of_each_object() {
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
    world.server.journal().clear();
    world.serve(vec![handler("make", "create")], |_| {}).await;
    world.pass(10.0).await;
    assert_eq!(world.stage.called(0), 20);
    assert!(world.asked("patch").is_empty());
}
