//! The samples of the monitor in paused time, with planted defects.

use std::collections::BTreeSet;

use kopf_core::cause::EventType;
use kopf_core::handler::projection::Projection;
use kopf_core::health::trackers::QueuePosition;
use kopf_core::health::{Endpoint, is_passing};
use kopf_core::object::Object;
use serde_json::json;
use tokio::runtime::Handle;

use super::*;
use crate::objects::dispatcher::{Dispatcher, Work, WorkerPool};
use crate::testing::{Fixture, lock, resource};
use crate::watch::{FatalRejections, Stream};
use crate::watch_health::StreamFailure;

struct Scene {
    fixture: Fixture,
    monitor: HealthMonitor,
    heartbeats: Arc<Heartbeats>,
}

impl Scene {
    fn new(fixture: Fixture) -> Self {
        let heartbeats = Arc::new(Heartbeats::start());
        let monitored = Monitored {
            dispatch: Arc::clone(&fixture.shared),
            health: Arc::clone(&fixture.health),
            awaited: Awaited::default(),
            admission: Arc::clone(&fixture.admission),
            heartbeats: Arc::clone(&heartbeats),
            replica: None,
        };
        fixture.health.expect(BTreeSet::new());
        Self { monitor: HealthMonitor::new(monitored), heartbeats, fixture }
    }

    /// Lets an operator run for so many seconds, whose loop and orchestrator send heartbeats; returns the failed checks.
    async fn after(&self, seconds: u32) -> Vec<&'static str> {
        for _ in 0..seconds {
            self.heartbeats.on_host(HostLoad::default());
            tokio::select! {
                never = self.heartbeats.beat() => match never {},
                () = self.monitor.run() => {}
                () = sleep(Duration::from_secs(1)) => {}
            }
        }
        let results = self.monitor.evaluate().into_iter();
        results.filter(|result| result.failure.is_some()).map(|result| result.name).collect()
    }

    fn stream(&self) -> Stream {
        let base = &self.fixture.shared.base;
        Stream {
            client: base.client.clone(),
            resource: resource("example.com", "sites", true),
            namespace: Some("web".to_owned()),
            projection: Projection::Whole,
            selectors: vec![],
            derived: None,
            settings: Arc::clone(&base.startup_config.settings),
            host: Arc::clone(&base.host),
            health: Arc::clone(&self.fixture.health),
            activity: Arc::default(),
            fatal: FatalRejections::None,
            pause: None,
            on_missing: None,
        }
    }
}

fn silent() -> Fixture {
    Fixture::new(&json!({}), |_| (200, None))
}

/// HEA-6: a stream task that ends silently.
#[tokio::test(start_paused = true)]
async fn hea_6_a_stream_without_a_task_fails_streams_and_no_other_check() {
    let scene = Scene::new(silent());
    let stream = scene.stream();
    stream.announce();
    scene.fixture.health.expect(BTreeSet::from([stream.name()]));
    scene.fixture.health.listed(&stream.name());
    assert!(scene.after(1).await.is_empty());
    drop(stream);
    assert!(scene.after(59).await.is_empty());
    assert_eq!(scene.after(5).await, ["streams"]);
}

/// HEA-6: a stream task that never polls.
#[tokio::test(start_paused = true)]
async fn hea_6_a_stream_that_makes_no_progress_fails_deaf_and_no_other_check() {
    let scene = Scene::new(silent());
    let stream = scene.stream();
    stream.announce();
    scene.fixture.health.expect(BTreeSet::from([stream.name()]));
    scene.fixture.health.listed(&stream.name());
    stream.activity.wait(Some(70.0));
    assert!(scene.after(299).await.is_empty());
    assert_eq!(scene.after(5).await, ["deaf"]);
    stream.activity.step();
    assert!(scene.after(1).await.is_empty());
}

/// A pool whose workers never run.
struct Forgetting;

impl WorkerPool for Forgetting {
    fn spawn(&self, work: Work, _: Option<&Handle>) {
        std::mem::forget(work);
    }
}

fn object() -> Arc<Object> {
    let text = r#"{"metadata":{"name":"home","uid":"1a","resourceVersion":"1"}}"#;
    Arc::new(Object::decode(text).unwrap())
}

