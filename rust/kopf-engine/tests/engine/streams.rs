//! Watches that are closed, inactive, rejected, or too old.

use kopf_apiserver::{Fault, Injection};
use kopf_core::handling::attempt::CallResult;
use kopf_core::log_level::Level;
use serde_json::json;

use crate::fixture::{Fixture, handler};

fn both() -> Vec<serde_json::Value> {
    vec![handler("make", "create"), handler("change", "update")]
}

// contract: engine 1.8
#[tokio::test]
async fn a_closed_watch_resumes_from_its_last_version() {
    let mut fixture = Fixture::new().await;
    fixture.serve(both(), |_| {}).await;
    fixture.create("first", json!({})).await;
    fixture.until("its handling", |fixture| fixture.host.called(0) == 1).await;
    fixture.settle().await;
    let lists = fixture.asked("list").len();
    fixture.server.faults().cut_watches("widgets");
    fixture.create("second", json!({})).await;
    fixture.pass_until("its handling", 0.1, 10.0, |fixture| fixture.host.called(0) == 2).await;
    assert_eq!(fixture.asked("list").len(), lists, "no event was lost: no relist");
    assert!(fixture.asked("watch").last().unwrap().query.contains("resourceVersion="));
}

// contract: engine 1.8, observed 9
#[tokio::test]
async fn a_version_that_is_too_old_leads_to_a_new_listing() {
    let mut fixture = Fixture::new().await;
    fixture.serve(both(), |_| {}).await;
    fixture.create("old", json!({"x": 1})).await;
    fixture.until("its handling", |fixture| fixture.host.called(0) == 1).await;
    fixture.settle().await;
    let lists = fixture.asked("list").len();
    fixture.server.faults().inject(Injection::always(Fault::Silence).on_resource("widgets"));
    fixture.patch("old", json!({"spec": {"x": 2}})).await;
    fixture.create("new", json!({})).await;
    fixture.server.compact();
    fixture.server.faults().clear();
    fixture.server.faults().cut_watches("widgets");
    fixture
        .pass_until("both handlings", 0.1, 10.0, |fixture| {
            fixture.host.called(0) == 2 && fixture.host.called(1) == 1
        })
        .await;
    assert_eq!(fixture.asked("list").len(), lists + 1);
}

// contract: engine 1.8
#[tokio::test]
async fn an_inactive_watch_is_closed_after_the_inactivity_timeout() {
    let mut fixture = Fixture::new().await;
    fixture.serve(both(), |settings| settings.watching.inactivity_timeout = Some(70.0)).await;
    let watches = fixture.asked("watch").len();
    fixture.server.faults().inject(Injection::always(Fault::Silence).on_resource("widgets"));
    fixture.create("unheard", json!({})).await;
    for _ in 0..6 {
        fixture.pass(10.0).await;
    }
    assert_eq!((fixture.host.called(0), fixture.asked("watch").len()), (0, watches));
    fixture.server.faults().clear();
    // The broken connection stays broken: only a new one delivers events.
    fixture.pass_until("the handling", 1.0, 30.0, |fixture| fixture.host.called(0) == 1).await;
}

/// API servers send a bookmark per minute, so the default timeout must be longer.
#[tokio::test]
async fn bookmarks_keep_an_idle_watch_open_with_the_default_settings() {
    let mut fixture = Fixture::new().await;
    fixture.serve(both(), |_| {}).await;
    fixture.settle().await;
    let requests = |fixture: &Fixture| (fixture.asked("list").len(), fixture.asked("watch").len());
    let before = requests(&fixture);
    for _ in 0..60 {
        fixture.pass(10.0).await;
    }
    assert_eq!((requests(&fixture), before), ((1, 1), (1, 1)), "no reconnect in ten minutes");
    assert_eq!(fixture.host.count_logged("is inactive"), 0, "of any watch");
    fixture.create("last", json!({})).await;
    fixture.until("the handling", |fixture| fixture.host.called(0) == 1).await;
}

/// Rejects three listings before one is answered; returns the seconds until then.
async fn listings_after(fault: Fault) -> f64 {
    let mut fixture = Fixture::new().await;
    fixture.create("waiting", json!({})).await;
    let injection = Injection::always(fault).on_verb("list").on_resource("widgets").times(3);
    fixture.server.faults().inject(injection);
    fixture.start(both(), |_| {}).await;
    let passed = fixture.pass_until("the handling", 0.5, 120.0, |fixture| fixture.host.called(0) == 1).await;
    let codes: Vec<u16> = fixture.asked("list").iter().map(|entry| entry.code).collect();
    assert_eq!((codes.len(), codes.last()), (4, Some(&200)), "{codes:?}");
    passed
}

