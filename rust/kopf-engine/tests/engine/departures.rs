//! Objects that stop matching the derived selector, and objects that are deleted.

use kopf_apiserver::{Fault, Injection};
use kopf_core::cause::EventType;
use kopf_core::settings::Settings;
use serde_json::{Value, json};

use crate::world::{World, handler};

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

async fn create(world: &World, name: &str, tier: &str) {
    let metadata = json!({"name": name, "labels": {"tier": tier}});
    let body = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {}});
    world.server.create(COLLECTION, &body).await.unwrap();
}

async fn label(world: &World, name: &str, tier: &str) {
    world.patch(name, json!({"metadata": {"labels": {"tier": tier}}})).await;
}

async fn is_held(world: &World, name: &str) -> bool {
    world.find(name).await.is_some_and(|object| object["metadata"]["finalizers"].is_array())
}

/// An operator that has handled a golden widget.
async fn with_one() -> World {
    let mut world = World::new().await;
    create(&world, "silver", "silver").await;
    create(&world, "one", "gold").await;
    world.serve(golden(), derived).await;
    world.until("the handling", |world| world.stage.called(0) == 1).await;
    world.settle().await;
    assert!(is_held(&world, "one").await);
    world
}

fn events(world: &World) -> Vec<EventType> {
    let calls = world.stage.calls();
    calls.iter().filter(|call| call.handler == EVENT).map(|call| call.event).collect()
}

/// The number of lookups of single objects.
fn lookups(world: &World) -> usize {
    world.asked("list").iter().filter(|entry| entry.query.contains("metadata.name")).count()
}

#[tokio::test]
async fn only_objects_that_handlers_could_match_are_watched() {
    let world = with_one().await;
    let asked = [world.asked("list"), world.asked("watch")].concat();
    // With handlers that hold deletions, there is one search for orphaned finalizers.
    let (narrow, wide): (Vec<_>, Vec<_>) =
        asked.iter().partition(|entry| entry.query.contains("labelSelector=tier%3Dgold"));
    assert_eq!((narrow.len(), wide.len()), (2, 1), "{asked:?}");
    assert!(wide[0].accept.contains("PartialObjectMetadataList"));
    assert!(world.stage.calls().iter().all(|call| call.name == "one"));
}

#[tokio::test]
async fn without_finalizers_there_is_no_search_for_orphans() {
    let mut world = World::new().await;
    let mut handlers = golden();
    handlers.remove(DELETE);
    create(&world, "one", "gold").await;
    world.serve(handlers, derived).await;
    world.until("the handling", |world| world.stage.called(0) == 1).await;
    world.settle().await;
    let asked = [world.asked("list"), world.asked("watch")].concat();
    assert!(asked.iter().all(|entry| entry.query.contains("labelSelector=tier%3Dgold")), "{asked:?}");
}

#[tokio::test]
async fn orphans_are_released() {
    let mut world = World::new().await;
    let finalizers = |name: &str| json!({"metadata": {"finalizers": [name]}});
    for name in ["ours", "foreign", "gold"] {
        create(&world, name, if name == "gold" { name } else { "silver" }).await;
    }
    for name in ["ours", "gold"] {
        world.patch(name, finalizers("kopf.zalando.org/KopfFinalizerMarker")).await;
    }
    world.patch("foreign", finalizers("example.com/other")).await;
    world.delete("ours").await;
    // With pages and failures.
    let tune = |settings: &mut Settings| {
        derived(settings);
        settings.watching.chunk_size = Some(1);
        settings.networking.error_backoffs = vec![].into();
    };
    let fault = Injection::always(Fault::Code(500)).on_verb("list").on_resource("widgets").times(4);
    world.server.faults().inject(fault.after(1));
    world.serve(golden(), tune).await;
    world.pass_until("the oblivion", 0.5, 120.0, |world| world.stage.forgotten() == 1).await;
    world.settle().await;
    assert!(world.find("ours").await.is_none());
    assert!(is_held(&world, "foreign").await && is_held(&world, "gold").await);
    assert_eq!((world.stage.called(DELETE), world.stage.forgotten()), (0, 1));
    assert!(world.stage.calls().iter().all(|call| call.name == "gold"));
}

#[tokio::test]
async fn deselected_objects_are_released_without_deletion_handlers() {
    let world = with_one().await;
    let before = events(&world);
    label(&world, "one", "silver").await;
    world.until("the oblivion", |world| world.stage.forgotten() == 1).await;
    world.settle().await;
    assert!(!is_held(&world, "one").await);
    assert_eq!((world.stage.called(DELETE), events(&world)), (0, before.clone()));
    // Once for the deselection, once for the result of our write.
    assert_eq!(lookups(&world), 2);
    // Changes outside of the selector are not delivered.
    world.patch("one", json!({"spec": {"x": 1}})).await;
    world.settle().await;
    assert_eq!(events(&world), before);
    label(&world, "one", "gold").await;
    world.until("the update", |world| world.stage.called(1) == 1).await;
    assert_eq!(events(&world)[before.len()], EventType::Added);
    assert!(is_held(&world, "one").await);
}

#[tokio::test]
async fn a_deletion_is_handled_as_such() {
    let world = with_one().await;
    world.delete("one").await;
    world.until("the oblivion", |world| world.stage.forgotten() == 1).await;
    assert_eq!(world.stage.called(DELETE), 1);
    assert_eq!(events(&world).last(), Some(&EventType::Deleted));
    assert!(world.find("one").await.is_none());
}

