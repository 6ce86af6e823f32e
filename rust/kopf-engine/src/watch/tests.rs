//! A watch-stream against a scripted server, in virtual time.

use std::sync::atomic::{AtomicUsize, Ordering};

use kopf_core::json::value::Value;
use serde_json::json;
use tokio::time::timeout;

use super::*;
use crate::testing::{Fixture, Got, resource};

struct Counting(Vec<&'static str>);

impl WatchConsumer for Counting {
    fn event(&mut self, _: EventType, _: &Arc<Object>) {
        self.0.push("event");
    }

    fn rejected(&mut self, _: &Arc<Object>, _: bool) {
        self.0.push("rejected");
    }

    fn on_init(&mut self) {
        self.0.push("listing");
    }

    fn on_init_done(&mut self) {
        self.0.push("listed");
    }
}

fn stream(fixture: &Fixture) -> Stream {
    Stream {
        client: fixture.shared.base.client.clone(),
        resource: resource("kopf.dev", "kopfexamples", true),
        namespace: Some("ns".to_owned()),
        projection: Projection::Whole,
        selectors: vec![],
        derived: None,
        settings: Arc::clone(&fixture.shared.base.startup_config.settings),
        host: Arc::clone(&fixture.shared.base.host),
        health: Arc::clone(&fixture.health),
        activity: Arc::default(),
        fatal: FatalRejections::None,
        pause: None,
        on_missing: None,
    }
}

/// Follows a watch for `duration` seconds; returns the received events.
async fn followed(fixture: &Fixture, duration: f64) -> Vec<&'static str> {
    let mut sink = Counting(vec![]);
    let stream = stream(fixture);
    let _ended = timeout(seconds(duration), stream.follow(&mut sink)).await;
    sink.0
}

fn is_watch(got: &Got) -> bool {
    got.path.contains("watch=true")
}

fn empty_list() -> Value {
    json!({"kind": "List", "metadata": {"resourceVersion": "5"}, "items": []})
}

#[tokio::test(start_paused = true)]
async fn connections_closed_at_once_are_not_reopened_in_a_tight_loop() {
    let fixture = Fixture::new(&json!({}), |got: &Got| {
        (200, Some(if is_watch(got) { Value::Null } else { empty_list() }))
    });
    followed(&fixture, 60.0).await;
    let watches = fixture.requests().iter().filter(|got| is_watch(got)).count();
    assert!((10..30).contains(&watches), "{watches} connections in a minute");
    let logged = fixture
        .lines("ERROR Cannot watch kopfexamples.v1.kopf.dev in 'ns': the connection was closed at once");
    assert!(logged.len() > 5, "{logged:?}");
}

#[tokio::test(start_paused = true)]
async fn credentials_that_only_the_server_of_the_resource_rejects_stay_in_use() {
    for settings in [json!({}), json!({"watching": {"initial_streaming": true}})] {
        let fixture = Fixture::new(&settings, |got: &Got| match &*got.path {
            "/version" => (200, Some(json!({"major": "1"}))),
            _ => (401, Some(json!({"kind": "Status", "code": 401}))),
        });
        followed(&fixture, 60.0).await;
        assert!(fixture.shared.base.client.is_logged_in());
        assert!(fixture.host.tasks.lock().unwrap().is_empty(), "there is no login");
        assert!(fixture.lines("ERROR").len() > 2, "{:?}", fixture.lines(""));
    }
}

