//! Passes over one object, and the state that is kept between them.

use super::*;
use crate::testing::object;
use serde_json::{Value, json};

struct Bench {
    registry: Arc<Registry>,
    resource_handlers: ResourceHandlers,
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
        let resource_handlers =
            registry.handlers_of(&Arc::new(serde_json::from_value(resource).unwrap()), &|_| true);
        let now = Timestamp::from_micros(1_767_225_600_000_000);
        Self {
            registry,
            resource_handlers,
            settings: Settings::default(),
            indexing: Indexing::default(),
            now,
        }
    }

    fn pass(&self, event: EventType, object: &Object) -> Option<IndexPass> {
        self.indexing.pass(event, object, &self.resource_handlers, (&self.registry, &self.settings), self.now)
    }

    /// The functions that are called and those that are excluded, by their positions.
    fn see(&self, object: &Object) -> Option<(Vec<usize>, Vec<usize>)> {
        let pass = self.pass(EventType::Modified, object)?;
        Some((pass.calls.iter().map(|call| call.attempt.handler).collect(), pass.excluded))
    }

    /// Records this outcome for all called functions.
    fn end(&mut self, object: &Object, ends: &[Option<(bool, bool, Option<f64>)>]) {
        let pass = self.pass(EventType::Modified, object).unwrap();
        let outcome = |call: &IndexerCall, (failed, final_, delay)| Outcome {
            handler: call.attempt.handler,
            at: self.now,
            final_,
            failed,
            delay,
            message: None,
            subrefs: vec![],
            is_exception: false,
        };
        let outcomes: Vec<_> =
            pass.calls.iter().zip(ends).map(|(call, end)| end.map(|end| outcome(call, end))).collect();
        self.indexing.record_outcomes(&pass, &outcomes, &self.registry);
    }
}

const SUCCEEDED: Option<(bool, bool, Option<f64>)> = Some((false, true, None));
const FAILED: Option<(bool, bool, Option<f64>)> = Some((true, true, None));
const RETRIED: Option<(bool, bool, Option<f64>)> = Some((true, false, Some(5.0)));

// contract: engine 5.7, engine 10
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
    bench.end(&labelled, &[SUCCEEDED, SUCCEEDED, None]);
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
fn objects_in_no_index_are_not_dropped() {
    let mut bench =
        Bench::new(json!([{"id": "a", "kind": "indexing", "labels": [["x", {"present": true}]]}]));
    let (labelled, plain) = (object("o").labelled("x", "1").build(), object("o").build());
    assert_eq!(bench.see(&plain), None);
    assert_eq!(bench.pass(EventType::Deleted, &labelled), None);
    bench.end(&labelled, &[SUCCEEDED]);
    assert_eq!(bench.see(&plain), Some((vec![], vec![0])));
    // The object was dropped from the index; there is nothing more to do.
    bench.end(&plain, &[]);
    assert_eq!(bench.see(&plain), None);
}

#[test]
fn deleted_objects_are_dropped_from_all_indices_without_a_call() {
    let mut bench = Bench::new(json!([{"id": "a", "kind": "indexing"}, {"id": "b", "kind": "indexing"}]));
    let object = object("o").build();
    bench.end(&object, &[SUCCEEDED, SUCCEEDED]);
    let pass = bench.pass(EventType::Deleted, &object).unwrap();
    assert_eq!(pass, IndexPass { calls: vec![], excluded: vec![0, 1] });
}

#[test]
fn permanently_failed_functions_are_never_called_again() {
    let mut bench = Bench::new(json!([{"id": "a", "kind": "indexing"}, {"id": "b", "kind": "indexing"}]));
    let object = object("o").build();
    bench.end(&object, &[FAILED, SUCCEEDED]);
    assert_eq!(bench.see(&object), Some((vec![1], vec![0])));
    bench.now = bench.now.plus(1e6);
    assert_eq!(bench.see(&object), Some((vec![1], vec![0])));
}

// contract: engine 10
#[test]
fn temporarily_failed_functions_are_retried_after_the_delay() {
    let mut bench =
        Bench::new(json!([{"id": "a", "kind": "indexing", "retries": 3}, {"id": "b", "kind": "indexing"}]));
    let object = object("o").build();
    let started = bench.now;
    bench.end(&object, &[RETRIED, SUCCEEDED]);
    assert_eq!(bench.see(&object), Some((vec![1], vec![0])));
    bench.now = started.plus(5.0);
    let pass = bench.pass(EventType::Modified, &object).unwrap();
    let attempt = &pass.calls[0].attempt;
    assert_eq!((attempt.retry, attempt.started, attempt.retries), (1, started, Some(3)));
    // A success resets the retries.
    bench.end(&object, &[SUCCEEDED, SUCCEEDED]);
    bench.now = bench.now.plus(1.0);
    let attempt = &bench.pass(EventType::Modified, &object).unwrap().calls[0].attempt;
    assert_eq!((attempt.retry, attempt.started), (0, bench.now));
}

#[test]
fn failures_are_kept_while_the_object_does_not_match() {
    let mut bench =
        Bench::new(json!([{"id": "a", "kind": "indexing", "labels": [["x", {"present": true}]]}]));
    let (labelled, plain) = (object("o").labelled("x", "1").build(), object("o").build());
    bench.end(&labelled, &[FAILED]);
    assert_eq!(bench.see(&plain), None);
    assert_eq!(bench.see(&labelled), None);
}

#[test]
fn an_uncompleted_pass_is_repeated() {
    let mut bench = Bench::new(json!([{"id": "a", "kind": "indexing", "when": true}]));
    let object = object("o").build();
    assert!(!bench.indexing.is_broken());
    bench.indexing.fail();
    assert!(bench.indexing.is_broken());
    bench.end(&object, &[None]);
    assert!(!bench.indexing.is_broken());
}
