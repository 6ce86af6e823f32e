//! The actions of writes without a driver. The requests are tested with a client in the engine, and with a model of the API server
//! in `tests/explorer`.

use super::*;
use crate::handler::registry::Registry;
use crate::json::merge_patch::Patch;
use crate::request_error::ApiError;
use serde_json::json;

fn resource() -> Resource {
    let resource = json!({
        "group": "example.com", "version": "v1", "plural": "things", "kind": "Thing", "singular": "thing",
        "shortcuts": [], "categories": [], "subresources": ["status"], "verbs": [], "namespaced": true,
        "preferred": true,
    });
    serde_json::from_value(resource).unwrap()
}

fn rules<'a>(resource: &'a Resource, is_deleted: &'a (dyn Fn() -> bool + Send + Sync)) -> WriteContext<'a> {
    WriteContext {
        resource,
        finalizer: "f",
        compat: false,
        is_versioned: false,
        release_cleanup: None,
        partial: None,
        is_deleted,
        is_verbose: true,
    }
}

fn object(name: &str) -> Arc<Object> {
    let metadata = json!({"name": name, "namespace": "ns", "uid": "u", "resourceVersion": "1"});
    Arc::new(Object::decode(&json!({ "metadata": metadata }).to_string()).unwrap())
}

fn change(patch: &Value) -> WriteRequest {
    WriteRequest { patch: Patch(patch.as_object().cloned().unwrap()), ..WriteRequest::default() }
}

fn rejected(status: u16) -> Result<Bytes, RequestError> {
    Err(RequestError::Api(Box::new(ApiError::from_response(status, None, b"no"))))
}

/// The next action in short.
fn next(writing: &mut Writing, rules: &WriteContext<'_>) -> String {
    let short = |text: &[u8]| std::str::from_utf8(text).unwrap().replace(": ", ":").replace(", ", ",");
    match writing.next(rules) {
        None => "none".to_owned(),
        Some(Action::Wait(seconds)) => format!("wait {seconds}"),
        Some(Action::Transform(object)) => format!("transform {}", object.resource_version().unwrap()),
        Some(Action::Send(Request { url, content, is_once, .. })) => {
            let once = if is_once { " once" } else { "" };
            let url = url.trim_start_matches("/apis/example.com/v1/namespaces/ns/");
            match content {
                Content::List => format!("list{once} {url}"),
                Content::MergePatch(text) => format!("merge{once} {url} {}", short(text)),
                Content::JsonPatch(text) => format!("patch{once} {url} {}", short(text)),
            }
        }
    }
}

#[test]
fn a_write_is_one_action_after_the_other() {
    let resource = resource();
    let rules = rules(&resource, &|| false);
    let mut writing =
        Writing::new(object("x"), change(&json!({"status": {"a": 1}, "spec": {"b": 1}})), &rules);
    let status = r#"merge once things/x/status {"metadata":{"resourceVersion":"1"},"status":{"a":1}}"#;
    assert_eq!(next(&mut writing, &rules), status);
    assert_eq!(next(&mut writing, &rules), status, "nothing has happened");
    writing.on_response(rejected(503), &rules);
    assert_eq!(next(&mut writing, &rules), "wait 0.2");
    writing.on_waited(&rules);
    assert_eq!(next(&mut writing, &rules), status);
    writing.on_response(rejected(409), &rules);
    assert_eq!(next(&mut writing, &rules), "list once things?fieldSelector=metadata.name%3Dx");
    writing.on_response(rejected(503), &rules);
    assert_eq!(next(&mut writing, &rules), "list things?fieldSelector=metadata.name%3Dx");
    writing.on_response(rejected(503), &rules);
    let body = r#"merge things/x {"metadata":{"uid":"u"},"spec":{"b":1}}"#;
    assert_eq!(next(&mut writing, &rules), body);
    writing.on_response(Ok(Bytes::from(object("x").raw().to_owned())), &rules);
    assert!(next(&mut writing, &rules).contains("/status"), "it may follow the body");
    writing.on_response(rejected(403), &rules);
    assert_eq!(next(&mut writing, &rules), "none");
    let outcome = writing.finish();
    assert!(outcome.failure.is_none() && outcome.merged.contains_key("spec"));
    assert_eq!(Value::Object(outcome.rejected().0), json!({"status": {"a": 1}}));
}

