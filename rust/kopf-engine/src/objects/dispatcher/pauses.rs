//! Pauses of the operator: no handler is called and nothing is written, apart from what is running.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use kopf_core::activation::{Command, CommandResult, Completion};
use kopf_core::cause::EventType;
use kopf_core::handling::attempt::CallResult;
use kopf_core::object::Object;
use serde_json::{Value, json};

use crate::context::DetachedCycles as _;
use crate::host::{ActivationTask, HostTask};
use crate::objects::dispatcher::Dispatcher;
use crate::testing::{Fixture, lock, resource};

pub(super) struct Scene {
    pub(super) fixture: Fixture,
    pub(super) dispatcher: Arc<Dispatcher>,
}

impl Scene {
    pub(super) fn new(kinds: &[&str], settings: &Value) -> Self {
        let selector = json!({"group": "example.com", "version": "v1", "plural": "things"});
        let handlers = kinds.iter().map(|kind| {
            let (kind, reason) = if *kind == "resuming" { ("changing", "resume") } else { (*kind, "create") };
            let is_initial = reason == "resume";
            json!({"id": kind, "key": kind.len(), "kind": kind, "selector": selector, "initial": is_initial,
                "reason": (!is_initial).then_some(reason)})
        });
        let fixture = Fixture::with_handlers(handlers.collect(), settings, |got| {
            if got.path.ends_with("/silent") {
                return (0, None);
            }
            (200, Some(json!({"metadata": {"name": "x", "resourceVersion": "9"}, "body": got.body})))
        });
        let things = resource("example.com", "things", true);
        let handlers = fixture.shared.base.startup_config.registry.handlers_of(&things, &|_| true);
        let pool = &crate::worker::Pool;
        let dispatcher = Dispatcher::new(Arc::clone(&fixture.shared), pool, Arc::new(handlers), None);
        Self { fixture, dispatcher }
    }

    /// Begins a pause; or ends it, with the listing after it.
    fn pause(&self, is_on: bool) {
        let pause = &self.fixture.shared.pause;
        pause.turn("a test", is_on);
        if !is_on {
            self.dispatcher.slots().begin_listing(pause.count(), pause.terms());
        }
    }

    /// The activations after an event.
    pub(super) async fn after(&self, kind: EventType, name: &str) -> Vec<ActivationTask> {
        self.after_object(kind, &json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}}))
            .await
    }

    /// The activations after an event of an object that was handled before.
    pub(super) async fn after_handled(&self, kind: EventType, name: &str) -> Vec<ActivationTask> {
        let annotations = json!({"kopf.zalando.org/last-handled-configuration": "{}"});
        let metadata = json!({"name": name, "uid": name, "resourceVersion": "1", "annotations": annotations});
        self.after_object(kind, &json!({"metadata": metadata})).await
    }

    async fn after_object(&self, kind: EventType, object: &Value) -> Vec<ActivationTask> {
        self.dispatcher.dispatch(kind, Arc::new(Object::decode(&object.to_string()).unwrap()));
        self.activations().await
    }

    /// The activations since the last call.
    pub(super) async fn activations(&self) -> Vec<ActivationTask> {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let tasks = std::mem::take(&mut *lock(&self.fixture.host.tasks));
        let activations = tasks.into_iter().filter_map(|task| match task {
            HostTask::Activation(activation) => Some(activation),
            _ => None,
        });
        activations.collect()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.fixture.shared.workers.is_empty() && self.dispatcher.slots().busy().is_empty()
    }
}

