//! Daemons and timers with a paused clock and scripted Python functions.

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
use crate::client::connection::Connection;
use crate::client::credentials::CredentialStore;
use crate::context::OperatorContext;
use crate::feed::dispatch_handler::DispatchHandler;
use crate::host::{Host, HostTask, LogRecord, RunReply, RunTask};
use crate::objects::dispatcher::Dispatcher;
use crate::watch::EventHandler as _;

/// The host: calls return at once, or run until [`Python::leave`] if `holds_calls` is set.
struct Python {
    start: Instant,
    /// The events, with their times in seconds of the paused clock.
    seen: Mutex<Vec<(f64, String)>>,
    holds_calls: AtomicBool,
    /// Running calls end when they are cancelled.
    ends_on_cancel: AtomicBool,
    /// Calls return a patch of the status.
    patches: AtomicBool,
    /// The server rejects all patches.
    rejects: Arc<AtomicBool>,
    held_calls: Mutex<Vec<RunTask>>,
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
        for job in self.held_calls.lock().unwrap().drain(..) {
            self.answer(job);
        }
    }

    fn answer(&self, job: RunTask) {
        let outcome = job.attempt.evaluate(&CallResult::Nothing, job.attempt.started).outcome;
        let patch = json!({"status": {"ticks": 1}}).as_object().cloned();
        let patch = patch.filter(|_| self.patches.load(Ordering::Relaxed));
        job.reply.send(Some(RunReply { outcome: Some(outcome), patch, fns: false }));
    }
}

