//! Daemons and timers with a clock that stands still until everybody waits for it, and with a Python that answers as told.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use kopf_core::cause::EventType;
use kopf_core::cycle::OperatorConfig;
use kopf_core::handler::lifecycle::Lifecycle;
use kopf_core::handler::registry::Registry;
use kopf_core::handling::attempt::CallResult;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::time::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use super::*;
use crate::client::credentials::CredentialStore;
use crate::context::OperatorContext;
use crate::feed::dispatch_handler::DispatchHandler;
use crate::host::{Host, HostTask, LogRecord, RunReply, RunTask};
use crate::objects::dispatcher::Dispatcher;
use crate::watch::EventHandler as _;

/// The other side: calls return at once, unless they are told to stay; flags are seen only by those who look.
struct Python {
    start: Instant,
    /// What happened, and when: in seconds of the paused clock.
    seen: Mutex<Vec<(f64, String)>>,
    stays: AtomicBool,
    /// Those who stay leave when they are cancelled.
    gives_in: AtomicBool,
    staying: Mutex<Vec<RunTask>>,
}

impl Python {
    fn note(&self, what: impl Into<String>) {
        let when = (self.start.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        self.seen.lock().unwrap().push((when, what.into()));
    }

    fn seen(&self) -> Vec<(f64, String)> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    fn leave(&self) {
        for job in self.staying.lock().unwrap().drain(..) {
            answer(job);
        }
    }
}

fn answer(job: RunTask) {
    let outcome = job.attempt.evaluate(&CallResult::Nothing, job.attempt.started).outcome;
    job.reply.send(RunReply { outcome: Some(outcome), patch: None, fns: false });
}

impl Host for Python {
    fn submit(&self, job: HostTask) {
        match job {
            HostTask::Run(job) => {
                self.note(format!("call {}", job.attempt.label));
                if self.stays.load(Ordering::Relaxed) {
                    self.staying.lock().unwrap().push(job);
                } else {
                    answer(job);
                }
            }
            HostTask::Signal(job) => {
                for signal in &job.signals {
                    self.note(format!("signal {:b}", signal.reasons.bits()));
                    if signal.cancel && self.gives_in.load(Ordering::Relaxed) {
                        self.staying.lock().unwrap().retain(|job| job.run != signal.run);
                    }
                }
                job.reply.send(());
            }
            HostTask::Dismiss { reasons, .. } => self.note(format!("dismiss {:b}", reasons.bits())),
            HostTask::Delay(job) => {
                self.note("ask for the delay");
                job.reply.send(Some(7.0));
            }
            HostTask::Refresh { .. } => self.note("refresh"),
            _ => {}
        }
    }

    fn log(&self, entry: LogRecord) {
        if entry.level == Level::Warning || entry.text.ends_with("allowing the actual deletion.") {
            self.note(entry.text);
        }
    }

    fn enabled(&self, _: Level) -> bool {
        true
    }
}

struct Stage {
    python: Arc<Python>,
    shared: Arc<OperatorContext>,
    sink: DispatchHandler,
}

fn stage(handlers: Value) -> Stage {
    let python = Arc::new(Python {
        start: Instant::now(),
        seen: Mutex::default(),
        stays: AtomicBool::new(false),
        gives_in: AtomicBool::new(true),
        staying: Mutex::default(),
    });
    let host: Arc<dyn Host> = Arc::clone(&python) as Arc<dyn Host>;
    let registry = Arc::new(Registry { handlers: serde_json::from_value(handlers).unwrap() });
    let resource = json!({
        "group": "kopf.dev", "version": "v1", "plural": "ks", "kind": "K", "singular": "k", "shortcuts": [],
        "categories": [], "subresources": [], "verbs": [], "namespaced": true, "preferred": true,
    });
    let plan = registry.plan(&Arc::new(serde_json::from_value(resource).unwrap()), &|_| true);
    let rules = OperatorConfig { registry, settings: Arc::default(), lifecycle: Lifecycle::default() };
    let credential_store =
        Arc::new(CredentialStore::new(Arc::clone(&host), crate::testing::vault_options(), &[]).unwrap());
    let shared = crate::testing::shared(rules, credential_store, host);
    tokio::spawn(run_scheduler(Arc::clone(&shared.daemons)));
    let dispatcher = Dispatcher::new(Arc::clone(&shared), &crate::worker::Pool, Arc::new(plan), None);
    Stage { python, shared, sink: DispatchHandler { dispatcher, gated: None } }
}

impl Stage {
    /// The object comes, with our finalizer already there.
    #[expect(clippy::needless_pass_by_value, reason = "what is written at the call")]
    fn comes(&mut self, extra: Value) {
        self.comes_as("x", &extra);
    }

