//! A feed with several consumers, in virtual time.

use std::sync::Mutex;

use kopf_core::handler::projection::Projection;
use serde_json::json;
use tokio::time::{Duration, sleep, timeout};

use super::*;
use crate::supervision::run_restarting;
use crate::testing::{Fixture, Got, resource};

/// Records the events of a consumer under its name.
struct Recording {
    name: &'static str,
    seen: Arc<Mutex<Vec<String>>>,
    /// Seconds that it needs before it takes more events.
    delay: u64,
}

impl Recording {
    fn record(&self, what: &str) {
        self.seen.lock().unwrap().push(format!("{} {what}", self.name));
    }
}

impl WatchConsumer for Recording {
    fn event(&mut self, kind: EventType, object: &Arc<Object>) {
        self.record(&format!("{kind:?} {}", object.name().unwrap_or_default()));
    }

    fn rejected(&mut self, _: &Arc<Object>, _: bool) {
        self.record("rejected");
    }

    fn on_init(&mut self) {
        self.record("init");
    }

    fn on_init_done(&mut self) {
        self.record("done");
    }

    fn ready(&mut self) -> Option<BoxFuture<'_, ()>> {
        (self.delay > 0).then(|| -> BoxFuture<'_, ()> {
            Box::pin(async {
                sleep(Duration::from_secs(self.delay)).await;
                self.record("ready");
            })
        })
    }
}

impl Consumer for Recording {}

fn respond(got: &Got) -> (u16, Option<serde_json::Value>) {
    if got.path.contains("watch=true") {
        return (200, None);
    }
    let item = json!({"metadata": {"name": "a", "resourceVersion": "1"}});
    (200, Some(json!({"kind": "List", "metadata": {"resourceVersion": "5"}, "items": [item]})))
}

fn feed(fixture: &Fixture) -> Feed {
    Feed::new(Stream {
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
    })
}

#[tokio::test(start_paused = true)]
async fn each_consumer_gets_each_event_and_the_slowest_one_limits_the_stream() {
    let fixture = Fixture::new(&json!({}), respond);
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let recording = |name, delay| Recording { name, seen: Arc::clone(&seen), delay };
    let feed = feed(&fixture).with(recording("first", 0)).with(recording("second", 7));
    assert!(timeout(Duration::from_secs(20), run_restarting(feed)).await.is_err());
    let expected = [
        "first init",
        "second init",
        "first Listed a",
        "second Listed a",
        "second ready",
        "first done",
        "second done",
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
    let watches: Vec<_> = fixture.requests().iter().map(|got| got.at).collect();
    assert_eq!(watches, [0, 7], "the watch has not waited for the consumer");
}

#[tokio::test(start_paused = true)]
async fn a_feed_restarts_after_a_panic_with_a_new_listing() {
    let fixture = Fixture::new(&json!({}), respond);
    fixture.host.explode_on("Starting the watch-stream for kopfexamples");
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let feed = feed(&fixture).with(Recording { name: "it", seen: Arc::clone(&seen), delay: 0 });
    assert!(timeout(Duration::from_secs(20), run_restarting(feed)).await.is_err());
    assert_eq!(*seen.lock().unwrap(), ["it init", "it Listed a", "it done"]);
    let [line] = &fixture.lines("ERROR The watch-stream for kopfexamples")[..] else {
        panic!("not one line")
    };
    assert!(line.ends_with("The watch is restarted in 1 seconds."), "{line}");
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_feed_is_reported_instead_of_logged_if_that_is_declared() {
    let fixture = Fixture::new(&json!({}), |_| (403, Some(json!({}))));
    let count = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&count);
    let reporting = feed(&fixture).reporting_if_forbidden(move || *counted.lock().unwrap() += 1);
    assert!(timeout(Duration::from_mins(10), run_restarting(reporting)).await.is_err());
    assert_eq!(*count.lock().unwrap(), 1);
    assert!((10..25).contains(&fixture.requests().len()), "{} requests", fixture.requests().len());
    assert!(fixture.lines("ERROR").is_empty() && fixture.lines("WARNING").is_empty());
    assert!(timeout(Duration::from_mins(10), run_restarting(feed(&fixture))).await.is_err());
    assert!(fixture.lines("ERROR").len() > 10);
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_is_forbidden_again_after_it_was_permitted_is_reported_again() {
    // Forbidden, permitted from the second minute to the fifth one, and forbidden again.
    let fixture = Fixture::new(&json!({"watching": {"server_timeout": 10, "client_timeout": 10}}), |got| {
        if (120..300).contains(&got.at) { respond(got) } else { (403, Some(json!({}))) }
    });
    let count = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&count);
    let reporting = feed(&fixture).reporting_if_forbidden(move || *counted.lock().unwrap() += 1);
    assert!(timeout(Duration::from_mins(10), run_restarting(reporting)).await.is_err());
    assert_eq!(*count.lock().unwrap(), 2);
    assert!(fixture.lines("ERROR").is_empty());
}
