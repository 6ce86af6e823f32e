//! Tests of the exposition of what resources and handlers count.

use kopf_core::activation::{CommandResult, Completion};
use kopf_core::handling::attempt::{Attempt, CallResult};
use kopf_core::time::Timestamp;
use serde_json::json;

use super::*;
use crate::metrics::HandlerTable;

fn table(declared: &[(&str, &str)]) -> HandlerTable {
    let handlers: Vec<_> = declared
        .iter()
        .map(|(id, kind)| {
            let selector = json!({"plural": "pods"});
            let declared =
                json!({"id": id, "key": 0, "kind": kind, "selector": selector, "reason": null, "interval": 1});
            serde_json::from_value(declared).unwrap()
        })
        .collect();
    HandlerTable::of(&handlers)
}

fn metrics(declared: &[(&str, &str)]) -> OperatorMetrics {
    OperatorMetrics { handlers: table(declared), ..OperatorMetrics::of(&[]) }
}

fn lines(metrics: &OperatorMetrics, samples: &Samples, prefix: &str) -> Vec<String> {
    let mut text = String::new();
    add_metrics(&mut text, metrics, samples);
    filtered(&text, prefix)
}

fn filtered(text: &str, prefix: &str) -> Vec<String> {
    text.lines().filter(|line| line.starts_with(prefix)).map(str::to_owned).collect()
}

fn attempt(handler: usize, errors: &str, retry: u64) -> Attempt {
    Attempt {
        handler,
        label: "h".into(),
        errors: serde_json::from_value(json!(errors)).unwrap(),
        timeout: None,
        retries: None,
        backoff: Some(1.0),
        started: Timestamp::from_micros(0),
        retry,
    }
}

#[test]
fn all_combinations_of_labels_exist_before_the_first_event() {
    let metrics = metrics(&[("a", "changing"), ("t", "timer")]);
    let held = metrics.resources.named("pods");
    held.is_handled.store(true, Ordering::Relaxed);
    let samples = Samples::default();
    assert_eq!(lines(&metrics, &samples, "kopf_handler_calls_total{").len(), 12);
    assert_eq!(lines(&metrics, &samples, "kopf_patches_total{").len(), 21);
    assert_eq!(lines(&metrics, &samples, "kopf_cycles_total{").len(), 7);
    assert!(lines(&metrics, &samples, "kopf_queue_depth{").iter().all(|line| !line.contains("deferred")));
    assert_eq!(lines(&metrics, &samples, "kopf_watch_ends_total{").len(), 5);
    assert_eq!(
        lines(&metrics, &samples, "kopf_timer_lateness_seconds_count"),
        ["kopf_timer_lateness_seconds_count{handler=\"t\"} 0"]
    );
    assert_eq!(lines(&metrics, &samples, "kopf_background{").len(), 3);
}

#[test]
fn all_results_of_reviews_exist_before_the_first_one() {
    let reviews: ResourceTable<ReviewMetrics> = ResourceTable::default();
    let _held = reviews.named("pods");
    let mut text = String::new();
    add_reviews(&mut text, &reviews);
    assert_eq!(
        filtered(&text, "kopf_reviews_total{"),
        ["allowed", "denied", "errored"]
            .map(|result| format!("kopf_reviews_total{{resource=\"pods\",result=\"{result}\"}} 0"))
    );
    let counts = filtered(&text, "kopf_review_duration_seconds_count");
    assert_eq!(counts, ["kopf_review_duration_seconds_count{resource=\"pods\"} 0"]);
}

#[test]
fn resources_without_cycles_have_only_metrics_of_watches() {
    let metrics = metrics(&[]);
    let _held = metrics.resources.named("customresourcedefinitions");
    assert!(lines(&metrics, &Samples::default(), "kopf_cycles_total{").is_empty());
    assert_eq!(lines(&metrics, &Samples::default(), "kopf_lists_total{").len(), 1);
}

