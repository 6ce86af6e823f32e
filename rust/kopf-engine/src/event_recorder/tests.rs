//! The order of events, their retries, and what becomes of them at the end, in the test's own time.

use kopf_core::json::value::{Map, Value};
use serde_json::json;
use tokio::time::{Duration, sleep};

use super::*;
use crate::testing::{Answer, Got, Stage, resource};

fn post(stage: &Stage, uid: &str, message: &str, backoffs: &[f64]) -> K8sEvent {
    let reference = Map::from_iter([("uid".to_owned(), Value::from(uid)), ("name".to_owned(), "n".into())]);
    K8sEvent {
        reference,
        kind: "Normal".to_owned(),
        reason: "Why".to_owned(),
        message: message.to_owned(),
        backoffs: backoffs.to_vec(),
        at: stage.shared.clock.now(),
    }
}

fn start(stage: &Stage) -> (EventSender, CancellationToken, tokio::task::JoinHandle<()>) {
    let (mailbox, mail) = mailbox();
    let ending = CancellationToken::new();
    let poster = EventRecorder::new(Arc::clone(&stage.shared), resource("", "events", true));
    let task = tokio::spawn(poster.run(mail, ending.clone()));
    (mailbox, ending, task)
}

fn told(stage: &Stage) -> Vec<(u64, String)> {
    let message = |got: &Got| got.body["message"].as_str().unwrap_or_default().to_owned();
    stage.requests().iter().map(|got| (got.at, message(got))).collect()
}

fn refusing(got: &Got) -> Answer {
    if got.body["message"] == "bad" { (500, Some(json!({}))) } else { (201, Some(json!({}))) }
}

#[tokio::test(start_paused = true)]
async fn events_of_one_object_wait_for_each_other_and_not_for_those_of_others() {
    let stage = Stage::new(&json!({}), refusing);
    let (mailbox, _ending, task) = start(&stage);
    let posts = [("a", "bad"), ("a", "second"), ("b", "other")];
    mailbox.post(posts.map(|(uid, text)| post(&stage, uid, text, &[1.0, 2.0])).to_vec());
    sleep(Duration::from_secs(10)).await;
    let mut got = told(&stage);
    got[..2].sort();
    let expected = [(0, "bad"), (0, "other"), (1, "bad"), (3, "bad"), (3, "second")];
    assert_eq!(got, expected.map(|(at, text)| (at, text.to_owned())));
    let [failure] = &stage.lines("Failed to post an event.")[..] else { panic!("not one failure") };
    assert!(
        failure.starts_with("WARNING Failed to post an event. Ignoring and continuing. Code: 500."),
        "{failure}"
    );
    assert!(failure.ends_with("Event: type='Normal', reason='Why', message='bad'."), "{failure}");
    assert_eq!(stage.requests()[0].path, "/api/v1/namespaces/credentials-ns/events");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_workers_is_kept() {
    let stage = Stage::new(&json!({"posting": {"worker_limit": 1}}), refusing);
    let (mailbox, _ending, task) = start(&stage);
    mailbox.post(vec![post(&stage, "a", "bad", &[5.0]), post(&stage, "b", "other", &[])]);
    sleep(Duration::from_secs(10)).await;
    let expected = [(0, "bad"), (5, "bad"), (5, "other")];
    assert_eq!(told(&stage), expected.map(|(at, text)| (at, text.to_owned())));
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn at_the_end_what_can_be_posted_is_posted_and_the_rest_is_lost() {
    let stage = Stage::new(&json!({}), refusing);
    let (mailbox, ending, task) = start(&stage);
    mailbox.post(vec![post(&stage, "a", "bad", &[100.0]), post(&stage, "b", "last words", &[])]);
    ending.cancel();
    let before = stage.shared.clock.now();
    task.await.unwrap();
    assert!(stage.shared.clock.now().seconds_since(before) < 2.0);
    assert!(told(&stage).contains(&(0, "last words".to_owned())));
    mailbox.post(vec![post(&stage, "b", "too late", &[])]);
    assert_eq!(told(&stage).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn events_about_events_are_not_posted_and_no_lane_stays() {
    let stage = Stage::new(&json!({}), refusing);
    let poster = EventRecorder::new(Arc::clone(&stage.shared), resource("", "events", true));
    let mut about_event = post(&stage, "e", "loop", &[]);
    about_event.reference.insert("apiVersion".to_owned(), "v1".into());
    about_event.reference.insert("kind".to_owned(), "Event".into());
    poster.sort(about_event);
    poster.sort(post(&stage, "a", "good", &[]));
    assert_eq!(poster.queues().len(), 1);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(told(&stage), [(0, "good".to_owned())]);
    assert!(poster.queues().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_too_much_is_dropped_and_counted() {
    let stage = Stage::new(&json!({}), refusing);
    let (mailbox, mail) = mailbox();
    for _ in 0..MOST_WAITING + 7 {
        mailbox.post(vec![post(&stage, "a", "good", &[])]);
    }
    let poster = EventRecorder::new(Arc::clone(&stage.shared), resource("", "events", true));
    let task = tokio::spawn(poster.run(mail, CancellationToken::new()));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(told(&stage).len(), MOST_WAITING);
    let [warning] = &stage.lines("WARNING")[..] else { panic!("{:?}", stage.lines("WARNING")) };
    assert!(warning.starts_with("WARNING 7 Kubernetes events were dropped: 10000 wait"), "{warning}");
    mailbox.post(vec![post(&stage, "a", "good", &[])]);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(told(&stage).len(), MOST_WAITING + 1);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_panic_costs_one_event() {
    let stage = Stage::new(&json!({}), refusing);
    let (mailbox, _ending, task) = start(&stage);
    stage.other_side.explode_on("Failed to post");
    mailbox.post(vec![post(&stage, "a", "bad", &[])]);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(stage.lines("ERROR The posting of Kubernetes events about an object has panicked").len(), 1);
    mailbox.post(vec![post(&stage, "a", "good", &[])]);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(told(&stage).len(), 2);
    task.abort();
}
