//! Properties that hold for any input: fuzz targets and a bounded test check them with arbitrary bytes.
//!
//! The coverage-guided targets in `fuzz/` at the top of the repository call these functions; `fuzzing/properties.rs` calls them
//! with mutations of valid inputs in every `cargo test`. They panic when a property is violated. The module is not part of releases.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a violated property ends the run"
)]

#[cfg(test)]
mod properties;

use serde_json::json;

use crate::admission::ErrorPrecedence;
use crate::admission::{Denial, Request, admission_response, operations as review_operations};
use crate::json::diff::{diff, diff_left, python_repr as diff_repr, reduce};
use crate::json::json_patch::{apply_merge, operations};
use crate::json::merge_patch::Patch;
use crate::json::path::{self, FieldPath};
use crate::json::value::{self, Map, Value, equal, python_repr, to_python_json, truthy};
use crate::object::redaction;
use crate::object::{Object, decode_page, decode_watch_line};
use crate::peering::{LocalPeer, evaluate};
use crate::persistence::diffbase::DiffBaseStorage;
use crate::persistence::essence::{Comparison, Storages, compare, essence};
use crate::persistence::foreign_write::last_manager;
use crate::persistence::progress::{ProgressStorage, Record};
use crate::resource::{Resource, Selector, is_exact_namespace, match_namespace};
use crate::time::Timestamp;

/// Splits the input at the first line break; none if the input is not UTF-8 or has no line break.
fn halves(data: &[u8]) -> Option<(&str, &str)> {
    std::str::from_utf8(data).ok()?.split_once('\n')
}

/// Decoded objects equal the values that a JSON parser finds in the same text.
pub fn objects(data: &[u8]) {
    let _ = decode_watch_line(data);
    if let Ok(page) = decode_page(data) {
        let text = std::str::from_utf8(data).ok().filter(|_| page.rejected.is_empty());
        if let Some(text) = text {
            let whole: Value = value::parse_checked(text).expect("a page is JSON");
            let count = whole["items"].as_array().map_or(0, Vec::len);
            assert_eq!(page.items.len(), count, "items of a page");
        }
        assert!(page.rejected.iter().all(|it| it.identity.name().is_some()), "rejected objects have names");
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(object) = Object::decode(text) else { return };
    let Ok(value) = value::parse_checked::<Map<String, Value>>(text) else {
        panic!("only Object::decode accepts the text");
    };
    let value = Value::Object(value);
    assert!(equal(&object.to_value(), &value), "the value of an object");
    let metadata = &value["metadata"];
    assert_eq!(object.name(), metadata["name"].as_str(), "the name");
    assert_eq!(object.kind(), value["kind"].as_str(), "the kind");
    for (key, text) in object.annotations() {
        assert_eq!(metadata["annotations"][key].as_str(), Some(text.as_ref()), "an annotation");
    }
    let found: Vec<&str> = object.finalizers().collect();
    let known = metadata["finalizers"].as_array();
    let known: Vec<&str> = known.into_iter().flatten().filter_map(Value::as_str).collect();
    assert_eq!(found, known, "finalizers");
    for (key, stanza) in object.stanzas() {
        let stanza: Value = serde_json::from_str(stanza).expect("a part of JSON is JSON");
        assert!(equal(&stanza, &value[key]), "a stanza");
    }
    let (diffbase, progress) = (DiffBaseStorage::default(), ProgressStorage::default());
    let storages = Storages { diffbase: &diffbase, progress: &progress };
    let extra = [FieldPath::parse("status.x"), FieldPath::parse("metadata.labels")];
    let new = essence(&object, storages, &extra);
    if let Ok(Comparison::Different(difference)) = compare(&object, storages, &extra) {
        assert!(equal(difference.new.get(), &new), "two essences");
        let expected = diff(Some(difference.old.get()), Some(&new));
        assert_eq!(difference.diff, expected, "two diffs");
    }
    let _ = last_manager(&object);
    let shown = redaction::shown(&object, &value);
    for part in ["data", "stringData"] {
        assert!(!redaction::is_discreet(&object) || is_masked(&shown[part]), "unmasked data of a secret");
    }
}

/// Whether the value contains keys and masks only.
fn is_masked(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.values().all(is_masked),
        other => other.is_null() || other == redaction::MASK,
    }
}

/// A diff is empty only for equal values; applying a patch gives the expected value.
pub fn differences(data: &[u8]) {
    let Some((a, b)) = halves(data) else { return };
    let (Ok(a), Ok(b)) = (serde_json::from_str::<Value>(a), serde_json::from_str::<Value>(b)) else { return };
    let items = diff(Some(&a), Some(&b));
    assert!(items.is_empty() || !equal(&a, &b), "an empty diff");
    // Diffs treat null as absent.
    let has_nulls = std::str::from_utf8(data).is_ok_and(|text| text.contains("null"));
    assert!(has_nulls || !items.is_empty() || equal(&a, &b), "a diff");
    assert!(diff(Some(&a), Some(&a)).is_empty(), "no difference from itself");
    let _ = (diff_repr(&items), diff_left(Some(&a), Some(&b)), python_repr(&a), truthy(&b));
    for item in items.iter().take(3) {
        assert!(!reduce(&items, &item.path).is_empty(), "a part of a diff");
    }
    let steps = operations(&a, &b);
    if a == b {
        assert!(steps.is_empty(), "nothing to do");
    }
    let ascii = to_python_json(&a);
    assert!(ascii.is_ascii(), "JSON as Python writes it");
    assert!(equal(&serde_json::from_str(&ascii).expect("it is JSON"), &a), "JSON as Python writes it");
}