fn with_objects(pool: &'static dyn WorkerPool) -> (Scene, Arc<Dispatcher>) {
    let selector = json!({"group": "example.com", "version": "v1", "plural": "sites"});
    let handler =
        json!({"id": "create", "key": 1, "kind": "changing", "reason": "create", "selector": selector});
    let fixture = Fixture::with_handlers(vec![handler], &json!({}), |_| (200, None));
    let sites = resource("example.com", "sites", true);
    let handlers = fixture.shared.base.startup_config.registry.handlers_of(&sites, &|_| true);
    let dispatcher = Dispatcher::new(Arc::clone(&fixture.shared), pool, Arc::new(handlers), None);
    (Scene::new(fixture), dispatcher)
}

/// HEA-6: a worker that never returns.
#[tokio::test(start_paused = true)]
async fn hea_6_a_worker_that_never_returns_fails_stuck_and_no_other_check() {
    let (scene, dispatcher) = with_objects(&Forgetting);
    dispatcher.dispatch(EventType::Added, object());
    assert!(scene.after(898).await.is_empty());
    assert_eq!(scene.after(6).await, ["stuck"]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_runs_for_hours_is_not_stuck_in_the_engine() {
    let (scene, dispatcher) = with_objects(&crate::worker::Pool);
    dispatcher.dispatch(EventType::Added, object());
    assert!(scene.after(7200).await.is_empty());
    assert_eq!(lock(&scene.fixture.host.tasks).len(), 1, "it is in the host");
}

/// HEA-6: a task that Python never takes.
#[tokio::test(start_paused = true)]
async fn hea_6_a_task_that_python_never_takes_fails_its_check_and_no_other_one() {
    let scene = Scene::new(silent());
    *lock(&scene.fixture.host.position) = QueuePosition { taken: 5, submitted: 6 };
    assert!(scene.after(118).await.is_empty());
    assert_eq!(scene.after(6).await, ["border"]);
    *lock(&scene.fixture.host.position) = QueuePosition { taken: 6, submitted: 6 };
    assert!(scene.after(1).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_heartbeats_of_the_loop_only_that_check_fails() {
    let scene = Scene::new(silent());
    scene.heartbeats.on_host(HostLoad::default());
    *lock(&scene.fixture.host.position) = QueuePosition { taken: 5, submitted: 6 };
    let running = async {
        tokio::join!(scene.heartbeats.beat(), scene.monitor.run());
    };
    tokio::select! {
        () = running => {}
        () = sleep(Duration::from_millis(300_500)) => {}
    }
    let failed: Vec<_> = scene.monitor.evaluate().into_iter().filter(|it| it.failure.is_some()).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!((failed[0].name, failed[0].failure.as_deref()), ("loop", Some("no heartbeat for 301 s")));
}

/// HEA-5: the process is suspended for 120 s; no task runs meanwhile.
#[tokio::test(start_paused = true)]
async fn hea_5_a_suspended_process_is_not_restarted() {
    let (scene, dispatcher) = with_objects(&Forgetting);
    dispatcher.dispatch(EventType::Added, object());
    let stream = scene.stream();
    stream.announce();
    stream.activity.wait(Some(70.0));
    scene.fixture.health.expect(BTreeSet::from([stream.name()]));
    *lock(&scene.fixture.host.position) = QueuePosition { taken: 5, submitted: 6 };
    scene.after(10).await;
    tokio::time::advance(Duration::from_hours(1)).await;
    assert!(is_passing(&scene.monitor.evaluate(), Endpoint::Live, &[]));
    scene.heartbeats.on_host(HostLoad::default());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(is_passing(&scene.monitor.evaluate(), Endpoint::Live, &[]));
}

#[tokio::test(start_paused = true)]
async fn the_orchestrator_must_run() {
    let scene = Scene::new(silent());
    for _ in 0..31 {
        scene.heartbeats.on_host(HostLoad::default());
        scene.monitor.evaluate();
        sleep(Duration::from_secs(1)).await;
    }
    let failed: Vec<_> = scene.monitor.evaluate().into_iter().filter(|it| it.failure.is_some()).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0].name, "engine");
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_stream_ends_the_startup_but_is_not_ready_until_it_is_listed() {
    let scene = Scene::new(silent());
    let stream = scene.stream();
    stream.announce();
    let name = stream.name();
    scene.fixture.health.expect(BTreeSet::from([name.clone()]));
    let failures = || {
        let results = scene.monitor.evaluate().into_iter().filter(|it| it.failure.is_some());
        results.map(|it| (it.endpoints[0], it.failure.unwrap())).collect::<Vec<_>>()
    };
    let waiting = format!("{name} (no response yet)");
    assert_eq!(failures(), [(Endpoint::Ready, waiting.clone()), (Endpoint::Start, waiting)]);
    scene.fixture.health.record_failure(&name, StreamFailure::Rejected, Some("Forbidden".to_owned()));
    scene.fixture.health.on_rejection(&name, 403);
    assert_eq!(failures(), [(Endpoint::Ready, format!("{name} (403)"))]);
    assert_eq!(scene.monitor.state(), "syncing");
    scene.fixture.health.listed(&name);
    assert!(failures().is_empty());
    assert_eq!(scene.monitor.state(), "active");
    // Later failures and new streams do not end it.
    scene.fixture.health.record_failure(&name, StreamFailure::Broken, Some("gone".to_owned()));
    scene.fixture.health.expect(BTreeSet::from([name.clone(), "pods cluster-wide".to_owned()]));
    assert!(failures().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_paused_operator_is_ready_and_a_stopping_one_is_not() {
    let scene = Scene::new(silent());
    let stream = scene.stream();
    stream.announce();
    scene.fixture.health.expect(BTreeSet::from([stream.name()]));
    scene.fixture.shared.pause.turn("a peer", true);
    stream.activity.wait(None);
    assert!(scene.after(600).await.is_empty());
    assert_eq!(scene.monitor.state(), "paused");
    scene.fixture.shared.pause.turn("a peer", false);
    // The startup is over: Kubernetes does not start over with it.
    assert_eq!(scene.after(1).await, ["synced"]);
    scene.fixture.health.listed(&stream.name());
    scene.fixture.shared.base.stopping.cancel();
    assert_eq!(scene.after(1).await, ["stopping"]);
    assert_eq!(scene.monitor.state(), "stopping");
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_a_paused_operator_is_neither_silent_nor_late() {
    let scene = Scene::new(silent());
    let stream = scene.stream();
    stream.announce();
    scene.fixture.health.expect(BTreeSet::from([stream.name()]));
    let is_synced =
        || scene.fixture.health.to_metrics().contains("\nkopf_synced{resource=\"sites.example.com\"}");
    stream.activity.hold();
    scene.after(600).await;
    assert!(scene.monitor.gauges().samples.silences.is_empty());
    assert!(!is_synced());
    stream.activity.wait(Some(70.0));
    scene.after(2).await;
    let silences = scene.monitor.gauges().samples.silences;
    assert_eq!(silences.keys().collect::<Vec<_>>(), ["sites.example.com"]);
    assert!(silences.values().all(|age| *age < 5.0), "{silences:?}");
    assert!(is_synced());
}

#[tokio::test(start_paused = true)]
async fn an_expired_certificate_of_the_webhook_server_fails_webhooks_until_it_is_replaced() {
    let handler = json!({"id": "w", "kind": "webhook", "reason": "validating"});
    let scene = Scene::new(Fixture::with_handlers(vec![handler], &json!({}), |_| (200, None)));
    assert_eq!(scene.after(1).await, ["webhooks"]);
    let (admission, clock) = (&scene.fixture.admission, &scene.fixture.shared.base.clock);
    admission.publish_endpoint(json!({"url": "https://localhost"}));
    assert!(scene.after(1).await.is_empty(), "it has no certificate");
    admission.set_certificate_expiry(Some(clock.now().plus(60.0)));
    assert!(scene.after(59).await.is_empty());
    assert_eq!(scene.after(3).await, ["webhooks"]);
    let results = scene.monitor.evaluate();
    let failure = results.iter().find_map(|result| result.failure.as_deref()).unwrap();
    assert!(failure.starts_with("the certificate of the webhook server has expired at "), "{failure}");
    assert!(is_passing(&results, Endpoint::Live, &[]) && !is_passing(&results, Endpoint::Ready, &[]));
    admission.set_certificate_expiry(Some(clock.now().plus(60.0)));
    assert!(scene.after(1).await.is_empty());
}
