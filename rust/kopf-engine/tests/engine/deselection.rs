//! Objects that stop matching the derived selector, and objects that are deleted.

use kopf_apiserver::{Fault, Injection, LoggedRequest};
use kopf_core::cause::EventType;
use kopf_core::settings::Settings;
use serde_json::{Value, json};

use crate::fixture::{Fixture, handler};

const COLLECTION: &str = "/apis/example.com/v1/namespaces/default/widgets";
/// The handlers, by their indices.
const DELETE: usize = 2;
const EVENT: usize = 3;

/// Handlers of golden widgets.
fn golden() -> Vec<Value> {
    let ids = [("make", "create"), ("change", "update"), ("unmake", "delete")];
    let mut all: Vec<_> = ids.into_iter().map(|(id, reason)| handler(id, reason)).collect();
    let mut event = handler("see", "create");
    event["kind"] = json!("watching");
    all.push(event);
    for one in &mut all {
        one["labels"] = json!([["tier", {"equal": "gold"}]]);
    }
    all
}

fn derived(settings: &mut Settings) {
    settings.watching.derived_selectors = true;
}

/// The selector of the settings: widgets of one zone.
fn in_zone(settings: &mut Settings) {
    let watching = json!({"label_selectors": [[{"any_name": "widgets"}, "zone=a"]]});
    let more: Settings = serde_json::from_value(json!({"watching": watching})).unwrap();
    settings.watching.label_selectors = more.watching.label_selectors;
}

async fn create(fixture: &Fixture, name: &str, tier: &str) {
    let metadata = json!({"name": name, "labels": {"tier": tier}});
    let body = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {}});
    fixture.server.create(COLLECTION, &body).await.unwrap();
}

async fn label(fixture: &Fixture, name: &str, tier: &str) {
    fixture.patch(name, json!({"metadata": {"labels": {"tier": tier}}})).await;
}

async fn is_held(fixture: &Fixture, name: &str) -> bool {
    fixture.find(name).await.is_some_and(|object| object["metadata"]["finalizers"].is_array())
}

/// An operator that has handled a golden widget.
async fn with_one() -> Fixture {
    let mut fixture = Fixture::new().await;
    create(&fixture, "silver", "silver").await;
    create(&fixture, "one", "gold").await;
    fixture.serve(golden(), derived).await;
    fixture.until("the handling", |fixture| fixture.host.called(0) == 1).await;
    fixture.settle().await;
    assert!(is_held(&fixture, "one").await);
    fixture
}

fn events(fixture: &Fixture) -> Vec<EventType> {
    let calls = fixture.host.calls();
    calls.iter().filter(|call| call.handler == EVENT).map(|call| call.event).collect()
}

/// The listings and watches, apart from the search for owners of marked children.
fn selections(fixture: &Fixture) -> Vec<LoggedRequest> {
    let asked = [fixture.asked("list"), fixture.asked("watch")].concat();
    asked.into_iter().filter(|entry| !entry.query.contains("applyset.kubernetes.io")).collect()
}

/// The number of lookups of single objects.
fn lookups(fixture: &Fixture) -> usize {
    fixture.asked("list").iter().filter(|entry| entry.query.contains("metadata.name")).count()
}

#[tokio::test]
async fn only_objects_that_handlers_could_match_are_watched() {
    let fixture = with_one().await;
    let asked = selections(&fixture);
    // With handlers that hold deletions, there is one search for orphaned finalizers.
    let (narrow, wide): (Vec<_>, Vec<_>) =
        asked.iter().partition(|entry| entry.query.contains("labelSelector=tier%3Dgold"));
    assert_eq!((narrow.len(), wide.len()), (2, 1), "{asked:?}");
    assert!(wide[0].accept.contains("PartialObjectMetadataList"));
    assert!(fixture.host.calls().iter().all(|call| call.name == "one"));
}

#[tokio::test]
async fn without_finalizers_there_is_no_search_for_stale_finalizers() {
    let mut fixture = Fixture::new().await;
    let mut handlers = golden();
    handlers.remove(DELETE);
    create(&fixture, "one", "gold").await;
    fixture.serve(handlers, derived).await;
    fixture.until("the handling", |fixture| fixture.host.called(0) == 1).await;
    fixture.settle().await;
    let asked = selections(&fixture);
    assert!(asked.iter().all(|entry| entry.query.contains("labelSelector=tier%3Dgold")), "{asked:?}");
}

