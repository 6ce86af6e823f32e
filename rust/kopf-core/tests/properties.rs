//! Properties of JSON values, objects and storages: tests with random values.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kopf_core::json::diff::{DiffItem, Op, diff, reduce};
use kopf_core::json::json_patch::{apply_merge, merge_operations, operations};
use kopf_core::json::merge_patch::Patch;
use kopf_core::json::path::{self, FieldPath, resolve};
use kopf_core::json::value::{Map, Value, equal, to_python_json};
use kopf_core::object::{Object, decode_page, decode_watch_line};
use kopf_core::persistence::diffbase::DiffBaseStorage;
use kopf_core::persistence::essence::{Comparison, Difference, Storages, compare, essence, serialize_raw};
use kopf_core::persistence::progress::{ProgressStorage, Record};
use kopf_core::time::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

/// Few distinct keys, so that random mappings overlap.
fn keys() -> impl Strategy<Value = String> {
    prop_oneof!["[a-d]", Just("a/b~c".to_owned()), Just("é\"\\\n😀".to_owned())]
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]{0,2}", any::<String>()]
}

fn leaves() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..3).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-4_i32..5).prop_map(|n| Value::from(f64::from(n) / 2.0)),
        any::<f64>().prop_filter("JSON has finite numbers only", |f| f.is_finite()).prop_map(Value::from),
        texts().prop_map(Value::from),
    ]
}

fn mapping(of: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Value> {
    vec((keys(), of), 0..4).prop_map(|pairs| Value::Object(pairs.into_iter().collect()))
}

fn values() -> impl Strategy<Value = Value> {
    leaves().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![vec(inner.clone(), 0..4).prop_map(Value::Array), mapping(inner)]
    })
}

/// Objects as the API server could send them; some have values of unexpected types.
fn objects() -> impl Strategy<Value = Value> {
    let annotations = vec(
        (
            prop_oneof![
                Just("kopf.zalando.org/handler".to_owned()),
                Just("my.org/kopf-managed".to_owned()),
                Just("my.org/x".to_owned()),
                Just("kubectl.kubernetes.io/last-applied-configuration".to_owned()),
                keys(),
            ],
            prop_oneof![9 => texts().prop_map(Value::from), 1 => leaves()],
        ),
        0..5,
    )
    .prop_map(|pairs| Value::Object(pairs.into_iter().collect()));
    let metadata = (texts(), mapping(texts().prop_map(Value::from)), annotations).prop_map(|(name, labels, annotations)| {
        json!({"name": name, "labels": labels, "annotations": annotations, "generation": 1})
    });
    let metadata = prop_oneof![12 => metadata, 1 => leaves()];
    (metadata, values(), values(), mapping(values()), any::<bool>()).prop_map(
        |(metadata, spec, status, rest, spec_first)| {
            let mut body = json!({"apiVersion": "v1", "kind": "K"});
            if spec_first {
                body["spec"] = spec.clone();
            }
            body["metadata"] = metadata;
            body["spec"] = spec;
            body["status"] = status;
            for (key, value) in rest.as_object().unwrap() {
                body[key] = value.clone();
            }
            body
        },
    )
}

fn paths(length: std::ops::Range<usize>) -> impl Strategy<Value = FieldPath> {
    vec(keys(), length).prop_map(FieldPath::from_keys)
}

/// Removes nulls: a diff treats `null` as absent.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), without_nulls(v))).collect(),
        ),
        other => other.clone(),
    }
}

/// Removes only the leaf: an empty mapping differs from an absent one.
fn remove_leaf(root: &mut Value, keys: &[Box<str>]) {
    match keys {
        [] => *root = Value::Null,
        [leaf] => {
            root.as_object_mut().unwrap().shift_remove(&**leaf);
        }
        [key, rest @ ..] => remove_leaf(&mut root[&**key], rest),
    }
}

