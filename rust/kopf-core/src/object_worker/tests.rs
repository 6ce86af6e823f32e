//! The state machine of one object, without cycles: its queue, sleeps, errors, and the records of writes.

use super::*;
use crate::cycle::{Cycle, Decision, Effect};
use crate::handler::lifecycle::Lifecycle;
use crate::handler::registry::{Registry, ResourceHandlers};
use crate::json::value::Map;
use crate::request_error::{ApiError, RequestError};
use crate::resource::Resource;
use crate::settings::Settings;
use crate::writes::{Rejection, WriteFailure, WriteOutcome};
use serde_json::{Value, json};

mod deletions;
mod error_delays;
mod failed_writes;
mod foreign_writes;
mod pauses;

struct Scene {
    resource_handlers: Arc<ResourceHandlers>,
    config: Arc<OperatorConfig>,
    worker: ObjectWorker,
}

fn at(seconds: f64) -> Timestamp {
    Timestamp::from_micros(0).plus(seconds)
}

fn object(version: u64) -> Arc<Object> {
    let text = format!(r#"{{"metadata":{{"name":"x","uid":"u","resourceVersion":"{version}"}}}}"#);
    Arc::new(Object::decode(&text).unwrap())
}

fn event(version: u64) -> QueuedEvent {
    QueuedEvent::of(EventType::Modified, object(version))
}

impl Scene {
    /// One handler of this kind.
    fn new(kind: &str, settings: &Value) -> Self {
        let handler = json!({"id": "h", "kind": kind, "reason": "update"});
        let registry = Arc::new(Registry { handlers: vec![serde_json::from_value(handler).unwrap()] });
        let resource: Resource = serde_json::from_value(json!({
            "group": "example.com", "version": "v1", "plural": "things", "kind": "Thing", "singular": "thing",
            "shortcuts": [], "categories": [], "subresources": [], "verbs": [], "namespaced": true, "preferred": true,
        }))
        .unwrap();
        let resource_handlers = Arc::new(registry.handlers_of(&Arc::new(resource), &|_| true));
        let settings: Settings = serde_json::from_value(settings.clone()).unwrap();
        let settings = Arc::new(settings);
        let config = Arc::new(OperatorConfig { registry, settings, lifecycle: Lifecycle::Asap });
        Self { resource_handlers, config, worker: ObjectWorker::new(EventType::Added) }
    }

    fn context(&self) -> (Arc<ResourceHandlers>, Arc<OperatorConfig>) {
        (Arc::clone(&self.resource_handlers), Arc::clone(&self.config))
    }

    /// Takes the first event of an idle object: a cycle starts.
    fn start(&mut self, event: QueuedEvent) -> QueuedEvent {
        assert!(!self.worker.is_throttled(), "no start");
        event
    }

    /// Takes an event of a busy object.
    fn take(&mut self, event: QueuedEvent) -> Option<WorkerLog> {
        let (resource_handlers, config) = self.context();
        let context = WorkerContext {
            resource_handlers: &resource_handlers,
            startup_config: &config,
            live_config: &config,
        };
        self.worker.enqueue(event, context)
    }

    /// The versions of the events of a blocked queue at its release.
    fn released(&mut self, operator: OperatorState) -> Vec<String> {
        let (resource_handlers, config) = self.context();
        let context = WorkerContext {
            resource_handlers: &resource_handlers,
            startup_config: &config,
            live_config: &config,
        };
        let events = self.worker.release_in(operator, context);
        events.iter().filter_map(|event| Some(event.object.resource_version()?.to_owned())).collect()
    }

    fn next(&mut self, now: f64) -> Transition {
        self.next_in(now, OperatorState::default())
    }

    fn next_in(&mut self, now: f64, operator: OperatorState) -> Transition {
        let (resource_handlers, config) = self.context();
        let context = WorkerContext {
            resource_handlers: &resource_handlers,
            startup_config: &config,
            live_config: &config,
        };
        self.worker.next(context, operator, at(now))
    }

    fn await_consistency(&mut self, now: f64, operator: OperatorState) -> Result<bool, Timestamp> {
        let (resource_handlers, config) = self.context();
        let context = WorkerContext {
            resource_handlers: &resource_handlers,
            startup_config: &config,
            live_config: &config,
        };
        self.worker.await_consistency(context, operator, at(now))
    }

    /// A cycle of the event with this decision, and what follows it.
    fn open(&mut self, event: QueuedEvent) -> Cycle {
        self.open_at(event, 0.0)
    }

    fn open_at(&mut self, event: QueuedEvent, now: f64) -> Cycle {
        let (resource_handlers, config) = self.context();
        let context = WorkerContext {
            resource_handlers: &resource_handlers,
            startup_config: &config,
            live_config: &config,
        };
        let start = self.worker.prepare(event, context, at(now));
        Cycle::open(start, Arc::clone(&resource_handlers), Arc::clone(&config), 1, at(now))
    }

    fn conclude(&mut self, event: QueuedEvent, decision: Decision, now: f64) -> DecisionResult {
        let (resource_handlers, config) = self.context();
        let context = WorkerContext {
            resource_handlers: &resource_handlers,
            startup_config: &config,
            live_config: &config,
        };
        let start = self.worker.prepare(event, context, at(now));
        let running = Cycle::open(start, Arc::clone(&resource_handlers), Arc::clone(&config), 1, at(now));
        self.worker.on_decision(&running, decision, context, at(now))
    }

    fn written(&mut self, write: DecidedWrite, outcome: WriteOutcome, now: f64) -> Finished {
        let (resource_handlers, config) = self.context();
        let context = WorkerContext {
            resource_handlers: &resource_handlers,
            startup_config: &config,
            live_config: &config,
        };
        self.worker.on_write_result(write, outcome, context, at(now))
    }
}

fn patch() -> Decision {
    let patch = json!({"spec": {"a": 1}}).as_object().cloned().unwrap();
    Decision { patch: crate::json::merge_patch::Patch(patch), ..Decision::default() }
}

fn write_of(result: DecisionResult) -> DecidedWrite {
    match result {
        DecisionResult::Write(write) => *write,
        DecisionResult::Finished(finished) => panic!("nothing to write: {finished:?}"),
    }
}

/// The failure of a request that the server may have applied or not.
fn failed(is_outcome_unknown: bool) -> WriteFailure {
    error(if is_outcome_unknown { 504 } else { 503 }).into()
}

fn error(status: u16) -> RequestError {
    RequestError::Api(Box::new(ApiError::from_response(status, None, b"")))
}

/// A part that the server has rejected, or whose result is unknown.
fn rejection(patch: Map<String, Value>, status: u16) -> Rejection {
    Rejection { patch, is_status: true, error: error(status) }
}

fn messages(step: &Transition) -> Vec<WorkerMessage> {
    step.log.iter().map(|line| line.message.clone()).collect()
}

fn version(next: &NextAction) -> Option<&str> {
    match next {
        NextAction::Start(event) => event.object.resource_version(),
        _ => None,
    }
}

#[test]
fn only_the_newest_state_waits_unless_every_event_is_handled() {
    for (kind, expected) in [("changing", vec!["3"]), ("watching", vec!["2", "3"])] {
        let mut scene = Scene::new(kind, &json!({}));
        let first = scene.start(event(1));
        assert!(scene.take(event(2)).is_none());
        assert!(scene.take(event(3)).is_none());
        let result = scene.conclude(first, Decision::default(), 0.0);
        assert!(matches!(result, DecisionResult::Finished(Finished { log: None, .. })));
        assert!(scene.worker.needs_driver());
        for number in expected {
            assert_eq!(version(&scene.next(0.0).next), Some(number), "{kind}");
        }
        assert!(matches!(scene.next(0.0).next, NextAction::Idle));
    }
}

#[test]
fn the_oldest_of_too_many_events_are_skipped_with_one_warning() {
    let mut scene = Scene::new("watching", &json!({"queueing": {"max_pending_events": 2}}));
    scene.start(event(1));
    let warned: Vec<bool> = (2..7).map(|number| scene.take(event(number)).is_some()).collect();
    assert_eq!(warned, [false, false, true, false, false]);
    assert_eq!(scene.worker.pending().count(), 2);
}

#[test]
fn a_delay_is_slept_and_interrupted_by_new_events() {
    let delayed = Decision { delay: Some(5.0), ..Decision::default() };
    let mut scene = Scene::new("changing", &json!({}));
    let first = scene.start(event(1));
    scene.conclude(first, delayed.clone(), 0.0);
    let step = scene.next(0.0);
    assert_eq!(messages(&step), [WorkerMessage::Sleeping(5.0)]);
    assert!(matches!(step.next, NextAction::Sleep { until, kind: SleepKind::Delay } if until == at(5.0)));
    scene.take(event(2));
    let step = scene.next(2.0);
    assert_eq!(messages(&step), [WorkerMessage::Interrupted(3.0)]);
    let NextAction::Start(second) = step.next else { panic!("the event is handled") };
    assert!(!second.requeued);
    scene.conclude(second, delayed, 2.0);
    scene.next(2.0);
    let NextAction::Start(again) = scene.next(7.0).next else { panic!("the delay is over") };
    assert!(again.requeued && again.object.resource_version() == Some("2"));
}

#[test]
fn errors_hold_the_object_and_the_last_state_is_handled_afterwards() {
    let mut scene = Scene::new("watching", &json!({"queueing": {"error_delays": [3.0]}}));
    let first = scene.start(event(1));
    let failed = Decision { error: Some("boo".to_owned()), ..Decision::default() };
    let DecisionResult::Finished(Finished { log: Some(line), .. }) = scene.conclude(first, failed, 0.0)
    else {
        panic!("the error is logged")
    };
    assert_eq!(line.text(), "Throttling for 3 seconds due to an unexpected error: boo");
    scene.take(event(2));
    assert!(
        matches!(scene.next(1.0).next, NextAction::Sleep { until, kind: SleepKind::Backoff } if until == at(3.0))
    );
    let step = scene.next(3.0);
    assert_eq!((version(&step.next), messages(&step)), (Some("2"), vec![WorkerMessage::BackoffOver]));
    assert!(matches!(scene.next(3.0).next, NextAction::Idle), "older states are dropped");
}

#[test]
fn the_event_of_an_own_write_is_awaited() {
    let mut scene = Scene::new("changing", &json!({}));
    let first = scene.start(event(1));
    let write = write_of(scene.conclude(first, Decision { delay: Some(9.0), ..patch() }, 0.0));
    let latest = object(2);
    let outcome = WriteOutcome {
        latest: Some(latest),
        merged: write.request.patch.0.clone(),
        ..WriteOutcome::default()
    };
    let finished = scene.written(write, outcome, 0.0);
    assert_eq!(finished.log.map(|line| line.message), Some(WorkerMessage::SkippedSleep(9.0)));
    assert!(!scene.worker.needs_driver(), "the watch event starts the next cycle");
    assert_eq!(scene.await_consistency(1.0, OperatorState::default()), Err(at(5.0)));
    assert_eq!(scene.await_consistency(5.0, OperatorState::default()), Ok(true));
    assert_eq!(scene.await_consistency(1.0, OperatorState::default()), Ok(true), "the wait is over");
}

#[test]
fn a_failed_write_is_repeated_after_the_back_off() {
    let mut scene = Scene::new("changing", &json!({"queueing": {"error_delays": [2.0]}}));
    for is_outcome_unknown in [false, true] {
        let first = QueuedEvent { requeued: false, ..event(1) };
        let write = write_of(scene.conclude(first, patch(), 0.0));
        let failure = failed(is_outcome_unknown);
        let text = format!("error: {failure}");
        let unwritten = write.request.patch.0.clone();
        let outcome = WriteOutcome { unwritten, failure: Some(failure), ..WriteOutcome::default() };
        let finished = scene.written(write, outcome, 0.0);
        assert!(finished.log.is_some_and(|line| line.text().ends_with(&text)));
        assert_eq!(scene.worker.consistency.is_some(), is_outcome_unknown);
        assert!(scene.worker.needs_driver());
        assert!(matches!(scene.next(2.0).next, NextAction::Start(event) if event.requeued));
    }
}

#[test]
fn rejected_parts_are_written_again_after_a_pause() {
    let mut scene = Scene::new("changing", &json!({}));
    let first = scene.start(event(1));
    let write = write_of(scene.conclude(first, patch(), 0.0));
    let rejections = vec![rejection(write.request.patch.0.clone(), 422)];
    let finished = scene.written(write, WriteOutcome { rejections, ..WriteOutcome::default() }, 0.0);
    let delay = finished.delay.unwrap();
    assert!(matches!(scene.next(0.0).next, NextAction::Sleep { until, .. } if until == at(delay)));
}

#[test]
fn functions_are_given_up_after_repeated_rejections() {
    let mut scene = Scene::new("changing", &json!({}));
    let carried: Vec<bool> = (0..5)
        .map(|_| {
            let write =
                write_of(scene.conclude(event(1), Decision { fns: true, ..Decision::default() }, 0.0));
            let failure = Some(failed(false));
            let outcome =
                WriteOutcome { functions_rejected: true, carry: true, failure, ..WriteOutcome::default() };
            scene.written(write, outcome, 0.0).carry
        })
        .collect();
    assert_eq!(carried, [true, true, true, true, false]);
}

#[test]
fn functions_of_an_earlier_cycle_survive_a_failed_one() {
    let mut scene = Scene::new("changing", &json!({"queueing": {"error_delays": [2.0]}}));
    let write = write_of(scene.conclude(event(1), Decision { fns: true, ..Decision::default() }, 0.0));
    let outcome = WriteOutcome { carry: true, failure: Some(failed(false)), ..WriteOutcome::default() };
    assert!(scene.written(write, outcome, 0.0).carry);
    let decision = Decision { error: Some("boo".to_owned()), ..Decision::default() };
    let DecisionResult::Finished(finished) = scene.conclude(event(1), decision, 2.0) else {
        panic!("nothing is written")
    };
    assert!(finished.carry);
}

#[test]
fn after_a_deletion_only_later_watch_events_count() {
    let mut scene = Scene::new("changing", &json!({}));
    let deleted = scene.start(QueuedEvent::of(EventType::Deleted, object(2)));
    scene.worker.memory.fully_handled_once = true;
    assert!(scene.worker.on_wake(object(2), OperatorState::default()).is_some());
    scene.conclude(deleted.clone(), Decision::default(), 0.0);
    assert!(scene.worker.gone && !scene.worker.needs_driver());
    assert!(scene.worker.on_wake(object(2), OperatorState::default()).is_none());
    // The same, but the object comes back.
    let mut scene = Scene::new("changing", &json!({}));
    scene.start(QueuedEvent::of(EventType::Deleted, object(2)));
    scene.worker.memory.fully_handled_once = true;
    scene.take(QueuedEvent::of(EventType::Added, object(3)));
    scene.conclude(deleted, Decision::default(), 0.0);
    assert!(!scene.worker.gone && !scene.worker.memory.fully_handled_once && scene.worker.needs_driver());
}

#[test]
fn an_error_in_the_cycle_of_a_deletion_does_not_keep_the_object() {
    for compat in [false, true] {
        let settings = json!({"compat": compat, "queueing": {"error_delays": [3.0]}});
        let failed = || Decision { error: Some("boo".to_owned()), ..Decision::default() };
        let mut scene = Scene::new("changing", &settings);
        let deleted = scene.start(QueuedEvent::of(EventType::Deleted, object(2)));
        let DecisionResult::Finished(Finished { log: Some(line), .. }) =
            scene.conclude(deleted.clone(), failed(), 0.0)
        else {
            panic!("the error is logged")
        };
        let expected = if compat {
            "Throttling for 3 seconds due to an unexpected error: boo"
        } else {
            "An unexpected error, not throttled: boo"
        };
        assert_eq!(line.text(), expected);
        assert!(scene.worker.gone && !scene.worker.needs_driver());
        // The same, but another object has the name already: its handling is not delayed.
        let mut scene = Scene::new("changing", &settings);
        scene.start(QueuedEvent::of(EventType::Deleted, object(2)));
        scene.worker.memory.fully_handled_once = true;
        scene.take(QueuedEvent::of(EventType::Added, object(3)));
        scene.conclude(deleted, failed(), 0.0);
        assert!(!scene.worker.gone && !scene.worker.memory.fully_handled_once);
        assert_eq!(version(&scene.next(0.0).next), Some("3"));
    }
}

#[test]
fn a_deselected_object_is_stale_after_a_write_or_a_delay() {
    let mut scene = Scene::new("changing", &json!({}));
    scene.worker.selector_match = SelectorMatch::Deselected;
    scene.conclude(event(1), Decision::default(), 0.0);
    assert_eq!(scene.worker.selector_match, SelectorMatch::Deselected, "nothing was written");
    let write = write_of(scene.conclude(event(1), patch(), 0.0));
    scene.written(write, WriteOutcome::default(), 0.0);
    assert_eq!(scene.worker.selector_match, SelectorMatch::Stale);
    scene.worker.selector_match = SelectorMatch::Deselected;
    scene.conclude(event(1), Decision { delay: Some(1.0), ..Decision::default() }, 0.0);
    assert!(matches!(scene.next(1.0).next, NextAction::Idle));
    assert_eq!(scene.worker.selector_match, SelectorMatch::Stale);
}

#[test]
fn blocked_events_wait_for_their_release() {
    let mut scene = Scene::new("watching", &json!({}));
    for number in 1..=3 {
        scene.worker.block(event(number), true);
    }
    assert!(scene.take(event(4)).is_none());
    let versions: Vec<_> = scene
        .worker
        .release()
        .iter()
        .map(|event| event.object.resource_version().map(str::to_owned))
        .collect();
    assert_eq!(versions, ["1", "3", "4"].map(|version| Some(version.to_owned())));
    assert_eq!(scene.worker.pending().count(), 0);
}

#[test]
fn the_touch_annotation_is_written_before_the_next_cycle_in_compat_mode() {
    for is_written in [true, false] {
        let mut scene = Scene::new("changing", &json!({"compat": true}));
        let first = scene.start(event(1));
        scene.conclude(first, Decision { delay: Some(1.0), ..Decision::default() }, 0.0);
        let NextAction::Touch(touched) = scene.next(1.0).next else { panic!("no touch") };
        let (resource_handlers, config) = scene.context();
        let context = WorkerContext {
            resource_handlers: &resource_handlers,
            startup_config: &config,
            live_config: &config,
        };
        let latest = object(2);
        let latest = is_written.then_some(latest);
        let outcome = WriteOutcome { latest, merged: Map::new(), ..WriteOutcome::default() };
        scene.worker.memory.remaining_fns = true;
        scene.worker.on_touched(&touched.object, &outcome, context, at(1.0));
        assert!(scene.worker.memory.remaining_fns, "the functions of the cycle are still to be applied");
        // Without a watch event of the touch, the cycle starts at once.
        assert_eq!(matches!(scene.next(1.0).next, NextAction::Start(_)), !is_written);
    }
}
