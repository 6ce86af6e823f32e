//! Rounds of one object, with what is remembered between them.

use super::*;
use crate::testing::object;
use serde_json::{Value, json};

struct Bench {
    registry: Arc<Registry>,
    plan: ResourceHandlers,
    settings: Settings,
    indexing: Indexing,
    now: Timestamp,
}

impl Bench {
    fn new(handlers: Value) -> Self {
        let registry = Arc::new(Registry { handlers: serde_json::from_value(handlers).unwrap() });
        let resource = json!({
            "group": "kopf.dev", "version": "v1", "plural": "ks", "kind": "K", "singular": "k", "shortcuts": [],
            "categories": [], "subresources": [], "verbs": [], "namespaced": true, "preferred": true,
        });
        let plan = registry.plan(&Arc::new(serde_json::from_value(resource).unwrap()), &|_| true);
        let now = Timestamp::from_micros(1_767_225_600_000_000);
        Self { registry, plan, settings: Settings::default(), indexing: Indexing::default(), now }
    }

    fn pass(&self, event: EventType, object: &Object) -> Option<IndexPass> {
        self.indexing.pass(event, object, &self.plan, (&self.registry, &self.settings), self.now)
    }

    /// The functions that are called and those that are left out, by their positions.
    fn see(&self, object: &Object) -> Option<(Vec<usize>, Vec<usize>)> {
        let round = self.pass(EventType::Modified, object)?;
        Some((round.calls.iter().map(|call| call.attempt.handler).collect(), round.excluded))
    }

    /// All called functions end like this.
    fn end(&mut self, object: &Object, ends: &[Option<(bool, bool, Option<f64>)>]) {
        let round = self.pass(EventType::Modified, object).unwrap();
        let outcome = |call: &Call, (failed, final_, delay)| Outcome {
            handler: call.attempt.handler,
            at: self.now,
            final_,
            failed,
            delay,
            message: None,
            subrefs: vec![],
        };
        let outcomes: Vec<_> =
            round.calls.iter().zip(ends).map(|(call, end)| end.map(|end| outcome(call, end))).collect();
        self.indexing.record_outcomes(&round, &outcomes, &self.registry);
    }
}

const WELL: Option<(bool, bool, Option<f64>)> = Some((false, true, None));
const FOR_GOOD: Option<(bool, bool, Option<f64>)> = Some((true, true, None));
const FOR_NOW: Option<(bool, bool, Option<f64>)> = Some((true, false, Some(5.0)));

#[test]
fn functions_are_called_for_each_state_that_matches() {
    let mut bench = Bench::new(json!([
        {"id": "a", "key": 1, "kind": "indexing"},
        {"id": "b", "key": 2, "kind": "indexing", "labels": [["x", {"equal": "1"}]]},
        {"id": "c", "key": 3, "kind": "indexing", "when": true},
        {"id": "a", "key": 1, "kind": "indexing"},
    ]));
    let (labelled, plain) = (object("o").labelled("x", "1").build(), object("o").build());
    assert_eq!(bench.see(&labelled), Some((vec![0, 1, 2], vec![])));
    assert_eq!(bench.see(&plain), Some((vec![0, 2], vec![1])));
    bench.end(&labelled, &[WELL, WELL, None]);
    assert_eq!(bench.see(&labelled), Some((vec![0, 1, 2], vec![])));
    let guards: Vec<_> = bench
        .pass(EventType::Added, &plain)
        .unwrap()
        .calls
        .iter()
        .map(|call| (call.guarded, call.attempt.errors, call.attempt.label.to_string()))
        .collect();
    let ignored = crate::handler::ErrorsMode::Ignored;
    assert_eq!(
        guards,
        [(false, ignored, "Indexer 'a'".to_owned()), (true, ignored, "Indexer 'c'".to_owned())]
    );
}

#[test]
fn what_was_never_indexed_is_not_even_looked_for() {
    let mut bench =
        Bench::new(json!([{"id": "a", "kind": "indexing", "labels": [["x", {"present": true}]]}]));
    let (labelled, plain) = (object("o").labelled("x", "1").build(), object("o").build());
    assert_eq!(bench.see(&plain), None);
    assert_eq!(bench.pass(EventType::Deleted, &labelled), None);
    bench.end(&labelled, &[WELL]);
    assert_eq!(bench.see(&plain), Some((vec![], vec![0])));
    // It has left the index; there is nothing more to be done.
    bench.end(&plain, &[]);
    assert_eq!(bench.see(&plain), None);
}

#[test]
fn deleted_objects_leave_all_indices_without_a_call() {
    let mut bench = Bench::new(json!([{"id": "a", "kind": "indexing"}, {"id": "b", "kind": "indexing"}]));
    let object = object("o").build();
    bench.end(&object, &[WELL, WELL]);
    let round = bench.pass(EventType::Deleted, &object).unwrap();
    assert_eq!(round, IndexPass { calls: vec![], excluded: vec![0, 1] });
}

#[test]
fn functions_that_failed_for_good_are_never_called_again() {
    let mut bench = Bench::new(json!([{"id": "a", "kind": "indexing"}, {"id": "b", "kind": "indexing"}]));
    let object = object("o").build();
    bench.end(&object, &[FOR_GOOD, WELL]);
    assert_eq!(bench.see(&object), Some((vec![1], vec![0])));
    bench.now = bench.now.plus(1e6);
    assert_eq!(bench.see(&object), Some((vec![1], vec![0])));
}

#[test]
fn functions_that_failed_for_now_are_called_again_after_the_delay() {
    let mut bench =
        Bench::new(json!([{"id": "a", "kind": "indexing", "retries": 3}, {"id": "b", "kind": "indexing"}]));
    let object = object("o").build();
    let started = bench.now;
    bench.end(&object, &[FOR_NOW, WELL]);
    assert_eq!(bench.see(&object), Some((vec![1], vec![0])));
    bench.now = started.plus(5.0);
    let round = bench.pass(EventType::Modified, &object).unwrap();
    let attempt = &round.calls[0].attempt;
    assert_eq!((attempt.retry, attempt.started, attempt.retries), (1, started, Some(3)));
    // A success makes it forget.
    bench.end(&object, &[WELL, WELL]);
    bench.now = bench.now.plus(1.0);
    let attempt = &bench.pass(EventType::Modified, &object).unwrap().calls[0].attempt;
    assert_eq!((attempt.retry, attempt.started), (0, bench.now));
}

#[test]
fn failures_outlive_a_time_when_the_object_does_not_match() {
    let mut bench =
        Bench::new(json!([{"id": "a", "kind": "indexing", "labels": [["x", {"present": true}]]}]));
    let (labelled, plain) = (object("o").labelled("x", "1").build(), object("o").build());
    bench.end(&labelled, &[FOR_GOOD]);
    assert_eq!(bench.see(&plain), None);
    assert_eq!(bench.see(&labelled), None);
}

#[test]
fn a_round_that_came_to_no_end_is_to_be_repeated() {
    let mut bench = Bench::new(json!([{"id": "a", "kind": "indexing", "when": true}]));
    let object = object("o").build();
    assert!(!bench.indexing.is_broken());
    bench.indexing.fail();
    assert!(bench.indexing.is_broken());
    bench.end(&object, &[None]);
    assert!(!bench.indexing.is_broken());
}
