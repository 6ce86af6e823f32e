//! Decoding of objects, list pages, and watch events; and errors of malformed ones.

use super::*;
use serde_json::json;

const TEXT: &str = r#" {"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"w","namespace":"ns","uid":"u",
    "resourceVersion":"5","creationTimestamp":"2026-01-01T00:00:00Z","deletionTimestamp":null,
    "labels":{"a":"b","odd":1},"annotations":{"x/y":"{\"k\":\"\u00e9\"}\n","none":null},"finalizers":["f","g"],
    "ownerReferences":[{"kind":"Deployment","name":"d"},{}]},"spec":{"x":{"y":[1,2.5]},"n":null},"status":null} "#;

#[test]
fn scalar_fields_are_read() {
    let object = Object::decode(TEXT).unwrap();
    assert_eq!(object.raw(), TEXT.trim());
    assert_eq!(object.api_version(), Some("example.com/v1"));
    assert_eq!(object.kind(), Some("Widget"));
    assert_eq!(object.name(), Some("w"));
    assert_eq!(object.namespace(), Some("ns"));
    assert_eq!(object.uid(), Some("u"));
    assert_eq!(object.resource_version(), Some("5"));
    assert_eq!(object.creation_timestamp(), Some("2026-01-01T00:00:00Z"));
    assert_eq!(object.deletion_timestamp(), None);
    assert_eq!(object.finalizers().collect::<Vec<_>>(), ["f", "g"]);
    assert!(object.has_finalizer("g") && !object.has_finalizer("h"));
    assert_eq!(object.owner_kinds().collect::<Vec<_>>(), ["Deployment"]);
    assert_eq!(object.to_value(), serde_json::from_str::<Value>(TEXT).unwrap());
}

#[test]
fn only_string_labels_and_annotations_are_read() {
    let object = Object::decode(TEXT).unwrap();
    assert_eq!(object.labels().collect::<Vec<_>>(), [("a", Cow::Borrowed("b"))]);
    assert_eq!(object.label("odd"), None);
    assert_eq!(object.raw_labels().count(), 2);
    assert_eq!(object.annotation("x/y").as_deref(), Some("{\"k\":\"é\"}\n"));
    assert_eq!(object.annotation("none"), None);
    assert_eq!(object.annotations().count(), 1);
}

#[test]
fn fields_are_found_in_the_text() {
    let object = Object::decode(TEXT).unwrap();
    assert_eq!(object.field(&FieldPath::parse("spec.x.y")), Some(json!([1, 2.5])));
    assert_eq!(object.field(&FieldPath::parse("spec.n")), Some(Value::Null));
    assert_eq!(object.field(&FieldPath::parse("status")), Some(Value::Null));
    for absent in ["status.a", "spec.x.y.0", "spec.z", "nothing"] {
        assert_eq!(object.field(&FieldPath::parse(absent)), None, "{absent}");
    }
    assert_eq!(object.field(&FieldPath::default()), Some(object.to_value()));
    assert_eq!(
        object.stanzas().map(|(key, _)| key).collect::<Vec<_>>(),
        ["kind", "apiVersion", "metadata", "spec", "status"]
    );
    assert_eq!(object.top_level("status"), Some("null"));
}

#[test]
fn fields_of_unexpected_types_are_ignored() {
    for text in [
        "{}",
        r#"{"metadata":null,"status":null}"#,
        r#"{"metadata":[],"kind":5}"#,
        r#"{"metadata":{"labels":[],"annotations":"x","finalizers":{"a":1},"ownerReferences":7,"name":5}}"#,
        r#"{"metadata":{"finalizers":[1,null,{}],"ownerReferences":[null,"x",{"kind":1}]}}"#,
    ] {
        let object = Object::decode(text).unwrap();
        assert_eq!(object.name(), None);
        assert_eq!(object.kind(), None);
        assert_eq!(object.labels().count() + object.annotations().count(), 0);
        assert_eq!(object.finalizers().count() + object.owner_kinds().count(), 0);
    }
}

#[test]
fn text_that_is_not_an_object_is_an_error() {
    for text in ["", "[]", "null", "{", "{}{}", r#"{"metadata":{"name":"\ud800"}}"#, "{\"a\":1e999}"] {
        assert!(Object::decode(text).is_err(), "{text}");
    }
    let error = Object::decode("{\"a\":}").unwrap_err();
    assert_eq!(error.to_string(), "malformed JSON: a value is expected at byte 5");
}

