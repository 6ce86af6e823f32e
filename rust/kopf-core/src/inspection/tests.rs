//! The states of objects, as tables.

use super::*;
use crate::json::value::Value;
use crate::persistence::Persistence;
use serde_json::{from_value, json};
use std::sync::Arc;

const FINALIZER: &str = "kopf.zalando.org/KopfFinalizerMarker";
const BASE: &str = "kopf.zalando.org/last-handled-configuration";
const NOW: &str = "2026-01-01T12:00:00Z";

/// An object with these records, as an annotation for each handler id; times are in seconds before now.
#[derive(Default)]
struct Case {
    records: Vec<(&'static str, Value)>,
    base: Option<Value>,
    deleted: Option<i32>,
    finalizers: Vec<&'static str>,
    labels: Value,
    managed: Value,
    status: Value,
}

fn ago(seconds: i32) -> String {
    at(seconds).to_string()
}

fn at(seconds: i32) -> Timestamp {
    Timestamp::parse(NOW).unwrap().plus(-f64::from(seconds))
}

impl Case {
    fn object(&self) -> Object {
        let mut annotations = json!({});
        for (id, record) in &self.records {
            let text = record.as_str().map_or_else(|| record.to_string(), str::to_owned);
            annotations[format!("kopf.zalando.org/{id}")] = json!(text);
        }
        if let Some(base) = &self.base {
            let text = base.as_str().map_or_else(|| base.to_string(), str::to_owned);
            annotations[BASE] = json!(text);
        }
        let metadata = json!({
            "name": "n", "creationTimestamp": ago(9000), "annotations": annotations, "labels": self.labels,
            "deletionTimestamp": self.deleted.map(ago), "finalizers": self.finalizers,
            "managedFields": self.managed,
        });
        let body = json!({"kind": "K", "metadata": metadata, "spec": {"x": 1}, "status": self.status});
        Object::decode(&body.to_string()).unwrap()
    }