#[tokio::test]
async fn finalizers_of_unselected_objects_are_removed() {
    let mut fixture = Fixture::new().await;
    let finalizers = |name: &str| json!({"metadata": {"finalizers": [name]}});
    for name in ["ours", "foreign", "gold"] {
        create(&fixture, name, if name == "gold" { name } else { "silver" }).await;
    }
    for name in ["ours", "gold"] {
        fixture.patch(name, finalizers("kopf.zalando.org/KopfFinalizerMarker")).await;
    }
    fixture.patch("foreign", finalizers("example.com/other")).await;
    fixture.delete("ours").await;
    // With pages and failures.
    let tune = |settings: &mut Settings| {
        derived(settings);
        settings.watching.chunk_size = Some(1);
        settings.networking.error_backoffs = vec![].into();
    };
    let fault = Injection::always(Fault::Code(500)).on_verb("list").on_resource("widgets").times(4);
    fixture.server.faults().inject(fault.after(1));
    fixture.serve(golden(), tune).await;
    fixture.pass_until("the oblivion", 0.5, 120.0, |fixture| fixture.host.forgotten() == 1).await;
    fixture.settle().await;
    assert!(fixture.find("ours").await.is_none());
    assert!(is_held(&fixture, "foreign").await && is_held(&fixture, "gold").await);
    assert_eq!((fixture.host.called(DELETE), fixture.host.forgotten()), (0, 1));
    assert!(fixture.host.calls().iter().all(|call| call.name == "gold"));
}

