//! Tables of the admission rules.

use serde_json::json;

use super::*;
use crate::json::value::Value;

fn handlers(declared: Value) -> Vec<Handler> {
    serde_json::from_value(declared).unwrap()
}

fn review(changes: &Value) -> Value {
    let mut request = json!({
        "uid": "u1", "operation": "UPDATE", "dryRun": true, "userInfo": {"username": "me"},
        "resource": {"group": "kopf.dev", "version": "v1", "resource": "ks"},
        "object": {"metadata": {"name": "x", "labels": {"a": "1"}}, "spec": {"n": 1}},
        "oldObject": {"metadata": {"name": "x"}},
    });
    for (key, value) in changes.as_object().unwrap() {
        request[key] = value.clone();
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
}

fn request(changes: &Value) -> Request {
    Request::open(review(changes).to_string().as_bytes()).unwrap().read().unwrap()
}

fn error_of(text: &str) -> ReviewError {
    match Request::open(text.as_bytes()) {
        Err(problem) => problem,
        Ok(opened) => opened.read().unwrap_err(),
    }
}

fn resource(version: &str) -> Arc<Resource> {
    Arc::new(
        serde_json::from_value(json!({
            "group": "kopf.dev", "version": version, "plural": "ks", "kind": "K", "singular": "k", "shortcuts": [],
            "categories": [], "subresources": [], "verbs": [], "namespaced": true, "preferred": true,
        }))
        .unwrap(),
    )
}

#[test]
fn a_review_is_parsed() {
    let request = request(&json!({"subResource": "status"}));
    assert_eq!(request.body.raw(), request.new.as_ref().unwrap().raw());
    assert_eq!(request.old.as_ref().unwrap().name(), Some("x"));
    assert_eq!(
        (request.operation.as_deref(), request.subresource.as_deref()),
        (Some("UPDATE"), Some("status"))
    );
    assert!(request.dry_run);
    assert_eq!(request.user_info, json!({"username": "me"}));
}

#[test]
fn a_deletion_is_about_the_old_object() {
    let request = request(&json!({"object": null, "operation": "DELETE"}));
    assert_eq!((request.new, request.body.label("a").is_none()), (None, true));
}

#[test]
fn invalid_reviews_have_distinct_errors() {
    let without = |key: &str| {
        let mut review = review(&json!({}));
        review["request"].as_object_mut().unwrap().remove(key);
        error_of(&review.to_string())
    };
    assert!(matches!(error_of("{not json"), ReviewError::NotJson(_)));
    assert!(matches!(error_of("[]"), ReviewError::Malformed(_)));
    assert_eq!(error_of("{}"), ReviewError::Malformed("'request'".to_owned()));
    assert_eq!(without("resource"), ReviewError::Malformed("'resource'".to_owned()));
    assert_eq!(without("userInfo").to_string(), "User info is missing from the admission request.");
    assert_eq!(
        error_of(&review(&json!({"object": null, "oldObject": null})).to_string()).to_string(),
        "Either old or new object is missing from the admission request."
    );
}

#[test]
fn a_resource_is_found_by_its_exact_name() {
    let find = |served: &AdmissionResources, version: &str| {
        let changed = json!({"resource": {"group": "kopf.dev", "version": version, "resource": "ks"}});
        let text = review(&changed).to_string();
        let review = Request::open(text.as_bytes()).unwrap();
        served
            .find(&review.requested)
            .map(|(resource, handlers)| (resource.version.clone(), handlers.to_vec()))
    };
    let served = AdmissionResources(vec![(resource("v1"), vec![3]), (resource("v2"), vec![4])]);
    assert_eq!(find(&served, "v2"), Ok(("v2".to_owned(), vec![4])));
    assert_eq!(
        find(&served, "v3").unwrap_err().to_string(),
        "The specified resource has no handlers: {'group': 'kopf.dev', 'version': 'v3', 'resource': 'ks'}"
    );
    let twice = AdmissionResources(vec![(resource("v1"), vec![3]), (resource("v1"), vec![4])]);
    assert!(matches!(find(&twice, "v1"), Err(ReviewError::AmbiguousResource(_))));
}

// contract: engine 3.4, api 9.1
#[test]
fn handlers_are_chosen_by_hints_subresources_operations_and_filters() {
    let all = handlers(json!([
        {"id": "v", "kind": "webhook", "reason": "validating"},
        {"id": "m", "kind": "webhook", "reason": "mutating"},
        {"id": "s", "kind": "webhook", "reason": "validating", "subresource": "status"},
        {"id": "any", "kind": "webhook", "reason": "validating", "subresource": "*", "operations": ["CREATE"]},
        {"id": "del", "kind": "webhook", "reason": "mutating", "operations": ["DELETE"]},
        {"id": "both", "kind": "webhook", "reason": "mutating", "operations": ["DELETE", "UPDATE"]},
        {"id": "labelled", "kind": "webhook", "reason": "validating", "labels": [["a", {"equal": "2"}]]},
        {"id": "asked", "kind": "webhook", "reason": "validating", "when": true},
        {"id": "event", "kind": "watching"},
    ]));
    let every: Vec<usize> = (0..all.len()).collect();
    let chosen = |changes: &Value, hint: ReviewFilter<'_>| {
        let found = candidates(&all, &every, &request(changes), hint);
        found
            .iter()
            .map(|one| format!("{}{}", all[one.handler].id, if one.guarded { "?" } else { "" }))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let to = |id| ReviewFilter { webhook: Some(id), reason: None };
    assert_eq!(chosen(&json!({}), ReviewFilter::default()), "v m any del both asked?");
    assert_eq!(chosen(&json!({"subResource": "status"}), ReviewFilter::default()), "s any");
    assert_eq!(chosen(&json!({"operation": "DELETE"}), ReviewFilter::default()), "v any del asked?");
    assert_eq!(chosen(&json!({}), to("m")), "m");
    assert_eq!(chosen(&json!({}), to("unknown")), "");
    assert_eq!(chosen(&json!({}), to("")), "");
    assert_eq!(chosen(&json!({}), to("labelled")), "");
    assert_eq!(chosen(&json!({}), ReviewFilter { webhook: None, reason: Some("mutating") }), "m del both");
}

// contract: api 9.2
#[test]
fn an_answer_without_errors_allows() {
    assert_eq!(
        admission_response(&request(&json!({})), &[], &[], &[]),
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": "u1", "allowed": true},
        })
    );
}