    fn comes_as(&mut self, name: &str, extra: &Value) {
        let mut metadata = json!({
            "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1",
            "finalizers": ["kopf.zalando.org/KopfFinalizerMarker"],
        });
        metadata.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let body = json!({"apiVersion": "kopf.dev/v1", "kind": "K", "metadata": metadata}).to_string();
        self.sink.event(EventType::Modified, Object::decode(&body).unwrap());
    }

    async fn after(&self, seconds: f64) -> Vec<(f64, String)> {
        sleep(Duration::from_secs_f64(seconds)).await;
        self.python.seen()
    }
}

fn at(list: &[(f64, &str)]) -> Vec<(f64, String)> {
    list.iter().map(|(when, what)| (*when, (*what).to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_timer_ticks_and_keeps_no_task() {
    let mut stage = stage(json!([{"id": "t", "kind": "timer", "interval": 10, "initial_delay": 3}]));
    stage.comes(json!({}));
    let seen = stage.after(25.0).await;
    assert_eq!(seen, at(&[(3.0, "call Timer 't'"), (13.0, "call Timer 't'"), (23.0, "call Timer 't'")]));
    assert!(stage.shared.workers.is_empty());
    assert!(stage.shared.daemons.manager.writers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_is_a_function_is_asked_for() {
    let mut stage = stage(json!([{"id": "t", "kind": "timer", "initial_delay_callable": true}]));
    stage.comes(json!({}));
    let seen = stage.after(8.0).await;
    assert_eq!(seen[..2], at(&[(0.0, "ask for the delay"), (7.0, "call Timer 't'")]));
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_timer_stops_at_once_when_it_does_not_match_any_more() {
    let handlers = json!([
        {"id": "t", "kind": "timer", "interval": 10, "labels": [["run", {"present": true}]]},
        {"id": "d", "kind": "daemon"},
    ]);
    let mut stage = stage(handlers);
    stage.python.stays.store(true, Ordering::Relaxed);
    stage.comes(json!({"labels": {"run": "yes"}}));
    stage.python.leave();
    stage.after(5.0).await;
    stage.comes(json!({}));
    let seen = stage.after(100.0).await;
    assert_eq!(seen, at(&[(5.0, "refresh"), (5.0, "dismiss 11")]));
}

#[tokio::test(start_paused = true)]
async fn a_daemon_is_pressed_step_by_step_by_the_cycles_of_its_object() {
    let handlers = json!([
        {"id": "d", "kind": "daemon", "cancellation_backoff": 5, "cancellation_timeout": 10},
    ]);
    let mut stage = stage(handlers);
    stage.python.stays.store(true, Ordering::Relaxed);
    stage.python.gives_in.store(false, Ordering::Relaxed);
    stage.comes(json!({}));
    stage.after(1.0).await;
    stage.comes(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
    let seen = stage.after(14.0).await;
    let expected = [(1.0, "refresh"), (1.0, "signal 100"), (1.0, "signal 100100"), (6.0, "signal 1100100")];
    assert_eq!(seen, at(&expected));
    let seen = stage.after(3.0).await;
    let warning = "Daemon 'd' did not exit in time. Leaving it orphaned.";
    assert_eq!(seen[..2], at(&[(16.0, warning), (16.0, "signal 11100100")]));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_daemon_wakes_up_its_object() {
    let mut stage = stage(json!([{"id": "d", "kind": "daemon"}]));
    stage.python.stays.store(true, Ordering::Relaxed);
    stage.comes(json!({}));
    stage.comes(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
    stage.after(2.0).await;
    // The worker waits for the next look, in 60 seconds.
    assert_eq!(stage.shared.workers.len(), 1);
    stage.python.leave();
    let seen = stage.after(1.0).await;
    let allowed = "Removing the finalizer, thus allowing the actual deletion.";
    assert_eq!(seen, at(&[(2.0, "dismiss 101"), (2.0, allowed)]));
}

#[tokio::test(start_paused = true)]
async fn whatever_runs_for_vanished_objects_is_stopped() {
    let handlers = json!([{"id": "d", "kind": "daemon", "cancellation_timeout": 5}]);
    let mut stage = stage(handlers);
    stage.python.stays.store(true, Ordering::Relaxed);
    stage.sink.on_init();
    stage.comes_as("x", &json!({}));
    stage.comes_as("y", &json!({}));
    stage.sink.on_init_done();
    stage.after(1.0).await;
    stage.sink.on_init();
    stage.comes_as("y", &json!({}));
    stage.sink.on_init_done();
    let seen = stage.after(10.0).await;
    let expected = [(1.0, "refresh"), (1.0, "signal 100"), (1.0, "signal 1000100"), (1.0, "dismiss 1000101")];
    assert_eq!(seen, at(&expected));
    assert_eq!(stage.python.staying.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pause_stops_all_and_a_listing_afterwards_starts_them_again() {
    let handlers = json!([{"id": "d", "kind": "daemon", "cancellation_timeout": 5}, {"id": "t", "kind": "timer", "interval": 2}]);
    let mut stage = stage(handlers);
    stage.comes(json!({}));
    stage.python.stays.store(true, Ordering::Relaxed);
    stage.after(1.0).await;
    stage.shared.daemons.pause_daemons();
    stage.comes(json!({}));
    let seen = stage.after(10.0).await;
    assert_eq!(seen, at(&[(1.0, "dismiss 1001")]));
    stage.shared.daemons.resume_daemons();
    stage.comes(json!({}));
    // The daemon has ended by itself before the pause, and stays so.
    assert_eq!(stage.after(1.0).await, at(&[(11.0, "call Timer 't'")]));
}

#[tokio::test(start_paused = true)]
async fn the_exit_waits_for_daemons_as_long_as_they_were_promised() {
    let handlers = json!([
        {"id": "a", "kind": "daemon", "cancellation_backoff": 2, "cancellation_timeout": 3},
        {"id": "b", "kind": "daemon"},
        {"id": "t", "kind": "timer", "initial_delay": 1000},
    ]);
    let mut stage = stage(handlers);
    stage.python.stays.store(true, Ordering::Relaxed);
    stage.python.gives_in.store(false, Ordering::Relaxed);
    stage.comes(json!({}));
    stage.after(1.0).await;
    stage.shared.daemons.close_daemons().await;
    let seen = stage.after(0.0).await;
    let warnings: Vec<_> = seen.iter().filter(|(_, what)| what.contains("in time")).collect();
    assert_eq!(warnings[0], &(1.0, "Daemon 'b' did not exit in time. Leaving it orphaned.".to_owned()));
    assert_eq!(warnings[1], &(6.0, "Daemon 'a' did not exit in time. Leaving it orphaned.".to_owned()));
    stage.comes_as("y", &json!({}));
    assert_eq!(stage.after(5000.0).await, []);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_gone_at_once_starts_nobody() {
    let mut stage = stage(json!([{"id": "d", "kind": "daemon"}]));
    let body = json!({"apiVersion": "kopf.dev/v1", "kind": "K", "metadata": {"name": "x", "uid": "x"}});
    stage.sink.event(EventType::Deleted, Object::decode(&body.to_string()).unwrap());
    assert_eq!(stage.after(5.0).await, []);
}

#[tokio::test(start_paused = true)]
async fn crowds_are_called_together_and_hardly_late() {
    let mut stage = stage(json!([{"id": "t", "kind": "timer", "interval": 1}]));
    for number in 0..500 {
        stage.comes_as(&format!("x{number}"), &json!({}));
        sleep(Duration::from_millis(2)).await;
    }
    stage.python.seen();
    let seen = stage.after(10.0).await;
    // 8 milliseconds of a second are lost at most.
    assert!((4_900..=5_000).contains(&seen.len()), "{}", seen.len());
    assert!(stage.shared.workers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_a_sleep_as_any_other() {
    let mut stage = stage(json!([{"id": "d", "kind": "daemon"}]));
    stage.python.stays.store(true, Ordering::Relaxed);
    stage.comes(json!({}));
    let job = stage.python.staying.lock().unwrap().pop().unwrap();
    let now = Timestamp::from_micros(job.attempt.started.micros());
    let raised = CallResult::Temporary { message: "boo".to_owned(), delay: Some(5.0) };
    let outcome = job.attempt.evaluate(&raised, now).outcome;
    job.reply.send(RunReply { outcome: Some(outcome), patch: None, fns: false });
    let seen = stage.after(10.0).await;
    assert_eq!(seen, at(&[(0.0, "call Daemon 'd'"), (5.0, "call Daemon 'd'")]));
    // A call that is lost is an end, and nobody has asked for it.
    drop(stage.python.staying.lock().unwrap().pop());
    assert_eq!(stage.after(1.0).await[0], (10.0, "dismiss 1".to_owned()));
}
