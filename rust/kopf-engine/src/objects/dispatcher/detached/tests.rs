//! Detached cycles.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use kopf_core::activation::{Command, CommandResult, Completion};
use kopf_core::cause::EventType;
use kopf_core::handling::attempt::CallResult;
use kopf_core::object::Object;
use serde_json::{Value, json};

use crate::host::{ActivationTask, HostTask};
use crate::objects::backlog::WINDOW;
use crate::objects::dispatcher::Dispatcher;
use crate::objects::dispatcher::cycles::INJECTED_PANIC;
use crate::testing::{Fixture, lock, resource};

struct Scene {
    fixture: Fixture,
    dispatcher: Arc<Dispatcher>,
}

impl Scene {
    fn new() -> Self {
        Self::with(&json!({}))
    }

    fn with(settings: &Value) -> Self {
        Self::with_labels(settings, &json!([]))
    }

    fn with_labels(settings: &Value, labels: &Value) -> Self {
        let selector = json!({"group": "example.com", "version": "v1", "plural": "things"});
        let handler = json!({"id": "see", "kind": "watching", "selector": selector, "labels": labels});
        let fixture =
            Fixture::with_handlers(vec![handler], settings, |_| (200, Some(json!({"metadata": {}}))));
        let resource_handlers = fixture
            .shared
            .base
            .startup_config
            .registry
            .handlers_of(&resource("example.com", "things", true), &|_| true);
        let dispatcher = Dispatcher::new(
            Arc::clone(&fixture.shared),
            &crate::worker::Pool,
            Arc::new(resource_handlers),
            None,
        );
        Self { fixture, dispatcher }
    }