// contract: observed 17
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

// contract: engine 12
#[tokio::test]
async fn rejected_watches_do_not_end_the_operator() {
    let mut fixture = Fixture::new().await;
    let injection = Injection::always(Fault::Code(500)).on_verb("watch").on_resource("widgets").times(3);
    fixture.server.faults().inject(injection);
    fixture.start(both(), |_| {}).await;
    fixture
        .pass_until("the watch", 0.5, 120.0, |fixture| {
            fixture.asked("watch").last().is_some_and(|entry| entry.code == 200)
        })
        .await;
    assert!(fixture.host.has_logged(Level::Error, "Cannot watch"));
    fixture.create("late", json!({})).await;
    fixture.pass_until("the handling", 0.5, 20.0, |fixture| fixture.host.called(0) == 1).await;
}

#[tokio::test]
async fn objects_missing_in_a_new_listing_are_removed() {
    let mut fixture = Fixture::new().await;
    fixture.serve(both(), |_| {}).await;
    fixture.create("here", json!({})).await;
    fixture.create("there", json!({})).await;
    fixture.until("both", |fixture| fixture.host.called(0) == 2).await;
    fixture.settle().await;
    fixture.server.faults().inject(Injection::always(Fault::Silence).on_resource("widgets"));
    fixture.delete("there").await;
    fixture.server.compact();
    fixture.server.faults().clear();
    fixture.server.faults().cut_watches("widgets");
    fixture.pass_until("the oblivion", 0.1, 10.0, |fixture| fixture.host.forgotten() == 1).await;
    assert_eq!(fixture.host.called(0), 2, "the other object is not created again");
}

#[tokio::test]
async fn a_delayed_handler_is_not_called_for_an_object_that_a_new_listing_does_not_have() {
    let mut fixture = Fixture::new().await;
    fixture.host.let_raise(0, [CallResult::Temporary { message: "later".to_owned(), delay: Some(60.0) }]);
    fixture.serve(both(), |_| {}).await;
    fixture.create("there", json!({})).await;
    fixture.until("the call", |fixture| fixture.host.called(0) == 1).await;
    fixture.settle().await;
    fixture.server.faults().inject(Injection::always(Fault::Silence).on_resource("widgets"));
    fixture.delete("there").await;
    fixture.server.compact();
    fixture.server.faults().clear();
    fixture.server.faults().cut_watches("widgets");
    fixture.pass_until("the oblivion", 0.1, 10.0, |fixture| fixture.host.forgotten() == 1).await;
    fixture.pass(90.0).await;
    assert_eq!(fixture.host.called(0), 1);
}

#[tokio::test]
async fn a_version_that_is_always_too_old_does_not_lead_to_endless_listings() {
    let mut fixture = Fixture::new().await;
    fixture.serve(both(), |_| {}).await;
    let before = fixture.asked("list").len();
    fixture.server.faults().inject(Injection::always(Fault::Gone).on_verb("watch").on_resource("widgets"));
    fixture.server.faults().cut_watches("widgets");
    for _ in 0..300 {
        fixture.pass(0.2).await;
    }
    let lists = fixture.asked("list").len() - before;
    assert!((3..12).contains(&lists), "{lists} listings in a minute");
    fixture.server.faults().clear();
    fixture.create("late", json!({})).await;
    fixture.pass_until("the handling", 0.5, 60.0, |fixture| fixture.host.called(0) == 1).await;
}

#[tokio::test]
async fn a_rejected_watch_resumes_from_its_last_version() {
    let mut fixture = Fixture::new().await;
    fixture.serve(both(), |_| {}).await;
    let lists = fixture.asked("list").len();
    let injection = Injection::always(Fault::Code(503)).on_verb("watch").on_resource("widgets").times(3);
    fixture.server.faults().inject(injection);
    fixture.server.faults().cut_watches("widgets");
    fixture.create("meanwhile", json!({})).await;
    let passed = fixture.pass_until("the handling", 0.5, 60.0, |fixture| fixture.host.called(0) == 1).await;
    assert!((8.0..12.0).contains(&passed), "after 1, 2, and 5 seconds: {passed}");
    assert_eq!(fixture.asked("list").len(), lists, "no relist");
}
