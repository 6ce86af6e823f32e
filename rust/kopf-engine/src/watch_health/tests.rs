//! The health of streams in paused time.

use std::time::Duration;

use super::*;

fn failure_of(health: &WatchHealth) -> (Value, Value) {
    let all = health.to_json();
    (all["streams"][0]["trouble"].clone(), all["streams"][0]["seconds"].clone())
}

#[tokio::test(start_paused = true)]
async fn a_failure_lasts_from_the_first_error_until_data_is_received() {
    let health = WatchHealth::new(Clock::start());
    health.record_failure("s", StreamFailure::Broken, Some("no route".to_owned()));
    tokio::time::advance(Duration::from_mins(1)).await;
    health.record_failure("s", StreamFailure::Rejected, Some("403".to_owned()));
    assert_eq!(failure_of(&health), (json!("refused"), json!(60.0)));
    assert_eq!(health.to_json()["streams"][0]["failures"], json!(2));
    health.on_data("s");
    assert_eq!(failure_of(&health), (Value::Null, Value::Null));
    assert_eq!(health.to_json()["streams"][0]["last_error"], json!("403"));
    health.forget("s", &Arc::default());
    assert_eq!(health.to_json(), json!({"streams": [], "expected": 0, "missing": []}));
}

#[tokio::test(start_paused = true)]
async fn an_expected_stream_that_does_not_exist_is_missing() {
    let health = WatchHealth::new(Clock::start());
    health.selected("here", &[]);
    health.expect(BTreeSet::from(["here".to_owned(), "there".to_owned()]));
    assert_eq!(health.missing(), ["there"]);
    assert_eq!(health.to_json()["missing"], json!(["there"]));
    assert!(health.to_metrics().contains("\nkopf_streams_expected 2\n"));
    assert!(health.to_metrics().contains("\nkopf_streams_missing 1\n"));
    health.forget("here", &Arc::default());
    assert_eq!(health.missing().len(), 2);
    health.expect(BTreeSet::new());
    assert!(health.missing().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_has_replaced_another_one_outlives_its_end() {
    let health = WatchHealth::new(Clock::start());
    health.expect(BTreeSet::from(["s".to_owned()]));
    let [earlier, later] = [Arc::<StreamActivity>::default(), Arc::default()];
    health.follow("s", "pods".to_owned(), &earlier);
    health.listed("s");
    health.follow("s", "pods".to_owned(), &later);
    health.forget("s", &earlier);
    assert!(health.missing().is_empty());
    let sample = health.samples().unwrap().remove(0);
    assert_eq!((sample.resource.as_str(), sample.is_listed), ("pods", false));
    assert!(sample.activity.is_some());
    health.forget("s", &later);
    assert_eq!(health.missing(), ["s"]);
}

#[tokio::test(start_paused = true)]
async fn a_resource_is_synced_when_all_its_streams_were_listed() {
    let health = WatchHealth::new(Clock::start());
    for stream in ["pods in 'a'", "pods in 'b'"] {
        health.follow(stream, "pods".to_owned(), &Arc::default());
    }
    for (stream, synced) in [("pods in 'a'", 0), ("pods in 'b'", 1)] {
        health.listed(stream);
        let text = health.to_metrics();
        assert!(text.contains(&format!("\nkopf_synced{{resource=\"pods\"}} {synced}\n")), "{text}");
    }
    health.record_failure("pods in 'a'", StreamFailure::Broken, None);
    assert!(health.to_metrics().contains("\nkopf_synced{resource=\"pods\"} 1\n"));
}

#[tokio::test(start_paused = true)]
async fn silence_ends_when_data_is_received_and_is_not_counted_as_a_failure() {
    let health = WatchHealth::new(Clock::start());
    health.record_failure("s", StreamFailure::Silent, None);
    health.accepted("s");
    assert_eq!(failure_of(&health).0, json!("silent"));
    assert_eq!(health.to_json()["streams"][0]["failures"], json!(0));
    tokio::time::advance(Duration::from_mins(10)).await;
    assert_eq!(failure_of(&health), (json!("silent"), json!(600.0)));
    assert_eq!((health.failing_for("s"), health.error_of("s")), (None, None));
    health.selected("s", &[("labelSelector", "a=b".to_owned())]);
    assert_eq!(health.to_json()["streams"][0]["selectors"], json!({"labelSelector": "a=b"}));
    health.on_data("s");
    assert_eq!(failure_of(&health).0, Value::Null);
    health.record_failure("s", StreamFailure::Broken, None);
    health.accepted("s");
    assert_eq!(failure_of(&health).0, Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_failure_after_silence_counts_from_its_own_start() {
    let health = WatchHealth::new(Clock::start());
    health.record_failure("s", StreamFailure::Silent, None);
    tokio::time::advance(Duration::from_mins(10)).await;
    health.record_failure("s", StreamFailure::Broken, Some("no route".to_owned()));
    tokio::time::advance(Duration::from_secs(7)).await;
    assert_eq!(failure_of(&health), (json!("broken"), json!(7.0)));
    assert_eq!(health.failing_for("s"), Some(7.0));
    health.record_failure("s", StreamFailure::Silent, None);
    assert_eq!(failure_of(&health), (json!("silent"), json!(0.0)));
    assert_eq!(health.error_of("s"), None, "the error is over");
}