fn apply_diff(to: &Value, items: &[DiffItem]) -> Value {
    let mut result = to.clone();
    for item in items {
        match item.op {
            Op::Remove => remove_leaf(&mut result, item.path.keys()),
            Op::Add | Op::Change => path::ensure(&mut result, item.path.keys(), item.new.clone().unwrap()),
        }
    }
    result
}

/// Applies a JSON patch per RFC 6902, independently of the code that makes it.
fn apply_operations(to: &Value, operations: &[Value]) -> Value {
    let mut doc = to.clone();
    for operation in operations {
        let pointer = operation["path"].as_str().unwrap();
        let Some((parent, key)) = pointer.rsplit_once('/') else {
            assert_eq!(operation["op"], "replace");
            doc = operation["value"].clone();
            continue;
        };
        let key = key.replace("~1", "/").replace("~0", "~");
        match (operation["op"].as_str().unwrap(), doc.pointer_mut(parent).unwrap()) {
            ("add", Value::Array(items)) => items.insert(key.parse().unwrap(), operation["value"].clone()),
            ("remove", Value::Array(items)) => drop(items.remove(key.parse().unwrap())),
            ("replace", Value::Array(items)) => {
                items[key.parse::<usize>().unwrap()] = operation["value"].clone();
            }
            ("add", Value::Object(map)) => assert_eq!(map.insert(key, operation["value"].clone()), None),
            ("remove", Value::Object(map)) => drop(map.shift_remove(&key).unwrap()),
            ("replace", Value::Object(map)) => drop(map.insert(key, operation["value"].clone()).unwrap()),
            (op, at) => panic!("{op} at {at}"),
        }
    }
    doc
}

fn decode(value: &Value) -> Object {
    Object::decode(&value.to_string()).unwrap()
}

fn listed(items: &[DiffItem]) -> Value {
    serde_json::to_value(items).unwrap()
}

/// Applies operations for fields of mappings per RFC 6902: `add` also replaces a value.
fn apply_to_mappings(to: &Value, operations: &[Value]) -> Value {
    let mut doc = to.clone();
    for operation in operations {
        let (parent, key) = operation["path"].as_str().unwrap().rsplit_once('/').unwrap();
        let map = doc.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        let key = key.replace("~1", "/").replace("~0", "~");
        match operation["op"].as_str().unwrap() {
            "add" => drop(map.insert(key, operation["value"].clone())),
            "remove" => drop(map.shift_remove(&key).unwrap()),
            op => panic!("{op}"),
        }
    }
    doc
}

/// Applies a merge patch per RFC 7396, as servers do.
fn merge(to: &mut Value, patch: &Map<String, Value>) {
    if !to.is_object() {
        *to = json!({});
    }
    let map = to.as_object_mut().unwrap();
    for (key, value) in patch {
        match value {
            Value::Null => drop(map.shift_remove(key)),
            Value::Object(deeper) => merge(map.entry(key.clone()).or_insert(Value::Null), deeper),
            plain => drop(map.insert(key.clone(), plain.clone())),
        }
    }
}

/// Adds and replaces values; mappings stay mappings.
fn merge_leaves(to: &mut Value, changes: &Map<String, Value>) {
    let map = to.as_object_mut().unwrap();
    for (key, value) in changes {
        match (map.get_mut(key), value) {
            (Some(known @ Value::Object(_)), Value::Object(deeper)) => merge_leaves(known, deeper),
            (Some(Value::Object(_)), _) => {}
            _ => drop(map.insert(key.clone(), value.clone())),
        }
    }
}

