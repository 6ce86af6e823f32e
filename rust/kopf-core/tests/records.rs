//! Recorded output of Kopf 1.45: annotation keys, progress records, diff-bases, diffs, merges.
//!
//! `records/kopf-1.45.2.json` was made by running Kopf on these objects, storages and ids. Objects in production clusters have
//! such annotations, so the output must be equal byte for byte.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kopf_core::json::diff::{DiffItem, diff, diff_left, reduce};
use kopf_core::json::json_patch::apply_merge;
use kopf_core::json::merge_patch::Patch;
use kopf_core::json::path::FieldPath;
use kopf_core::json::value::{Map, Value};
use kopf_core::object::Object;
use kopf_core::persistence::annotation_keys::make_keys;
use kopf_core::persistence::diffbase::DiffBaseStorage;
use kopf_core::persistence::essence::{Comparison, Storages, compare, essence};
use kopf_core::persistence::progress::{ProgressStorage, Record};
use serde_json::{from_value, json};

fn recorded(section: &str) -> Vec<Value> {
    let mut all: Value = serde_json::from_str(include_str!("records/kopf-1.45.2.json")).unwrap();
    match all[section].take() {
        Value::Array(rows) if rows.len() > 10 => rows,
        other => panic!("{section} is missing or too short: {other}"),
    }
}

fn decode(value: &Value) -> Object {
    Object::decode(&value.to_string()).unwrap()
}

// contract: engine 7.2
#[test]
fn keys_are_those_of_kopf_1_45() {
    let owned =
        decode(&json!({"kind": "ReplicaSet", "metadata": {"ownerReferences": [{"kind": "Deployment"}]}}));
    for row in recorded("keys") {
        let (prefix, id, of_deployment, expected): (String, String, bool, Vec<String>) =
            from_value(row).unwrap();
        let keys = make_keys(&prefix, &id, true, of_deployment.then_some(&owned));
        assert_eq!(keys, expected, "{prefix} {id}");
        assert_eq!(make_keys(&prefix, &id, false, of_deployment.then_some(&owned)), expected[..1]);
    }
}

// contract: engine 7.2
#[test]
fn keys_are_those_of_the_contract() {
    let a = |n: usize| "a".repeat(n);
    let at = |name: &str| format!("kopf.zalando.org/{name}");
    let a39 = a(39);
    for (id, expected) in [
        ("create_fn/sub1".to_owned(), vec![at("create_fn.sub1")]),
        ("outer.<locals>.fn".to_owned(), vec![at("outer._locals_.fn")]),
        (a(47), vec![at(&a(47)), at(&format!("{a39}-L2I79Q"))]),
        (a(63), vec![at(&a(63)), at(&format!("{a39}-LcrRHA"))]),
        (a(64), vec![at(&format!("{}-5Keq3A", a(56))), at(&format!("{a39}-5Keq3A"))]),
        (
            "some/very/long/handler/id/that/exceeds/sixty/three/characters/for/sure".to_owned(),
            vec![
                at("some.very.long.handler.id.that.exceeds.sixty.three.chara-Ft7QHA"),
                at("some.very.long.handler.id.that.exceeds.-C8rtqw"),
            ],
        ),
    ] {
        assert_eq!(make_keys("kopf.zalando.org", &id, true, None), expected);
    }
    let prefix = "lengthy-operator-name-to-hit-63-chars.example.com";
    assert_eq!(
        make_keys(prefix, "last-handled-configuration", true, None),
        [format!("{prefix}/last-handled-configuration"), format!("{prefix}/last-h-a.A3qw")]
    );
}

// contract: engine 7.4
#[test]
fn diff_bases_are_written_and_read_as_by_kopf_1_45() {
    let all: Value = serde_json::from_str(include_str!("records/kopf-1.45.2.json")).unwrap();
    let progress = ProgressStorage::default();
    for row in recorded("essences") {
        let (object, storage, extra, expected): (String, String, Vec<FieldPath>, Value) =
            from_value(row).unwrap();
        let case = format!("{object} {storage} {extra:?}");
        let mut body = all["objects"][&object].clone();
        let diffbase: DiffBaseStorage = from_value(all["storages"][&storage].clone()).unwrap();
        let storages = Storages { diffbase: &diffbase, progress: &progress };

        let object = decode(&body);
        let current = essence(&object, storages, &extra);
        let mut patch = Patch::default();
        diffbase.store(&object, &mut patch, &current);
        assert_eq!(Value::Object(patch.0.clone()), expected, "{case}");

        // With the stored diff-base, the object is unchanged.
        apply_merge(&mut body, &patch.0);
        assert_eq!(compare(&decode(&body), storages, &extra), Ok(Comparison::Same), "{case}");
    }
}

// contract: engine 7.1
#[test]
fn progress_is_written_and_read_as_by_kopf_1_45() {
    for row in recorded("progress") {
        let storage: ProgressStorage = from_value(json!({
            "type": "Annotations", "prefix": row["prefix"], "verbose": row["verbose"], "touch_key": "touch-dummy", "v1": true,
        }))
        .unwrap();
        let record = Record::from_value(&row["record"]).unwrap();
        let id = row["id"].as_str().unwrap();
        let mut patch = Patch::default();
        storage.store(&decode(&json!({})), &mut patch, id, &record);
        assert_eq!(Value::Object(patch.0), row["patch"]);
        assert_eq!(storage.fetch(&decode(&row["patch"]), id), Ok(Some(record)));
    }
}

/// Kopf 1.45 does not order items within a group, so the order is ignored on both sides.
fn unordered(items: &[DiffItem]) -> Vec<String> {
    let mut texts: Vec<String> = items.iter().map(|item| json!(item).to_string()).collect();
    texts.sort();
    texts
}

fn unordered_rows(rows: &[Value]) -> Vec<String> {
    let mut texts: Vec<String> = rows.iter().map(Value::to_string).collect();
    texts.sort();
    texts
}

// contract: engine 4.2
#[test]
fn diffs_are_those_of_kopf_1_45() {
    for row in recorded("diffs") {
        let (a, b, field, full, left, reduced): (
            Value,
            Value,
            FieldPath,
            Vec<Value>,
            Vec<Value>,
            Vec<Value>,
        ) = from_value(row.clone()).unwrap();
        let items = diff(Some(&a), Some(&b));
        assert_eq!(unordered(&items), unordered_rows(&full), "{row}");
        assert_eq!(unordered(&diff_left(Some(&a), Some(&b))), unordered_rows(&left), "{row}");
        assert_eq!(unordered(&reduce(&items, &field)), unordered_rows(&reduced), "{row}");
    }
}

#[test]
fn merges_are_those_of_kopf_1_45() {
    for row in recorded("merges") {
        let (mut body, patch, expected): (Value, Map<String, Value>, Value) =
            from_value(row.clone()).unwrap();
        apply_merge(&mut body, &patch);
        assert_eq!(body, expected, "{row}");
    }
}