#[tokio::test]
async fn deletions_outside_of_the_selector_are_not_handled() {
    let world = with_one().await;
    label(&world, "one", "silver").await;
    world.until("the oblivion", |world| world.stage.forgotten() == 1).await;
    let before = events(&world);
    world.delete("one").await;
    world.settle().await;
    assert!(world.find("one").await.is_none());
    assert_eq!((world.stage.called(DELETE), events(&world)), (0, before));
}

#[tokio::test]
async fn objects_deselected_between_two_listings_are_released() {
    let world = with_one().await;
    create(&world, "other", "gold").await;
    world.until("the handling", |world| world.stage.called(0) == 2).await;
    world.settle().await;
    let before = events(&world);
    world.server.faults().inject(Injection::always(Fault::Silence).on_resource("widgets"));
    label(&world, "one", "silver").await;
    world.patch("other", json!({"metadata": {"finalizers": null}})).await;
    world.delete("other").await;
    world.server.compact();
    world.server.faults().clear();
    world.server.faults().cut_watches("widgets");
    world.pass_until("the oblivion", 0.1, 10.0, |world| world.stage.forgotten() == 2).await;
    world.settle().await;
    assert!(!is_held(&world, "one").await);
    assert_eq!((world.stage.called(DELETE), events(&world)), (0, before));
}

#[tokio::test]
async fn another_object_of_the_same_name_does_not_continue_the_deleted_one() {
    let world = with_one().await;
    world.server.faults().inject(Injection::always(Fault::Silence).on_resource("widgets"));
    world.patch("one", json!({"metadata": {"finalizers": null}})).await;
    world.delete("one").await;
    create(&world, "one", "silver").await;
    world.server.faults().clear();
    world.server.faults().cut_watches("widgets");
    world.pass_until("the oblivion", 0.1, 10.0, |world| world.stage.forgotten() == 1).await;
    assert_eq!(events(&world).last(), Some(&EventType::Deleted));
    let calls = world.stage.calls().len();
    world.patch("one", json!({"spec": {"x": 1}})).await;
    world.settle().await;
    assert_eq!(world.stage.calls().len(), calls);
}

#[tokio::test]
async fn failed_lookups_are_retried() {
    let mut world = World::new().await;
    create(&world, "one", "gold").await;
    let tune = |settings: &mut Settings| {
        derived(settings);
        settings.networking.error_backoffs = vec![1.0].into();
    };
    world.serve(golden(), tune).await;
    world.until("the handling", |world| world.stage.called(0) == 1).await;
    world.settle().await;
    let fault = Injection::always(Fault::Code(500)).on_verb("list").on_resource("widgets").times(7);
    world.server.faults().inject(fault);
    label(&world, "one", "silver").await;
    world.pass_until("the oblivion", 0.5, 120.0, |world| world.stage.forgotten() == 1).await;
    assert!(!is_held(&world, "one").await);
    assert_eq!(lookups(&world), 7 + 2);
}

#[tokio::test]
async fn objects_selected_again_before_the_lookup_are_not_deselected() {
    let world = with_one().await;
    world.server.faults().inject(Injection::always(Fault::Code(500)).on_verb("list").on_resource("widgets"));
    label(&world, "one", "silver").await;
    world.until("the lookup", |world| lookups(world) == 1).await;
    world.patch("one", json!({"metadata": {"labels": {"tier": "gold"}}, "spec": {"x": 1}})).await;
    world.until("the update", |world| world.stage.called(1) == 1).await;
    world.server.faults().clear();
    let asked = lookups(&world);
    for _ in 0..120 {
        world.pass(1.0).await;
    }
    // The attempt in progress is finished, but its result is ignored.
    assert!(lookups(&world) <= asked + 1);
    assert_eq!((world.stage.forgotten(), world.stage.called(DELETE)), (0, 0));
    assert!(is_held(&world, "one").await);
}

#[tokio::test]
async fn our_writes_to_deselected_objects_are_looked_up() {
    let world = with_one().await;
    world.stage.hold();
    world.patch("one", json!({"spec": {"x": 1}})).await;
    world.until("the update", |world| world.stage.held() > 0).await;
    // With event handlers.
    label(&world, "one", "silver").await;
    world.until("the lookup", |world| lookups(world) == 1).await;
    world.settle().await;
    world.stage.release();
    world.until("the oblivion", |world| world.stage.forgotten() == 1).await;
    assert!(!is_held(&world, "one").await);
    assert_eq!(world.stage.called(DELETE), 0);
}

#[tokio::test]
async fn selectors_of_the_settings_are_not_looked_up() {
    let mut world = World::new().await;
    create(&world, "one", "gold").await;
    world.patch("one", json!({"metadata": {"labels": {"zone": "a"}}})).await;
    let zone = |settings: &mut Settings| {
        derived(settings);
        let watching = json!({"label_selectors": [[{"any_name": "widgets"}, "zone=a"]]});
        let more: Settings = serde_json::from_value(json!({"watching": watching})).unwrap();
        settings.watching.label_selectors = more.watching.label_selectors;
    };
    world.serve(golden(), zone).await;
    world.until("the handling", |world| world.stage.called(0) == 1).await;
    world.settle().await;
    assert!(world.asked("watch")[0].query.contains("labelSelector=zone%3Da%2Ctier%3Dgold"));
    // For such a selector, an object that stops matching is handled as deleted, as in Kopf 1.45.
    world.patch("one", json!({"metadata": {"labels": {"zone": "b"}}})).await;
    world.until("the oblivion", |world| world.stage.forgotten() == 1).await;
    assert_eq!(events(&world).last(), Some(&EventType::Deleted));
    assert!(is_held(&world, "one").await);
}