#[tokio::test]
async fn a_search_for_stale_finalizers_whose_pages_expire_lists_all_objects_at_once() {
    let mut fixture = Fixture::new().await;
    for name in ["more", "other", "ours"] {
        create(&fixture, name, "silver").await;
    }
    let finalizers = json!(["kopf.zalando.org/KopfFinalizerMarker"]);
    fixture.patch("ours", json!({"metadata": {"finalizers": finalizers}})).await;
    let tune = |settings: &mut Settings| {
        derived(settings);
        settings.watching.chunk_size = Some(1);
    };
    // After the listing of the watch, the search for owners of marked children, and the first page of the search for finalizers.
    let expired = Injection::always(Fault::Code(410)).on_verb("list").on_resource("widgets").times(1);
    fixture.server.faults().inject(expired.after(3));
    fixture.serve(golden(), tune).await;
    fixture.pass_until("the oblivion", 0.5, 60.0, |fixture| fixture.host.forgotten() == 1).await;
    assert!(!is_held(&fixture, "ours").await);
    let asked = selections(&fixture).into_iter();
    let pages: Vec<_> = asked.filter(|entry| entry.accept.contains("PartialObjectMetadataList")).collect();
    let summary = |entry: &LoggedRequest| {
        (entry.code, entry.query.contains("limit="), entry.query.contains("continue="))
    };
    let expected = [(200, true, false), (410, true, true), (200, false, false)];
    assert_eq!(pages.iter().map(summary).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn deselected_objects_are_released_without_deletion_handlers() {
    let fixture = with_one().await;
    let before = events(&fixture);
    label(&fixture, "one", "silver").await;
    fixture.until("the oblivion", |fixture| fixture.host.forgotten() == 1).await;
    fixture.settle().await;
    assert!(!is_held(&fixture, "one").await);
    assert_eq!((fixture.host.called(DELETE), events(&fixture)), (0, before.clone()));
    // Once for the deselection, once for the result of our write.
    assert_eq!(lookups(&fixture), 2);
    // Changes outside of the selector are not delivered.
    fixture.patch("one", json!({"spec": {"x": 1}})).await;
    fixture.settle().await;
    assert_eq!(events(&fixture), before);
    label(&fixture, "one", "gold").await;
    fixture.until("the update", |fixture| fixture.host.called(1) == 1).await;
    assert_eq!(events(&fixture)[before.len()], EventType::Added);
    assert!(is_held(&fixture, "one").await);
}

#[tokio::test]
async fn a_deletion_is_handled_as_such() {
    let fixture = with_one().await;
    fixture.delete("one").await;
    fixture.until("the oblivion", |fixture| fixture.host.forgotten() == 1).await;
    assert_eq!(fixture.host.called(DELETE), 1);
    assert_eq!(events(&fixture).last(), Some(&EventType::Deleted));
    assert!(fixture.find("one").await.is_none());
}

#[tokio::test]
async fn deletions_outside_of_the_selector_are_not_handled() {
    let fixture = with_one().await;
    label(&fixture, "one", "silver").await;
    fixture.until("the oblivion", |fixture| fixture.host.forgotten() == 1).await;
    let before = events(&fixture);
    fixture.delete("one").await;
    fixture.settle().await;
    assert!(fixture.find("one").await.is_none());
    assert_eq!((fixture.host.called(DELETE), events(&fixture)), (0, before));
}

#[tokio::test]
async fn objects_deselected_between_two_listings_are_released() {
    let fixture = with_one().await;
    create(&fixture, "other", "gold").await;
    fixture.until("the handling", |fixture| fixture.host.called(0) == 2).await;
    fixture.settle().await;
    let before = events(&fixture);
    fixture.server.faults().inject(Injection::always(Fault::Silence).on_resource("widgets"));
    label(&fixture, "one", "silver").await;
    fixture.patch("other", json!({"metadata": {"finalizers": null}})).await;
    fixture.delete("other").await;
    fixture.server.compact();
    fixture.server.faults().clear();
    fixture.server.faults().cut_watches("widgets");
    fixture.pass_until("the oblivion", 0.1, 10.0, |fixture| fixture.host.forgotten() == 2).await;
    fixture.settle().await;
    assert!(!is_held(&fixture, "one").await);
    assert_eq!((fixture.host.called(DELETE), events(&fixture)), (0, before));
}

#[tokio::test]
async fn another_object_of_the_same_name_does_not_continue_the_deleted_one() {
    let fixture = with_one().await;
    fixture.server.faults().inject(Injection::always(Fault::Silence).on_resource("widgets"));
    fixture.patch("one", json!({"metadata": {"finalizers": null}})).await;
    fixture.delete("one").await;
    create(&fixture, "one", "silver").await;
    fixture.server.faults().clear();
    fixture.server.faults().cut_watches("widgets");
    fixture.pass_until("the oblivion", 0.1, 10.0, |fixture| fixture.host.forgotten() == 1).await;
    assert_eq!(events(&fixture).last(), Some(&EventType::Deleted));
    let calls = fixture.host.calls().len();
    fixture.patch("one", json!({"spec": {"x": 1}})).await;
    fixture.settle().await;
    assert_eq!(fixture.host.calls().len(), calls);
}

#[tokio::test]
async fn failed_lookups_are_retried() {
    let mut fixture = Fixture::new().await;
    create(&fixture, "one", "gold").await;
    let tune = |settings: &mut Settings| {
        derived(settings);
        settings.networking.error_backoffs = vec![1.0].into();
    };
    fixture.serve(golden(), tune).await;
    fixture.until("the handling", |fixture| fixture.host.called(0) == 1).await;
    fixture.settle().await;
    let fault = Injection::always(Fault::Code(500)).on_verb("list").on_resource("widgets").times(7);
    fixture.server.faults().inject(fault);
    label(&fixture, "one", "silver").await;
    fixture.pass_until("the oblivion", 0.5, 120.0, |fixture| fixture.host.forgotten() == 1).await;
    assert!(!is_held(&fixture, "one").await);
    assert_eq!(lookups(&fixture), 7 + 2);
}

#[tokio::test]
async fn objects_selected_again_before_the_lookup_are_not_deselected() {
    let fixture = with_one().await;
    fixture
        .server
        .faults()
        .inject(Injection::always(Fault::Code(500)).on_verb("list").on_resource("widgets"));
    label(&fixture, "one", "silver").await;
    fixture.until("the lookup", |fixture| lookups(fixture) == 1).await;
    fixture.patch("one", json!({"metadata": {"labels": {"tier": "gold"}}, "spec": {"x": 1}})).await;
    fixture.until("the update", |fixture| fixture.host.called(1) == 1).await;
    fixture.server.faults().clear();
    let asked = lookups(&fixture);
    for _ in 0..120 {
        fixture.pass(1.0).await;
    }
    // The attempt in progress is finished, but its result is ignored.
    assert!(lookups(&fixture) <= asked + 1);
    assert_eq!((fixture.host.forgotten(), fixture.host.called(DELETE)), (0, 0));
    assert!(is_held(&fixture, "one").await);
}

#[tokio::test]
async fn our_writes_to_deselected_objects_are_looked_up() {
    let fixture = with_one().await;
    fixture.host.hold();
    fixture.patch("one", json!({"spec": {"x": 1}})).await;
    fixture.until("the update", |fixture| fixture.host.held() > 0).await;
    // With event handlers.
    label(&fixture, "one", "silver").await;
    fixture.until("the lookup", |fixture| lookups(fixture) == 1).await;
    fixture.settle().await;
    fixture.host.release();
    fixture.until("the oblivion", |fixture| fixture.host.forgotten() == 1).await;
    assert!(!is_held(&fixture, "one").await);
    assert_eq!(fixture.host.called(DELETE), 0);
}

#[tokio::test]
async fn selectors_of_the_settings_are_not_looked_up() {
    let mut fixture = Fixture::new().await;
    create(&fixture, "one", "gold").await;
    fixture.patch("one", json!({"metadata": {"labels": {"zone": "a"}}})).await;
    let zone = |settings: &mut Settings| {
        derived(settings);
        in_zone(settings);
    };
    fixture.serve(golden(), zone).await;
    fixture.until("the handling", |fixture| fixture.host.called(0) == 1).await;
    fixture.settle().await;
    assert!(fixture.asked("watch")[0].query.contains("labelSelector=zone%3Da%2Ctier%3Dgold"));
    // For such a selector, an object that stops matching is handled as deleted, as in Kopf 1.45.
    fixture.patch("one", json!({"metadata": {"labels": {"zone": "b"}}})).await;
    fixture.until("the oblivion", |fixture| fixture.host.forgotten() == 1).await;
    assert_eq!(events(&fixture).last(), Some(&EventType::Deleted));
    assert!(is_held(&fixture, "one").await);
}

#[tokio::test]
async fn the_outcome_of_a_handler_is_written_to_an_object_that_leaves_the_selector_of_the_settings() {
    let mut fixture = Fixture::new().await;
    let zone = |zone: &str| json!({"metadata": {"labels": {"zone": zone}}});
    fixture.create("one", json!({"x": 1})).await;
    fixture.patch("one", zone("a")).await;
    fixture.host.hold();
    fixture.serve(vec![handler("make", "create")], in_zone).await;
    fixture.until("the call", |fixture| fixture.host.held() == 1).await;
    fixture.patch("one", zone("b")).await;
    fixture.settle().await;
    fixture.host.release();
    fixture.until("the oblivion", |fixture| fixture.host.forgotten() == 1).await;
    fixture.settle().await;
    assert!(fixture.is_handled("one").await, "{:?}", fixture.find("one").await);
    fixture.patch("one", zone("a")).await;
    fixture.pass(30.0).await;
    assert_eq!(fixture.host.called(0), 1, "{:?}", fixture.host.calls());
}

#[tokio::test]
async fn the_outcome_of_a_handler_is_dropped_if_its_object_is_deleted_under_a_selector_of_the_settings() {
    let mut fixture = Fixture::new().await;
    fixture.create("one", json!({"x": 1})).await;
    fixture.patch("one", json!({"metadata": {"labels": {"zone": "a"}}})).await;
    fixture.host.hold();
    fixture.serve(vec![handler("make", "create")], in_zone).await;
    fixture.until("the call", |fixture| fixture.host.held() == 1).await;
    fixture.delete("one").await;
    fixture.settle().await;
    fixture.host.release();
    fixture.until("the oblivion", |fixture| fixture.host.forgotten() == 1).await;
    let codes: Vec<_> = fixture.asked("patch").iter().map(|entry| entry.code).collect();
    assert_eq!(codes, [404], "only the server knows that the object is deleted");
}
