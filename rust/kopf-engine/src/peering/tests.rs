//! Keep-alives and pauses, in virtual time.

use serde_json::json;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Duration, sleep};

use super::*;
use crate::testing::{Got, Stage, resource};

const START: &str = "2026-01-01T00:00:00Z";

fn stage(settings: &Value, status: &'static str) -> (Stage, Peering) {
    let stage =
        Stage::new(&json!({"peering": settings, "networking": {"error_backoffs": []}}), move |_: &Got| {
            let status: Value = serde_json::from_str(status).unwrap();
            (200, Some(json!({"metadata": {"name": "default"}, "status": status})))
        });
    let resource = resource("kopf.dev", "clusterkopfpeerings", false);
    let peering = Peering::new(Arc::clone(&stage.shared), resource, None);
    (stage, peering)
}

fn watching(peering: &Peering) -> (watch::Sender<Seen>, JoinHandle<Result<(), RequestError>>) {
    let (sender, receiver) = watch::channel(Seen::Nothing);
    let peering = peering.clone();
    (sender, tokio::spawn(async move { peering.watch(receiver).await }))
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
    let (stage, peering) = stage(&json!({"lifetime": 60, "priority": 7}), "{}");
    let keep_alive = tokio::spawn(async move { peering.keep_alive().await });
    sleep(Duration::from_mins(10)).await;
    keep_alive.abort();
    let requests = stage.requests();
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
    assert_eq!(stage.lines("Keep-alive in 'default' cluster-wide: ok.").len(), requests.len());
}

