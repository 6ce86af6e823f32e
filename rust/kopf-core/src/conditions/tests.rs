//! Changes of conditions, and their effect on the conditions of other controllers.

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

/// The conditions after the changes, if they differ.
fn changed(object: &Value, changes: &[ConditionChange], generation: i64) -> Option<Value> {
    let mut latest = object.clone();
    let changes = ConditionChanges { changes: changes.to_vec(), generation: Some(generation) };
    changes.apply(&mut latest, now());
    (latest != *object).then(|| latest["status"]["conditions"].clone())
}

#[test]
fn s1_14_18_only_a_different_status_changes_the_time() {
    let doc = object(&json!([ready("2020-01-01T00:00:00Z")]));
    assert_eq!(changed(&doc, &[set("Ready", Some(true), "Done")], 3), None);
    let again = changed(&doc, &[set("Ready", Some(true), "Again")], 3).unwrap();
    assert_eq!(again[0]["lastTransitionTime"], "2020-01-01T00:00:00Z");
    assert_eq!(again[0]["reason"], "Again");
    let unknown = changed(&doc, &[set("Ready", None, "Lost")], 3).unwrap();
    assert_eq!(
        (&unknown[0]["status"], &unknown[0]["lastTransitionTime"]),
        (&json!("Unknown"), &json!("2026-01-02T03:04:05Z"))
    );
    let later = changed(&doc, &[set("Ready", Some(true), "Done")], 4).unwrap();
    assert_eq!(later[0]["observedGeneration"], 4);
}

#[test]
fn entries_of_other_controllers_stay() {
    let other = json!({"type": "Other", "status": "True", "custom": [1]});
    let mut own = ready("2020-01-01T00:00:00Z");
    own["severity"] = json!("low");
    let doc = object(&json!([other, own, {"odd": 1}, {"type": "Old", "status": "False"}]));
    let drop_old = ConditionChange::Drop("Old".to_owned());
    let changes = [set("New", Some(false), "X"), drop_old, set("Ready", Some(false), "Y")];
    let after = changed(&doc, &changes, 3).unwrap();
    assert_eq!((&after[0], &after[2]), (&other, &json!({"odd": 1})));
    assert_eq!(
        (&after[1]["severity"], &after[1]["status"], &after[3]["type"]),
        (&json!("low"), &json!("False"), &json!("New"))
    );
    assert_eq!(after.as_array().unwrap().len(), 4);
}

#[test]
fn messages_are_bounded() {
    assert_eq!(truncated(&"é".repeat(20_000)).len(), 32_768);
    assert_eq!(truncated(&format!("x{}", "é".repeat(20_000))).len(), 32_767);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The list has the last change of each changed type, and all other entries in their order.
    #[test]
    fn the_last_change_of_each_type_is_made(
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
        let after = changed_conditions(entries.clone(), &all, None, now());
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
    }
}

#[test]
fn changes_of_a_call_are_made_in_the_latest_state() {
    let changes = ConditionChanges { changes: vec![set("Ready", Some(true), "Done")], generation: Some(3) };
    let other = json!({"type": "Other", "status": "False", "extra": 1});
    let since = "2026-01-02T03:04:05Z";
    for (before, after) in [
        (json!({"spec": 1}), json!({"spec": 1, "status": {"conditions": [ready(since)]}})),
        (json!({"status": {}}), json!({"status": {"conditions": [ready(since)]}})),
        (object(&json!(null)), object(&json!([ready(since)]))),
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