/// A server that ends each stream of initial objects with these records, or never if there are none.
fn initial_streams(records: Option<&'static [&'static str]>) -> Fixture {
    let settings = json!({"watching": {"initial_streaming": true}});
    Fixture::new(&settings, move |_: &Got| match records {
        None => (200, None),
        Some([]) => (200, Some(Value::Null)),
        Some([kind, ..]) => {
            let object = json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "3"}, "code": 410});
            (200, Some(json!({"type": kind, "object": object})))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn streams_of_initial_objects_that_break_are_opened_again_after_growing_delays() {
    for records in [&[][..], &["ADDED"]] {
        let fixture = initial_streams(Some(records));
        let mut sink = Counting(vec![]);
        let stream = stream(&fixture);
        let _ended = timeout(seconds(60.0), stream.follow(&mut sink)).await;
        let opened: Vec<u64> = fixture.requests().iter().map(|got| got.at).collect();
        assert!((5..8).contains(&opened.len()), "{opened:?}");
        let logged = fixture.lines("ERROR Cannot watch kopfexamples.v1.kopf.dev in 'ns': the ");
        assert_eq!(logged.len(), opened.len(), "{logged:?}");
        assert!(fixture.health.failing_for(&stream.name()).is_some_and(|it| it > 50.0));
        assert!(!sink.0.contains(&"listed"));
    }
}

#[tokio::test(start_paused = true)]
async fn streams_of_initial_objects_that_are_silent_count_as_failing() {
    let fixture = initial_streams(None);
    let stream = stream(&fixture);
    let _ended = timeout(seconds(600.0), stream.follow(&mut Counting(vec![]))).await;
    let opened = fixture.requests().len();
    assert!((7..10).contains(&opened), "{opened}");
    assert!(fixture.health.failing_for(&stream.name()).is_some_and(|it| it > 500.0));
    assert!(fixture.lines("ERROR Cannot watch").len() > 4);
}

#[tokio::test(start_paused = true)]
async fn streams_of_initial_objects_that_expire_each_time_are_delayed() {
    let fixture = initial_streams(Some(&["ERROR"]));
    followed(&fixture, 60.0).await;
    let opened = fixture.requests().len();
    assert!((5..9).contains(&opened), "{opened}");
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_expires_between_its_pages_is_finished_at_once() {
    let fixture = Fixture::new(&json!({}), |got: &Got| {
        let item = json!({"metadata": {"name": "n", "uid": "u"}});
        match () {
            () if is_watch(got) => (200, None),
            () if got.path.contains("continue=") => (410, Some(json!({"kind": "Status", "code": 410}))),
            () if got.path.contains("limit=") => (
                200,
                Some(
                    json!({"kind": "List", "metadata": {"resourceVersion": "4", "continue": "t"}, "items": [item]}),
                ),
            ),
            () => (
                200,
                Some(json!({"kind": "List", "metadata": {"resourceVersion": "5"}, "items": [item, item]})),
            ),
        }
    });
    let seen = followed(&fixture, 20.0).await;
    assert_eq!(seen, ["listing", "event", "listing", "event", "event", "listed"]);
    let paths: Vec<_> = fixture.requests().iter().map(|got| got.path.clone()).collect();
    assert_eq!(paths.len(), 4, "{paths:?}");
    assert!(paths[3].contains("resourceVersion=5"), "{paths:?}");
    assert_eq!(fixture.lines("Cannot watch"), Vec::<String>::new());
    assert_eq!(fixture.lines("INFO The listing of").len(), 1);
}

/// Follows a watch next to a task that is always ready to run; returns the largest number of events between two of its turns.
async fn most_events_between_turns(fixture: &Fixture) -> (usize, usize) {
    let seen: Arc<AtomicUsize> = Arc::default();
    let stream = stream(fixture);
    let mut sink = Measured(Arc::clone(&seen));
    let turns = async {
        let (mut before, mut most) = (0, 0);
        loop {
            let now = seen.load(Ordering::Relaxed);
            most = most.max(now - before);
            before = now;
            if now >= MANY {
                return most;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        ended = stream.follow(&mut sink) => panic!("{:?}", ended.err()),
        most = turns => (most, seen.load(Ordering::Relaxed)),
    }
}

struct Measured(Arc<AtomicUsize>);

impl WatchConsumer for Measured {
    fn event(&mut self, _: EventType, _: &Arc<Object>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn rejected(&mut self, _: &Arc<Object>, _: bool) {}

    fn on_init(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn on_init_done(&mut self) {}
}

/// The number of objects of a listing without pages.
const MANY: usize = 1_050;

#[tokio::test]
async fn other_tasks_run_while_a_long_listing_is_passed_on() {
    let fixture = Fixture::new(&json!({}), |got: &Got| {
        let items: Vec<_> =
            (0..MANY).map(|number| json!({"metadata": {"name": format!("n{number}")}})).collect();
        let token = if got.path.contains("limit=") { "t" } else { "" };
        let items = if token.is_empty() { &items[..] } else { &[] };
        match () {
            () if is_watch(got) => (200, None),
            () if got.path.contains("continue=") => (410, Some(json!({"kind": "Status", "code": 410}))),
            () => (
                200,
                Some(
                    json!({"kind": "List", "metadata": {"resourceVersion": "5", "continue": token}, "items": items}),
                ),
            ),
        }
    });
    let (most, seen) = most_events_between_turns(&fixture).await;
    assert_eq!(seen, MANY);
    assert!(most <= 100, "{most} events without a pause");
}

/// Whether the sink takes more events is asked between them, not after all of a listing.
#[tokio::test(start_paused = true)]
async fn a_long_listing_is_held_while_no_more_events_can_be_taken() {
    let fixture = Fixture::new(&json!({}), |got: &Got| {
        let items: Vec<_> =
            (0..MANY).map(|number| json!({"metadata": {"name": format!("n{number}")}})).collect();
        let list = json!({"kind": "List", "metadata": {"resourceVersion": "5"}, "items": items});
        (200, (!is_watch(got)).then_some(list))
    });
    let mut sink = Full(0);
    let stream = stream(&fixture);
    let _ended = timeout(seconds(60.0), stream.follow(&mut sink)).await;
    assert!((1..=100).contains(&sink.0), "{} events", sink.0);
}

/// A sink without room after the first event.
struct Full(usize);

impl WatchConsumer for Full {
    fn event(&mut self, _: EventType, _: &Arc<Object>) {
        self.0 += 1;
    }

    fn rejected(&mut self, _: &Arc<Object>, _: bool) {}

    fn on_init(&mut self) {}

    fn on_init_done(&mut self) {}

    fn ready(&mut self) -> Option<BoxFuture<'_, ()>> {
        (self.0 > 0).then(|| -> BoxFuture<'_, ()> { Box::pin(std::future::pending()) })
    }
}

fn deep(name: &str, levels: usize) -> Value {
    let spec = (0..levels).fold(json!(1), |inner, _| json!({"a": inner}));
    json!({"kind": "KopfExample", "metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": spec})
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_reconnected_and_does_not_count_as_failing() {
    let fixture = Fixture::new(&json!({}), |got: &Got| (200, (!is_watch(got)).then(empty_list)));
    let mut sink = Counting(vec![]);
    let stream = stream(&fixture);
    let _ended = timeout(seconds(592.0), stream.follow(&mut sink)).await;
    let watches: Vec<u64> = fixture.requests().iter().filter(|got| is_watch(got)).map(|got| got.at).collect();
    assert_eq!(watches, [0, 70, 140, 210, 280, 350, 420, 490, 560], "the default timeout");
    let of_stream = &fixture.health.to_json()["streams"][0];
    assert_eq!((&of_stream["trouble"], &of_stream["failures"]), (&json!("silent"), &json!(0)));
    assert_eq!(of_stream["seconds"], json!(522.0));
    assert!(fixture.lines("WARNING").is_empty() && fixture.lines("ERROR").is_empty());
}

/// The server accepts the version of a watch that is higher than its own, and sends nothing until its version is higher.
#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_relisted_if_the_version_of_the_server_has_become_lower() {
    let lists = Arc::new(AtomicUsize::default());
    let fixture = Fixture::new(&json!({}), move |got: &Got| {
        let is_first = !is_watch(got) && lists.fetch_add(1, Ordering::Relaxed) == 0;
        let version = if is_first { "1000" } else { "900" };
        let list = json!({"kind": "List", "metadata": {"resourceVersion": version}, "items": []});
        (200, (!is_watch(got)).then_some(list))
    });
    let seen = followed(&fixture, 400.0).await;
    assert_eq!(seen, ["listing", "listed"].repeat(2));
    let watches: Vec<_> = fixture.requests().into_iter().filter(is_watch).collect();
    let from_version = |version: &str| {
        let of_version =
            watches.iter().filter(|got| got.path.contains(&format!("resourceVersion={version}")));
        of_version.map(|got| got.at).collect::<Vec<_>>()
    };
    assert_eq!(from_version("1000"), [0, 70]);
    assert_eq!(from_version("900").first(), Some(&140), "{watches:?}");
    assert_eq!(fixture.lines("WARNING The resource version of").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_goes_on_if_the_version_of_the_server_is_unknown() {
    for (status, version) in [(403, "5"), (200, ""), (200, "v4")] {
        let fixture = Fixture::new(&json!({}), move |got: &Got| match () {
            () if is_watch(got) => (200, None),
            () if got.path.ends_with("?limit=1") => {
                (status, Some(json!({"kind": "List", "metadata": {"resourceVersion": version}, "items": []})))
            }
            () => (200, Some(empty_list())),
        });
        assert_eq!(followed(&fixture, 400.0).await, ["listing", "listed"]);
        let watches = fixture.requests().iter().filter(|got| is_watch(got)).count();
        assert_eq!(watches, 6, "{status} {version}");
    }
}

/// Some servers send no bookmarks.
#[tokio::test(start_paused = true)]
async fn rejections_between_connections_that_last_do_not_count_as_failures_in_a_row() {
    let watches = Arc::new(AtomicUsize::default());
    let fixture = Fixture::new(&json!({}), move |got: &Got| match () {
        () if !is_watch(got) => (200, Some(empty_list())),
        () if watches.fetch_add(1, Ordering::Relaxed) % 2 == 1 => (500, Some(json!({}))),
        () => (200, None),
    });
    assert_eq!(followed(&fixture, 1000.0).await, ["listing", "listed"], "it is not relisted");
    let delays = fixture.lines("ERROR Cannot watch");
    assert!(delays.len() > 10 && delays.iter().all(|line| line.ends_with("in 1 seconds.")), "{delays:?}");
}

#[tokio::test(start_paused = true)]
async fn an_expiration_without_a_line_end_leads_to_a_listing() {
    let fixture = Fixture::new(&json!({}), |got: &Got| {
        let expired = json!({"type": "ERROR", "object": {"code": 410}});
        (200, Some(if is_watch(got) { expired } else { empty_list() }))
    });
    followed(&fixture, 0.05).await;
    let asked: Vec<bool> = fixture.requests().iter().map(is_watch).collect();
    assert_eq!(asked, [false, true], "it is not watched from the same version again");
    assert_eq!(fixture.lines("DEBUG Restarting the watch-stream").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rejected_objects_do_not_affect_others_and_are_reported_once() {
    let fixture = Fixture::new(&json!({}), |got: &Got| {
        if !is_watch(got) {
            let items = [deep("poison", 400), deep("good", 200), json!({"metadata": {"uid": "?"}})];
            return (
                200,
                Some(json!({"kind": "List", "metadata": {"resourceVersion": "5"}, "items": items})),
            );
        }
        let again = json!({"type": "MODIFIED", "object": deep("poison", 500)});
        (if got.path.contains("resourceVersion=5") { 200 } else { 500 }, Some(again))
    });
    let seen = followed(&fixture, 0.9).await;
    assert_eq!(seen[..4], ["listing", "event", "rejected", "listed"]);
    assert!(seen[4..].iter().all(|one| *one == "rejected") && seen.len() > 4, "{seen:?}");
    let [nameless, poison] = &fixture.lines("ERROR")[..] else { panic!("{:?}", fixture.lines("ERROR")) };
    assert!(nameless.ends_with("it has no name."), "{nameless}");
    assert!(
        poison
            .starts_with("ERROR KopfExample ns/poison cannot be read and is not handled: nested too deeply")
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_is_handled_as_soon_as_it_can_be_read() {
    let fixture = Fixture::new(&json!({}), |got: &Got| {
        if !is_watch(got) {
            let items = [deep("poison", 400)];
            return (
                200,
                Some(json!({"kind": "List", "metadata": {"resourceVersion": "5"}, "items": items})),
            );
        }
        (200, Some(json!({"type": "MODIFIED", "object": deep("poison", 1)})))
    });
    assert_eq!(followed(&fixture, 0.01).await[..4], ["listing", "rejected", "listed", "event"]);
}

#[tokio::test(start_paused = true)]
async fn objects_of_another_kind_are_rejected() {
    let fixture = Fixture::new(&json!({}), |got: &Got| {
        if !is_watch(got) {
            return (200, Some(empty_list()));
        }
        let metadata = json!({"name": "n", "uid": "u"});
        (
            200,
            Some(
                json!({"type": "ADDED", "object": {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}}),
            ),
        )
    });
    assert_eq!(followed(&fixture, 0.9).await, ["listing", "listed"]);
    let [logged] = &fixture.lines("ERROR")[..] else { panic!("{:?}", fixture.lines("ERROR")) };
    assert!(logged.ends_with("it is of another kind: v1 Pod  n."), "{logged}");
}

#[tokio::test(start_paused = true)]
async fn malformed_data_leads_to_longer_and_longer_pauses() {
    let fixture = Fixture::new(&json!({}), |got: &Got| {
        (
            200,
            Some(if is_watch(got) {
                json!({"type": "ADDED", "object": {"a": 5, "metadata": 5}})
            } else {
                empty_list()
            }),
        )
    });
    // A nameless object is ignored, and the connection is closed: very short, but not malformed.
    followed(&fixture, 10.0).await;
    let fixture = Fixture::new(&json!({}), |got: &Got| {
        (200, Some(if is_watch(got) { json!({"object": {}}) } else { empty_list() }))
    });
    followed(&fixture, 60.0).await;
    let lists = fixture.requests().iter().filter(|got| !is_watch(got)).count();
    assert!((4..9).contains(&lists), "{lists} listings in a minute");
}

// contract: engine 1.7
#[tokio::test(start_paused = true)]
async fn a_paused_watch_sends_no_requests_and_relists_afterwards() {
    let fixture = Fixture::new(&json!({}), |got: &Got| {
        let list = json!({"kind": "List", "metadata": {"resourceVersion": "5"}, "items": [{"metadata": {"name": "n"}}]});
        (200, (!got.path.contains("watch=true")).then_some(list))
    });
    let pause = Arc::clone(&fixture.shared.pause);
    let mut stream = stream(&fixture);
    stream.pause = Some(Arc::clone(&pause));
    pause.turn("b", true);
    pause.turn("a", true);
    let mut sink = Counting(vec![]);
    let script = async {
        // Not at the moment when the watch itself acts.
        let minute = || sleep(seconds(59.3));
        minute().await;
        assert_eq!(fixture.requests().len(), 0);
        pause.turn("a", false);
        pause.turn("b", false);
        minute().await;
        pause.turn("a", true);
        let before = fixture.requests().len();
        minute().await;
        assert_eq!(fixture.requests().len(), before);
        pause.turn("a", false);
        sleep(seconds(1.0)).await;
        // A pause too short to be observed.
        pause.turn("a", true);
        pause.turn("a", false);
        sleep(seconds(1.0)).await;
    };
    tokio::select! {
        _ = stream.follow(&mut sink) => {}
        () = script => {}
    }
    drop(stream);
    assert_eq!(sink.0, ["listing", "event", "listed"].repeat(3));
    let what = "the watch-stream for kopfexamples.v1.kopf.dev in 'ns'";
    assert_eq!(
        fixture.lines("watch-stream"),
        [
            format!("DEBUG Starting {what} (paused)."),
            format!("DEBUG Pausing {what} (blockers: a, b)."),
            format!("DEBUG Resuming {what}."),
            format!("DEBUG Pausing {what} (blockers: a)."),
            format!("DEBUG Resuming {what}."),
            format!("DEBUG Stopping {what}."),
        ]
    );
}