#[tokio::test(start_paused = true)]
async fn stealth_mode_logs_nothing_and_a_new_object_gets_a_keep_alive_at_once() {
    let (stage, peering) = stage(&json!({"stealth": true}), "{}");
    let renew = Arc::clone(&peering.renew);
    let keep_alive = tokio::spawn(async move { peering.keep_alive().await });
    sleep(Duration::from_secs(10)).await;
    renew.notify_one();
    sleep(Duration::from_secs(10)).await;
    keep_alive.abort();
    assert_eq!(stage.requests().iter().map(|got| got.at).collect::<Vec<_>>(), [0, 10]);
    assert_eq!(stage.lines("Keep-alive"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn keep_alives_continue_after_errors() {
    let stage =
        Stage::new(&json!({"peering": {"lifetime": 60}, "networking": {"error_backoffs": []}}), |_: &Got| {
            (500, Some(json!({})))
        });
    let peering = Peering::new(
        Arc::clone(&stage.shared),
        resource("kopf.dev", "kopfpeerings", true),
        Some("ns".into()),
    );
    let keep_alive = tokio::spawn(async move { peering.keep_alive().await });
    sleep(Duration::from_mins(2)).await;
    assert!(!keep_alive.is_finished());
    keep_alive.abort();
    assert_eq!(stage.requests().len(), 3);
    assert_eq!(stage.requests()[0].path, "/apis/kopf.dev/v1/namespaces/ns/kopfpeerings/default");
    assert_eq!(stage.lines("Cannot keep alive in the peering default@ns").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_peer_of_higher_priority_pauses_the_operator_until_it_leaves() {
    let (stage, peering) = stage(&json!({}), "{}");
    let (states, task) = watching(&peering);
    let pause = &stage.shared.pause;
    assert!(!pause.is_on());
    states.send_replace(seen(json!({"other": peer(&peering, 1, 0.0)})));
    settle().await;
    assert_eq!(pause.blockers(), ["default@None"]);
    states.send_replace(seen(json!({})));
    settle().await;
    assert!(!pause.is_on());
    assert_eq!(stage.lines("Pausing operations in favour of [<Peer other: priority=1").len(), 1);
    assert_eq!(stage.lines("Resuming operations after the pause").len(), 1);
    assert_eq!(stage.requests().len(), 0, "nothing is written for that");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn when_a_peer_expires_the_records_are_read_again_and_the_operator_resumes() {
    let (stage, peering) = stage(&json!({}), r#"{"me": {}}"#);
    let (states, task) = watching(&peering);
    states.send_replace(seen(json!({"other": peer(&peering, 1, 20.0)})));
    settle().await;
    sleep(Duration::from_secs(39)).await;
    assert!(stage.shared.pause.is_on() && stage.requests().is_empty());
    sleep(Duration::from_secs(2)).await;
    assert!(!stage.shared.pause.is_on());
    let [touch] = &stage.requests()[..] else { panic!("{:?}", stage.requests()) };
    assert_eq!(touch.at, 40);
    assert!(touch.body["status"]["me"].is_object());
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn expired_records_are_removed_and_do_not_pause() {
    let (stage, peering) = stage(&json!({}), "{}");
    let (states, task) = watching(&peering);
    states.send_replace(seen(json!({"gone": peer(&peering, 9, 61.0), "weak": peer(&peering, -1, 0.0)})));
    settle().await;
    assert!(!stage.shared.pause.is_on());
    let bodies: Vec<_> = stage.requests().into_iter().map(|got| got.body).collect();
    assert_eq!(bodies, [json!({"status": {"gone": null}})]);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn mandatory_peering_pauses_while_the_object_is_absent() {
    let (stage, peering) = stage(&json!({"mandatory": true}), "{}");
    let pause = &stage.shared.pause;
    let (states, task) = watching(&peering);
    settle().await;
    assert!(pause.is_on());
    for (state, paused) in [(seen(json!({})), false), (Seen::Absent, true), (seen(json!(null)), false)] {
        states.send_replace(state.clone());
        settle().await;
        assert_eq!(pause.is_on(), paused, "{state:?}");
    }
    let warnings = stage.lines("WARNING");
    let expected =
        "WARNING Paused: there is no clusterkopfpeerings \"default\". Create it, or run with --standalone.";
    assert_eq!(warnings, [expected]);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn leaving_removes_the_record_without_retries() {
    let (stage, peering) = stage(&json!({}), "{}");
    peering.leave().await;
    assert_eq!(stage.requests()[0].body, json!({"status": {"me": null}}));

    let stage =
        Stage::new(&json!({"networking": {"error_backoffs": [100, 100]}}), |_: &Got| (500, Some(json!({}))));
    let peering =
        Peering::new(Arc::clone(&stage.shared), resource("kopf.dev", "clusterkopfpeerings", false), None);
    let before = stage.shared.clock.now();
    peering.leave().await;
    assert!(stage.shared.clock.now().seconds_since(before) < 6.0);
    assert_eq!(stage.lines("ERROR Couldn't remove self from the peering. Ignoring.").len(), 1);
}

#[test]
fn only_the_object_of_our_name_counts_and_a_listing_without_it_means_absent() {
    let (sender, receiver) = watch::channel(Seen::Nothing);
    let renew: Arc<Notify> = Arc::default();
    let mut sink = PeeringSink { name: "default".to_owned(), seen: sender, present: false, renew };
    let object = |name: &str| {
        let text = json!({"metadata": {"name": name, "creationTimestamp": START}, "status": {"a": {}}});
        Object::decode(&text.to_string()).unwrap()
    };
    sink.on_init();
    sink.event(EventType::Listed, object("another"));
    sink.on_init_done();
    assert_eq!(*receiver.borrow(), Seen::Absent);
    sink.event(EventType::Added, object("default"));
    assert_eq!(*receiver.borrow(), seen(json!({"a": {}})));
    sink.event(EventType::Deleted, object("another"));
    assert_eq!(*receiver.borrow(), seen(json!({"a": {}})));
    sink.on_init();
    sink.on_init_done();
    assert_eq!(*receiver.borrow(), Seen::Absent);
}

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
async fn a_panic_ends_the_operator() {
    let (stage, peering) = stage(&json!({}), "{}");
    stage.other_side.explode_on("Keep-alive in");
    let mut tasks = Tasks::new();
    peering.spawn_keepalive(&mut tasks);
    let failure = crate::supervision::joined(tasks.join_next().await.unwrap()).unwrap_err();
    let expected = "The keep-alive in the peering default@None has panicked: an injected panic.";
    assert!(failure.message.starts_with(expected), "{failure}");
}
