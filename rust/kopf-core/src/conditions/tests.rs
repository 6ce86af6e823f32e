//! The patches of conditions, and their effect on the objects of other controllers.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn now() -> Timestamp {
    Timestamp::parse("2026-01-02T03:04:05.678Z").unwrap()
}

fn set(type_: &str, status: Option<bool>, reason: &str) -> ConditionChange {
    let (type_, reason) = (type_.to_owned(), reason.to_owned());
    ConditionChange::Set { type_, status, reason, message: "m".to_owned() }
}

fn ready(since: &str) -> Value {
    json!({"type": "Ready", "status": "True", "reason": "Done", "message": "m", "lastTransitionTime": since,
        "observedGeneration": 3})
}

fn object(conditions: &Value) -> Value {
    json!({"metadata": {"resourceVersion": "7"}, "status": {"conditions": conditions, "x": 1}})
}

/// Applies the operations that this module generates, as an API server does.
fn apply(doc: &Value, operations: &[Value]) -> Value {
    let mut doc = doc.clone();
    for operation in operations {
        let path = operation["path"].as_str().unwrap();
        let (parent, key) = path.rsplit_once('/').unwrap();
        if operation["op"] == "test" {
            assert_eq!(doc.pointer(path), Some(&operation["value"]));
            continue;
        }
        match (doc.pointer_mut(parent).unwrap(), operation["op"].as_str().unwrap()) {
            (Value::Array(items), "add") if key == "-" => items.push(operation["value"].clone()),
            (Value::Array(items), "replace") => {
                items[key.parse::<usize>().unwrap()] = operation["value"].clone();
            }
            (Value::Array(items), "remove") => drop(items.remove(key.parse().unwrap())),
            (Value::Object(map), "add") => drop(map.insert(key.to_owned(), operation["value"].clone())),
            other => panic!("{other:?}"),
        }
    }
    doc
}

fn patched(doc: &Value, changes: &[ConditionChange]) -> Option<Value> {
    conditions_patch(doc, changes, Some(3), now())
        .map(|patch| apply(doc, &patch)["status"]["conditions"].clone())
}

#[test]
fn a_condition_is_created_with_its_parents() {
    let new = ready("2026-01-02T03:04:05Z");
    let version = json!({"resourceVersion": "7"});
    for doc in [
        json!({"metadata": version}),
        json!({"metadata": version, "status": null}),
        json!({"metadata": version, "status": {}}),
        json!({"metadata": version, "status": {"conditions": null}}),
        object(&json!([])),
    ] {
        assert_eq!(patched(&doc, &[set("Ready", Some(true), "Done")]), Some(json!([new])), "{doc}");
    }
}

#[test]
fn s1_14_18_only_a_different_status_changes_the_time() {
    let doc = object(&json!([ready("2020-01-01T00:00:00Z")]));
    assert_eq!(patched(&doc, &[set("Ready", Some(true), "Done")]), None, "no request");
    let again = patched(&doc, &[set("Ready", Some(true), "Again")]).unwrap();
    assert_eq!(again[0]["lastTransitionTime"], "2020-01-01T00:00:00Z");
    assert_eq!(again[0]["reason"], "Again");
    let unknown = patched(&doc, &[set("Ready", None, "Lost")]).unwrap();
    assert_eq!(
        (&unknown[0]["status"], &unknown[0]["lastTransitionTime"]),
        (&json!("Unknown"), &json!("2026-01-02T03:04:05Z"))
    );
    let patch = conditions_patch(&doc, &[set("Ready", Some(true), "Done")], Some(4), now()).unwrap();
    assert_eq!(apply(&doc, &patch)["status"]["conditions"][0]["observedGeneration"], 4);
}

#[test]
fn entries_of_other_controllers_stay() {
    let other = json!({"type": "Other", "status": "True", "custom": [1]});
    let mut own = ready("2020-01-01T00:00:00Z");
    own["severity"] = json!("low");
    let doc = object(&json!([other, own, {"odd": 1}, {"type": "Old", "status": "False"}]));
    let after = patched(
        &doc,
        &[
            set("New", Some(false), "X"),
            ConditionChange::Drop("Old".to_owned()),
            set("Ready", Some(false), "Y"),
        ],
    );
    let after = after.unwrap();
    assert_eq!((&after[0], &after[2]), (&other, &json!({"odd": 1})));
    assert_eq!(
        (&after[1]["severity"], &after[1]["status"], &after[3]["type"]),
        (&json!("low"), &json!("False"), &json!("New"))
    );
    assert_eq!(after.as_array().unwrap().len(), 4);
}

