//! Keep-alives and pauses, in virtual time.

use kopf_core::cause::EventType;
use kopf_core::handler::projection::Projection;
use serde_json::json;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Duration, sleep};

use super::*;
use crate::supervision::joined;
use crate::testing::{Fixture, Got, lock, resource};
use crate::time::clock::Clock;
use crate::watch::{FatalRejections, WatchConsumer as _};

const START: &str = "2026-01-01T00:00:00Z";

fn fixture(settings: &Value, status: &'static str) -> (Fixture, Peering) {
    let fixture =
        Fixture::new(&json!({"peering": settings, "networking": {"error_backoffs": []}}), move |_: &Got| {
            let status: Value = serde_json::from_str(status).unwrap();
            (200, Some(json!({"metadata": {"name": "default"}, "status": status})))
        });
    let resource = resource("kopf.dev", "clusterkopfpeerings", false);
    let peering =
        Peering::new(Arc::clone(&fixture.shared.base), ("me", &fixture.shared.pause), resource, None);
    (fixture, peering)
}

fn watching(peering: &Peering) -> (watch::Sender<Seen>, JoinHandle<Result<(), RequestError>>) {
    let (sender, mut receiver) = watch::channel(Seen::Nothing);
    let peering = peering.clone();
    (sender, tokio::spawn(async move { peering.watch(&mut receiver).await }))
}

/// The record of a peer that was last seen `ago` seconds ago.
fn peer(peering: &Peering, priority: i64, ago: f64) -> Value {
    let lastseen = peering.shared.clock.now().plus(-ago).to_string();
    json!({"priority": priority, "lifetime": 60, "lastseen": lastseen})
}

fn seen(status: Value) -> Seen {
    Seen::Status(Arc::new(status))
}

