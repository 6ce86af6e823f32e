//! Protocol errors, and the commands of each activation. The scenarios in `tests/scenarios.rs` cover the rest.

use super::*;
use crate::activation::{Command, CommandResult, Completion, FetchedState, FilterResult, StoreRequest};
use crate::json::path::FieldPath;
use crate::persistence::progress::Record;
use crate::testing::object;
use serde_json::{Value, json};

const NOW: i64 = 1_767_225_600_000_000;

fn open(handlers: Value, lifecycle: Lifecycle) -> (Cycle, Effect) {
    open_with(handlers, lifecycle, Settings::default())
}

fn open_with(handlers: Value, lifecycle: Lifecycle, settings: Settings) -> (Cycle, Effect) {
    open_object(handlers, lifecycle, settings, object("x").spec(json!({"a": 1})).build())
}

fn open_object(
    handlers: Value,
    lifecycle: Lifecycle,
    settings: Settings,
    object: Arc<Object>,
) -> (Cycle, Effect) {
    let registry = Arc::new(Registry { handlers: serde_json::from_value(handlers).unwrap() });
    let resource = json!({
        "group": "kopf.dev", "version": "v1", "plural": "ks", "kind": "K", "singular": "k", "shortcuts": [],
        "categories": [], "subresources": [], "verbs": [], "namespaced": true, "preferred": true,
    });
    let resource_handlers =
        Arc::new(registry.handlers_of(&Arc::new(serde_json::from_value(resource).unwrap()), &|_| true));
    let config = Arc::new(OperatorConfig { registry, settings: Arc::new(settings), lifecycle });
    let event = QueuedEvent::of(EventType::Added, object);
    let start = CycleStart {
        event,
        memory: ObjectMemory::default(),
        view_age: crate::persistence::consistency::ViewAge::Consistent,
        index_pass: None,
    };
    let mut cycle = Cycle::open(start, resource_handlers, config, 0, Timestamp::from_micros(NOW));
    let effect = cycle.effect().unwrap();
    (cycle, effect)
}

fn complete(cycle: &mut Cycle, results: Vec<CommandResult>) -> Effect {
    let completion = Completion { results, ..Completion::default() };
    cycle.on_completion(completion, Timestamp::from_micros(NOW));
    cycle.effect().unwrap()
}

fn error(next: Effect) -> Option<String> {
    match next {
        Effect::Done(decision) => decision.error,
        other => panic!("{other:?}"),
    }
}

fn commands_of(next: Effect) -> Vec<Command> {
    match next {
        Effect::Run(activation) => activation.commands,
        other => panic!("{other:?}"),
    }
}

#[test]
fn completions_that_do_not_fit_are_errors() {
    let guarded = || json!([{"id": "c", "kind": "changing", "when": true}]);
    let mismatches: [Vec<CommandResult>; 4] = [
        vec![],
        vec![CommandResult::Skipped],
        vec![CommandResult::Filtered(vec![])],
        vec![CommandResult::Filtered(vec![FilterResult::default()]), CommandResult::Skipped],
    ];
    for mismatch in mismatches {
        let (mut cycle, _) = open(guarded(), Lifecycle::Asap);
        assert!(error(complete(&mut cycle, mismatch.clone())).is_some(), "{mismatch:?}");
    }
    let (mut cycle, _) = open(json!([{"id": "c", "kind": "changing"}]), Lifecycle::Custom);
    assert!(error(complete(&mut cycle, vec![CommandResult::Skipped])).is_some());
    let (mut cycle, _) = open(json!([{"id": "c", "kind": "changing"}]), Lifecycle::Asap);
    assert!(error(complete(&mut cycle, vec![])).is_some());
}

#[test]
fn unexpected_effect_results_are_errors() {
    let (mut cycle, _) = open(json!([{"id": "c", "kind": "changing"}]), Lifecycle::Asap);
    cycle.on_consistency(true, Timestamp::from_micros(NOW));
    assert!(error(cycle.effect().unwrap()).is_some());
}

