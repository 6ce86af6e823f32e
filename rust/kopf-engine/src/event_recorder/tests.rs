//! Order of events, their errors, and shutdown, in virtual time.

use kopf_core::json::value::{Map, Value};
use serde_json::json;
use tokio::time::{Duration, sleep};

use super::*;
use crate::testing::{FakeResponse, Fixture, Got, resource};

fn post(fixture: &Fixture, uid: &str, message: &str, backoffs: &[f64]) -> K8sEvent {
    let reference = Map::from_iter([("uid".to_owned(), Value::from(uid)), ("name".to_owned(), "n".into())]);
    K8sEvent {
        reference,
        kind: "Normal".to_owned(),
        reason: "Why".to_owned(),
        message: message.to_owned(),
        backoffs: backoffs.to_vec(),
        at: fixture.shared.base.clock.now(),
    }
}

fn start(fixture: &Fixture) -> (EventSender, CancellationToken, tokio::task::JoinHandle<()>) {
    let (event_sender, event_receiver) = event_channel();
    let ending = CancellationToken::new();
    let poster = EventRecorder::new(Arc::clone(&fixture.shared.base), resource("", "events", true));
    let task = tokio::spawn(poster.run(event_receiver, ending.clone()));
    (event_sender, ending, task)
}

fn posted(fixture: &Fixture) -> Vec<(u64, String)> {
    let message = |got: &Got| got.body["message"].as_str().unwrap_or_default().to_owned();
    fixture.requests().iter().map(|got| (got.at, message(got))).collect()
}

fn reject_failing(got: &Got) -> FakeResponse {
    if got.body["message"] == "bad" { (500, Some(json!({}))) } else { (201, Some(json!({}))) }
}

#[tokio::test(start_paused = true)]
async fn queued_messages_are_short() {
    let fixture = Fixture::new(&json!({}), reject_failing);
    let (event_sender, mut event_receiver) = event_channel();
    event_sender.post(vec![post(&fixture, "a", &"x".repeat(1_000_000), &[])]);
    let queued = event_receiver.receiver.try_recv().unwrap();
    assert_eq!(queued[0].message.len(), 1024);
    assert!(queued[0].message.capacity() < 4096);
}

// contract: engine 13.2
#[tokio::test(start_paused = true)]
async fn events_wait_only_for_earlier_events_of_the_same_object() {
    let fixture = Fixture::new(&json!({}), reject_failing);
    let (event_sender, _ending, task) = start(&fixture);
    let posts = [("a", "bad"), ("a", "second"), ("b", "other")];
    event_sender.post(posts.map(|(uid, text)| post(&fixture, uid, text, &[1.0, 2.0])).to_vec());
    sleep(Duration::from_secs(10)).await;
    let mut got = posted(&fixture);
    got[..2].sort();
    let expected = [(0, "bad"), (0, "other"), (1, "bad"), (3, "bad"), (3, "second")];
    assert_eq!(got, expected.map(|(at, text)| (at, text.to_owned())));
    let [failure] = &fixture.lines("Failed to post an event.")[..] else { panic!("not one failure") };
    assert!(
        failure.starts_with("WARNING Failed to post an event. Ignoring and continuing. Code: 500."),
        "{failure}"
    );
    assert!(failure.ends_with("Event: type='Normal', reason='Why', message='bad'."), "{failure}");
    assert_eq!(fixture.requests()[0].path, "/api/v1/namespaces/credentials-ns/events");
    task.abort();
}

// contract: engine 13.2
#[tokio::test(start_paused = true)]
async fn the_worker_limit_is_kept() {
    let fixture = Fixture::new(&json!({"posting": {"worker_limit": 1}}), reject_failing);
    let (event_sender, _ending, task) = start(&fixture);
    event_sender.post(vec![post(&fixture, "a", "bad", &[5.0]), post(&fixture, "b", "other", &[])]);
    sleep(Duration::from_secs(10)).await;
    let expected = [(0, "bad"), (5, "bad"), (5, "other")];
    assert_eq!(posted(&fixture), expected.map(|(at, text)| (at, text.to_owned())));
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn at_the_exit_events_are_posted_within_the_grace_period() {
    let fixture = Fixture::new(&json!({}), reject_failing);
    let (event_sender, event_receiver) = event_channel();
    let ending = CancellationToken::new();
    let poster = EventRecorder::new(Arc::clone(&fixture.shared.base), resource("", "events", true));
    let running = poster.running.clone();
    event_sender.post(vec![post(&fixture, "a", "bad", &[100.0]), post(&fixture, "b", "last words", &[])]);
    ending.cancel();
    let before = fixture.shared.base.clock.now();
    poster.run(event_receiver, ending).await;
    assert!(running.is_empty(), "a task is left");
    assert!(fixture.shared.base.clock.now().seconds_since(before) < 2.0);
    assert!(posted(&fixture).contains(&(0, "last words".to_owned())));
    event_sender.post(vec![post(&fixture, "b", "too late", &[])]);
    assert_eq!(posted(&fixture).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn events_about_events_are_not_posted_and_no_queue_stays() {
    let fixture = Fixture::new(&json!({}), reject_failing);
    let poster = EventRecorder::new(Arc::clone(&fixture.shared.base), resource("", "events", true));
    let mut about_event = post(&fixture, "e", "loop", &[]);
    about_event.reference.insert("apiVersion".to_owned(), "v1".into());
    about_event.reference.insert("kind".to_owned(), "Event".into());
    poster.sort(about_event);
    poster.sort(post(&fixture, "a", "good", &[]));
    assert_eq!(poster.queues().len(), 1);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(posted(&fixture), [(0, "good".to_owned())]);
    assert!(poster.queues().is_empty());
}

#[tokio::test(start_paused = true)]
async fn excess_events_are_dropped_and_counted() {
    let fixture = Fixture::new(&json!({}), reject_failing);
    let (event_sender, event_receiver) = event_channel();
    for _ in 0..MOST_WAITING + 7 {
        event_sender.post(vec![post(&fixture, "a", "good", &[])]);
    }
    let poster = EventRecorder::new(Arc::clone(&fixture.shared.base), resource("", "events", true));
    let task = tokio::spawn(poster.run(event_receiver, CancellationToken::new()));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(posted(&fixture).len(), MOST_WAITING);
    let [warning] = &fixture.lines("WARNING")[..] else { panic!("{:?}", fixture.lines("WARNING")) };
    assert!(warning.starts_with("WARNING 7 Kubernetes events were dropped: 10000 wait"), "{warning}");
    event_sender.post(vec![post(&fixture, "a", "good", &[])]);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(posted(&fixture).len(), MOST_WAITING + 1);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_panic_costs_one_event() {
    let fixture = Fixture::new(&json!({}), reject_failing);
    let (event_sender, _ending, task) = start(&fixture);
    fixture.host.explode_on("Failed to post");
    event_sender.post(vec![post(&fixture, "a", "bad", &[])]);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(fixture.lines("ERROR The posting of Kubernetes events about an object has panicked").len(), 1);
    event_sender.post(vec![post(&fixture, "a", "good", &[])]);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(posted(&fixture).len(), 2);
    task.abort();
}