async fn settle() {
    for _ in 0..100 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn keep_alives_are_sent_before_the_record_expires() {
    let (fixture, peering) = fixture(&json!({"lifetime": 60, "priority": 7}), "{}");
    let keep_alive = tokio::spawn(async move { peering.keep_alive().await });
    sleep(Duration::from_mins(10)).await;
    keep_alive.abort();
    let requests = fixture.requests();
    assert!((11..=13).contains(&requests.len()), "{}", requests.len());
    assert_eq!(requests[0].at, 0);
    for pair in requests.windows(2) {
        assert!((50..=55).contains(&(pair[1].at - pair[0].at)), "{pair:?}");
    }
    let [first, ..] = &requests[..] else { panic!("no requests") };
    assert_eq!(
        (first.method.as_str(), first.path.as_str()),
        ("PATCH", "/apis/kopf.dev/v1/clusterkopfpeerings/default")
    );
    let record = &first.body["status"]["me"];
    assert_eq!((&record["priority"], &record["lifetime"]), (&json!(7), &json!(60)));
    assert!(Timestamp::parse(record["lastseen"].as_str().unwrap()).is_some(), "{record}");
    assert_eq!(fixture.lines("Keep-alive in 'default' cluster-wide: ok.").len(), requests.len());
}

#[tokio::test(start_paused = true)]
async fn stealth_mode_logs_nothing_and_a_new_object_gets_a_keep_alive_at_once() {
    let (fixture, peering) = fixture(&json!({"stealth": true}), "{}");
    let renew = Arc::clone(&peering.renew);
    let keep_alive = tokio::spawn(async move { peering.keep_alive().await });
    sleep(Duration::from_secs(10)).await;
    renew.notify_one();
    sleep(Duration::from_secs(10)).await;
    keep_alive.abort();
    assert_eq!(fixture.requests().iter().map(|got| got.at).collect::<Vec<_>>(), [0, 10]);
    assert_eq!(fixture.lines("Keep-alive"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn keep_alives_continue_after_errors() {
    let fixture = Fixture::new(
        &json!({"peering": {"lifetime": 60}, "networking": {"error_backoffs": []}}),
        |_: &Got| (500, Some(json!({}))),
    );
    let peering = Peering::new(
        Arc::clone(&fixture.shared.base),
        ("me", &fixture.shared.pause),
        resource("kopf.dev", "kopfpeerings", true),
        Some("ns".into()),
    );
    let keep_alive = tokio::spawn(async move { peering.keep_alive().await });
    sleep(Duration::from_mins(2)).await;
    assert!(!keep_alive.is_finished());
    keep_alive.abort();
    assert_eq!(fixture.requests().len(), 3);
    assert_eq!(fixture.requests()[0].path, "/apis/kopf.dev/v1/namespaces/ns/kopfpeerings/default");
    assert_eq!(fixture.lines("Cannot keep alive in the peering default@ns").len(), 3);
}

// contract: api 8.3
#[tokio::test(start_paused = true)]
async fn a_peer_of_higher_priority_pauses_the_operator_until_it_leaves() {
    let (fixture, peering) = fixture(&json!({}), "{}");
    let (states, task) = watching(&peering);
    let pause = &fixture.shared.pause;
    assert!(!pause.is_on());
    states.send_replace(seen(json!({"other": peer(&peering, 1, 0.0)})));
    settle().await;
    assert_eq!(pause.blockers(), ["default@None"]);
    states.send_replace(seen(json!({})));
    settle().await;
    assert!(!pause.is_on());
    assert_eq!(fixture.lines("Pausing operations in favour of [<Peer other: priority=1").len(), 1);
    assert_eq!(fixture.lines("Resuming operations after the pause").len(), 1);
    assert_eq!(fixture.requests().len(), 0, "nothing is written for that");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn when_a_peer_expires_the_records_are_read_again_and_the_operator_resumes() {
    let (fixture, peering) = fixture(&json!({}), r#"{"me": {}}"#);
    let (states, task) = watching(&peering);
    states.send_replace(seen(json!({"other": peer(&peering, 1, 20.0)})));
    settle().await;
    sleep(Duration::from_secs(39)).await;
    assert!(fixture.shared.pause.is_on() && fixture.requests().is_empty());
    sleep(Duration::from_secs(2)).await;
    assert!(!fixture.shared.pause.is_on());
    let [touch] = &fixture.requests()[..] else { panic!("{:?}", fixture.requests()) };
    assert_eq!(touch.at, 40);
    assert!(touch.body["status"]["me"].is_object());
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn expired_records_are_removed_and_do_not_pause() {
    let (fixture, peering) = fixture(&json!({}), "{}");
    let (states, task) = watching(&peering);
    states.send_replace(seen(json!({"gone": peer(&peering, 9, 61.0), "weak": peer(&peering, -1, 0.0)})));
    settle().await;
    assert!(!fixture.shared.pause.is_on());
    let bodies: Vec<_> = fixture.requests().into_iter().map(|got| got.body).collect();
    assert_eq!(bodies, [json!({"status": {"gone": null}})]);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn retries_of_other_requests_do_not_delay_a_pause() {
    let fixture = Fixture::new(&json!({"networking": {"error_backoffs": [1000]}}), |_: &Got| {
        (403, Some(json!({"kind": "Status", "code": 403})))
    });
    let resource = resource("kopf.dev", "clusterkopfpeerings", false);
    let pause = &fixture.shared.pause;
    let peering = Peering::new(Arc::clone(&fixture.shared.base), ("me", pause), resource, None);
    // The removal of an expired record, and the check of an overdue peer.
    for ago in [61.0, 50.0] {
        let (states, task) = watching(&peering);
        states.send_replace(seen(json!({"late": peer(&peering, 1, ago)})));
        settle().await;
        sleep(Duration::from_secs(20)).await;
        assert_eq!(fixture.requests().len(), 1);
        lock(&fixture.requests).clear();
        states.send_replace(seen(json!({})));
        settle().await;
        assert!(!pause.is_on());
        states.send_replace(seen(json!({"other": peer(&peering, 1, 0.0)})));
        settle().await;
        assert!(pause.is_on());
        task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn mandatory_peering_pauses_while_the_object_is_absent() {
    let (fixture, peering) = fixture(&json!({"mandatory": true}), "{}");
    let pause = &fixture.shared.pause;
    let (states, task) = watching(&peering);
    settle().await;
    assert!(pause.is_on());
    for (state, paused) in [(seen(json!({})), false), (Seen::Absent, true), (seen(json!(null)), false)] {
        states.send_replace(state.clone());
        settle().await;
        assert_eq!(pause.is_on(), paused, "{state:?}");
    }
    let warnings = fixture.lines("WARNING");
    let expected =
        "WARNING Paused: there is no clusterkopfpeerings \"default\". Create it, or run with --standalone.";
    assert_eq!(warnings, [expected]);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn leaving_removes_the_record_without_retries() {
    let (fixture, peering) = fixture(&json!({}), "{}");
    peering.leave().await;
    assert_eq!(fixture.requests()[0].body, json!({"status": {"me": null}}));

    let fixture = Fixture::new(&json!({"networking": {"error_backoffs": [100, 100]}}), |_: &Got| {
        (500, Some(json!({})))
    });
    let peering = Peering::new(
        Arc::clone(&fixture.shared.base),
        ("me", &fixture.shared.pause),
        resource("kopf.dev", "clusterkopfpeerings", false),
        None,
    );
    let before = fixture.shared.base.clock.now();
    peering.leave().await;
    assert!(fixture.shared.base.clock.now().seconds_since(before) < 6.0);
    assert_eq!(fixture.lines("ERROR Couldn't remove self from the peering. Ignoring.").len(), 1);
}

#[test]
fn only_the_object_of_our_name_counts_and_a_listing_without_it_means_absent() {
    let (sender, receiver) = watch::channel(Seen::Nothing);
    let renew: Arc<Notify> = Arc::default();
    let mut handler =
        PeeringConsumer { name: "default".to_owned(), seen: sender, present: false, uid: None, renew };
    let object = |name: &str| {
        let text = json!({"metadata": {"name": name, "creationTimestamp": START}, "status": {"a": {}}});
        Arc::new(Object::decode(&text.to_string()).unwrap())
    };
    handler.on_init();
    handler.event(EventType::Listed, &object("another"));
    handler.on_init_done();
    assert_eq!(*receiver.borrow(), Seen::Absent);
    handler.event(EventType::Added, &object("default"));
    assert_eq!(*receiver.borrow(), seen(json!({"a": {}})));
    handler.event(EventType::Deleted, &object("another"));
    assert_eq!(*receiver.borrow(), seen(json!({"a": {}})));
    handler.on_init();
    handler.on_init_done();
    assert_eq!(*receiver.borrow(), Seen::Absent);
}

/// Its record of this operator is missing.
#[test]
fn a_listed_object_that_was_created_meanwhile_gets_a_keep_alive_at_once() {
    let (sender, _receiver) = watch::channel(Seen::Nothing);
    let renew: Arc<Notify> = Arc::default();
    let mut handler = PeeringConsumer {
        name: "default".to_owned(),
        seen: sender,
        present: false,
        uid: None,
        renew: Arc::clone(&renew),
    };
    // The uid of the listed object, if there is one; whether a keep-alive is requested.
    let table = [(Some("1"), false), (Some("1"), false), (Some("2"), true), (None, false), (Some("2"), true)];
    for (uid, is_renewed) in table {
        handler.on_init();
        if let Some(uid) = uid {
            let text = json!({"metadata": {"name": "default", "uid": uid}}).to_string();
            handler.event(EventType::Listed, &Arc::new(Object::decode(&text).unwrap()));
        }
        handler.on_init_done();
        assert_eq!(renew.notified().now_or_never().is_some(), is_renewed, "{uid:?}");
    }
}

// contract: engine 1.3, api 8.1
#[test]
fn resources_of_peering() {
    let table = [
        ("kopf.dev", "clusterkopfpeerings", true, true),
        ("zalando.org", "clusterkopfpeerings", true, true),
        ("kopf.dev", "kopfpeerings", true, false),
        ("kopf.dev", "kopfpeerings", false, true),
        ("kopf.zalando.org", "kopfpeerings", false, false),
    ];
    for (group, plural, clusterwide, expected) in table {
        assert_eq!(
            is_peering(&resource(group, plural, !clusterwide), clusterwide),
            expected,
            "{group} {plural}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_keep_alive_ends_the_operator() {
    let (fixture, peering) = fixture(&json!({}), "{}");
    fixture.host.explode_on("Keep-alive in");
    let mut tasks = Tasks::new();
    peering.spawn_keepalive(&mut tasks);
    let failure = joined(tasks.join_next().await.unwrap()).unwrap_err();
    let expected = "The keep-alive in the peering default@None has panicked: an injected panic.";
    assert!(failure.message.starts_with(expected), "{failure}");
}

/// A server where a peer of a higher priority is alive. Watches stay open without events.
fn paused_by_a_peer(got: &Got) -> (u16, Option<Value>) {
    if got.path.contains("watch=true") {
        return (200, None);
    }
    let other = json!({"priority": 1, "lifetime": 60, "lastseen": Clock::start().now().to_string()});
    let object = json!({"metadata": {"name": "default", "uid": "1"}, "status": {"other": other}});
    (200, Some(json!({"kind": "List", "metadata": {"resourceVersion": "5"}, "items": [object]})))
}

/// Starts the watch and the evaluation, one of which panics when it logs the line, and waits until the operator is paused.
/// Returns the lines of errors and the number of listings.
async fn after_a_panic_at(line: &'static str) -> (Vec<String>, usize) {
    let fixture = Fixture::new(&json!({}), paused_by_a_peer);
    let resource = resource("kopf.dev", "clusterkopfpeerings", false);
    let (base, pause) = (&fixture.shared.base, &fixture.shared.pause);
    let peering = Peering::new(Arc::clone(base), ("me", pause), Arc::clone(&resource), None);
    let stream = Stream {
        client: base.client.clone(),
        resource,
        namespace: None,
        projection: Projection::Whole,
        selectors: vec![],
        derived: None,
        settings: Arc::clone(&base.startup_config.settings),
        host: Arc::clone(&base.host),
        health: Arc::clone(&fixture.health),
        activity: Arc::default(),
        fatal: FatalRejections::None,
        pause: None,
        on_missing: None,
    };
    fixture.host.explode_on(line);
    let mut tasks = Tasks::new();
    peering.spawn_watch(&mut tasks, stream);
    settle().await;
    assert!(!pause.is_on());
    sleep(Duration::from_millis(1500)).await;
    settle().await;
    assert_eq!(pause.blockers(), ["default@None"]);
    assert!(tasks.try_join_next().is_none(), "both tasks run");
    let listings = fixture.requests().iter().filter(|got| !got.path.contains("watch=true")).count();
    (fixture.lines("ERROR"), listings)
}

#[tokio::test(start_paused = true)]
async fn the_evaluation_is_restarted_after_a_panic_with_the_latest_state() {
    let (errors, listings) = after_a_panic_at("Pausing operations in favour of").await;
    let expected = "ERROR The observer of the peering default@None has panicked: an injected panic. \
        This is a bug in Kopf; please report it. It is restarted in 1 seconds.";
    assert_eq!((errors, listings), (vec![expected.to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn the_watch_is_restarted_after_a_panic() {
    let (errors, listings) = after_a_panic_at("Starting the watch-stream").await;
    let expected = "ERROR The watch-stream for clusterkopfpeerings.v1.kopf.dev cluster-wide has panicked: an injected panic. \
        This is a bug in Kopf; please report it. The watch is restarted in 1 seconds.";
    assert_eq!((errors, listings), (vec![expected.to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn other_operators_are_reported_only_if_there_is_no_peering_object() {
    let (fixture, peering) = fixture(&json!({}), "{}");
    let others = &fixture.shared.base.other_operators;
    let things = resource("example.com", "things", true);
    assert!(!others.report(&things), "the object was not looked up yet");
    let (sender, task) = watching(&peering);
    sender.send_replace(seen(json!({})));
    settle().await;
    assert!(!others.report(&things));
    sender.send_replace(Seen::Absent);
    settle().await;
    assert!(others.report(&things));
    task.abort();
}