#[test]
fn a_lifecycle_cannot_select_handlers_of_other_causes() {
    let handlers =
        json!([{"id": "c", "kind": "changing"}, {"id": "d", "kind": "changing", "reason": "delete"}]);
    let (mut cycle, _) = open(handlers, Lifecycle::Custom);
    let called = commands_of(complete(&mut cycle, vec![CommandResult::Selected(vec![1, 0, 0, 99])]));
    assert!(
        matches!(&called[..], [Command::CallChangeHandler { attempt }] if attempt.handler == 0),
        "{called:?}"
    );
}

#[test]
fn a_lifecycle_gets_the_records_of_finished_and_delayed_handlers() {
    let handlers = json!([
        {"id": "a", "kind": "changing"}, {"id": "b", "kind": "changing"}, {"id": "c", "kind": "changing"},
    ]);
    let record = |more: &str| format!(r#"{{"started":"2025-12-31T00:00:00Z","purpose":"create",{more}}}"#);
    let object = object("x")
        .annotated("kopf.zalando.org/a", &record(r#""retries":2,"success":true"#))
        .annotated("kopf.zalando.org/b", &record(r#""retries":1,"delayed":"2026-01-02T00:00:00Z""#));
    let (_, next) = open_object(handlers, Lifecycle::Custom, Settings::default(), object.build());
    let commands = commands_of(next);
    let [Command::SelectHandlers { handlers, records }] = &commands[..] else { panic!("{commands:?}") };
    assert_eq!(handlers, &[(2, 0)]);
    let progress = |(id, record): &(Arc<str>, Record)| (id.to_string(), record.retries, record.success);
    let expected = [("a", 2, true), ("b", 1, false), ("c", 0, false)];
    let expected = expected.map(|(id, retries, success)| (id.to_owned(), retries, success));
    assert_eq!(records.iter().map(progress).collect::<Vec<_>>(), expected);
    assert!(records[1].1.delayed.is_some());
}

// contract: engine 3.1
#[test]
fn event_handlers_and_callable_filters_share_an_activation() {
    let (mut cycle, next) = open(
        json!([
            {"id": "c", "kind": "changing", "when": true},
            {"id": "u", "kind": "changing", "reason": "update", "when": true},
            {"id": "e", "kind": "watching"},
            {"id": "f", "kind": "changing", "reason": "delete"},
        ]),
        Lifecycle::Asap,
    );
    // The update handler is not for this cause, and the deletion handler prematches: only the filters of `c` are evaluated.
    let commands = commands_of(next);
    assert!(
        matches!(&commands[0], Command::CallEventHandler { handler: 2, guarded: false, .. }),
        "{commands:?}"
    );
    assert_eq!(commands[1], Command::FilterHandlers { handlers: vec![0] });
    assert!(cycle.drain_log().is_empty());
    let matched = CommandResult::Filtered(vec![FilterResult { prematch: true, full: true }]);
    let called = commands_of(complete(&mut cycle, vec![CommandResult::Skipped, matched]));
    assert!(
        matches!(&called[..], [Command::CallChangeHandler { attempt }] if attempt.handler == 0),
        "{called:?}"
    );
    assert_eq!(cycle.drain_log(), [LogMessage::InProgress(Reason::Create)]);
}

#[test]
fn limits_and_modes_come_with_the_attempt() {
    let declared = json!([{"id": "c", "kind": "changing", "timeout": 5, "retries": 3}]);
    let called = commands_of(open(declared, Lifecycle::Asap).1);
    let [Command::CallChangeHandler { attempt }] = &called[..] else { panic!("{called:?}") };
    assert_eq!((attempt.timeout, attempt.retries, attempt.retry), (Some(5.0), Some(3), 0));
    assert_eq!((attempt.started, attempt.backoff), (Timestamp::from_micros(NOW), Some(60.0)));
    assert_eq!(&*attempt.label, "Handler 'c'");
}

#[test]
fn custom_storages_load_first_and_store_last() {
    let mut settings = Settings::default();
    settings.persistence.diffbase_storage = crate::persistence::diffbase::DiffBaseStorage::Custom;
    let declared =
        json!([{"id": "c", "kind": "changing", "field": ["status", "x"], "field_needs_change": false}]);
    let (mut cycle, next) = open_with(declared.clone(), Lifecycle::Asap, settings.clone());
    let extra_fields = vec![FieldPath::parse("status.x")];
    assert_eq!(commands_of(next), [Command::FetchState { ids: vec!["c".into()], extra_fields }]);
    let loaded =
        |new: Value| CommandResult::Fetched(Box::new(FetchedState { old: None, new, records: vec![] }));
    let called = commands_of(complete(&mut cycle, vec![loaded(json!({"status": {"x": 1}}))]));
    let [Command::CallChangeHandler { attempt }] = &called[..] else { panic!("{called:?}") };
    let outcome =
        attempt.evaluate(&crate::handling::attempt::CallResult::Nothing, Timestamp::from_micros(NOW)).outcome;
    let stored = commands_of(complete(&mut cycle, vec![CommandResult::Attempted(outcome)]));
    let records = vec![("c".into(), None)];
    assert_eq!(stored, [Command::StoreState(StoreRequest { records, essence: true, written: false })]);
    let Effect::Done(decision) = complete(&mut cycle, vec![CommandResult::Skipped]) else { panic!() };
    assert!(decision.error.is_none() && decision.patch.is_empty() && decision.fully_handled_once);

    // No handler matches, so the storages are not called. Unexpected results are errors.
    let labelled = json!([{"id": "c", "kind": "changing", "labels": [["absent", {"present": true}]]}]);
    assert!(matches!(open_with(labelled, Lifecycle::Asap, settings.clone()).1, Effect::Done(_)));
    let (mut cycle, _) = open_with(declared, Lifecycle::Asap, settings);
    assert!(error(complete(&mut cycle, vec![CommandResult::Skipped])).is_some());
}

#[test]
fn a_condensed_essence_from_a_custom_storage_is_restored() {
    let spec = json!({"blob": "y".repeat(300_000)});
    let (object, essence) = (object("x").spec(spec.clone()).build(), json!({"spec": spec}));
    let mut patch = Patch::default();
    crate::persistence::diffbase::DiffBaseStorage::default().store(&object, &mut patch, &essence);
    let key = "kopf.zalando.org/last-handled-configuration";
    let text = patch.get(&["metadata", "annotations", key]).unwrap().as_str().unwrap();
    let old: Value = serde_json::from_str(text).unwrap();
    assert!(old.get("spec").is_none());

    let mut settings = Settings::default();
    settings.persistence.diffbase_storage = crate::persistence::diffbase::DiffBaseStorage::Custom;
    let update = json!([{"id": "u", "kind": "changing", "reason": "update"}]);
    let (mut cycle, _) = open_object(update, Lifecycle::Asap, settings, object);
    let fetched = FetchedState { old: Some(old), new: essence, records: vec![] };
    let next = complete(&mut cycle, vec![CommandResult::Fetched(Box::new(fetched))]);
    let is_call = |command: &Command| matches!(command, Command::CallChangeHandler { .. });
    let is_updated = matches!(&next, Effect::Run(activation) if activation.commands.iter().any(is_call));
    assert!(!is_updated, "{next:?}");
}

#[test]
fn the_last_activation_of_a_cycle_is_marked() {
    let last = |handlers: Value| match open(handlers, Lifecycle::Asap).1 {
        Effect::Run(activation) => activation.last,
        other => panic!("{other:?}"),
    };
    let event = json!({"id": "e", "kind": "watching"});
    assert!(last(json!([event])));
    // This is a creation: with creation handlers, another activation follows.
    let changing = json!({"id": "c", "kind": "changing", "key": 1});
    assert!(!last(json!([event, changing])));
    let daemon = json!({"id": "d", "kind": "daemon", "key": 2});
    assert!(!last(json!([event, daemon])));
}