#[test]
fn outcomes_become_conditions() {
    for (outcome, expected) in [
        (CallOutcome::Succeeded, (Some(true), "Succeeded", "")),
        (CallOutcome::Requeued("for a pod"), (Some(false), "Waiting", "for a pod")),
        (CallOutcome::Failed("ValueError", "x"), (Some(false), "ValueError", "x")),
        (CallOutcome::Failed("_Lost", "x"), (Some(false), "Lost", "x")),
        (CallOutcome::Failed("error", "x"), (Some(false), "Error", "x")),
    ] {
        let ConditionChange::Set { status, reason, message, .. } = ConditionChange::of_outcome("R", outcome)
        else {
            panic!()
        };
        assert_eq!((status, reason.as_str(), message.as_str()), expected);
    }
}

#[test]
fn reasons_are_words_and_messages_are_bounded() {
    assert!(["A", "NoSecret", "Http2"].into_iter().all(is_reason));
    assert!(!["", "a", "No Secret", "No_Secret", "Ü", "2"].into_iter().any(is_reason));
    assert_eq!(truncated(&"é".repeat(20_000)).len(), 32_768);
    assert_eq!(truncated(&format!("x{}", "é".repeat(20_000))).len(), 32_767);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The patch yields the changed list: of each changed type the last change, and all other entries in their order.
    #[test]
    fn patches_yield_the_changed_list(
        present in vec(("[A-E]", any::<bool>()), 0..5),
        changes in vec(("[A-E]", proptest::option::of(proptest::option::of(any::<bool>()))), 0..5),
    ) {
        let mut entries: Vec<Value> = Vec::new();
        for (type_, status) in present {
            if !entries.iter().any(|entry| entry["type"] == *type_) {
                let status = if status { "True" } else { "False" };
                entries.push(json!({"type": type_, "status": status, "reason": "R", "message": "m", "lastTransitionTime": "t"}));
            }
        }
        let change = |(type_, status): &(String, Option<Option<bool>>)| match status {
            Some(status) => set(type_, *status, "R"),
            None => ConditionChange::Drop(type_.clone()),
        };
        let all: Vec<_> = changes.iter().map(change).collect();
        let doc = object(&Value::Array(entries.clone()));
        let patch = conditions_patch(&doc, &all, None, now());
        let after = patch.as_deref().map_or(doc.clone(), |patch| apply(&doc, patch));
        let after = after["status"]["conditions"].as_array().unwrap().clone();
        for type_ in ["A", "B", "C", "D", "E"] {
            let last = changes.iter().rfind(|(changed, _)| changed == type_);
            let entry = after.iter().find(|entry| entry["type"] == type_);
            let before = entries.iter().find(|entry| entry["type"] == type_);
            match last {
                None => prop_assert_eq!(entry, before),
                Some((_, None)) => prop_assert!(entry.is_none()),
                Some((_, Some(status))) => {
                    let text = status.map_or("Unknown", |status| if status { "True" } else { "False" });
                    prop_assert_eq!(&entry.unwrap()["status"], text);
                }
            }
        }
        let untouched = |entry: &&Value| !changes.iter().any(|(changed, _)| entry["type"] == **changed);
        prop_assert!(entries.iter().filter(untouched).eq(after.iter().filter(untouched)));
        let is_same = after == entries;
        prop_assert_eq!(patch.is_none(), is_same, "a patch is sent if and only if the list differs");
    }
}

#[test]
fn changes_of_a_call_are_made_in_the_latest_state() {
    let changes = ConditionChanges { changes: vec![set("Ready", Some(true), "Done")], generation: Some(3) };
    let other = json!({"type": "Other", "status": "False", "extra": 1});
    let since = "2026-01-02T03:04:05Z";
    for (before, after) in [
        (json!({"spec": 1}), json!({"spec": 1, "status": {"conditions": [ready(since)]}})),
        (object(&json!("not a list")), object(&json!([ready(since)]))),
        (object(&json!([other])), object(&json!([other, ready(since)]))),
        (object(&json!([ready("2020-01-01T00:00:00Z")])), object(&json!([ready("2020-01-01T00:00:00Z")]))),
        (json!({"status": null}), json!({"status": null})),
    ] {
        let mut state = before;
        changes.apply(&mut state, now());
        assert_eq!(state, after);
    }
}