#[test]
fn a_received_deletion_ends_a_write_before_its_next_patch() {
    let resource = resource();
    let is_deleted = std::sync::atomic::AtomicBool::new(false);
    let known = || is_deleted.load(std::sync::atomic::Ordering::Relaxed);
    let rules = rules(&resource, &known);
    let mut writing = Writing::new(object("x"), change(&json!({"spec": {"b": 1}})), &rules);
    assert!(next(&mut writing, &rules).starts_with("merge"));
    is_deleted.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(next(&mut writing, &rules), "none");
    assert!(writing.finish().gone);
    let writing = Writing::new(object("x"), change(&json!({"spec": {"b": 1}})), &rules);
    assert!(writing.log.iter().all(|line| line.text.starts_with("Patching was skipped")), "nothing was sent");
    assert!(writing.finish().gone);
}

#[test]
fn a_patch_that_admission_denies_is_written_in_parts() {
    let (resource, persistence) = (resource(), Persistence::default());
    let rules = WriteContext { partial: Some(&persistence), ..rules(&resource, &|| false) };
    let patch = json!({"spec": {"b": 1}, "metadata": {"annotations": {"kopf.zalando.org/h": "{}"}}});
    let mut writing = Writing::new(object("x"), change(&patch), &rules);
    next(&mut writing, &rules);
    writing.on_response(rejected(403), &rules);
    assert_eq!(
        next(&mut writing, &rules),
        r#"merge things/x {"metadata":{"uid":"u","annotations":{"kopf.zalando.org/h":"{}"}}}"#
    );
    writing.on_response(Ok(Bytes::from(object("x").raw().to_owned())), &rules);
    assert_eq!(next(&mut writing, &rules), "none");
    assert_eq!(Value::Object(writing.finish().rejected().0), json!({"spec": {"b": 1}}));
}

#[test]
fn functions_are_called_again_with_the_latest_state() {
    let resource = resource();
    let rules = rules(&resource, &|| false);
    let mut writing =
        Writing::new(object("x"), WriteRequest { functions: true, ..WriteRequest::default() }, &rules);
    assert_eq!(next(&mut writing, &rules), "transform 1");
    let changed = |version: &str| {
        let mut value = object("x").to_value();
        value["metadata"]["resourceVersion"] = json!(version);
        value
    };
    let mut after = changed("1");
    after["spec"] = json!({"a": 1});
    writing.on_transformed(Ok(after), &rules);
    assert!(next(&mut writing, &rules).starts_with("patch things/x "));
    writing.on_response(rejected(422), &rules);
    let list = json!({"kind": "ThingList", "items": [changed("2")]});
    writing.on_response(Ok(Bytes::from(list.to_string())), &rules);
    assert_eq!(next(&mut writing, &rules), "transform 2");
    writing.on_transformed(Err("boo".to_owned()), &rules);
    assert_eq!(next(&mut writing, &rules), "none");
    let outcome = writing.finish();
    assert!(!outcome.carry && outcome.failure.is_some_and(|failure| failure.is_exception()));
}

