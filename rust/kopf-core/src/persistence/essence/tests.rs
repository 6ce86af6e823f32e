//! Tables of essences, and of their comparison with stored texts.

use super::*;
use serde_json::json;

fn compare_with(spec: &str, stored: &str, extra: &[FieldPath]) -> (bool, Result<Comparison, Malformed>) {
    let stored_json = Value::String(stored.to_owned());
    let object = Object::decode(&format!(
        r#"{{"kind":"K","metadata":{{"name":"n","annotations":{{"kopf.zalando.org/last-handled-configuration":{stored_json},"kopf.zalando.org/h":"{{}}","a/b":"c"}}}},"spec":{spec},"status":{{"s":1}}}}"#
    ))
    .unwrap();
    let (diffbase, progress) = (DiffBaseStorage::default(), ProgressStorage::default());
    let storages = Storages { diffbase: &diffbase, progress: &progress };
    (equals_raw(&object, storages, extra, Stored::new(stored)), compare(&object, storages, extra))
}

#[test]
fn equal_texts_are_recognized_without_building_values() {
    for (spec, stored) in [
        (r#"{"x":1}"#, r#"{"spec":{"x":1},"metadata":{"annotations":{"a/b":"c"}}}"#),
        (r#"{ "x" : [1, null] }"#, r#" { "spec":{"x":[1,null]},"metadata":{"annotations":{"a/b":"c"}}} "#),
        (
            r#"{"x":"é<\u003e/"}"#,
            r#"{"spec":{"x":"\u00e9\u003c>\/"},"metadata":{"annotations":{"a/b":"c"}}}"#,
        ),
        ("12", "{\"spec\":12,\"metadata\":{\"annotations\":{\"a/b\":\"c\"}}}\n"),
    ] {
        assert_eq!(compare_with(spec, stored, &[]), (true, Ok(Comparison::Same)), "{spec} {stored}");
    }
}

#[test]
fn an_unmodified_annotation_is_recognized_without_unescaping() {
    let quoted = |spec: &str, stored: &str| {
        let object =
            Object::decode(&format!(r#"{{"metadata":{{"labels":{{"l":"\"1\\n\""}}}},"spec":{spec}}}"#));
        let storages = (DiffBaseStorage::default(), ProgressStorage::default());
        let storages = Storages { diffbase: &storages.0, progress: &storages.1 };
        let literal = Value::String(stored.to_owned()).to_string();
        EscapedComparer::new(&literal).is_some_and(|text| equals_raw(&object.unwrap(), storages, &[], text))
    };
    let stored =
        |spec: &str| format!("{}{spec}{}", r#"{"spec":"#, r#","metadata":{"labels":{"l":"\"1\\n\""}}}"#);
    for spec in ["12", "{}", r#"{"a":"\"\\","é":[null,"\n"]}"#] {
        assert!(quoted(spec, &stored(spec)), "{spec}");
        assert!(quoted(spec, &(stored(spec) + "\n")), "{spec}");
        assert!(!quoted(spec, &(stored(spec) + "x")), "{spec}");
        assert!(!quoted(spec, &stored("123")), "{spec}");
        assert!(!quoted(spec, &stored(spec)[..20]), "{spec}");
    }
    assert!(!quoted(r#"{"\"":1}"#, &stored(r#"{"\"": 1}"#)), "spaces are left to the comparison of tokens");
}

#[test]
fn equal_values_of_different_texts_are_the_same() {
    for (spec, stored) in [
        (r#"{"x":1,"y":2}"#, r#"{"metadata":{"annotations":{"a/b":"c"}},"spec":{"y":2,"x":1.0}}"#),
        (
            r#"{"x":1}"#,
            r#"{"spec":{"x":1},"metadata":{"annotations":{"a/b":"c","kopf.zalando.org/old":"1"}}}"#,
        ),
    ] {
        assert_eq!(compare_with(spec, stored, &[]), (false, Ok(Comparison::Same)), "{spec} {stored}");
    }
}

#[test]
fn a_difference_has_both_values() {
    for (spec, stored) in [
        ("12", r#"{"spec":123,"metadata":{"annotations":{"a/b":"c"}}}"#),
        ("123", r#"{"spec":12,"metadata":{"annotations":{"a/b":"c"}}}"#),
        ("{}", r#"{"spec":{}}"#),
        (r#"{"x":"a"}"#, r#"{"spec":{"x":"b"},"metadata":{"annotations":{"a/b":"c"}}}"#),
        (r#"{"x":"a"}"#, r#"{"spec":{"x":"a","n":null},"metadata":{"annotations":{"a/b":"c"}}}"#),
    ] {
        let (fast, compared) = compare_with(spec, stored, &[]);
        let old = serde_json::from_str(stored).unwrap();
        let spec: Value = serde_json::from_str(spec).unwrap();
        let new = json!({"spec": spec, "metadata": {"annotations": {"a/b": "c"}}});
        let expected = Comparison::Different(Difference::of_values(old, new));
        assert_eq!((fast, compared), (false, Ok(expected)));
    }
}

#[test]
fn malformed_texts_are_errors_even_if_their_beginning_matches() {
    for stored in
        ["", "{", r#"{"spec":{}"#, r#"{"spec":{},"metadata":{"annotations":{"a/b":"c"}}}}"#, "nonsense"]
    {
        let (fast, compared) = compare_with("{}", stored, &[]);
        assert!(!fast && compared.is_err(), "{stored}");
    }
    assert_eq!(compare_with("{}", "null", &[]).1, Ok(Comparison::Absent));
}

#[test]
fn extra_fields_that_add_nothing_keep_the_fast_path() {
    let stored = r#"{"spec":{},"metadata":{"annotations":{"a/b":"c"}}}"#;
    let harmless =
        ["spec.x", "metadata.labels.x", "status.t", "metadata.generation", ""].map(FieldPath::parse);
    assert_eq!(compare_with("{}", stored, &harmless), (true, Ok(Comparison::Same)));
    let annotation = FieldPath::from_keys(["metadata", "annotations", "a/b"]);
    assert_eq!(compare_with("{}", stored, &[annotation]), (true, Ok(Comparison::Same)));
    for field in [
        FieldPath::parse("status.s"),
        FieldPath::from_keys(["metadata", "annotations", "kopf.zalando.org/h"]),
    ] {
        assert!(!compare_with("{}", stored, std::slice::from_ref(&field)).0, "{field}");
    }
    assert!(matches!(
        compare_with("{}", stored, &[FieldPath::parse("status.s")]).1,
        Ok(Comparison::Different(found)) if found.new.get()["status"] == json!({"s": 1})
    ));
}

#[test]
fn an_object_without_a_diffbase_compares_as_absent() {
    let object = Object::decode(r#"{"spec":1}"#).unwrap();
    let (diffbase, progress) = (DiffBaseStorage::default(), ProgressStorage::default());
    let storages = Storages { diffbase: &diffbase, progress: &progress };
    assert_eq!(compare(&object, storages, &[]), Ok(Comparison::Absent));
    assert_eq!(essence(&object, storages, &[]), json!({"spec": 1}));
}

#[test]
fn the_marks_of_own_apply_sets_are_not_part_of_the_essence() {
    let object = |tool: &str| {
        let metadata = json!({
            "labels": {"applyset.kubernetes.io/id": "applyset-x-v1", "app": "x"},
            "annotations": {"applyset.kubernetes.io/tooling": tool, "applyset.kubernetes.io/contains-group-kinds": "Pod"},
        });
        Object::decode(&json!({"metadata": metadata, "spec": {"x": 1}}).to_string()).unwrap()
    };
    let persistence = crate::persistence::Persistence::default();
    let own = object("kopf/1.2.3");
    let plain = json!({"spec": {"x": 1}, "metadata": {"labels": {"app": "x"}}});
    assert_eq!(essence(&own, &persistence, &[]), plain);
    assert_eq!(serialize_raw(&own, &persistence, &[]).unwrap(), plain.to_string());
    let others = essence(&object("kubectl/v1.34"), &persistence, &[]);
    assert_eq!(others["metadata"]["labels"]["applyset.kubernetes.io/id"], "applyset-x-v1");
    assert_eq!(others["metadata"]["annotations"]["applyset.kubernetes.io/tooling"], "kubectl/v1.34");
}

#[test]
fn a_field_is_the_same_whether_the_essence_is_a_text_or_a_value() {
    let text = r#"{"spec":{"a":{"b":[1]},"n":null,"a":{"b":2}},"data":"x"}"#;
    for path in ["spec.a.b", "spec.n", "spec", "spec.a.b.c", "spec.x", "data", "data.x", "none"] {
        let path = FieldPath::parse(path);
        let (written, built) =
            (LazyEssence::of_text(text.to_owned()), LazyEssence::of(serde_json::from_str(text).unwrap()));
        assert_eq!(written.field(&path), built.field(&path), "{path}");
        assert!(!written.is_built());
    }
}