proptest! {
    #[test]
    fn a_value_does_not_differ_from_itself(a in values()) {
        prop_assert!(equal(&a, &a));
        prop_assert_eq!(diff(Some(&a), Some(&a)), vec![]);
        prop_assert!(operations(&a, &a).is_empty());
    }

    #[test]
    fn equality_is_symmetric_and_means_no_difference(a in values(), b in values()) {
        prop_assert_eq!(equal(&a, &b), equal(&b, &a));
        if equal(&a, &b) {
            prop_assert!(diff(Some(&a), Some(&b)).is_empty());
        }
    }

    #[test]
    fn applying_a_diff_gives_the_other_value(a in values(), b in values()) {
        let result = apply_diff(&a, &diff(Some(&a), Some(&b)));
        prop_assert!(equal(&without_nulls(&result), &without_nulls(&b)), "{} is not {}", result, b);
    }

    // contract: engine 4.3
    #[test]
    fn reducing_a_diff_is_the_diff_of_the_reduced(a in values(), b in values(), field in paths(0..4)) {
        let whole = diff(Some(&a), Some(&b));
        let (old, new) = (resolve(&a, field.keys()), resolve(&b, field.keys()));
        prop_assert_eq!(listed(&reduce(&whole, &field)), listed(&diff(old, new)));
    }

    #[test]
    fn applying_operations_gives_the_other_value(a in values(), b in values()) {
        prop_assert_eq!(apply_operations(&a, &operations(&a, &b)), b);
    }

    /// The operations are made for one document, and applied to another one, whose fields on the way are mappings, too.
    #[test]
    fn operations_do_the_same_as_the_merge_patch_also_in_a_changed_document(
        known in mapping(values()), patch in mapping(values()), changes in mapping(values()),
    ) {
        let patch = patch.as_object().unwrap();
        let is_mapping = |keys: &[&str]| resolve(&known, keys).is_some_and(Value::is_object);
        if let Some(operations) = merge_operations(patch, &is_mapping) {
            let mut changed = known.clone();
            merge_leaves(&mut changed, changes.as_object().unwrap());
            let mut expected = changed.clone();
            merge(&mut expected, patch);
            prop_assert_eq!(apply_to_mappings(&changed, &operations), expected);
        }
    }

    #[test]
    fn merging_a_patch_twice_is_merging_it_once(a in mapping(values()), patch in mapping(values())) {
        let patch = patch.as_object().unwrap();
        let mut once = a.clone();
        apply_merge(&mut once, patch);
        let mut twice = once.clone();
        apply_merge(&mut twice, patch);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn ensured_values_are_resolved_until_removed(a in mapping(values()), field in paths(1..4), new in values()) {
        let mut value = a;
        path::ensure(&mut value, field.keys(), new.clone());
        prop_assert_eq!(resolve(&value, field.keys()), Some(&new));
        path::remove(&mut value, field.keys());
        prop_assert_eq!(resolve(&value, field.keys()), None);
    }

    #[test]
    fn python_json_is_ascii_and_means_the_same(a in values()) {
        let text = to_python_json(&a);
        prop_assert!(text.is_ascii());
        prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), a);
    }

    #[test]
    fn timestamps_round_trip(micros in -60_000_000_000_000_000_i64..250_000_000_000_000_000) {
        let at = Timestamp::from_micros(micros);
        prop_assert_eq!(Timestamp::parse(&at.to_string()), Some(at));
    }

    #[test]
    fn objects_equal_the_values_that_serde_reads(body in objects()) {
        let pretty = serde_json::to_string_pretty(&body).unwrap();
        let ascii = to_python_json(&body);
        for text in [body.to_string(), pretty, ascii] {
            let object = Object::decode(&text).unwrap();
            prop_assert_eq!(object.to_value(), body.clone());
            prop_assert_eq!(object.name(), body["metadata"]["name"].as_str());
            let stanzas: Map<_, _> =
                object.stanzas().map(|(k, v)| (k.to_owned(), serde_json::from_str(v).unwrap())).collect();
            prop_assert_eq!(Value::Object(stanzas), body.clone());
            for (key, value) in body["metadata"]["annotations"].as_object().into_iter().flatten() {
                prop_assert!(object.annotation(key).as_deref() == value.as_str());
                let field = FieldPath::from_keys(["metadata", "annotations", key]);
                prop_assert_eq!(object.field(&field), Some(value.clone()));
            }
            let line = format!(r#"{{"type":"MODIFIED","object":{text}}}"#);
            prop_assert!(decode_watch_line(line.as_bytes()).is_ok());
            let page = decode_page(format!(r#"{{"kind":"List","items":[{text}, {text}]}}"#).as_bytes()).unwrap();
            prop_assert_eq!(&page.items, &[object.clone(), object]);
        }
    }

    #[test]
    fn invalid_texts_are_rejected_as_by_serde(body in objects(), at in any::<prop::sample::Index>(), byte in any::<char>(), cut in any::<bool>()) {
        let chars: Vec<char> = body.to_string().chars().collect();
        let at = at.index(chars.len());
        let text: String = if cut {
            chars[..at].iter().collect()
        } else {
            chars[..at].iter().chain([&byte]).chain(&chars[at + 1..]).collect()
        };
        let object = Object::decode(&text);
        let value = serde_json::from_str::<Map<String, Value>>(&text);
        prop_assert_eq!(object.is_ok(), value.is_ok(), "{}", text);
        if let (Ok(object), Ok(value)) = (object, value) {
            prop_assert_eq!(object.to_value(), Value::Object(value));
        }
    }

    #[test]
    fn records_round_trip(
        micros in prop::option::of(0_i64..4_000_000_000_000_000), retries in any::<u64>(), flags in any::<(bool, bool)>(),
        purpose in prop::option::of("[a-z]+"), message in prop::option::of(any::<String>()), id in any::<String>(),
        mut subrefs in vec("[a-z/]{1,5}", 0..3), verbose in any::<bool>(),
    ) {
        subrefs.sort();
        let at = micros.map(Timestamp::from_micros);
        let record = Record { started: at, stopped: None, delayed: at, purpose, retries, success: flags.0, failure: flags.1, message, subrefs, observed: flags.1.then(|| "{}".to_owned()) };
        for storage in [
            ProgressStorage::default(),
            serde_json::from_value(json!({"type": "Annotations", "prefix": "my.org", "verbose": verbose, "touch_key": "t", "v1": false})).unwrap(),
            serde_json::from_value(json!({"type": "Status", "field": ["status", "p"], "touch_field": ["status", "t"]})).unwrap(),
        ] {
            let mut patch = Patch::default();
            storage.store(&decode(&json!({})), &mut patch, &id, &record);
            let object = decode(&Value::Object(patch.0));
            prop_assert_eq!(storage.fetch(&object, &id), Ok(Some(record.clone())));
            let mut patch = Patch::default();
            storage.purge(&object, &mut patch, &id);
            prop_assert!(!patch.is_empty());
        }
    }

    #[test]
    fn handled_objects_compare_as_same_and_both_comparisons_agree(
        body in objects(), other in objects(), edits in vec((paths(1..4), values()), 1..3), extra in prop::option::of(paths(0..4)),
    ) {
        let mut edited = body.clone();
        for (field, value) in edits {
            path::ensure(&mut edited["spec"], field.keys(), value);
        }
        let progress = ProgressStorage::default();
        let extra: Vec<FieldPath> = extra.into_iter().chain([FieldPath::parse("spec.a")]).collect();
        for diffbase in [
            DiffBaseStorage::default(),
            serde_json::from_value(json!({"type": "Annotations", "prefix": "my.org", "key": "last", "v1": true})).unwrap(),
        ] {
            let storages = Storages { diffbase: &diffbase, progress: &progress };
            for source in [&body, &other, &edited] {
                let old = essence(&decode(source), storages, &extra);
                if let Some(text) = serialize_raw(&decode(source), storages, &extra) {
                    prop_assert_eq!(text, to_python_json(&old));
                }
                let mut patch = Patch::default();
                diffbase.store(&decode(&body), &mut patch, &old);
                let mut handled = body.clone();
                apply_merge(&mut handled, &patch.0);
                let handled = decode(&handled);

                let mut old = old;
                progress.clear(&mut old);
                let new = essence(&handled, storages, &extra);
                let different = || Comparison::Different(Difference::of_values(old.clone(), new.clone()));
                let expected = if equal(&old, &new) { Comparison::Same } else { different() };
                prop_assert_eq!(compare(&handled, storages, &extra), Ok(expected));
            }
        }
    }
}