    fn dispatch(&self, kind: EventType, name: &str) {
        let text = format!(r#"{{"metadata":{{"name":"{name}","namespace":"ns","uid":"{name}"}}}}"#);
        self.dispatcher.dispatch(kind, Arc::new(Object::decode(&text).unwrap()));
    }

    /// The tasks submitted since the last call: activations, and a word for each of the others.
    fn taken(&self) -> (Vec<ActivationTask>, Vec<&'static str>) {
        let (mut scripts, mut others) = (vec![], vec![]);
        for task in lock(&self.fixture.host.tasks).drain(..) {
            match task {
                HostTask::Activation(activation) => scripts.push(activation),
                HostTask::CycleClosed { .. } => others.push("close"),
                HostTask::ObjectDeleted(_) => others.push("forget"),
                HostTask::CancelCycle(_) => others.push("cancel"),
                _ => others.push("?"),
            }
        }
        (scripts, others)
    }

    fn activation(&self) -> ActivationTask {
        let (mut scripts, others) = self.taken();
        assert_eq!((scripts.len(), others.len()), (1, 0));
        scripts.remove(0)
    }

    fn is_idle(&self) -> bool {
        self.fixture.shared.workers.is_empty() && self.dispatcher.slots().busy().is_empty()
    }
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

fn reply_to(task: ActivationTask, reply: Completion) {
    let now = crate::time::clock::Clock::start().now();
    let outcomes = task.activation.commands.iter().map(|command| match command {
        Command::CallEventHandler { attempt, .. } => {
            CommandResult::Attempted(attempt.evaluate(&CallResult::Nothing, now).outcome)
        }
        _ => CommandResult::Skipped,
    });
    let results = outcomes.collect();
    task.reply.send(Some(Completion { results, ..reply }));
}

async fn turns() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn event_handlers_alone_need_no_task() {
    let scene = Scene::new();
    for (closed, expected) in [(true, vec![]), (false, vec!["close"])] {
        let before = tasks();
        scene.dispatch(EventType::Modified, "a");
        let activation = scene.activation();
        assert!(!scene.is_idle(), "the detached cycle counts as work");
        assert_eq!(tasks(), before);
        reply_to(activation, Completion { closed, ..Completion::default() });
        assert!(scene.is_idle(), "the cycle ends in the completing thread");
        assert_eq!(tasks(), before);
        assert_eq!(scene.taken().1, expected);
    }
    scene.dispatch(EventType::Deleted, "a");
    reply_to(scene.activation(), Completion::default());
    assert_eq!(scene.taken().1, ["close", "forget"]);
    assert!(scene.dispatcher.slots().is_empty());
}

#[tokio::test(start_paused = true)]
async fn events_during_a_detached_cycle_are_handled_afterwards() {
    let scene = Scene::new();
    scene.dispatch(EventType::Added, "a");
    scene.dispatch(EventType::Modified, "a");
    scene.dispatch(EventType::Deleted, "a");
    for (kind, others) in [(EventType::Added, 0), (EventType::Modified, 1), (EventType::Deleted, 1)] {
        let (mut scripts, before) = scene.taken();
        assert_eq!((scripts.len(), before.len()), (1, others), "one at a time: {kind:?}");
        assert_eq!(scripts[0].event, kind);
        reply_to(scripts.remove(0), Completion::default());
        turns().await;
    }
    assert_eq!(scene.taken().1, ["close", "forget"]);
    assert!(scene.is_idle());
}

#[tokio::test(start_paused = true)]
async fn patches_of_detached_cycles_are_written() {
    let scene = Scene::new();
    scene.dispatch(EventType::Modified, "a");
    let patch = json!({"spec": {"field": "value"}});
    let patch = patch.as_object().cloned();
    reply_to(scene.activation(), Completion { patch, ..Completion::default() });
    turns().await;
    let requests = scene.fixture.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].body, json!({"metadata": {"uid": "a"}, "spec": {"field": "value"}}));
    assert_eq!(scene.taken().1, ["close"]);
    assert!(scene.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_lost_completion_is_logged_and_the_object_is_handled_again_after_the_back_off() {
    // With a worker limit, each cycle has a worker.
    for limit in [json!(null), json!(5)] {
        let scene = Scene::with(&json!({"queueing": {"worker_limit": limit, "error_delays": [5]}}));
        for pending in [0, 1] {
            scene.dispatch(EventType::Modified, "a");
            turns().await;
            let activation = scene.activation();
            for _ in 0..pending {
                scene.dispatch(EventType::Modified, "a");
            }
            drop(activation);
            turns().await;
            let (activations, others) = scene.taken();
            assert_eq!((activations.len(), others), (0, vec!["close"]), "{limit}, {pending}");
            let line =
                "ERROR Throttling for 5 seconds due to an unexpected error: the outcome of the handlers";
            assert_eq!(scene.fixture.lines(line).len(), pending + 1);
            tokio::time::sleep(std::time::Duration::from_secs(6)).await;
            reply_to(scene.activation(), Completion::default());
            turns().await;
            assert!(scene.is_idle(), "{limit}, {pending}");
            drop(scene.taken());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_back_off_after_lost_completions_grows_until_one_arrives() {
    let scene = Scene::with(&json!({"queueing": {"error_delays": [5, 50]}}));
    scene.dispatch(EventType::Modified, "a");
    drop(scene.activation());
    for (delay, is_lost) in [(5, true), (50, false)] {
        tokio::time::sleep(std::time::Duration::from_secs(delay - 1)).await;
        assert!(scene.taken().0.is_empty(), "{delay}");
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        let activation = scene.activation();
        if is_lost {
            drop(activation);
        } else {
            reply_to(activation, Completion::default());
        }
        turns().await;
    }
    assert!(scene.is_idle());
    scene.dispatch(EventType::Modified, "a");
    assert_eq!(scene.taken().0.len(), 1, "the object is not delayed any more");
}

#[tokio::test(start_paused = true)]
async fn a_panic_at_the_end_of_a_detached_cycle_delays_its_object_only() {
    let scene = Scene::with(&json!({"queueing": {"error_delays": [5]}}));
    scene.dispatch(EventType::Modified, "a");
    let activation = scene.activation();
    INJECTED_PANIC.set(true);
    reply_to(activation, Completion::default());
    turns().await;
    assert_eq!(scene.fixture.shared.base.failing.result(), Ok(()), "the operator goes on");
    assert_eq!(scene.fixture.lines("has panicked: an injected panic").len(), 1);
    let (scripts, others) = scene.taken();
    assert_eq!((scripts.len(), others), (0, vec!["close"]));
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    reply_to(scene.activation(), Completion::default());
    turns().await;
    assert!(scene.is_idle());
}

#[tokio::test(start_paused = true)]
async fn an_object_is_handled_again_after_a_panic_at_the_end_of_a_cycle_without_calls() {
    let labels = json!([["other", {"present": true}]]);
    let scene = Scene::with_labels(&json!({"queueing": {"error_delays": [5]}}), &labels);
    INJECTED_PANIC.set(true);
    scene.dispatch(EventType::Modified, "a");
    turns().await;
    assert_eq!(scene.fixture.lines("has panicked: an injected panic").len(), 1);
    assert!(!scene.is_idle(), "a worker waits for the rest of the back-off");
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    assert!(scene.is_idle());
    scene.dispatch(EventType::Deleted, "a");
    turns().await;
    assert!(scene.dispatcher.slots().is_empty(), "later events are handled");
}

#[tokio::test(start_paused = true)]
async fn dropped_dispatchers_are_removed_from_the_registry() {
    let scene = Scene::new();
    let shared = &scene.fixture.shared;
    for _ in 0..10 {
        drop(Dispatcher::new(
            Arc::clone(shared),
            &crate::worker::Pool,
            Arc::clone(&scene.dispatcher.resource_handlers),
            None,
        ));
    }
    assert!(shared.detached.lock().len() <= 2);
}

#[tokio::test(start_paused = true)]
async fn completions_of_cancelled_cycles_are_ignored() {
    let scene = Scene::new();
    scene.dispatch(EventType::Modified, "a");
    let activation = scene.activation();
    scene.fixture.shared.force_stopping.cancel();
    scene.fixture.shared.detached.give_up();
    assert_eq!(scene.taken().1, ["cancel"]);
    assert!(scene.fixture.shared.workers.is_empty());
    reply_to(activation, Completion::default());
    turns().await;
    assert!(scene.taken().1.is_empty());
}

#[tokio::test(start_paused = true)]
async fn objects_of_the_backlog_start_when_others_are_done() {
    let scene = Scene::new();
    for number in 0..WINDOW + 10 {
        scene.dispatch(EventType::Listed, &number.to_string());
    }
    let (first, _) = scene.taken();
    assert_eq!(first.len(), WINDOW);
    let before = tasks();
    for activation in first {
        reply_to(activation, Completion { closed: true, ..Completion::default() });
    }
    assert_eq!(tasks(), before + 1, "one task starts all of them");
    turns().await;
    let (rest, _) = scene.taken();
    assert_eq!(rest.len(), 10);
    for activation in rest {
        reply_to(activation, Completion { closed: true, ..Completion::default() });
    }
    turns().await;
    assert!(scene.is_idle());
}

#[tokio::test(start_paused = true)]
async fn completing_does_not_wait_for_the_engine() {
    let scene = Scene::new();
    scene.dispatch(EventType::Modified, "a");
    let activation = scene.activation();
    let slots = scene.dispatcher.slots();
    reply_to(activation, Completion::default());
    drop(slots);
    turns().await;
    assert!(scene.is_idle());
    assert_eq!(scene.taken().1, ["close"]);
}

#[tokio::test(start_paused = true)]
async fn skipped_events_are_logged_once_per_burst() {
    let scene = Scene::with(&json!({"queueing": {"max_pending_events": 3}}));
    for _ in 0..2 {
        for _ in 0..10 {
            scene.dispatch(EventType::Modified, "a");
        }
        let mut handled = 0;
        loop {
            let (scripts, _) = scene.taken();
            if scripts.is_empty() {
                break;
            }
            for activation in scripts {
                handled += 1;
                reply_to(activation, Completion::default());
            }
            turns().await;
        }
        assert_eq!(handled, 4);
        assert!(scene.is_idle());
    }
    let received = scene.fixture.lines("WARNING More than 3 events of this object wait for its handlers");
    assert_eq!(received.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_busy_object_is_handed_over_to_another_version_when_it_is_done() {
    let scene = Scene::new();
    let resource_handlers = || Arc::clone(&scene.dispatcher.resource_handlers);
    let [second, third] = [(); 2].map(|()| {
        Dispatcher::new(Arc::clone(&scene.fixture.shared), &crate::worker::Pool, resource_handlers(), None)
    });
    scene.dispatch(EventType::Added, "busy");
    scene.dispatch(EventType::Added, "idle");
    let (mut scripts, _) = scene.taken();
    reply_to(scripts.pop().unwrap(), Completion::default());
    turns().await;
    drop(scene.taken());
    scene.dispatcher.hand_over(&second);
    let text = r#"{"metadata":{"name":"busy","namespace":"ns","uid":"busy"}}"#;
    second.dispatch(EventType::Listed, Arc::new(Object::decode(text).unwrap()));
    turns().await;
    assert!(scene.taken().0.is_empty(), "it is still handled in the other version");
    // And once more, meanwhile.
    second.hand_over(&third);
    third.dispatch(EventType::Listed, Arc::new(Object::decode(text).unwrap()));
    turns().await;
    assert!(scene.taken().0.is_empty());
    reply_to(scripts.pop().unwrap(), Completion::default());
    turns().await;
    let (again, _) = scene.taken();
    assert_eq!(again.iter().map(|activation| activation.object.name()).collect::<Vec<_>>(), [Some("busy")]);
    assert!(scene.dispatcher.slots().is_empty() && second.slots().is_empty());
    assert_eq!(third.slots().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_busy_object_is_handed_over_by_a_thread_outside_of_the_runtime() {
    let scene = Scene::new();
    let resource_handlers = Arc::clone(&scene.dispatcher.resource_handlers);
    let successor =
        Dispatcher::new(Arc::clone(&scene.fixture.shared), &crate::worker::Pool, resource_handlers, None);
    scene.dispatch(EventType::Added, "busy");
    let activation = scene.activation();
    scene.dispatcher.hand_over(&successor);
    let text = r#"{"metadata":{"name":"busy","namespace":"ns","uid":"busy"}}"#;
    successor.dispatch(EventType::Listed, Arc::new(Object::decode(text).unwrap()));
    std::thread::spawn(move || reply_to(activation, Completion::default())).join().unwrap();
    turns().await;
    assert_eq!(scene.fixture.shared.base.failing.result(), Ok(()));
    assert_eq!(scene.taken().0.len(), 1, "the listed state is handled");
    assert!(scene.dispatcher.slots().is_empty());
    assert_eq!(successor.slots().len(), 1);
}
