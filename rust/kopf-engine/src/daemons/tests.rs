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
use kopf_core::settings::Settings;
use kopf_core::time::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use super::*;
use crate::client::connection::Connection;
use crate::client::credentials::CredentialStore;
use crate::context::DispatchContext;
use crate::feed::dispatch_consumer::DispatchConsumer;
use crate::host::{CallDaemonReply, CallDaemonTask, Host, HostTask, LogRecord};
use crate::objects::dispatcher::Dispatcher;
use crate::testing::Got;
use crate::watch::WatchConsumer as _;

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
    /// The server does not respond to patches.
    is_silent: Arc<AtomicBool>,
    held_calls: Mutex<Vec<CallDaemonTask>>,
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
        for task in self.held_calls.lock().unwrap().drain(..) {
            self.reply_to(task);
        }
    }

    fn reply_to(&self, task: CallDaemonTask) {
        let outcome = task.attempt.evaluate(&CallResult::Nothing, task.attempt.started).outcome;
        let patch = json!({"status": {"ticks": 1}}).as_object().cloned();
        let patch = patch.filter(|_| self.patches.load(Ordering::Relaxed));
        task.reply.send(Some(CallDaemonReply { outcome: Some(outcome), patch, fns: false }));
    }
}

impl Host for Python {
    fn submit(&self, task: HostTask) {
        match task {
            HostTask::CallDaemon(task) => {
                self.note(format!("call {}", task.attempt.label));
                if self.holds_calls.load(Ordering::Relaxed) {
                    self.held_calls.lock().unwrap().push(task);
                } else {
                    self.reply_to(task);
                }
            }
            HostTask::StopDaemons(task) => {
                for signal in &task.signals {
                    self.note(format!("signal {:b}", signal.reasons.bits()));
                    if signal.cancel && self.ends_on_cancel.load(Ordering::Relaxed) {
                        let mut held_calls = self.held_calls.lock().unwrap();
                        for task in held_calls.extract_if(.., |task| task.run == signal.run) {
                            task.reply.send(Some(CallDaemonReply::default()));
                        }
                    }
                }
                task.reply.send(());
            }
            HostTask::DaemonEnded { reasons, .. } => self.note(format!("dismiss {:b}", reasons.bits())),
            HostTask::GetInitialDelay(task) => {
                self.note("ask for the delay");
                task.reply.send(Some(7.0));
            }
            HostTask::ObjectUpdated { .. } => self.note("refresh"),
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

struct Fixture {
    python: Arc<Python>,
    shared: Arc<DispatchContext>,
    sink: DispatchConsumer,
    /// The requests to the server.
    requests: Arc<Mutex<Vec<Got>>>,
}

fn fixture(handlers: Value) -> Fixture {
    fixture_with(handlers, false)
}

/// A fixture without credentials, or with a server for patches.
fn fixture_with(handlers: Value, has_server: bool) -> Fixture {
    fixture_under(Settings::default(), handlers, has_server)
}

fn fixture_under(settings: Settings, handlers: Value, has_server: bool) -> Fixture {
    let python = Arc::new(Python {
        start: Instant::now(),
        seen: Mutex::default(),
        holds_calls: AtomicBool::new(false),
        ends_on_cancel: AtomicBool::new(true),
        patches: AtomicBool::default(),
        rejects: Arc::new(AtomicBool::new(true)),
        is_silent: Arc::default(),
        held_calls: Mutex::default(),
    });
    let host: Arc<dyn Host> = Arc::clone(&python) as Arc<dyn Host>;
    let registry = Arc::new(Registry { handlers: serde_json::from_value(handlers).unwrap() });
    let resource = json!({
        "group": "kopf.dev", "version": "v1", "plural": "ks", "kind": "K", "singular": "k", "shortcuts": [],
        "categories": [], "subresources": [], "verbs": [], "namespaced": true, "preferred": true,
    });
    let resource_handlers =
        registry.handlers_of(&Arc::new(serde_json::from_value(resource).unwrap()), &|_| true);
    let config = OperatorConfig { registry, settings: Arc::new(settings), lifecycle: Lifecycle::default() };
    let credential_store = Arc::new(
        CredentialStore::new(Arc::clone(&host), crate::testing::credential_store_options(), &[]).unwrap(),
    );
    let (rejects, is_silent) = (Arc::clone(&python.rejects), Arc::clone(&python.is_silent));
    let requests = Arc::default();
    let server = crate::testing::client(&requests, move |got| {
        let is_rejected = rejects.load(Ordering::Relaxed);
        let object = json!({"apiVersion": "kopf.dev/v1", "kind": "K", "status": got.body["status"], "metadata": {"name": "x"}});
        if is_silent.load(Ordering::Relaxed) {
            return (0, None);
        }
        if is_rejected { (422, Some(json!({}))) } else { (200, Some(object)) }
    });
    if has_server {
        credential_store.admit(Connection::fake("fake", server));
    }
    let shared = crate::testing::shared(config, credential_store, host);
    tokio::spawn(run_scheduler(Arc::clone(&shared.daemons)));
    let dispatcher =
        Dispatcher::new(Arc::clone(&shared), &crate::worker::Pool, Arc::new(resource_handlers), None);
    Fixture { python, shared, sink: DispatchConsumer::new(dispatcher), requests }
}

impl Fixture {
    /// The object disappears from the watch.
    fn goes(&mut self) {
        let metadata = json!({"name": "x", "namespace": "ns", "uid": "x", "resourceVersion": "2"});
        let body = json!({"apiVersion": "kopf.dev/v1", "kind": "K", "metadata": metadata}).to_string();
        self.sink.event(EventType::Deleted, &Arc::new(Object::decode(&body).unwrap()));
    }

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
        self.sink.event(EventType::Modified, &Arc::new(Object::decode(&body).unwrap()));
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
    let mut fixture = fixture(json!([{"id": "t", "kind": "timer", "interval": 10, "initial_delay": 3}]));
    fixture.comes(json!({}));
    let seen = fixture.after(25.0).await;
    assert_eq!(seen, at(&[(3.0, "call Timer 't'"), (13.0, "call Timer 't'"), (23.0, "call Timer 't'")]));
    assert!(fixture.shared.workers.is_empty());
    assert!(fixture.shared.daemons.manager.writers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_initial_delay_function_is_called() {
    let mut fixture = fixture(json!([{"id": "t", "kind": "timer", "initial_delay_callable": true}]));
    fixture.comes(json!({}));
    let seen = fixture.after(8.0).await;
    assert_eq!(seen[..2], at(&[(0.0, "ask for the delay"), (7.0, "call Timer 't'")]));
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_timer_stops_at_once_when_it_does_not_match_any_more() {
    let handlers = json!([
        {"id": "t", "kind": "timer", "interval": 10, "labels": [["run", {"present": true}]]},
        {"id": "d", "kind": "daemon"},
    ]);
    let mut fixture = fixture(handlers);
    fixture.python.holds_calls.store(true, Ordering::Relaxed);
    fixture.comes(json!({"labels": {"run": "yes"}}));
    fixture.python.leave();
    fixture.after(5.0).await;
    fixture.comes(json!({}));
    let seen = fixture.after(100.0).await;
    assert_eq!(seen, at(&[(5.0, "refresh"), (5.0, "dismiss 11")]));
}

// contract: engine 9.4
#[tokio::test(start_paused = true)]
async fn the_cycles_of_an_object_terminate_its_daemon_step_by_step() {
    let handlers = json!([
        {"id": "d", "kind": "daemon", "cancellation_backoff": 5, "cancellation_timeout": 10},
    ]);
    let mut fixture = fixture(handlers);
    fixture.python.holds_calls.store(true, Ordering::Relaxed);
    fixture.python.ends_on_cancel.store(false, Ordering::Relaxed);
    fixture.comes(json!({}));
    fixture.after(1.0).await;
    fixture.comes(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
    let seen = fixture.after(14.0).await;
    let expected = [(1.0, "refresh"), (1.0, "signal 100"), (1.0, "signal 100100"), (6.0, "signal 1100100")];
    assert_eq!(seen, at(&expected));
    let seen = fixture.after(3.0).await;
    let warning = "Daemon 'd' did not exit in time. Leaving it orphaned.";
    assert_eq!(seen[..2], at(&[(16.0, warning), (16.0, "signal 11100100")]));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_of_a_daemon_is_counted() {
    let handlers =
        json!([{"id": "d", "kind": "daemon", "cancellation_backoff": 5, "cancellation_timeout": 10}]);
    let mut fixture = fixture(handlers);
    fixture.python.holds_calls.store(true, Ordering::Relaxed);
    fixture.comes(json!({}));
    fixture.after(1.0).await;
    fixture.comes(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
    fixture.after(10.0).await;
    let mut text = String::new();
    crate::metrics::add_metrics(&mut text, &fixture.shared.base.metrics, &crate::metrics::Samples::default());
    let calls: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("kopf_handler_calls_total{") && !line.ends_with(" 0"))
        .collect();
    assert_eq!(calls, ["kopf_handler_calls_total{handler=\"d\",outcome=\"cancelled\"} 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_a_cycle_cancels_is_started_again_if_the_object_matches() {
    let handlers = json!([
        {"id": "d", "kind": "daemon", "cancellation_backoff": 5, "cancellation_timeout": 10,
            "labels": [["run", {"present": true}]]},
        {"id": "other", "kind": "daemon"},
    ]);
    let mut fixture = fixture(handlers);
    fixture.python.holds_calls.store(true, Ordering::Relaxed);
    fixture.comes(json!({"labels": {"run": "yes"}}));
    fixture.after(1.0).await;
    fixture.comes(json!({}));
    fixture.after(1.0).await;
    fixture.comes(json!({"labels": {"run": "yes"}}));
    let seen = fixture.after(30.0).await;
    assert!(seen.contains(&(6.0, "call Daemon 'd'".to_owned())), "{seen:?}");
    assert!(fixture.shared.workers.is_empty(), "nothing is stopping");
}

// contract: engine 9.6, observed 16
#[tokio::test(start_paused = true)]
async fn the_exit_of_a_daemon_starts_a_cycle_of_its_object() {
    let mut fixture = fixture(json!([{"id": "d", "kind": "daemon"}]));
    fixture.python.holds_calls.store(true, Ordering::Relaxed);
    fixture.comes(json!({}));
    fixture.comes(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
    fixture.after(2.0).await;
    // The worker sleeps until the next termination step, in 60 seconds.
    assert_eq!(fixture.shared.workers.len(), 1);
    fixture.python.leave();
    let seen = fixture.after(1.0).await;
    let allowed = "Removing the finalizer, thus allowing the actual deletion.";
    assert_eq!(seen, at(&[(2.0, "dismiss 101"), (2.0, allowed)]));
}

#[tokio::test(start_paused = true)]
async fn daemons_of_removed_objects_are_stopped() {
    let handlers = json!([{"id": "d", "kind": "daemon", "cancellation_timeout": 5}]);
    let mut fixture = fixture(handlers);
    fixture.python.holds_calls.store(true, Ordering::Relaxed);
    fixture.sink.on_init();
    fixture.comes_as("x", &json!({}));
    fixture.comes_as("y", &json!({}));
    fixture.sink.on_init_done();
    fixture.after(1.0).await;
    fixture.sink.on_init();
    fixture.comes_as("y", &json!({}));
    fixture.sink.on_init_done();
    let seen = fixture.after(10.0).await;
    let expected = [(1.0, "refresh"), (1.0, "signal 100"), (1.0, "signal 1000100"), (1.0, "dismiss 1000101")];
    assert_eq!(seen, at(&expected));
    assert_eq!(fixture.python.held_calls.lock().unwrap().len(), 1);
}

// contract: engine 9.5
#[tokio::test(start_paused = true)]
async fn a_pause_stops_all_daemons_and_the_next_listing_starts_them_again() {
    let handlers = json!([{"id": "d", "kind": "daemon", "cancellation_timeout": 5}, {"id": "t", "kind": "timer", "interval": 2}]);
    let mut fixture = fixture(handlers);
    fixture.comes(json!({}));
    fixture.python.holds_calls.store(true, Ordering::Relaxed);
    fixture.after(1.0).await;
    fixture.shared.daemons.pause_daemons();
    fixture.comes(json!({}));
    let seen = fixture.after(10.0).await;
    assert_eq!(seen, at(&[(1.0, "dismiss 1001")]));
    fixture.shared.daemons.resume_daemons();
    fixture.comes(json!({}));
    // The daemon has exited on its own before the pause, and is not restarted.
    assert_eq!(fixture.after(1.0).await, at(&[(11.0, "call Timer 't'")]));
}

// contract: engine 9.5
#[tokio::test(start_paused = true)]
async fn the_operator_exit_waits_for_daemons_within_their_timeouts() {
    let handlers = json!([
        {"id": "a", "kind": "daemon", "cancellation_backoff": 2, "cancellation_timeout": 3},
        {"id": "b", "kind": "daemon"},
        {"id": "t", "kind": "timer", "initial_delay": 1000},
    ]);
    let mut fixture = fixture(handlers);
    fixture.python.holds_calls.store(true, Ordering::Relaxed);
    fixture.python.ends_on_cancel.store(false, Ordering::Relaxed);
    fixture.comes(json!({}));
    fixture.after(1.0).await;
    fixture.shared.daemons.close_daemons().await;
    let seen = fixture.after(0.0).await;
    let warnings: Vec<_> = seen.iter().filter(|(_, what)| what.contains("in time")).collect();
    assert_eq!(warnings[0], &(1.0, "Daemon 'b' did not exit in time. Leaving it orphaned.".to_owned()));
    assert_eq!(warnings[1], &(6.0, "Daemon 'a' did not exit in time. Leaving it orphaned.".to_owned()));
    fixture.comes_as("y", &json!({}));
    assert_eq!(fixture.after(5000.0).await, []);
}

#[tokio::test(start_paused = true)]
async fn no_task_writes_a_patch_after_the_exit() {
    let mut fixture = fixture_with(json!([{"id": "t", "kind": "timer", "interval": 1}]), true);
    fixture.python.patches.store(true, Ordering::Relaxed);
    fixture.python.is_silent.store(true, Ordering::Relaxed);
    fixture.comes(json!({}));
    fixture.after(2.0).await;
    assert_eq!(fixture.shared.daemons.manager.writers.len(), 1);
    fixture.shared.daemons.close_daemons().await;
    assert!(fixture.shared.daemons.manager.writers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_deleted_at_once_starts_no_daemons() {
    let mut fixture = fixture(json!([{"id": "d", "kind": "daemon"}]));
    let body = json!({"apiVersion": "kopf.dev/v1", "kind": "K", "metadata": {"name": "x", "uid": "x"}});
    fixture.sink.event(EventType::Deleted, &Arc::new(Object::decode(&body.to_string()).unwrap()));
    assert_eq!(fixture.after(5.0).await, []);
}

#[tokio::test(start_paused = true)]
async fn many_timers_are_coalesced_with_little_delay() {
    let mut fixture = fixture(json!([{"id": "t", "kind": "timer", "interval": 1}]));
    for number in 0..500 {
        fixture.comes_as(&format!("x{number}"), &json!({}));
        sleep(Duration::from_millis(2)).await;
    }
    fixture.python.seen();
    let seen = fixture.after(10.0).await;
    // At most 8 milliseconds per second are lost.
    assert!((4_900..=5_000).contains(&seen.len()), "{}", seen.len());
    assert!(fixture.shared.workers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn timers_stay_scheduled_however_many_there_are() {
    let mut fixture = fixture(json!([{"id": "t", "kind": "timer", "interval": 10}]));
    for number in 0..5_000 {
        fixture.comes_as(&number.to_string(), &json!({}));
    }
    let calls = fixture.after(25.0).await.len();
    assert_eq!(calls, 3 * 5_000, "at once, and after 10 and 20 seconds");
}

#[tokio::test(start_paused = true)]
async fn a_retry_keeps_no_task() {
    let mut fixture = fixture(json!([{"id": "d", "kind": "daemon"}]));
    fixture.python.holds_calls.store(true, Ordering::Relaxed);
    fixture.comes(json!({}));
    let task = fixture.python.held_calls.lock().unwrap().pop().unwrap();
    let now = Timestamp::from_micros(task.attempt.started.micros());
    let raised = CallResult::Temporary { message: "boo".to_owned(), delay: Some(5.0) };
    let outcome = task.attempt.evaluate(&raised, now).outcome;
    task.reply.send(Some(CallDaemonReply { outcome: Some(outcome), patch: None, fns: false }));
    let seen = fixture.after(10.0).await;
    assert_eq!(seen, at(&[(0.0, "call Daemon 'd'"), (5.0, "call Daemon 'd'")]));
    // A cancelled call is an exit on its own.
    let task = fixture.python.held_calls.lock().unwrap().pop().unwrap();
    task.reply.send(Some(CallDaemonReply::default()));
    assert_eq!(fixture.after(1.0).await[0], (10.0, "dismiss 1".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_lost_call_is_repeated_after_the_default_backoff() {
    let mut fixture = fixture(json!([{"id": "d", "kind": "daemon"}]));
    fixture.python.holds_calls.store(true, Ordering::Relaxed);
    fixture.comes(json!({}));
    drop(fixture.python.held_calls.lock().unwrap().pop());
    let seen = fixture.after(100.0).await;
    let lost = "The call of Daemon 'd' was lost because of an internal error. It is repeated in 60 seconds.";
    assert_eq!(seen, at(&[(0.0, "call Daemon 'd'"), (0.0, lost), (60.0, "call Daemon 'd'")]));
    let attempt = &fixture.python.held_calls.lock().unwrap()[0].attempt;
    assert_eq!(attempt.retry, 0, "it does not count as an attempt");
}

#[tokio::test(start_paused = true)]
async fn patches_that_fail_again_and_again_are_errors_at_growing_intervals() {
    let mut fixture = fixture_with(json!([{"id": "t", "kind": "timer", "interval": 1}]), true);
    fixture.python.patches.store(true, Ordering::Relaxed);
    fixture.comes(json!({}));
    let is_error = |(_, what): &(f64, String)| what.contains("has failed to patch the object");
    let seen = fixture.after(1000.0).await;
    let errors: Vec<_> = seen.iter().filter(|one| is_error(one)).map(|(when, _)| *when).collect();
    let calls = seen.iter().filter(|(_, what)| what.starts_with("call ")).count();
    // The calls go on; the delays of the error backoff are 1, 1, 2, 3, 5, ... seconds.
    assert!((8..=14).contains(&errors.len()) && calls > 500, "{errors:?} of {calls} calls");
    // After a success, the next failure is an error at once.
    fixture.python.rejects.store(false, Ordering::Relaxed);
    assert!(!fixture.after(10.0).await.iter().any(is_error));
    fixture.python.rejects.store(true, Ordering::Relaxed);
    assert!(fixture.after(10.0).await.iter().any(is_error));
}

/// With a selector in the settings, the object may only have stopped matching it.
#[tokio::test(start_paused = true)]
async fn the_last_patch_of_a_daemon_is_sent_unless_its_object_is_known_to_be_deleted() {
    let selectors = [[json!({"any_name": "ks"}), json!("zone=a")]];
    let selected = json!({"watching": {"label_selectors": selectors}});
    for (settings, sent) in [(json!({}), 0), (selected, 1)] {
        let settings: Settings = serde_json::from_value(settings).unwrap();
        let handlers = json!([{"id": "d", "kind": "daemon", "cancellation_backoff": 50}]);
        let mut fixture = fixture_under(settings, handlers, true);
        fixture.python.holds_calls.store(true, Ordering::Relaxed);
        fixture.python.patches.store(true, Ordering::Relaxed);
        fixture.python.rejects.store(false, Ordering::Relaxed);
        fixture.comes(json!({}));
        fixture.after(1.0).await;
        fixture.goes();
        fixture.after(1.0).await;
        fixture.python.leave();
        fixture.after(1.0).await;
        let requests = crate::testing::lock(&fixture.requests);
        assert_eq!(requests.len(), sent, "{requests:?}");
    }
}