/// Ends the calls of an activation with this patch.
pub(super) fn reply_to(mut tasks: Vec<ActivationTask>, patch: &Value) {
    let now = crate::time::clock::Clock::start().now();
    let task = tasks.remove(0);
    assert!(tasks.is_empty(), "one object at a time");
    let results = task.activation.commands.iter().map(|command| match command {
        Command::CallEventHandler { attempt, .. } | Command::CallChangeHandler { attempt } => {
            CommandResult::Attempted(attempt.evaluate(&CallResult::Nothing, now).outcome)
        }
        _ => CommandResult::Skipped,
    });
    let (results, patch) = (results.collect(), patch.as_object().cloned());
    task.reply.send(Some(Completion { results, patch, ..Completion::default() }));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_waits_for_a_permit_is_handled_after_the_pause() {
    let scene = Scene::new(&["changing"], &json!({"queueing": {"worker_limit": 1}}));
    let first = scene.after(EventType::Added, "first").await;
    assert!(scene.after(EventType::Added, "second").await.is_empty(), "there is one permit");
    scene.pause(true);
    reply_to(first, &json!({"spec": {"by": "first"}}));
    assert!(scene.activations().await.is_empty());
    let requests = scene.fixture.requests();
    assert_eq!(requests.len(), 1, "the handler was running, so its outcome is written");
    assert!(scene.is_idle());
    scene.pause(false);
    assert_eq!(scene.after(EventType::Listed, "second").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn event_handlers_are_not_called_for_an_object_that_waits_for_a_permit() {
    let scene = Scene::new(&["changing", "watching"], &json!({"queueing": {"worker_limit": 1}}));
    let first = scene.after(EventType::Added, "first").await;
    assert!(scene.after(EventType::Added, "second").await.is_empty());
    scene.pause(true);
    reply_to(first, &Value::Null);
    assert!(scene.activations().await.is_empty(), "neither event handlers nor change handlers");
    assert!(scene.fixture.requests().is_empty() && scene.is_idle());
}

#[tokio::test(start_paused = true)]
async fn change_handlers_do_not_follow_an_event_handler_that_runs_when_the_pause_begins() {
    let scene = Scene::new(&["watching", "changing"], &json!({}));
    let calls = scene.after(EventType::Added, "one").await;
    scene.pause(true);
    reply_to(calls, &json!({"spec": {"by": "event"}}));
    assert!(scene.activations().await.is_empty());
    let bodies: Vec<_> = scene.fixture.requests().into_iter().map(|got| got.body["spec"].clone()).collect();
    assert_eq!(bodies, [json!({"by": "event"})]);
    assert!(scene.is_idle());
}

#[tokio::test(start_paused = true)]
async fn change_handlers_do_not_follow_an_event_handler_that_outlasts_a_pause() {
    let scene = Scene::new(&["watching", "changing"], &json!({}));
    let calls = scene.after(EventType::Added, "one").await;
    scene.pause(true);
    scene.pause(false);
    // Another operator has handled the object during the pause.
    assert!(scene.after_handled(EventType::Listed, "one").await.is_empty(), "one cycle at a time");
    reply_to(calls, &Value::Null);
    let calls = scene.activations().await;
    assert_eq!((calls.len(), calls[0].event), (1, EventType::Listed));
    assert!(matches!(calls[0].activation.commands[..], [Command::CallEventHandler { .. }]));
    reply_to(calls, &Value::Null);
    assert!(scene.activations().await.is_empty() && scene.fixture.requests().is_empty() && scene.is_idle());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_waits_for_a_permit_longer_than_a_pause_is_handled_in_its_new_state() {
    let scene = Scene::new(&["changing"], &json!({"queueing": {"worker_limit": 1}}));
    let first = scene.after(EventType::Added, "first").await;
    assert!(scene.after(EventType::Added, "second").await.is_empty(), "there is one permit");
    scene.pause(true);
    scene.pause(false);
    assert!(scene.after_handled(EventType::Listed, "second").await.is_empty());
    reply_to(first, &Value::Null);
    assert!(scene.activations().await.is_empty(), "another operator has handled it during the pause");
    assert!(scene.is_idle());
}

#[tokio::test(start_paused = true)]
async fn events_that_are_received_during_a_pause_are_dropped_apart_from_deletions() {
    for kinds in [&["watching"][..], &["watching", "changing"]] {
        let scene = Scene::new(kinds, &json!({}));
        scene.pause(true);
        assert!(scene.after(EventType::Added, "one").await.is_empty());
        assert!(scene.after(EventType::Modified, "one").await.is_empty());
        assert!(scene.is_idle());
        let deletion = scene.after(EventType::Deleted, "one").await;
        assert_eq!((deletion.len(), deletion[0].event), (1, EventType::Deleted));
        scene.pause(false);
        assert_eq!(scene.after(EventType::Listed, "two").await.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn with_the_behaviour_of_kopf_1_45_events_from_before_the_pause_are_handled_during_it() {
    let scene = Scene::new(&["watching"], &json!({"compat": true}));
    scene.pause(true);
    assert_eq!(scene.after(EventType::Added, "one").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_standby_calls_no_handler_and_forgets_deleted_objects() {
    let scene = Scene::new(&["watching", "changing"], &json!({}));
    scene.fixture.shared.pause.stand_by(true);
    for kind in [EventType::Added, EventType::Modified, EventType::Deleted] {
        assert!(scene.after(kind, "one").await.is_empty(), "{kind:?}");
    }
    assert!(scene.is_idle() && scene.dispatcher.slots().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_objects_of_a_standby_are_deferred_until_it_leads() {
    let options = json!({"lease_duration": 15.0, "renew_deadline": 10.0, "retry_period": 2.0, "loss_grace": 3.0, "warm": true});
    let election = json!({"name": "it", "namespace": "default", "identity": "me", "options": options,
        "release": true, "preconditions": true});
    for (settings, expected) in [(json!({"leadership": election}), Some(2)), (json!({}), None)] {
        let scene = Scene::new(&["watching"], &settings);
        let deferred = || scene.dispatcher.sample().deferred;
        scene.fixture.shared.pause.stand_by(true);
        for name in ["one", "two"] {
            assert!(scene.after(EventType::Added, name).await.is_empty());
        }
        assert_eq!(deferred(), expected);
        assert_eq!(scene.dispatcher.sample().changed, 0, "the replica is not overloaded");
        scene.fixture.shared.pause.lead();
        assert_eq!(deferred(), expected.map(|_| 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_resumes_the_objects_that_were_added_before() {
    let scene = Scene::new(&["resuming"], &json!({}));
    let pause = &scene.fixture.shared.pause;
    pause.stand_by(true);
    assert!(scene.after_handled(EventType::Added, "one").await.is_empty());
    pause.lead();
    assert!(
        scene.after_handled(EventType::Added, "two").await.is_empty(),
        "only the listing is recent enough"
    );
    scene.dispatcher.slots().begin_listing(pause.count(), pause.terms());
    assert_eq!(scene.after_handled(EventType::Listed, "one").await.len(), 1);
    assert_eq!(scene.after_handled(EventType::Listed, "two").await.len(), 1);
    assert!(scene.after_handled(EventType::Added, "three").await.is_empty());
}
