//! Which changes of an object count for which word.

use super::*;
use crate::persistence::Persistence;
use crate::persistence::diffbase::DiffBaseStorage;
use serde_json::json;

const WORDS: [&str; 9] =
    ["essence", "generation", "labels", "annotations", "finalizers", "owners", "any", "spec.size", "status"];

fn base() -> Value {
    json!({
        "metadata": {"name": "x", "resourceVersion": "1", "generation": 1, "labels": {"a": "1"}},
        "spec": {"size": 1, "other": null},
        "status": {"phase": "x"},
    })
}

fn digests(body: &Value, storages: &Persistence) -> Vec<Digests> {
    let object = Object::decode(&body.to_string()).unwrap();
    let of = |word: &&str| Digests::of(&[Changed::parse(word).unwrap()], &object, storages, &[]);
    WORDS.iter().map(of).collect()
}

/// The words for which the change counts.
fn counting(change: impl Fn(&mut Value)) -> Vec<&'static str> {
    let foreign = Persistence { diffbase_storage: DiffBaseStorage::Custom, ..Persistence::default() };
    let mut changed = base();
    change(&mut changed);
    let counting = |storages: &Persistence| {
        let pairs = digests(&base(), storages).into_iter().zip(digests(&changed, storages));
        let words = WORDS.into_iter().zip(pairs).filter(|(_, (before, after))| after.differ_from(before));
        words.map(|(word, _)| word).collect::<Vec<_>>()
    };
    let words = counting(&Persistence::default());
    assert_eq!(words, counting(&foreign), "with a storage in Python");
    words
}

#[test]
fn s1_14_8_each_word_covers_its_part() {
    assert_eq!(counting(|_| {}), [""; 0]);
    assert_eq!(counting(|body| body["status"]["phase"] = json!("y")), ["status"]);
    assert_eq!(counting(|body| body["metadata"]["labels"]["a"] = json!("2")), ["essence", "labels"]);
    assert_eq!(
        counting(|body| body["metadata"]["annotations"] = json!({"a": "1"})),
        ["essence", "annotations"]
    );
    assert_eq!(counting(|body| body["metadata"]["finalizers"] = json!(["a.b/c"])), ["finalizers"]);
    assert_eq!(counting(|body| body["metadata"]["ownerReferences"] = json!([{"kind": "K"}])), ["owners"]);
    assert_eq!(counting(|body| body["metadata"]["resourceVersion"] = json!("2")), ["any"]);
    assert_eq!(counting(|body| body["metadata"]["generation"] = json!(2)), ["generation"]);
    assert_eq!(counting(|body| body["spec"]["size"] = json!(2)), ["essence", "spec.size"]);
    assert_eq!(counting(|body| body["spec"]["new"] = json!(2)), ["essence"]);
}

#[test]
fn the_marks_of_reconcilers_are_in_no_digest() {
    let marks = json!({"kit.kopf.zalando.org/rollout": "1", "applyset.kubernetes.io/tooling": "kopf/1"});
    assert_eq!(counting(|body| body["metadata"]["annotations"] = marks.clone()), [""; 0]);
    assert_eq!(
        counting(|body| body["metadata"]["labels"]["applyset.kubernetes.io/id"] = json!("1")),
        [""; 0]
    );
    let progress = json!({"kopf.zalando.org/last-handled-configuration": "{}", "kopf.zalando.org/fn": "{}"});
    assert_eq!(counting(|body| body["metadata"]["annotations"] = progress.clone()), ["annotations"]);
}

#[test]
fn kinds_without_a_generation_use_the_essence() {
    let object = |size: u8, phase: &str| {
        let body = json!({"metadata": {}, "spec": {"size": size}, "status": {"phase": phase}});
        Object::decode(&body.to_string()).unwrap()
    };
    let of = |object| Digests::of(&[Changed::Generation], &object, &Persistence::default(), &[]);
    assert!(of(object(1, "x")).differ_from(&of(object(2, "x"))));
    assert!(!of(object(1, "x")).differ_from(&of(object(1, "y"))));
}

#[test]
fn a_difference_in_any_word_counts() {
    let words = [Changed::Labels, Changed::Function, Changed::Field(FieldPath::parse("spec.size"))];
    let of = |body: &Value, function| {
        let object = Object::decode(&body.to_string()).unwrap();
        Digests::of(&words, &object, &Persistence::default(), &[function])
    };
    let (mut changed, same) = (base(), of(&base(), Some(7)));
    changed["spec"]["size"] = json!(2);
    assert!(!of(&base(), Some(7)).differ_from(&same));
    assert!(of(&base(), Some(8)).differ_from(&same));
    assert!(of(&changed, Some(7)).differ_from(&same));
    assert!(of(&base(), None).differ_from(&same) && same.differ_from(&of(&base(), None)), "errors trigger");
    assert!(of(&base(), None).differ_from(&of(&base(), None)), "errors trigger");
}

#[test]
fn a_missing_field_and_null_are_the_same_and_key_order_does_not_matter() {
    let of = |text: &str, word: &str| {
        let words = [Changed::parse(word).unwrap()];
        Digests::of(&words, &Object::decode(text).unwrap(), &Persistence::default(), &[])
    };
    let (one, other) = (r#"{"data":{"a":1},"spec":{"x":null}}"#, r#"{"spec":{"x":null},"data":{"a":1}}"#);
    assert!(!of(one, "essence").differ_from(&of(other, "essence")));
    assert!(!of(one, "spec.x").differ_from(&of(one, "spec.y")));
}

#[test]
fn unknown_words_are_rejected() {
    for word in ["", "size", "spec.", ".spec", "Essence"] {
        assert!(Changed::parse(word).unwrap_err().to_string().contains(word), "{word}");
    }
    assert_eq!(Changed::parse("metadata.labels"), Ok(Changed::Labels));
}