#[test]
fn calls_count_by_their_outcomes_and_their_durations_follow_each_other() {
    let metrics = metrics(&[("a", "changing"), ("b", "watching")]);
    let message = || "oops".to_owned();
    let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
    let results = [
        (attempt(0, "temporary", 0), CallResult::Nothing, 1),
        (attempt(0, "temporary", 1), CallResult::Temporary { message: message(), delay: None }, 3),
        (attempt(0, "temporary", 1), CallResult::Arbitrary { message: message() }, 3),
        (attempt(0, "permanent", 1), CallResult::Arbitrary { message: message() }, 3),
        (attempt(1, "ignored", 0), CallResult::Arbitrary { message: message() }, 63),
    ];
    let results = results.iter().map(|(attempt, raised, seconds)| {
        CommandResult::Attempted(attempt.evaluate(raised, at(*seconds)).outcome)
    });
    let completion = Completion { results: results.collect(), ..Completion::default() };
    metrics.handlers.on_completion(&completion, at(0));
    let calls = lines(&metrics, &Samples::default(), "kopf_handler_calls_total{handler=\"a\"");
    let counts: Vec<&str> = calls.iter().filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(counts, ["1", "1", "1", "1", "0", "0"]);
    let ignored =
        lines(&metrics, &Samples::default(), "kopf_handler_calls_total{handler=\"b\",outcome=\"ignored\"}");
    assert!(ignored[0].ends_with(" 1"));
    let sums = lines(&metrics, &Samples::default(), "kopf_handler_duration_seconds_sum");
    assert_eq!(
        sums,
        [
            "kopf_handler_duration_seconds_sum{handler=\"a\"} 3",
            "kopf_handler_duration_seconds_sum{handler=\"b\"} 60",
        ]
    );
}

#[test]
fn the_number_of_series_depends_only_on_kinds_and_handlers() {
    // MET-4, and the limit of 1.1.
    for (kinds, handlers) in [(3_usize, 10_usize), (50, 200)] {
        let ids: Vec<String> = (0..handlers).map(|number| format!("h{number}")).collect();
        let declared: Vec<_> = ids.iter().map(|id| (id.as_str(), "timer")).collect();
        let metrics = metrics(&declared);
        let held: Vec<_> = (0..kinds).map(|number| metrics.resources.named(&format!("r{number}"))).collect();
        for one in &held {
            one.is_handled.store(true, Ordering::Relaxed);
        }
        let dispatchers = (0..kinds).flat_map(|number| {
            // One per namespace.
            (0..3).map(move |_| DispatcherSample {
                resource: format!("r{number}"),
                ..DispatcherSample::default()
            })
        });
        let silences = (0..kinds).map(|number| (format!("r{number}"), 0.0)).collect();
        let samples = Samples { dispatchers: dispatchers.collect(), silences, ..Samples::default() };
        let reviews = ResourceTable::default();
        let _reviewed: Vec<_> = (0..kinds).map(|number| reviews.named(&format!("r{number}"))).collect();
        let mut text = String::new();
        add_metrics(&mut text, &metrics, &samples);
        add_reviews(&mut text, &reviews);
        let count = text.lines().filter(|line| !line.starts_with('#')).count();
        assert!(count <= 150 * kinds + 50 * handlers + 250, "{count}");
    }
}

#[test]
fn handlers_beyond_the_limit_share_their_series() {
    let ids: Vec<String> = (0..600).map(|number| format!("h{number}")).collect();
    let declared: Vec<_> = ids.iter().map(|id| (id.as_str(), "watching")).collect();
    let metrics = metrics(&declared);
    assert_eq!(lines(&metrics, &Samples::default(), "kopf_handler_retries_total{").len(), 501);
}

#[test]
fn the_objects_of_all_namespaces_are_added_up() {
    let sample = |changed, oldest| DispatcherSample {
        resource: "pods".to_owned(),
        objects: 10,
        changed,
        deferred: (changed == 2).then_some(7),
        oldest,
        ..DispatcherSample::default()
    };
    let calls = vec![("a".to_owned(), 5.0), ("a".to_owned(), 7.0), ("unknown".to_owned(), 1.0)];
    let samples = Samples { dispatchers: vec![sample(1, 2.0), sample(2, 1.5)], calls, ..Samples::default() };
    let metrics = metrics(&[("a", "changing")]);
    assert_eq!(lines(&metrics, &samples, "kopf_objects{"), ["kopf_objects{resource=\"pods\"} 20"]);
    assert_eq!(
        lines(&metrics, &samples, "kopf_queue_depth{"),
        [("changed", 3), ("initial", 0), ("deferred", 7)]
            .map(|(queue, depth)| format!("kopf_queue_depth{{resource=\"pods\",queue=\"{queue}\"}} {depth}"))
    );
    let oldest = lines(&metrics, &samples, "kopf_queue_oldest_seconds{");
    assert_eq!(oldest, ["kopf_queue_oldest_seconds{resource=\"pods\"} 2"]);
    assert_eq!(lines(&metrics, &samples, "kopf_handler_active"), ["kopf_handler_active{handler=\"a\"} 2"]);
    assert_eq!(
        lines(&metrics, &samples, "kopf_handler_longest_seconds{"),
        ["kopf_handler_longest_seconds{handler=\"a\"} 7"]
    );
}