#[test]
fn of_repeated_keys_the_last_counts() {
    let text = r#"{"spec":1,"metadata":{"name":"a","labels":{"l":"1","m":"2","l":"3"}},"spec":2}"#;
    let object = Object::decode(text).unwrap();
    assert_eq!(object.stanzas().map(|(_, json)| json).next(), Some("2"));
    assert_eq!(object.stanzas().count(), 2);
    assert_eq!(object.label("l").as_deref(), Some("3"));
    let object = Object::decode(r#"{"metadata":{"name":"a","uid":"u"},"metadata":{"name":"b"}}"#).unwrap();
    assert_eq!((object.name(), object.uid()), (Some("b"), None));
    let many: Vec<String> = (0..100).map(|i| format!("\"k{}\":\"{i}\"", i % 50)).collect();
    let object = Object::decode(&format!(r#"{{"metadata":{{"labels":{{{}}}}}}}"#, many.join(","))).unwrap();
    assert_eq!(object.labels().count(), 50);
    assert_eq!(object.label("k0").as_deref(), Some("50"));
}

#[test]
fn names_with_escapes_are_unescaped() {
    let text = r#"{"metadata":{"n\u0061me":"\u0077","labels":{"l\u002fx":"v"},"finalizers":["\u0066"],
        "ownerReferences":[{"kind":"\u0044"}]},"sp\u0065c":{"\u0061":1}}"#;
    for defaults in [None, Some("Widget")] {
        let object = Object::decode_with_defaults(text, defaults, defaults).unwrap();
        assert_eq!(object.name(), Some("w"));
        assert_eq!(object.label("l/x").as_deref(), Some("v"));
        assert!(object.has_finalizer("f"));
        assert_eq!(object.owner_kinds().next().as_deref(), Some("D"));
        assert_eq!(object.field(&FieldPath::parse("spec.a")), Some(json!(1)));
        assert_eq!(object.kind(), defaults);
        assert!(object.raw().ends_with("}}"));
    }
}

#[test]
fn watch_events_are_distinguished_by_type() {
    let decode = |text: &str| decode_watch_line(text.as_bytes());
    let object = Object::decode(r#"{"metadata":{"name":"w","labels":{"a":"b"}}}"#).unwrap();
    assert_eq!(
        decode(
            "{\"type\":\"ADDED\",\"object\": {\"metadata\":{\"name\":\"w\",\"labels\":{\"a\":\"b\"}}} }\n"
        )
        .unwrap(),
        WatchRecord::Added(object)
    );
    let Ok(WatchRecord::Modified(object)) =
        decode(r#"{"object":{"metadata":{"labels":{"a":"b"}},"kind":"K"},"type":"MODIFIED"}"#)
    else {
        panic!("not a modification")
    };
    assert_eq!((object.kind(), object.label("a").as_deref()), (Some("K"), Some("b")));
    assert!(matches!(decode(r#"{"type":"DELETED","object":{}}"#), Ok(WatchRecord::Deleted(_))));
    assert_eq!(
        decode(
            r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}"#
        )
        .unwrap(),
        WatchRecord::Bookmark { resource_version: "7".into(), initial_events_end: true }
    );
    assert_eq!(
        decode(r#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#).unwrap(),
        WatchRecord::Error(json!({"kind": "Status", "code": 410}))
    );
    assert_eq!(decode(r#"{"type":"NEWS","object":5}"#).unwrap(), WatchRecord::Unknown("NEWS".into()));
    assert!(decode(r#"{"type":"ADDED"}"#).is_err());
    assert!(decode(r#"{"object":{}}"#).is_err());
    assert!(decode("").is_err());
    assert_eq!(decode_watch_line(b"{\xff").unwrap_err(), DecodeError::Encoding { at: 1 });
}

#[test]
fn items_of_a_page_get_the_type_of_the_list() {
    let page = decode_page(
        br#"{"items":[{"metadata":{"name":"a","labels":{"l":"1"}},"spec":{}},{},{"kind":"Own","metadata":{}}],
            "kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"tok"}}"#,
    )
    .unwrap();
    assert_eq!(page.resource_version.as_deref(), Some("9"));
    assert_eq!(page.continue_token.as_deref(), Some("tok"));
    let raws: Vec<_> = page.items.iter().map(Object::raw).collect();
    assert_eq!(
        raws,
        [
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"l":"1"}},"spec":{}}"#,
            r#"{"apiVersion":"v1","kind":"Pod"}"#,
            r#"{"apiVersion":"v1","kind":"Own","metadata":{}}"#,
        ]
    );
    let first = &page.items[0];
    assert_eq!((first.kind(), first.api_version()), (Some("Pod"), Some("v1")));
    assert_eq!((first.name(), first.label("l").as_deref()), (Some("a"), Some("1")));
    assert_eq!((first.top_level("kind"), first.top_level("spec")), (Some("\"Pod\""), Some("{}")));
}

#[test]
fn pages_may_be_empty_or_last() {
    let page =
        decode_page(br#"{"kind":"PodList","apiVersion":"v1","metadata":{"continue":""},"items":null}"#)
            .unwrap();
    assert_eq!(page, Page { size: page.size, ..Page::default() });
    assert!(decode_page(b"[]").is_err());
    assert!(decode_page(br#"{"kind":"PodList","items":[1]}"#).is_err());
}

#[test]
fn other_responses_are_not_taken_for_empty_lists() {
    for text in [
        "{}",
        r#"{"status":"ok"}"#,
        r#"{"kind":"PodList","apiVersion":"v1","metadata":{}}"#,
        r#"{"kind":"Pod","apiVersion":"v1","items":[]}"#,
        r#"{"kind":"PodList","items":5}"#,
        r#"{"kind":"PodList","items":{}}"#,
        r#"{"items":[]}"#,
    ] {
        assert_eq!(decode_page(text.as_bytes()).unwrap_err(), DecodeError::NotList, "{text}");
    }
    assert!(decode_page(br#"{"kind":"List","items":[]}"#).is_ok());
}

#[test]
fn a_list_without_a_kind_is_recognised_by_its_resource_version() {
    let page =
        decode_page(br#"{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"a"}}]}"#).unwrap();
    assert_eq!(page.resource_version.as_deref(), Some("5"));
    assert_eq!((page.items[0].name(), page.items[0].kind()), (Some("a"), None));
    assert!(decode_page(br#"{"metadata":{"resourceVersion":"5"},"items":[]}"#).is_ok());
    assert!(decode_page(br#"{"metadata":{"resourceVersion":""},"items":[]}"#).is_err());
}

/// An object with a value of this many levels.
fn nested(name: &str, levels: usize) -> String {
    let deep = format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    format!(
        r#"{{"kind":"K","metadata":{{"name":"{name}","namespace":"ns","uid":"u-{name}"}},"spec":{deep}}}"#
    )
}

#[test]
fn objects_of_three_hundred_levels_are_read_completely() {
    let object = Object::decode(&nested("deep", 299)).unwrap();
    assert_eq!(object.to_value().to_string(), object.raw());
    let keys = std::iter::once("spec").chain(std::iter::repeat_n("a", 299)).collect::<Vec<_>>().join(".");
    assert_eq!(object.field(&FieldPath::parse(&keys)), Some(json!(1)));
    assert!(object.contains_patch(object.to_value().as_object().unwrap()));
}

#[test]
fn an_object_that_is_too_deep_is_rejected_alone() {
    for levels in [301, 10_000, 1_000_000] {
        let deep = nested("deep", levels);
        let page = format!(
            r#"{{"kind":"KList","apiVersion":"v1","items":[{},{deep},{}]}}"#,
            nested("a", 1),
            nested("b", 1)
        );
        let page = decode_page(page.as_bytes()).unwrap();
        assert_eq!(page.items.iter().map(Object::name).collect::<Vec<_>>(), [Some("a"), Some("b")]);
        let [RejectedObject { identity, error: DecodeError::Depth { .. } }] = &page.rejected[..] else {
            panic!("{:?}", page.rejected)
        };
        assert_eq!(
            (identity.name(), identity.namespace(), identity.uid()),
            (Some("deep"), Some("ns"), Some("u-deep"))
        );
        assert_eq!((identity.kind(), identity.api_version()), (Some("K"), Some("v1")));

        let line = format!(r#"{{"type":"DELETED","object":{deep}}}"#);
        let Ok(WatchRecord::Rejected { deleted: true, rejected }) = decode_watch_line(line.as_bytes()) else {
            panic!("it is not rejected")
        };
        assert_eq!(rejected.identity.name(), Some("deep"));
    }
}

#[test]
fn an_object_whose_metadata_is_too_deep_is_identified() {
    let deep = "[".repeat(5_000) + &"]".repeat(5_000);
    let line = format!(
        r#"{{"type":"ADDED","object":{{"metadata":{{"managedFields":{deep},"name":"n","resourceVersion":"7"}}}}}}"#
    );
    let Ok(WatchRecord::Rejected { deleted: false, rejected }) = decode_watch_line(line.as_bytes()) else {
        panic!("it is not rejected")
    };
    assert_eq!((rejected.identity.name(), rejected.identity.resource_version()), (Some("n"), Some("7")));
}

#[test]
fn an_object_that_is_not_unicode_or_not_json_is_rejected_alone() {
    for value in [&b"\"\xff\""[..], b"\"\\ud800\"", b"1e999", b"tru", b"[1}"] {
        let broken = [br#"{"metadata":{"name":"x"},"spec":{"a":"#, value, b"}}"].concat();
        let page = [
            br#"{"kind":"List","items":[{"metadata":{"name":"a"}},"#,
            &broken[..],
            b",{\"metadata\":{\"name\":\"b\"}}]}",
        ]
        .concat();
        let shown = String::from_utf8_lossy(value);
        let page = decode_page(&page).unwrap();
        assert_eq!(
            page.items.iter().map(Object::name).collect::<Vec<_>>(),
            [Some("a"), Some("b")],
            "{shown}"
        );
        assert_eq!(page.rejected[0].identity.name(), Some("x"), "{shown}");
        let line = [br#"{"type":"MODIFIED","object":"#, &broken[..], b"}"].concat();
        assert!(matches!(decode_watch_line(&line), Ok(WatchRecord::Rejected { .. })), "{shown}");
    }
    assert!(decode_page(b"{\"items\":[],\"\xff\":1}").is_err(), "the broken object is not identified");
    let nameless = b"{\"type\":\"ADDED\",\"object\":{\"spec\":\"\xff\"}}";
    assert_eq!(decode_watch_line(nameless), Err(DecodeError::Encoding { at: 34 }));
}
