//! What becomes of cycles that nobody waits for.

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
use crate::testing::{Stage, lock, resource};

struct Scene {
    stage: Stage,
    dispatcher: Arc<Dispatcher>,
}

impl Scene {
    fn new() -> Self {
        Self::with(&json!({}))
    }

    fn with(settings: &Value) -> Self {
        let selector = json!({"group": "example.com", "version": "v1", "plural": "things"});
        let handler = json!({"id": "see", "kind": "watching", "selector": selector});
        let stage = Stage::with_handlers(vec![handler], settings, |_| (200, Some(json!({"metadata": {}}))));
        let plan = stage.shared.rules.registry.plan(&resource("example.com", "things", true), &|_| true);
        let dispatcher =
            Dispatcher::new(Arc::clone(&stage.shared), &crate::worker::Pool, Arc::new(plan), None);
        Self { stage, dispatcher }
    }

    fn tell(&self, kind: EventType, name: &str) {
        let text = format!(r#"{{"metadata":{{"name":"{name}","namespace":"ns","uid":"{name}"}}}}"#);
        self.dispatcher.dispatch(kind, Object::decode(&text).unwrap());
    }

    /// What was handed over since the last look: scripts, and a word for each of the others.
    fn taken(&self) -> (Vec<ActivationTask>, Vec<&'static str>) {
        let (mut scripts, mut others) = (vec![], vec![]);
        for job in lock(&self.stage.other_side.jobs).drain(..) {
            match job {
                HostTask::Activation(activation) => scripts.push(activation),
                HostTask::Close { .. } => others.push("close"),
                HostTask::Forget(_) => others.push("forget"),
                HostTask::Cancel(_) => others.push("cancel"),
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

    fn is_at_rest(&self) -> bool {
        self.stage.shared.workers.is_empty() && self.dispatcher.slots().busy().is_empty()
    }
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

fn answer(job: ActivationTask, reply: Completion) {
    let now = crate::time::clock::Clock::start().now();
    let outcomes = job.activation.steps.iter().map(|step| match step {
        Command::Watch { attempt, .. } => {
            CommandResult::Attempted(attempt.evaluate(&CallResult::Nothing, now).outcome)
        }
        _ => CommandResult::Skipped,
    });
    let steps = outcomes.collect();
    job.reply.send(Some(Completion { steps, ..reply }));
}

async fn turns() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_only_seen_takes_no_task() {
    let scene = Scene::new();
    for (closed, expected) in [(true, vec![]), (false, vec!["close"])] {
        let before = tasks();
        scene.tell(EventType::Modified, "a");
        let activation = scene.activation();
        assert!(!scene.is_at_rest(), "whoever asks is told that there is work");
        assert_eq!(tasks(), before);
        answer(activation, Completion { closed, ..Completion::default() });
        assert!(scene.is_at_rest(), "it ends where the reply comes");
        assert_eq!(tasks(), before);
        assert_eq!(scene.taken().1, expected);
    }
    scene.tell(EventType::Deleted, "a");
    answer(scene.activation(), Completion::default());
    assert_eq!(scene.taken().1, ["close", "forget"]);
    assert!(scene.dispatcher.slots().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_comes_meanwhile_is_seen_afterwards() {
    let scene = Scene::new();
    scene.tell(EventType::Added, "a");
    scene.tell(EventType::Modified, "a");
    scene.tell(EventType::Deleted, "a");
    for (kind, others) in [(EventType::Added, 0), (EventType::Modified, 1), (EventType::Deleted, 1)] {
        let (mut scripts, before) = scene.taken();
        assert_eq!((scripts.len(), before.len()), (1, others), "one at a time: {kind:?}");
        assert_eq!(scripts[0].event, kind);
        answer(scripts.remove(0), Completion::default());
        turns().await;
    }
    assert_eq!(scene.taken().1, ["close", "forget"]);
    assert!(scene.is_at_rest());
}

#[tokio::test(start_paused = true)]
async fn what_is_to_be_written_is() {
    let scene = Scene::new();
    scene.tell(EventType::Modified, "a");
    let patch = json!({"spec": {"field": "value"}});
    let patch = patch.as_object().cloned();
    answer(scene.activation(), Completion { patch, ..Completion::default() });
    turns().await;
    let requests = scene.stage.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].body, json!({"spec": {"field": "value"}}));
    assert_eq!(scene.taken().1, ["close"]);
    assert!(scene.is_at_rest());
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_the_end_of_its_cycle_but_not_of_the_object() {
    // With a limit of workers, each cycle has one.
    for settings in [json!({}), json!({"queueing": {"worker_limit": 5}})] {
        let scene = Scene::with(&settings);
        for pending in [0, 1] {
            scene.tell(EventType::Modified, "a");
            turns().await;
            let activation = scene.activation();
            for _ in 0..pending {
                scene.tell(EventType::Modified, "a");
            }
            drop(activation);
            turns().await;
            let (scripts, others) = scene.taken();
            assert_eq!((scripts.len(), others), (pending, vec!["close"]), "{settings}");
            for activation in scripts {
                answer(activation, Completion::default());
            }
            turns().await;
            assert!(scene.is_at_rest(), "{settings}");
            drop(scene.taken());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dispatchers_that_are_gone_are_not_remembered() {
    let scene = Scene::new();
    let shared = &scene.stage.shared;
    for _ in 0..10 {
        drop(Dispatcher::new(
            Arc::clone(shared),
            &crate::worker::Pool,
            Arc::clone(&scene.dispatcher.plan),
            None,
        ));
    }
    assert!(shared.detached.lock().len() <= 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_given_up_is_not_heard_any_more() {
    let scene = Scene::new();
    scene.tell(EventType::Modified, "a");
    let activation = scene.activation();
    scene.stage.shared.killing.cancel();
    scene.stage.shared.detached.give_up();
    assert_eq!(scene.taken().1, ["cancel"]);
    assert!(scene.stage.shared.workers.is_empty());
    answer(activation, Completion::default());
    turns().await;
    assert!(scene.taken().1.is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_waits_in_the_backlog_has_a_turn_when_others_had_theirs() {
    let scene = Scene::new();
    for number in 0..WINDOW + 10 {
        scene.tell(EventType::Listed, &number.to_string());
    }
    let (first, _) = scene.taken();
    assert_eq!(first.len(), WINDOW);
    let before = tasks();
    for activation in first {
        answer(activation, Completion { closed: true, ..Completion::default() });
    }
    assert_eq!(tasks(), before + 1, "one looks for all of them");
    turns().await;
    let (rest, _) = scene.taken();
    assert_eq!(rest.len(), 10);
    for activation in rest {
        answer(activation, Completion { closed: true, ..Completion::default() });
    }
    turns().await;
    assert!(scene.is_at_rest());
}

#[tokio::test(start_paused = true)]
async fn a_reply_does_not_wait_for_the_engine() {
    let scene = Scene::new();
    scene.tell(EventType::Modified, "a");
    let activation = scene.activation();
    let slots = scene.dispatcher.slots();
    answer(activation, Completion::default());
    drop(slots);
    turns().await;
    assert!(scene.is_at_rest());
    assert_eq!(scene.taken().1, ["close"]);
}

#[tokio::test(start_paused = true)]
async fn skipped_events_are_reported_once_for_each_burst() {
    let scene = Scene::with(&json!({"queueing": {"max_pending_events": 3}}));
    for _ in 0..2 {
        for _ in 0..10 {
            scene.tell(EventType::Modified, "a");
        }
        let mut handled = 0;
        loop {
            let (scripts, _) = scene.taken();
            if scripts.is_empty() {
                break;
            }
            for activation in scripts {
                handled += 1;
                answer(activation, Completion::default());
            }
            turns().await;
        }
        assert_eq!(handled, 4);
        assert!(scene.is_at_rest());
    }
    let received = scene.stage.lines("WARNING More than 3 events of this object wait for its handlers");
    assert_eq!(received.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_busy_object_is_handled_in_another_version_when_it_is_done_in_this_one() {
    let scene = Scene::new();
    let plan = || Arc::clone(&scene.dispatcher.plan);
    let [second, third] = [(); 2]
        .map(|()| Dispatcher::new(Arc::clone(&scene.stage.shared), &crate::worker::Pool, plan(), None));
    scene.tell(EventType::Added, "busy");
    scene.tell(EventType::Added, "idle");
    let (mut scripts, _) = scene.taken();
    answer(scripts.pop().unwrap(), Completion::default());
    turns().await;
    drop(scene.taken());
    scene.dispatcher.hand_over(&second);
    let text = r#"{"metadata":{"name":"busy","namespace":"ns","uid":"busy"}}"#;
    second.dispatch(EventType::Listed, Object::decode(text).unwrap());
    turns().await;
    assert!(scene.taken().0.is_empty(), "it is still handled in the other version");
    // And once more, meanwhile.
    second.hand_over(&third);
    third.dispatch(EventType::Listed, Object::decode(text).unwrap());
    turns().await;
    assert!(scene.taken().0.is_empty());
    answer(scripts.pop().unwrap(), Completion::default());
    turns().await;
    let (again, _) = scene.taken();
    assert_eq!(again.iter().map(|activation| activation.object.name()).collect::<Vec<_>>(), [Some("busy")]);
    assert!(scene.dispatcher.slots().is_empty() && second.slots().is_empty());
    assert_eq!(third.slots().len(), 2);
}