/// Merging is idempotent, and a value that was set can be resolved.
pub fn patches(data: &[u8]) {
    let Some((a, b)) = halves(data) else { return };
    let (Ok(mut doc), Ok(patch)) = (serde_json::from_str::<Value>(a), serde_json::from_str(b)) else {
        return;
    };
    let patch: Map<String, Value> = patch;
    apply_merge(&mut doc, &patch);
    let once = doc.clone();
    apply_merge(&mut doc, &patch);
    assert!(equal(&doc, &once), "merged twice");
    let dotted: String = patch.keys().take(3).map(String::as_str).collect::<Vec<_>>().join(".");
    let field = FieldPath::parse(&dotted);
    if !field.is_empty() && doc.is_object() {
        path::ensure(&mut doc, field.keys(), json!("set"));
        assert_eq!(path::resolve(&doc, field.keys()), Some(&json!("set")), "the value that was set");
        path::remove(&mut doc, field.keys());
        assert_eq!(path::resolve(&doc, field.keys()), None, "the value that was removed");
    }
}

/// Any content of our annotations is decoded or rejected; decoded content round-trips.
pub fn codecs(data: &[u8]) {
    let Some((first, second)) = halves(data) else { return };
    let mut body = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x", "annotations": {
        "kopf.zalando.org/last-handled-configuration": first, "kopf.zalando.org/handler": second,
    }}, "spec": {"a": 1}, "status": {"kopf": {"progress": {"handler": second}}}});
    let object = Object::decode(&body.to_string()).expect("an object");
    let (diffbase, progress) = (DiffBaseStorage::default(), ProgressStorage::default());
    let storages = Storages { diffbase: &diffbase, progress: &progress };
    let _ = compare(&object, storages, &[]);
    if let Ok(Some(old)) = diffbase.fetch(&object) {
        let mut patch = Patch::default();
        diffbase.store_whole(&object, &mut patch, &old);
        let mut stored = body.clone();
        apply_merge(&mut stored, &patch.0);
        let stored = Object::decode(&stored.to_string()).expect("an object");
        let again = diffbase.fetch(&stored).expect("a stored diff-base can be fetched");
        assert!(again.is_some_and(|again| equal(&again, &old)), "the diff-base");
        let mut patch = Patch::default();
        diffbase.store(&object, &mut patch, &old);
    }
    if let Ok(Some(mut record)) = progress.fetch(&object, "handler") {
        record.subrefs.sort();
        let mut patch = Patch::default();
        progress.store(&object, &mut patch, "handler", &record);
        apply_merge(&mut body, &patch.0);
        let stored = Object::decode(&body.to_string()).expect("an object");
        assert_eq!(progress.fetch(&stored, "handler"), Ok(Some(record)), "a record");
    }
    if let Ok(value) = serde_json::from_str::<Value>(second)
        && let Ok(mut record) = Record::from_value(&value)
    {
        record.subrefs.sort();
        let text = record.to_json(true);
        let again = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(Record::from_value(&again), Ok(record), "a record");
    }
    if let Some(moment) = Timestamp::parse(first) {
        assert_eq!(Timestamp::parse(&moment.to_string()), Some(moment), "a timestamp");
        let _ = moment.plus(1e300).seconds_since(moment);
    }
    let observer = LocalPeer { id: "me".to_owned(), priority: 0, sharded: false };
    if let Ok(status) = serde_json::from_str(first) {
        let _ = evaluate(&status, &observer, Timestamp::from_micros(0));
    }
}

/// Selectors accept any names and patterns.
pub fn selectors(data: &[u8]) {
    let Some((first, second)) = halves(data) else { return };
    if is_exact_namespace(second)
        && !second.contains(['[', ' '])
        && !second.is_empty()
        && second.trim() == second
    {
        assert_eq!(match_namespace(first, second), first == second, "an exact name");
    }
    let _ = match_namespace(first, second);
    let _ = FieldPath::parse(first).join(&FieldPath::parse(second));
    let (Ok(selector), Ok(resource)) = (serde_json::from_str(first), serde_json::from_str(second)) else {
        return;
    };
    let (selector, resource): (Selector, Resource) = (selector, resource);
    let text = serde_json::to_string(&selector).expect("selectors can be serialized");
    let again: Selector = serde_json::from_str(&text).expect("and deserialized");
    assert_eq!(again, selector, "a selector");
    let is_selected = selector.check(&resource);
    let found = selector.select(&[std::sync::Arc::new(resource)]);
    assert!(found.len() <= usize::from(is_selected), "select() agrees with check()");
}

/// Admission reviews are decoded or rejected; a response has the uid of its request.
pub fn reviews(data: &[u8]) {
    let Ok(opened) = Request::open(data) else { return };
    let Ok(request) = opened.read() else { return };
    let patch: Map<String, Value> = [("spec".to_owned(), json!({"x": null, "y": 1}))].into_iter().collect();
    let steps = review_operations(&request, &patch);
    let denial = Denial { rank: ErrorPrecedence::Permanent, message: "no".to_owned(), code: Some(0) };
    for denials in [vec![], vec![denial]] {
        let answered = admission_response(&request, &denials, &["beware".to_owned()], &steps);
        assert_eq!(answered["response"]["allowed"], json!(denials.is_empty()), "the response");
        if let Some(uid) = &request.uid {
            assert_eq!(&answered["response"]["uid"], uid, "the uid of the response");
        }
    }
}