    fn inspect(&self, handlers: Option<Value>) -> Inspection {
        let persistence = Persistence::default();
        let settings = PersistenceConfig { persistence: &persistence, compat: false };
        let registry =
            handlers.map(|handlers| Arc::new(Registry { handlers: from_value(handlers).unwrap() }));
        let resource = json!({"group": "g", "version": "v1", "plural": "ks"});
        let resource = Arc::new(from_value(resource).unwrap());
        let selected = registry.as_ref().map(|registry| registry.handlers_of(&resource, &|_| true));
        let handlers = registry.as_deref().zip(selected.as_ref());
        let finalizers = [FINALIZER.to_owned()];
        inspect(
            &self.object(),
            Operator { settings, finalizers: &finalizers, handlers },
            None,
            Timestamp::parse(NOW).unwrap(),
        )
    }
}

fn handlers() -> Value {
    json!([
        {"id": "f", "kind": "changing", "labels": [["ours", {"present": true}]]},
        {"id": "g/spec.x", "kind": "changing", "labels": [["ours", {"present": true}]], "when": true},
    ])
}

fn handled() -> Value {
    json!({"spec": {"x": 1}, "metadata": {"labels": {"ours": "1"}}})
}

fn ours() -> Value {
    json!({"ours": "1"})
}

fn record(purpose: &str, more: Value) -> Value {
    let mut record = json!({"started": ago(100), "purpose": purpose, "retries": 0});
    record.as_object_mut().unwrap().extend(from_value::<serde_json::Map<_, _>>(more).unwrap());
    record
}

/// Inspects with the handlers, and without them; both must agree.
fn check(case: &Case, expected: State) -> Inspection {
    let inspection = case.inspect(Some(handlers()));
    assert_eq!(inspection.state, expected, "{inspection:?}");
    let unknown = case.inspect(None);
    assert_eq!((unknown.state, unknown.done, unknown.total), (expected, inspection.done, inspection.total));
    inspection
}

#[test]
fn an_equal_diff_base_without_records_is_handled_and_an_unequal_one_is_changed() {
    check(&Case { base: Some(handled()), labels: ours(), ..Case::default() }, State::Handled);
    check(&Case { base: Some(json!({"spec": {"x": 2}})), ..Case::default() }, State::Changed);
    // Handlers see no difference between null and absence.
    let base = Some(json!({"spec": {"x": 1, "y": null}, "metadata": {"labels": {"ours": "1"}}}));
    check(&Case { base, labels: ours(), ..Case::default() }, State::Handled);
}

#[test]
fn an_object_that_was_never_handled_is_new_if_it_matches_handlers() {
    let new = Case { labels: ours(), finalizers: vec![FINALIZER], ..Case::default() };
    let inspection = check(&new, State::New);
    assert_eq!(inspection.since, Some(at(9000)));
    assert_eq!(inspection.finalizers, [FINALIZER]);
    let unmarked = Case { labels: ours(), ..Case::default() };
    assert_eq!(unmarked.inspect(Some(handlers())).state, State::New);
    // Without the handlers, nothing of this operator is visible.
    assert_eq!(unmarked.inspect(None).state, State::Foreign);
    check(&Case { finalizers: vec!["others/finalizer"], ..Case::default() }, State::Foreign);
}

#[test]
fn without_change_handlers_no_diff_base_is_expected() {
    let daemons = json!([{"id": "d", "kind": "daemon"}]);
    let served = Case { finalizers: vec![FINALIZER], ..Case::default() };
    assert_eq!(served.inspect(Some(daemons.clone())).state, State::Handled);
    assert_eq!(Case::default().inspect(Some(daemons)).state, State::Foreign);
}

#[test]
fn unfinished_records_are_handling_retrying_or_overdue() {
    for (more, expected) in [
        (json!({}), State::Handling),
        (json!({"retries": 1}), State::Retrying),
        (json!({"retries": 3, "delayed": ago(-42)}), State::Retrying),
        (json!({"retries": 3, "delayed": ago(60)}), State::Retrying),
        (json!({"retries": 3, "delayed": ago(61)}), State::Overdue),
        (json!({"delayed": ago(61), "success": true}), State::Handling),
    ] {
        let records = vec![("f", record("update", more))];
        let inspection = check(&Case { records, ..Case::default() }, expected);
        assert_eq!(inspection.reason.as_deref(), Some("update"));
        assert_eq!(inspection.since, Some(at(100)));
    }
}

#[test]
fn the_handler_that_waits_is_named_with_its_attempts_and_its_error() {
    let waiting = json!({"retries": 7, "delayed": ago(-42), "message": "HTTP 503"});
    let done = json!({"success": true, "stopped": ago(50), "retries": 1});
    let records = vec![("f", record("update", done)), ("g.spec.x", record("update", waiting))];
    let case = Case { records, base: Some(handled()), ..Case::default() };
    let inspection = check(&case, State::Retrying);
    assert_eq!((inspection.done, inspection.total), (1, 2));
    assert_eq!(inspection.attempted, Some(("g/spec.x".to_owned(), 7)));
    assert_eq!((inspection.next, inspection.message.as_deref()), (Some(at(-42)), Some("HTTP 503")));
    assert_eq!(case.inspect(None).attempted, Some(("g.spec.x".to_owned(), 7)));
}

#[test]
fn a_failed_handler_is_shown_before_those_that_are_retried() {
    let failed = json!({"failure": true, "stopped": ago(50), "retries": 3, "message": "Not a domain"});
    let overdue = json!({"retries": 9, "delayed": ago(500)});
    let records = vec![("f", record("create", overdue)), ("g.spec.x", record("create", failed))];
    let inspection = check(&Case { records, ..Case::default() }, State::Failed);
    assert_eq!(inspection.attempted, Some(("g/spec.x".to_owned(), 3)));
    assert_eq!((inspection.done, inspection.total, inspection.since), (1, 2, Some(at(50))));
    assert_eq!(inspection.message.as_deref(), Some("Not a domain"));
}

#[test]
fn sub_handlers_count_with_their_parent_and_explain_it() {
    let parent = json!({"retries": 4, "delayed": ago(-1), "subrefs": ["f/a", "f/b"]});
    let records = vec![
        ("f", record("create", parent)),
        ("f.a", record("create", json!({"success": true}))),
        ("f.b", record("create", json!({"retries": 2, "delayed": ago(-5), "message": "not yet"}))),
    ];
    let inspection = check(&Case { records, ..Case::default() }, State::Retrying);
    assert_eq!((inspection.done, inspection.total), (0, 1));
    assert_eq!(inspection.attempted, Some(("f/b".to_owned(), 2)));
    assert_eq!(inspection.message.as_deref(), Some("not yet"));
    let states = inspection.to_value()["handlers"].clone();
    let states: Vec<_> = states.as_array().unwrap().iter().map(|one| one["state"].clone()).collect();
    assert_eq!(states, ["retrying", "succeeded", "retrying"]);
}

#[test]
fn a_deletion_is_stuck_if_the_finalizer_blocks_it_and_nothing_happens() {
    let finalizers = vec![FINALIZER];
    let stopped = json!({"started": ago(2000), "retries": 1, "delayed": ago(1560)});
    for (deleted, finalizers, more, expected) in [
        (1560, &finalizers, None, State::Stuck),
        (300, &finalizers, None, State::Stuck),
        (299, &finalizers, None, State::Deleting),
        (1560, &vec!["others/finalizer"], None, State::Deleting),
        (9000, &finalizers, Some(stopped), State::Stuck),
        (9000, &finalizers, Some(json!({"started": ago(299)})), State::Deleting),
        (9000, &finalizers, Some(json!({"started": ago(2000), "delayed": ago(-1)})), State::Deleting),
        (
            9000,
            &finalizers,
            Some(json!({"started": ago(2000), "stopped": ago(9), "failure": true})),
            State::Deleting,
        ),
    ] {
        let records = more.into_iter().map(|more| ("f", record("delete", more))).collect();
        let case =
            Case { records, deleted: Some(deleted), finalizers: finalizers.clone(), ..Case::default() };
        let inspection = check(&case, expected);
        assert_eq!((inspection.reason.as_deref(), inspection.since), (Some("delete"), Some(at(deleted))));
        if expected == State::Stuck && deleted != 300 {
            assert_eq!(inspection.message.as_deref(), Some("finalizer present; no writes for 26 min"));
        }
    }
}

#[test]
fn records_of_a_superseded_handling_do_not_count() {
    let old = record("create", json!({"failure": true, "started": ago(900)}));
    let records = vec![("f", old), ("g.spec.x", record("update", json!({})))];
    let inspection = check(&Case { records, ..Case::default() }, State::Handling);
    assert_eq!((inspection.reason.as_deref(), inspection.total), (Some("update"), 1));
}

#[test]
fn unreadable_annotations_are_malformed_before_anything_else() {
    for (records, base) in [(vec![("f", json!("{"))], None), (vec![], Some(json!("{")))] {
        let case =
            Case { records, base, deleted: Some(9000), finalizers: vec![FINALIZER], ..Case::default() };
        let inspection = check(&case, State::Malformed);
        assert!(inspection.message.unwrap().starts_with("malformed annotation kopf.zalando.org/"));
    }
    // Records of handlers that this operator does not have are not read.
    let others = Case {
        records: vec![("other", json!("{"))],
        base: Some(handled()),
        labels: ours(),
        ..Case::default()
    };
    assert_eq!(others.inspect(Some(handlers())).state, State::Handled);
    assert_eq!(others.inspect(None).state, State::Malformed);
}

#[test]
fn fields_of_handlers_are_a_part_of_the_essence_also_if_the_handlers_are_unknown() {
    let base = json!({"spec": {"x": 1}, "status": {"s": {"t": 1}}, "metadata": {"generation": 2}});
    for (status, expected) in [(json!({"s": {"t": 1}}), State::Handled), (json!({}), State::Changed)] {
        let mut case = Case { base: Some(base.clone()), status, ..Case::default() };
        case.base.as_mut().unwrap()["metadata"] = json!({});
        let handlers = json!([{"id": "f", "kind": "changing", "field": ["status", "s"]}]);
        assert_eq!(case.inspect(Some(handlers)).state, expected);
        assert_eq!(case.inspect(None).state, expected);
    }
}

#[test]
fn the_time_of_the_last_handling_and_of_the_change_are_those_of_the_field_managers() {
    let own = json!({"f:metadata": {"f:annotations": {format!("f:{BASE}"): {}}}});
    let managed = json!([
        {"manager": "kopf", "time": ago(300), "fieldsV1": own},
        {"manager": "kubectl", "time": ago(200), "fieldsV1": {"f:spec": {"f:x": {}}}},
        {"manager": "other", "time": ago(100), "subresource": "status", "fieldsV1": {"f:status": {}}},
    ]);
    let of = |base| Case { base, labels: ours(), managed: managed.clone(), ..Case::default() };
    assert_eq!(check(&of(Some(handled())), State::Handled).since, Some(at(300)));
    assert_eq!(check(&of(Some(json!({}))), State::Changed).since, Some(at(200)));
}

#[test]
fn a_remaining_observed_essence_is_no_progress() {
    let records = vec![("f", json!({"retries": 0, "success": false, "failure": false, "seen": "{}"}))];
    check(&Case { records, base: Some(handled()), labels: ours(), ..Case::default() }, State::Handled);
}

#[test]
fn fetched_states_of_custom_storages_replace_those_of_the_object() {
    let persistence = Persistence::default();
    let settings = PersistenceConfig { persistence: &persistence, compat: false };
    let operator = Operator { settings, finalizers: &[], handlers: None };
    let object = Case { base: Some(handled()), ..Case::default() }.object();
    let now = Timestamp::parse(NOW).unwrap();
    let inspected = |fetched: &Fetched| inspect(&object, operator, Some(fetched), now).state;
    let new = json!({"spec": {"x": 1}});
    assert_eq!(inspected(&Fetched { new: new.clone(), ..Fetched::default() }), State::Foreign);
    let same = Fetched { old: Some(new.clone()), new: new.clone(), records: vec![] };
    assert_eq!(inspected(&same), State::Handled);
    assert_eq!(inspected(&Fetched { old: Some(json!({})), ..same.clone() }), State::Changed);
    let records = vec![("f".to_owned(), record("create", json!({"retries": 1})))];
    assert_eq!(inspected(&Fetched { records, ..same.clone() }), State::Retrying);
    assert_eq!(inspected(&Fetched { records: vec![("f".to_owned(), json!(1))], ..same }), State::Malformed);
}