// contract: engine 3.4, observed 11
#[test]
fn the_most_specific_error_is_reported_and_the_first_of_its_kind() {
    let denial = |rank, message: &str, code| Denial { rank, message: message.to_owned(), code };
    let status = |denials: &[Denial]| {
        let review = admission_response(
            &request(&json!({})),
            denials,
            &["w".to_owned()],
            &[json!({"op": "remove", "path": "/x"})],
        );
        assert_eq!(review["response"]["allowed"], json!(false));
        assert_eq!(review["response"]["warnings"], json!(["w"]));
        assert_eq!(review["response"]["patchType"], json!("JSONPatch"));
        assert_eq!(review["response"]["patch"], json!("W3sib3AiOiJyZW1vdmUiLCJwYXRoIjoiL3gifV0="));
        review["response"]["status"].clone()
    };
    let all = [
        denial(ErrorPrecedence::Arbitrary, "any", None),
        denial(ErrorPrecedence::Temporary, "temporary", None),
        denial(ErrorPrecedence::Permanent, "permanent", None),
        denial(ErrorPrecedence::Admission, "nope", Some(400)),
        denial(ErrorPrecedence::Admission, "later", Some(401)),
    ];
    assert_eq!(status(&all), json!({"message": "nope", "code": 400}));
    assert_eq!(status(&all[..3]), json!({"message": "permanent", "code": 500}));
    assert_eq!(status(&all[..2]), json!({"message": "temporary", "code": 500}));
    assert_eq!(status(&all[..1]), json!({"message": "any", "code": 500}));
    assert_eq!(
        status(&[denial(ErrorPrecedence::Admission, "zero", Some(0))]),
        json!({"message": "zero", "code": 500})
    );
    let verdicts = [&all[..], &all[..3], &all[..2], &all[..1], &[]].map(Verdict::of);
    assert_eq!(
        verdicts,
        [Verdict::Denied, Verdict::Denied, Verdict::Denied, Verdict::Errored, Verdict::Allowed]
    );
}

#[test]
fn a_merge_patch_becomes_operations_on_the_object() {
    let Value::Object(patch) = json!({"spec": {"n": 2}, "metadata": {"labels": {"a": null, "b": "x"}}})
    else {
        panic!()
    };
    assert_eq!(
        operations(&request(&json!({})), &patch),
        [
            json!({"op": "remove", "path": "/metadata/labels/a"}),
            json!({"op": "add", "path": "/metadata/labels/b", "value": "x"}),
            json!({"op": "replace", "path": "/spec/n", "value": 2}),
        ]
    );
    assert_eq!(operations(&request(&json!({})), &Map::new()), Vec::<Value>::new());
}

// contract: engine 1.5
#[test]
fn resources_are_served_to_all_handlers_that_they_fit() {
    let all = handlers(json!([
        {"id": "event", "kind": "watching", "selector": {"plural": "ks"}},
        {"id": "any", "kind": "webhook", "reason": "validating", "selector": {"plural": "ks"}},
        {"id": "v2", "kind": "webhook", "reason": "validating", "selector": {"group": "kopf.dev", "plural": "ks", "version": "v2"}},
        {"id": "asked", "kind": "webhook", "reason": "validating", "selector": {"callable": true}},
        {"id": "none", "kind": "webhook", "reason": "validating", "selector": {"plural": "others"}},
    ]));
    let mut second = Resource::clone(&resource("v2"));
    second.preferred = false;
    let mut core = Resource::clone(&resource("v1"));
    core.group.clear();
    let scanned = [Arc::new(second), resource("v1"), Arc::new(core)];
    let served = AdmissionResources::select(&all, &scanned, &|_, resource| {
        resource.group == "kopf.dev" && resource.preferred
    });
    let selected: Vec<_> = served.0.iter().map(|(one, found)| (one.to_string(), &found[..])).collect();
    // By itself, the first handler would select only the core resource.
    assert_eq!(
        selected,
        [
            ("ks.v1".to_owned(), &[1][..]),
            ("ks.v1.kopf.dev".to_owned(), &[1, 3][..]),
            ("ks.v2.kopf.dev".to_owned(), &[2][..]),
        ]
    );
}