impl Host for Python {
    fn submit(&self, job: HostTask) {
        match job {
            HostTask::Run(job) => {
                self.note(format!("call {}", job.attempt.label));
                if self.holds_calls.load(Ordering::Relaxed) {
                    self.held_calls.lock().unwrap().push(job);
                } else {
                    self.answer(job);
                }
            }
            HostTask::Signal(job) => {
                for signal in &job.signals {
                    self.note(format!("signal {:b}", signal.reasons.bits()));
                    if signal.cancel && self.ends_on_cancel.load(Ordering::Relaxed) {
                        self.held_calls.lock().unwrap().retain(|job| job.run != signal.run);
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
        let is_failed_patch =
            entry.level == Level::Error && entry.text.contains("has failed to patch the object");
        if entry.level == Level::Warning
            || is_failed_patch
            || entry.text.contains(" was lost ")
            || entry.text.ends_with("allowing the actual deletion.")
        {
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
    staged(handlers, false)
}

/// A stage without credentials, or with a server for patches.
fn staged(handlers: Value, has_server: bool) -> Stage {
    let python = Arc::new(Python {
        start: Instant::now(),
        seen: Mutex::default(),
        holds_calls: AtomicBool::new(false),
        ends_on_cancel: AtomicBool::new(true),
        patches: AtomicBool::default(),
        rejects: Arc::new(AtomicBool::new(true)),
        held_calls: Mutex::default(),
    });
    let host: Arc<dyn Host> = Arc::clone(&python) as Arc<dyn Host>;
    let registry = Arc::new(Registry { handlers: serde_json::from_value(handlers).unwrap() });
    let resource = json!({
        "group": "kopf.dev", "version": "v1", "plural": "ks", "kind": "K", "singular": "k", "shortcuts": [],
        "categories": [], "subresources": [], "verbs": [], "namespaced": true, "preferred": true,
    });
    let plan = registry.plan(&Arc::new(serde_json::from_value(resource).unwrap()), &|_| true);
    let rules = OperatorConfig { registry, settings: Arc::default(), lifecycle: Lifecycle::default() };
    let credential_store = Arc::new(
        CredentialStore::new(Arc::clone(&host), crate::testing::credential_store_options(), &[]).unwrap(),
    );
    let rejects = Arc::clone(&python.rejects);
    let server = crate::testing::client(&Arc::default(), move |got| {
        let is_rejected = rejects.load(Ordering::Relaxed);
        let object = json!({"apiVersion": "kopf.dev/v1", "kind": "K", "status": got.body["status"], "metadata": {"name": "x"}});
        if is_rejected { (422, Some(json!({}))) } else { (200, Some(object)) }
    });
    if has_server {
        credential_store.admit(Connection::fake("fake", server));
    }
    let shared = crate::testing::shared(rules, credential_store, host);
    tokio::spawn(run_scheduler(Arc::clone(&shared.daemons)));
    let dispatcher = Dispatcher::new(Arc::clone(&shared), &crate::worker::Pool, Arc::new(plan), None);
    Stage { python, shared, sink: DispatchHandler { dispatcher, gated: None } }
}

impl Stage {
    /// Dispatches the object with our finalizer already set.
    #[expect(clippy::needless_pass_by_value, reason = "literals at the call")]
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
async fn an_initial_delay_function_is_called() {
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
    stage.python.holds_calls.store(true, Ordering::Relaxed);
    stage.comes(json!({"labels": {"run": "yes"}}));
    stage.python.leave();
    stage.after(5.0).await;
    stage.comes(json!({}));
    let seen = stage.after(100.0).await;
    assert_eq!(seen, at(&[(5.0, "refresh"), (5.0, "dismiss 11")]));
}

#[tokio::test(start_paused = true)]
async fn the_cycles_of_an_object_terminate_its_daemon_step_by_step() {
    let handlers = json!([
        {"id": "d", "kind": "daemon", "cancellation_backoff": 5, "cancellation_timeout": 10},
    ]);
    let mut stage = stage(handlers);
    stage.python.holds_calls.store(true, Ordering::Relaxed);
    stage.python.ends_on_cancel.store(false, Ordering::Relaxed);
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
async fn the_exit_of_a_daemon_starts_a_cycle_of_its_object() {
    let mut stage = stage(json!([{"id": "d", "kind": "daemon"}]));
    stage.python.holds_calls.store(true, Ordering::Relaxed);
    stage.comes(json!({}));
    stage.comes(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
    stage.after(2.0).await;
    // The worker sleeps until the next termination step, in 60 seconds.
    assert_eq!(stage.shared.workers.len(), 1);
    stage.python.leave();
    let seen = stage.after(1.0).await;
    let allowed = "Removing the finalizer, thus allowing the actual deletion.";
    assert_eq!(seen, at(&[(2.0, "dismiss 101"), (2.0, allowed)]));
}

#[tokio::test(start_paused = true)]
async fn daemons_of_removed_objects_are_stopped() {
    let handlers = json!([{"id": "d", "kind": "daemon", "cancellation_timeout": 5}]);
    let mut stage = stage(handlers);
    stage.python.holds_calls.store(true, Ordering::Relaxed);
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
    assert_eq!(stage.python.held_calls.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pause_stops_all_daemons_and_the_next_listing_starts_them_again() {
    let handlers = json!([{"id": "d", "kind": "daemon", "cancellation_timeout": 5}, {"id": "t", "kind": "timer", "interval": 2}]);
    let mut stage = stage(handlers);
    stage.comes(json!({}));
    stage.python.holds_calls.store(true, Ordering::Relaxed);
    stage.after(1.0).await;
    stage.shared.daemons.pause_daemons();
    stage.comes(json!({}));
    let seen = stage.after(10.0).await;
    assert_eq!(seen, at(&[(1.0, "dismiss 1001")]));
    stage.shared.daemons.resume_daemons();
    stage.comes(json!({}));
    // The daemon has exited on its own before the pause, and is not restarted.
    assert_eq!(stage.after(1.0).await, at(&[(11.0, "call Timer 't'")]));
}

#[tokio::test(start_paused = true)]
async fn the_operator_exit_waits_for_daemons_within_their_timeouts() {
    let handlers = json!([
        {"id": "a", "kind": "daemon", "cancellation_backoff": 2, "cancellation_timeout": 3},
        {"id": "b", "kind": "daemon"},
        {"id": "t", "kind": "timer", "initial_delay": 1000},
    ]);
    let mut stage = stage(handlers);
    stage.python.holds_calls.store(true, Ordering::Relaxed);
    stage.python.ends_on_cancel.store(false, Ordering::Relaxed);
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
async fn an_object_deleted_at_once_starts_no_daemons() {
    let mut stage = stage(json!([{"id": "d", "kind": "daemon"}]));
    let body = json!({"apiVersion": "kopf.dev/v1", "kind": "K", "metadata": {"name": "x", "uid": "x"}});
    stage.sink.event(EventType::Deleted, Object::decode(&body.to_string()).unwrap());
    assert_eq!(stage.after(5.0).await, []);
}

#[tokio::test(start_paused = true)]
async fn many_timers_are_coalesced_with_little_delay() {
    let mut stage = stage(json!([{"id": "t", "kind": "timer", "interval": 1}]));
    for number in 0..500 {
        stage.comes_as(&format!("x{number}"), &json!({}));
        sleep(Duration::from_millis(2)).await;
    }
    stage.python.seen();
    let seen = stage.after(10.0).await;
    // At most 8 milliseconds per second are lost.
    assert!((4_900..=5_000).contains(&seen.len()), "{}", seen.len());
    assert!(stage.shared.workers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_retry_keeps_no_task() {
    let mut stage = stage(json!([{"id": "d", "kind": "daemon"}]));
    stage.python.holds_calls.store(true, Ordering::Relaxed);
    stage.comes(json!({}));
    let job = stage.python.held_calls.lock().unwrap().pop().unwrap();
    let now = Timestamp::from_micros(job.attempt.started.micros());
    let raised = CallResult::Temporary { message: "boo".to_owned(), delay: Some(5.0) };
    let outcome = job.attempt.evaluate(&raised, now).outcome;
    job.reply.send(Some(RunReply { outcome: Some(outcome), patch: None, fns: false }));
    let seen = stage.after(10.0).await;
    assert_eq!(seen, at(&[(0.0, "call Daemon 'd'"), (5.0, "call Daemon 'd'")]));
    // A cancelled call is an exit on its own.
    let job = stage.python.held_calls.lock().unwrap().pop().unwrap();
    job.reply.send(Some(RunReply::default()));
    assert_eq!(stage.after(1.0).await[0], (10.0, "dismiss 1".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_lost_call_is_repeated_after_the_default_backoff() {
    let mut stage = stage(json!([{"id": "d", "kind": "daemon"}]));
    stage.python.holds_calls.store(true, Ordering::Relaxed);
    stage.comes(json!({}));
    drop(stage.python.held_calls.lock().unwrap().pop());
    let seen = stage.after(100.0).await;
    let lost = "The call of Daemon 'd' was lost because of an internal error. It is repeated in 60 seconds.";
    assert_eq!(seen, at(&[(0.0, "call Daemon 'd'"), (0.0, lost), (60.0, "call Daemon 'd'")]));
    let attempt = &stage.python.held_calls.lock().unwrap()[0].attempt;
    assert_eq!(attempt.retry, 0, "it does not count as an attempt");
}

#[tokio::test(start_paused = true)]
async fn patches_that_fail_again_and_again_are_errors_at_growing_intervals() {
    let mut stage = staged(json!([{"id": "t", "kind": "timer", "interval": 1}]), true);
    stage.python.patches.store(true, Ordering::Relaxed);
    stage.comes(json!({}));
    let is_error = |(_, what): &(f64, String)| what.contains("has failed to patch the object");
    let seen = stage.after(1000.0).await;
    let errors: Vec<_> = seen.iter().filter(|one| is_error(one)).map(|(when, _)| *when).collect();
    let calls = seen.iter().filter(|(_, what)| what.starts_with("call ")).count();
    // The calls go on; the delays of the error backoff are 1, 1, 2, 3, 5, ... seconds.
    assert!((8..=14).contains(&errors.len()) && calls > 500, "{errors:?} of {calls} calls");
    // After a success, the next failure is an error at once.
    stage.python.rejects.store(false, Ordering::Relaxed);
    assert!(!stage.after(10.0).await.iter().any(is_error));
    stage.python.rejects.store(true, Ordering::Relaxed);
    assert!(stage.after(10.0).await.iter().any(is_error));
}
