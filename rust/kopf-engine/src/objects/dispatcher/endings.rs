//! Objects in an error back-off that are deleted or handed over, and hand-overs of objects with daemons.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use kopf_core::activation::Completion;
use kopf_core::cause::EventType;
use kopf_core::handler::registry::ResourceHandlers;
use kopf_core::object::Object;
use serde_json::json;
use tokio::time::{Duration, advance};

use super::events::INJECTED_START_PANIC;
use super::pauses::{Scene, reply_to};
use crate::host::HostTask;
use crate::objects::dispatcher::Dispatcher;
use crate::testing::lock;

/// A scene with one object, which is held after an error for a long time.
async fn held(kinds: &[&str]) -> Scene {
    let scene = Scene::new(kinds, &json!({"queueing": {"error_delays": [600.0]}}));
    for task in scene.after(EventType::Added, "one").await {
        task.reply.send(Some(Completion { error: Some("boo".to_owned()), ..Completion::default() }));
    }
    assert!(scene.activations().await.is_empty() && !scene.is_idle());
    scene
}

fn successor(scene: &Scene, resource_handlers: ResourceHandlers) -> Arc<Dispatcher> {
    let shared = Arc::clone(&scene.fixture.shared);
    Dispatcher::new(shared, &crate::worker::Pool, Arc::new(resource_handlers), None)
}

/// Lets all handlers succeed; returns whether the host was notified of the end of the object.
async fn is_forgotten(scene: &Scene) -> bool {
    let mut is_forgotten = false;
    for _ in 0..300 {
        tokio::task::yield_now().await;
        let tasks = std::mem::take(&mut *lock(&scene.fixture.host.tasks));
        for task in tasks {
            match task {
                HostTask::Activation(activation) => reply_to(vec![activation], &json!({})),
                HostTask::ObjectDeleted(key) => is_forgotten |= *key == *"one",
                _ => {}
            }
        }
    }
    is_forgotten
}

#[tokio::test(start_paused = true)]
async fn the_slot_of_an_object_in_an_error_back_off_is_removed_with_its_deletion_event() {
    for kinds in [&["changing"][..], &["watching"]] {
        let scene = held(kinds).await;
        let text = r#"{"metadata": {"name": "one", "uid": "one", "resourceVersion": "2"}}"#;
        scene.dispatcher.dispatch(EventType::Deleted, Arc::new(Object::decode(text).unwrap()));
        assert!(is_forgotten(&scene).await && scene.is_idle() && scene.dispatcher.slots().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn the_slot_of_a_deleted_object_is_removed_after_a_panic_at_the_start_of_its_cycle() {
    let scene = Scene::new(&["changing"], &json!({"queueing": {"error_delays": []}}));
    reply_to(scene.after(EventType::Added, "one").await, &json!({}));
    assert!(!is_forgotten(&scene).await && scene.is_idle());
    INJECTED_START_PANIC.set(true);
    assert!(scene.after(EventType::Deleted, "one").await.is_empty());
    assert!(scene.is_idle() && scene.dispatcher.slots().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_slot_of_an_object_in_an_error_back_off_is_removed_if_a_listing_does_not_have_it() {
    let scene = held(&["changing"]).await;
    scene.dispatcher.slots().begin_listing(0, 0);
    let vanished = scene.dispatcher.slots().end_listing();
    scene.dispatcher.terminate_daemons(vanished);
    assert!(is_forgotten(&scene).await && scene.is_idle() && scene.dispatcher.slots().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_in_an_error_back_off_is_handed_over_at_once_and_handled_after_it() {
    let scene = held(&["changing"]).await;
    let next = successor(&scene, (*scene.dispatcher.resource_handlers).clone());
    scene.dispatcher.hand_over(&next);
    assert!(scene.activations().await.is_empty());
    assert_eq!((scene.dispatcher.slots().len(), next.slots().len()), (0, 1));
    let scene = Scene { dispatcher: next, ..scene };
    assert!(scene.after(EventType::Listed, "one").await.is_empty(), "the back-off lasts");
    advance(Duration::from_secs(601)).await;
    assert_eq!(scene.activations().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_objects_are_removed_if_the_successor_only_fills_caches() {
    let scene = Scene::new(&["changing"], &json!({}));
    reply_to(scene.after(EventType::Added, "one").await, &json!({}));
    let next = successor(&scene, scene.dispatcher.resource_handlers.restricted(vec![0], vec![], false));
    assert!(!is_forgotten(&scene).await);
    scene.dispatcher.hand_over(&next);
    assert!(is_forgotten(&scene).await && scene.is_idle());
    assert!(scene.dispatcher.slots().is_empty() && next.slots().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_after_a_pause_keeps_the_memory() {
    let scene = Scene::new(&["changing"], &json!({}));
    let pause = &scene.fixture.shared.pause;
    pause.turn("a test", true);
    pause.turn("a test", false);
    scene.dispatcher.slots().begin_listing(pause.count(), pause.terms());
    reply_to(scene.after(EventType::Added, "one").await, &json!({}));
    assert!(scene.activations().await.is_empty());
    let memory = format!("{:?}", scene.dispatcher.slots().get("one").unwrap().worker.memory);
    let next = successor(&scene, (*scene.dispatcher.resource_handlers).clone());
    scene.dispatcher.hand_over(&next);
    next.slots().begin_listing(pause.count(), pause.terms());
    assert_eq!(format!("{:?}", next.slots().get("one").unwrap().worker.memory), memory);
}