/// A status with an invalid field.
#[test]
fn a_lost_response_to_a_part_of_a_status_is_in_doubt() {
    let resource = resource();
    let rules = rules(&resource, &|| false);
    let status = json!({"kind": "Status", "details": {"causes": [{"field": "status.bad"}]}}).to_string();
    let invalid = RequestError::Api(Box::new(ApiError::from_response(422, None, status.as_bytes())));
    let mut writing = Writing::new(object("x"), change(&json!({"status": {"bad": 1, "good": 1}})), &rules);
    writing.on_response(Err(invalid), &rules);
    assert!(next(&mut writing, &rules).ends_with(r#""status":{"good":1}}"#));
    writing.on_response(Err(RequestError::Timeout), &rules);
    assert_eq!(next(&mut writing, &rules), "none");
    let outcome = writing.finish();
    assert!(outcome.is_in_doubt() && outcome.rejections[0].error.status() == Some(422));
}

/// A status that is written after the body.
#[test]
fn a_lost_response_to_a_status_after_the_body_is_in_doubt() {
    let resource = resource();
    let rules = rules(&resource, &|| false);
    let mut writing =
        Writing::new(object("x"), change(&json!({"status": {"a": 1}, "spec": {"b": 1}})), &rules);
    while !next(&mut writing, &rules).contains("things/x {") {
        match writing.next(&rules) {
            Some(Action::Wait(_)) => writing.on_waited(&rules),
            _ => writing.on_response(rejected(503), &rules),
        }
    }
    writing.on_response(Ok(Bytes::from(object("x").raw().to_owned())), &rules);
    writing.on_response(Err(RequestError::Timeout), &rules);
    assert_eq!(next(&mut writing, &rules), "none");
    let outcome = writing.finish();
    assert!(outcome.is_in_doubt() && outcome.rejections[0].error.status() == Some(503));
}

/// The subresource was removed from the CRD while a part of the status was rejected: it was sent there again and again.
#[test]
fn without_the_subresource_a_rejected_status_is_a_field_of_the_body() {
    let resource = resource();
    let rules = rules(&resource, &|| false);
    for is_kept in [true, false] {
        let rejected_patch = json!({"status": {"a": 1}}).as_object().cloned().unwrap();
        let request = WriteRequest { rejected_patch: rejected_patch.clone(), ..WriteRequest::default() };
        let mut writing = Writing::new(object("x"), request, &rules);
        assert!(next(&mut writing, &rules).contains("/status"));
        writing.on_response(rejected(404), &rules);
        assert_eq!(
            next(&mut writing, &rules),
            r#"merge once things/x {"metadata":{"uid":"u"},"status":{"a":1}}"#
        );
        let mut body = object("x").to_value();
        if is_kept {
            body["status"] = json!({"a": 1});
        }
        writing.on_response(Ok(Bytes::from(body.to_string())), &rules);
        assert_eq!(next(&mut writing, &rules), "none");
        let outcome = writing.finish();
        let kept = (outcome.merged == rejected_patch, outcome.rejections.is_empty());
        assert_eq!(kept, (is_kept, is_kept));
    }
}

/// The final progress, the diff-base, and the removal of the progress are three requests.
#[test]
fn a_rejected_removal_of_the_final_progress_is_not_written() {
    let resource = resource();
    let storage =
        json!({"type": "Status", "field": ["status", "progress"], "touch_field": ["status", "touch"]});
    let progress_storage = serde_json::from_value(storage).unwrap();
    let persistence = Persistence { progress_storage, ..Persistence::default() };
    let handlers = Arc::new(Registry::default()).handlers_of(&Arc::new(resource.clone()), &|_| true);
    let is_deleted = || false;
    let rules =
        WriteContext { release_cleanup: Some((&handlers, &persistence)), ..rules(&resource, &is_deleted) };
    let removal = json!({"purpose": null, "retries": 0, "success": false, "seen": "{}"});
    let base = json!({"kopf.zalando.org/last-handled-configuration": "{}"});
    let patch = json!({"metadata": {"annotations": base}, "status": {"r": 1, "progress": {"h": removal}}});
    let last = json!({"purpose": "create", "retries": 1, "success": true, "seen": "{}"});
    let final_progress = json!({"status": {"progress": {"h": last}}});
    let final_progress = Patch(final_progress.as_object().cloned().unwrap());
    let mut writing = Writing::new(object("x"), WriteRequest { final_progress, ..change(&patch) }, &rules);
    let mut body = object("x").to_value();
    body["status"] = json!({"r": 1, "progress": {"h": last}});
    for expected in ["create", "last-handled-configuration"] {
        assert!(next(&mut writing, &rules).contains(expected));
        writing.on_response(Ok(Bytes::from(body.to_string())), &rules);
    }
    assert!(next(&mut writing, &rules).contains("/status"));
    writing.on_response(rejected(403), &rules);
    assert_eq!(next(&mut writing, &rules), "none");
    let outcome = writing.finish();
    assert_eq!(Value::Object(outcome.rejected().0), json!({"status": {"progress": {"h": removal}}}));
    assert_eq!(Value::Object(outcome.merged), json!({"metadata": {"annotations": base}, "status": {"r": 1}}));
}

/// The server does not serve the resource for a while.
#[test]
fn rejected_parts_are_kept_unless_the_object_is_deleted() {
    let resource = resource();
    let rules = rules(&resource, &|| false);
    for (name, is_deleted) in [(json!("x"), true), (json!(null), false)] {
        let patch = json!({"status": {"a": 1}, "spec": {"b": 1}});
        let mut writing = Writing::new(object("x"), change(&patch), &rules);
        writing.on_response(rejected(404), &rules);
        assert!(next(&mut writing, &rules).starts_with("merge things/x {"));
        let status = json!({"kind": "Status", "reason": "NotFound", "details": {"name": name}}).to_string();
        let error = ApiError::from_response(404, None, status.as_bytes());
        writing.on_response(Err(RequestError::Api(Box::new(error))), &rules);
        let outcome = writing.finish();
        assert_eq!((outcome.gone, outcome.deleted), (true, is_deleted));
        let mut kept = outcome.rejected();
        kept.merge(outcome.unwritten);
        let expected = if is_deleted { json!({"spec": {"b": 1}}) } else { patch };
        assert_eq!(Value::Object(kept.0), expected);
    }
}

#[test]
fn names_are_escaped_in_the_query_of_a_list() {
    let resource = resource();
    let rules = rules(&resource, &|| false);
    let selector = "things?fieldSelector=metadata.name%3Da%5C%2Cb%5C%3Dc%5C%5Cd";
    assert!(
        rules.list_url(&object(r"a,b=c\d")).ends_with(selector),
        "{}",
        rules.list_url(&object(r"a,b=c\d"))
    );
}

#[test]
fn a_deletion_is_certain_if_the_server_names_the_object() {
    let resource = resource();
    let status =
        |name: Value| json!({"kind": "Status", "reason": "NotFound", "details": {"name": name}}).to_string();
    let uid = json!({"kind": "Status", "details": {"causes": [{"field": "metadata.uid"}]}}).to_string();
    let anonymous = Arc::new(Object::decode(r#"{"metadata":{"name":"x"}}"#).unwrap());
    for (object, compat, code, body, expected) in [
        (object("x"), false, 404, status(json!("x")), (true, true)),
        (object("x"), false, 422, uid, (true, true)),
        (object("x"), true, 404, status(json!("x")), (true, false)),
        (object("x"), false, 404, status(json!("another")), (true, false)),
        (object("x"), false, 404, status(Value::Null), (true, false)),
        (object("x"), false, 404, "404 page not found".to_owned(), (true, false)),
        (anonymous, false, 404, status(json!("x")), (true, false)),
    ] {
        let rules = WriteContext { compat, ..rules(&resource, &|| false) };
        let mut writing = Writing::new(object, change(&json!({"spec": {"b": 1}})), &rules);
        next(&mut writing, &rules);
        let error = ApiError::from_response(code, None, body.as_bytes());
        writing.on_response(Err(RequestError::Api(Box::new(error))), &rules);
        let outcome = writing.finish();
        assert_eq!((outcome.gone, outcome.deleted), expected, "{code} {body}");
    }
}
