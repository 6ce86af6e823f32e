//! Watches that are closed, inactive, rejected, or too old.

use kopf_apiserver::{Fault, Injection};
use kopf_core::log_level::Level;
use serde_json::json;

use crate::world::{World, handler};

fn both() -> Vec<serde_json::Value> {
    vec![handler("make", "create"), handler("change", "update")]
}

#[tokio::test]
async fn a_closed_watch_resumes_from_its_last_version() {
    let mut world = World::new().await;
    world.serve(both(), |_| {}).await;
    world.create("first", json!({})).await;
    world.until("its handling", |world| world.stage.called(0) == 1).await;
    world.settle().await;
    let lists = world.asked("list").len();
    world.server.faults().cut_watches("widgets");
    world.create("second", json!({})).await;
    world.pass_until("its handling", 0.1, 10.0, |world| world.stage.called(0) == 2).await;
    assert_eq!(world.asked("list").len(), lists, "no event was lost: no relist");
    assert!(world.asked("watch").last().unwrap().query.contains("resourceVersion="));
}

#[tokio::test]
async fn a_version_that_is_too_old_leads_to_a_new_listing() {
    let mut world = World::new().await;
    world.serve(both(), |_| {}).await;
    world.create("old", json!({"x": 1})).await;
    world.until("its handling", |world| world.stage.called(0) == 1).await;
    world.settle().await;
    let lists = world.asked("list").len();
    world.server.faults().inject(Injection::always(Fault::Silence).on_resource("widgets"));
    world.patch("old", json!({"spec": {"x": 2}})).await;
    world.create("new", json!({})).await;
    world.server.compact();
    world.server.faults().clear();
    world.server.faults().cut_watches("widgets");
    world
        .pass_until("both handlings", 0.1, 10.0, |world| {
            world.stage.called(0) == 2 && world.stage.called(1) == 1
        })
        .await;
    assert_eq!(world.asked("list").len(), lists + 1);
}

#[tokio::test]
async fn an_inactive_watch_is_closed_after_the_inactivity_timeout() {
    let mut world = World::new().await;
    world.serve(both(), |settings| settings.watching.inactivity_timeout = Some(70.0)).await;
    let watches = world.asked("watch").len();
    world.server.faults().inject(Injection::always(Fault::Silence).on_resource("widgets"));
    world.create("unheard", json!({})).await;
    for _ in 0..6 {
        world.pass(10.0).await;
    }
    assert_eq!((world.stage.called(0), world.asked("watch").len()), (0, watches));
    world.server.faults().clear();
    // The broken connection stays broken: only a new one delivers events.
    world.pass_until("the handling", 1.0, 30.0, |world| world.stage.called(0) == 1).await;
}

/// Rejects three listings before one is answered; returns the seconds until then.
async fn listings_after(fault: Fault) -> f64 {
    let mut world = World::new().await;
    world.create("waiting", json!({})).await;
    let injection = Injection::always(fault).on_verb("list").on_resource("widgets").times(3);
    world.server.faults().inject(injection);
    world.start(both(), |_| {}).await;
    let passed = world.pass_until("the handling", 0.5, 120.0, |world| world.stage.called(0) == 1).await;
    let codes: Vec<u16> = world.asked("list").iter().map(|entry| entry.code).collect();
    assert_eq!((codes.len(), codes.last()), (4, Some(&200)), "{codes:?}");
    passed
}

#[tokio::test]
async fn listings_are_retried_after_the_delay_of_the_server() {
    let passed = listings_after(Fault::TooManyRequests(7)).await;
    assert!(passed >= 3.0 * 7.0, "asked for 7 seconds three times, came back after {passed}");
}

#[tokio::test]
async fn listings_are_retried_after_server_errors() {
    let passed = listings_after(Fault::Code(500)).await;
    assert!((3.0..30.0).contains(&passed), "{passed}");
}

#[tokio::test]
async fn rejected_watches_do_not_end_the_operator() {
    let mut world = World::new().await;
    let injection = Injection::always(Fault::Code(500)).on_verb("watch").on_resource("widgets").times(3);
    world.server.faults().inject(injection);
    world.start(both(), |_| {}).await;
    world
        .pass_until("the watch", 0.5, 120.0, |world| {
            world.asked("watch").last().is_some_and(|entry| entry.code == 200)
        })
        .await;
    assert!(world.stage.has_logged(Level::Error, "Cannot watch"));
    world.create("late", json!({})).await;
    world.pass_until("the handling", 0.5, 20.0, |world| world.stage.called(0) == 1).await;
}

#[tokio::test]
async fn objects_missing_in_a_new_listing_are_removed() {
    let mut world = World::new().await;
    world.serve(both(), |_| {}).await;
    world.create("here", json!({})).await;
    world.create("there", json!({})).await;
    world.until("both", |world| world.stage.called(0) == 2).await;
    world.settle().await;
    world.server.faults().inject(Injection::always(Fault::Silence).on_resource("widgets"));
    world.delete("there").await;
    world.server.compact();
    world.server.faults().clear();
    world.server.faults().cut_watches("widgets");
    world.pass_until("the oblivion", 0.1, 10.0, |world| world.stage.forgotten() == 1).await;
    assert_eq!(world.stage.called(0), 2, "the other object is not created again");
}

#[tokio::test]
async fn a_version_that_is_always_too_old_does_not_lead_to_endless_listings() {
    let mut world = World::new().await;
    world.serve(both(), |_| {}).await;
    let before = world.asked("list").len();
    world.server.faults().inject(Injection::always(Fault::Gone).on_verb("watch").on_resource("widgets"));
    world.server.faults().cut_watches("widgets");
    for _ in 0..300 {
        world.pass(0.2).await;
    }
    let lists = world.asked("list").len() - before;
    assert!((3..12).contains(&lists), "{lists} listings in a minute");
    world.server.faults().clear();
    world.create("late", json!({})).await;
    world.pass_until("the handling", 0.5, 60.0, |world| world.stage.called(0) == 1).await;
}

#[tokio::test]
async fn a_rejected_watch_resumes_from_its_last_version() {
    let mut world = World::new().await;
    world.serve(both(), |_| {}).await;
    let lists = world.asked("list").len();
    let injection = Injection::always(Fault::Code(503)).on_verb("watch").on_resource("widgets").times(3);
    world.server.faults().inject(injection);
    world.server.faults().cut_watches("widgets");
    world.create("meanwhile", json!({})).await;
    let passed = world.pass_until("the handling", 0.5, 60.0, |world| world.stage.called(0) == 1).await;
    assert!((8.0..12.0).contains(&passed), "after 1, 2, and 5 seconds: {passed}");
    assert_eq!(world.asked("list").len(), lists, "no relist");
}
