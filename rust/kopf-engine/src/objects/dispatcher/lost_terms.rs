//! Lost terms of a leader election: what runs is cancelled, nothing is written, and the next term is a start.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kopf_core::activation::Command;
use kopf_core::cause::EventType;
use serde_json::json;
use tokio::time::{Duration, timeout};

use super::pauses::{Scene, reply_to};
use crate::host::{CancelCycleTask, HostTask};
use crate::metrics::{Samples, add_metrics};
use crate::testing::lock;

impl Scene {
    /// The lease is lost; returns the end of the lost term.
    fn lose(&self) -> impl Future<Output = ()> + use<> {
        let shared = std::sync::Arc::clone(&self.fixture.shared);
        shared.daemons.halt();
        shared.pause.stand_by(true);
        shared.base.term.end();
        async move {
            shared.detached.end_term().await;
            shared.base.term.left().await;
        }
    }

    /// The replica leads again, and lists the objects.
    fn lead(&self) {
        let shared = &self.fixture.shared;
        shared.base.term.begin();
        shared.pause.lead();
        self.dispatcher.slots().begin_listing(shared.pause.count(), shared.pause.terms());
    }

    /// The cancelled cycles since the last call, and how many cycles were closed.
    async fn cancelled(&self) -> (Vec<CancelCycleTask>, usize) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let tasks = std::mem::take(&mut *lock(&self.fixture.host.tasks));
        let closed = tasks.iter().filter(|task| matches!(task, HostTask::CycleClosed { .. })).count();
        let cancelled = tasks.into_iter().filter_map(|task| match task {
            HostTask::CancelCycle(cancelled) => Some(cancelled),
            _ => None,
        });
        (cancelled.collect(), closed)
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_handler_is_cancelled_and_called_again_in_the_next_term() {
    // A cycle without a worker, and one with a worker.
    for kinds in [&["watching"][..], &["changing"]] {
        let scene = Scene::new(kinds, &json!({}));
        let calls = scene.after(EventType::Added, "one").await;
        assert_eq!(calls.len(), 1);
        let mut end = Box::pin(scene.lose());
        assert!(futures::poll!(&mut end).is_pending());
        let (cancelled, closed) = scene.cancelled().await;
        assert_eq!((cancelled.len(), closed), (1, 0));
        assert_eq!(cancelled[0].cycle, calls[0].cycle);
        assert!(futures::poll!(&mut end).is_pending(), "the handler has not ended");
        // It has returned, although it was cancelled.
        reply_to(calls, &json!({"spec": {"by": "handler"}}));
        drop(cancelled);
        end.await;
        assert_eq!(scene.cancelled().await.1, 1);
        assert!(scene.is_idle() && scene.fixture.requests().is_empty(), "nothing is written");
        assert!(scene.after(EventType::Modified, "one").await.is_empty(), "it stands by");
        scene.lead();
        assert_eq!(scene.after(EventType::Listed, "one").await.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_counted() {
    for kinds in [&["watching"][..], &["changing"]] {
        let scene = Scene::new(kinds, &json!({}));
        let calls = scene.after(EventType::Added, "one").await;
        let mut end = Box::pin(scene.lose());
        assert!(futures::poll!(&mut end).is_pending());
        for cancelled in scene.cancelled().await.0 {
            cancelled.reply.send(Some(0));
        }
        end.await;
        drop(calls);
        let mut text = String::new();
        add_metrics(&mut text, &scene.fixture.shared.base.metrics, &Samples::default());
        let counted =
            format!("kopf_handler_calls_total{{handler=\"{}\",outcome=\"cancelled\"}} 1\n", kinds[0]);
        assert!(text.contains(&counted), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_deletion_is_not_handled_in_the_term_is_forgotten() {
    for kinds in [&["watching"][..], &["changing"], &["changing", "watching"]] {
        let scene = Scene::new(kinds, &json!({}));
        let calls = scene.after(EventType::Added, "one").await;
        assert_eq!(calls.len(), 1);
        assert!(scene.after(EventType::Deleted, "one").await.is_empty(), "the handler is running");
        let mut end = Box::pin(scene.lose());
        assert!(futures::poll!(&mut end).is_pending());
        drop((scene.cancelled().await, calls));
        assert!(timeout(Duration::from_mins(1), end).await.is_ok(), "no other cycle starts");
        let tasks = std::mem::take(&mut *lock(&scene.fixture.host.tasks));
        let is_deleted = |task: &HostTask| matches!(task, HostTask::ObjectDeleted(key) if **key == *"one");
        assert_eq!(tasks.iter().filter(|task| is_deleted(task)).count(), 1, "{kinds:?}");
        assert!(scene.is_idle() && scene.dispatcher.slots().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_handler_of_a_deletion_event_ends_with_the_term_and_the_object_is_forgotten() {
    let scene = Scene::new(&["watching"], &json!({}));
    let calls = scene.after(EventType::Deleted, "one").await;
    assert_eq!(calls.len(), 1);
    let mut end = Box::pin(scene.lose());
    assert!(futures::poll!(&mut end).is_pending());
    drop((scene.cancelled().await, calls));
    end.await;
    assert!(scene.is_idle() && scene.dispatcher.slots().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_waits_for_a_permit_is_handled_in_the_next_term() {
    let scene = Scene::new(&["changing"], &json!({"queueing": {"worker_limit": 1}}));
    let first = scene.after(EventType::Added, "first").await;
    assert!(scene.after(EventType::Added, "second").await.is_empty(), "there is one permit");
    let end = scene.lose();
    let (cancelled, _) = scene.cancelled().await;
    assert_eq!(cancelled.len(), 1);
    drop((first, cancelled));
    end.await;
    assert!(scene.activations().await.is_empty() && scene.is_idle());
    scene.lead();
    assert_eq!(scene.after(EventType::Listed, "second").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_handler_and_a_back_off_end_with_the_term() {
    let scene = Scene::new(&["changing"], &json!({}));
    let calls = scene.after(EventType::Added, "one").await;
    // The host has lost the activation: the object is held for a while.
    drop(calls);
    assert!(scene.activations().await.is_empty());
    assert!(!scene.is_idle(), "its worker sleeps");
    scene.lose().await;
    assert!(scene.activations().await.is_empty() && scene.is_idle());
    scene.lead();
    assert_eq!(scene.after(EventType::Listed, "one").await.len(), 1, "without a delay");
}

#[tokio::test(start_paused = true)]
async fn each_term_resumes_the_objects() {
    let scene = Scene::new(&["resuming"], &json!({}));
    for _ in 0..3 {
        assert_eq!(scene.after_handled(EventType::Listed, "one").await.len(), 1);
        let end = scene.lose();
        drop(scene.cancelled().await);
        end.await;
        scene.lead();
    }
}

#[tokio::test(start_paused = true)]
async fn a_patch_without_a_response_is_given_up() {
    let scene = Scene::new(&["changing"], &json!({}));
    let calls = scene.after(EventType::Added, "silent").await;
    reply_to(calls, &json!({"spec": {"by": "handler"}}));
    assert!(scene.activations().await.is_empty());
    assert_eq!(scene.fixture.requests().len(), 1);
    assert!(!scene.is_idle(), "it waits for the response");
    let end = scene.lose();
    drop(scene.cancelled().await);
    end.await;
    assert!(scene.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_standby_indexes_the_newest_state_of_an_object_and_calls_no_other_handler() {
    let scene = Scene::new(&["indexing", "changing"], &json!({}));
    scene.fixture.shared.pause.stand_by(true);
    let first = scene.after(EventType::Listed, "one").await;
    assert_eq!(first.len(), 1);
    assert!(matches!(first[0].activation.commands[..], [Command::CallIndexers(_)]));
    for _ in 0..3 {
        assert!(scene.after(EventType::Modified, "one").await.is_empty(), "one call at a time");
    }
    drop(first);
    let second = scene.activations().await;
    assert_eq!(second.len(), 1, "the newest state");
    scene.lead();
    assert!(scene.after(EventType::Listed, "one").await.is_empty(), "an index function is running");
    drop(second);
    let next = scene.activations().await;
    assert_eq!(next.len(), 1, "the cycle of the new leader");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_deleted_while_a_standby_indexes_it_is_forgotten() {
    let scene = Scene::new(&["indexing"], &json!({}));
    scene.fixture.shared.pause.stand_by(true);
    let calls = scene.after(EventType::Added, "one").await;
    assert_eq!(calls.len(), 1);
    assert!(scene.after(EventType::Deleted, "one").await.is_empty());
    drop(calls);
    assert!(scene.activations().await.is_empty());
    assert!(scene.is_idle() && scene.dispatcher.slots().is_empty());
}
