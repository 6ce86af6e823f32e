//! The requests of patching, their order, and the reactions to rejections, against a server that is a function.

use kopf_core::handler::registry::Registry;
use kopf_core::json::merge_patch::Patch;
use kopf_core::json::value::Map;
use kopf_core::persistence::finalizer::Edit;
use kopf_core::writes::{CONFLICTS, Rejection, WriteFailure};
use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::testing::{FakeResponse, Fixture, Got, resource};

mod counts;
mod order;
mod versions;

/// A host whose transformation functions set `spec.x`, and `status.done` of objects with a status. It collects log lines.
#[derive(Default)]
struct FakeHost(std::sync::Mutex<Vec<String>>);

impl Host for FakeHost {
    fn submit(&self, task: HostTask) {
        let HostTask::ApplyPatchFns(transform) = task else { panic!("only functions are called here") };
        let mut value = transform.object.to_value();
        value["spec"] = json!({"x": "made"});
        if value.get("status").is_some() {
            value["status"] = json!({"done": 1});
        }
        let _ = transform.reply.send(Ok(value));
    }

    fn log(&self, entry: LogRecord) {
        self.0.lock().unwrap().push(format!("{} {}", entry.level.as_str(), entry.text));
    }

    fn enabled(&self, _: Level) -> bool {
        true
    }
}

/// A write that has failed.
#[derive(Debug)]
struct PatchFailure {
    applied: WriteOutcome,
    error: WriteFailure,
}

#[expect(clippy::result_large_err, reason = "it is matched by tests")]
fn result_of(mut applied: WriteOutcome) -> Result<WriteOutcome, PatchFailure> {
    match applied.failure.take() {
        None => Ok(applied),
        Some(error) => Err(PatchFailure { applied, error }),
    }
}

struct Outcome {
    result: Result<WriteOutcome, PatchFailure>,
    /// The method, the subresource or query, and the body of each request.
    requests: Vec<(String, String, Value)>,
    seconds: f64,
    log: Vec<String>,
}

impl Outcome {
    fn sent(&self) -> Vec<String> {
        self.requests
            .iter()
            .map(|(method, path, _)| format!("{method} {path}").trim_end().to_owned())
            .collect()
    }
}

fn body(version: &str, more: Value) -> Value {
    let mut body = json!({
        "apiVersion": "example.com/v1", "kind": "Thing",
        "metadata": {"name": "x", "namespace": "ns", "uid": "u", "resourceVersion": version},
    });
    kopf_core::json::json_patch::apply_merge(&mut body, &map(more));
    body
}

fn map(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { panic!("{value}") };
    map
}

fn deleting() -> Value {
    json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"]}})
}

fn change(patch: Value) -> WriteRequest {
    WriteRequest { patch: Patch(map(patch)), ..WriteRequest::default() }
}

async fn apply(
    object: Value,
    change: WriteRequest,
    respond: impl Fn(&Got) -> FakeResponse + Send + Sync + Clone + 'static,
) -> Outcome {
    apply_with(None, object, change, respond).await
}

/// As `apply`, but Kopf's own parts of the patch are recognised by this persistence.
async fn apply_with(
    persistence: Option<&Persistence>,
    object: Value,
    change: WriteRequest,
    respond: impl Fn(&Got) -> FakeResponse + Send + Sync + Clone + 'static,
) -> Outcome {
    let fixture = Fixture::new(&json!({}), respond);
    let mut things = (*resource("example.com", "things", true)).clone();
    things.subresources.insert("status".to_owned());
    let fake = Arc::new(FakeHost::default());
    let host: Arc<dyn Host> = Arc::<FakeHost>::clone(&fake);
    let handlers = Arc::new(Registry::default()).handlers_of(&Arc::new(things.clone()), &|_| true);
    let patching = Patching {
        client: &fixture.shared.base.client,
        host: &host,
        resource: &things,
        finalizer: "f",
        compat: false,
        is_versioned: false,
        is_deleted: &|| false,
        release_cleanup: persistence.map(|persistence| (&handlers, persistence)),
        handling: None,
        partial: None,
        conditions: None,
    };
    let object = Arc::new(Object::decode(&object.to_string()).unwrap());
    let start = Instant::now();
    let result = result_of(patching.apply(&object, 1, change).await);
    let seconds = start.elapsed().as_secs_f64();
    let place = "/apis/example.com/v1/namespaces/ns/things";
    let short = |path: &str| path.trim_start_matches(place).trim_start_matches("/x").to_owned();
    let requests =
        fixture.requests().into_iter().map(|got| (got.method, short(&got.path), got.body)).collect();
    let log = fake.0.lock().unwrap().clone();
    Outcome { result, requests, seconds, log }
}

fn failure_response(code: u16, field: Option<&str>) -> FakeResponse {
    let causes: Vec<_> = field.iter().map(|field| json!({"field": field, "message": "wrong"})).collect();
    (code, Some(json!({"kind": "Status", "message": "no", "code": code, "details": {"causes": causes}})))
}

const CODES: [u16; 10] = [403, 404, 405, 409, 413, 415, 422, 429, 500, 503];

#[tokio::test(start_paused = true)]
async fn a_rejected_status_blocks_neither_the_progress_nor_the_finalizer_of_a_deletion() {
    for code in CODES {
        let patch = json!({"status": {"a": 1}, "metadata": {"annotations": {"progress": "done"}}});
        let change = WriteRequest { finalizer: Some(Edit::Allow), deletion_handled: true, ..change(patch) };
        let outcome = apply(body("1", deleting()), change, move |got| {
            match (&*got.method, got.path.ends_with("/status")) {
                ("GET", _) => listed("1", deleting()),
                (_, true) => failure_response(code, None),
                (_, false) => (200, Some(body("2", deleting()))),
            }
        })
        .await;
        let applied = outcome.result.as_ref().unwrap();
        assert!(!applied.gone, "{code}");
        // The status is for one version of the object: whether it has changed, or has a successor, is read.
        let lookup = (code == 409).then_some("GET ?fieldSelector=metadata.name%3Dx");
        let expected: Vec<_> =
            ["PATCH /status"].into_iter().chain(lookup).chain(["PATCH", "PATCH"]).collect();
        assert_eq!(outcome.sent(), expected, "{code}");
        assert_eq!(outcome.requests.last().unwrap().2[1]["op"], "remove", "{code}");
        assert!(outcome.seconds < 0.01, "{code}: {}", outcome.seconds);
        let [rejection] = &applied.rejections[..] else { panic!("{code}: {:?}", applied.rejections) };
        assert_eq!(Value::Object(rejection.patch.clone()), json!({"status": {"a": 1}}), "{code}");
        assert_eq!(rejection.error.status(), Some(code));
        assert!(!applied.merged.contains_key("status"), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn progress_waits_for_a_status_for_a_few_seconds_at_most() {
    for code in CODES {
        let patch = json!({"status": {"a": 1}, "metadata": {"annotations": {"progress": "done"}}});
        let outcome = apply(body("1", json!({})), change(patch), move |got| {
            if got.path.ends_with("/status") {
                failure_response(code, None)
            } else {
                (200, Some(body("2", json!({}))))
            }
        })
        .await;
        let applied = outcome.result.unwrap();
        assert_eq!(applied.rejections.len(), 1, "{code}");
        assert!(outcome.seconds < 3.5, "{code}: {}", outcome.seconds);
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_was_rejected_before_is_not_retried() {
    let rejected_patch = map(json!({"status": {"old": 1}}));
    let change = WriteRequest { rejected_patch, ..change(json!({"status": {"a": 1}, "spec": {"b": 1}})) };
    let outcome = apply(body("1", json!({})), change, |got| {
        if got.path.ends_with("/status") {
            failure_response(503, None)
        } else {
            (200, Some(body("2", json!({}))))
        }
    })
    .await;
    assert_eq!(outcome.sent(), ["PATCH /status", "PATCH", "PATCH /status"]);
    assert!(outcome.seconds < 0.01);
    assert_eq!(outcome.result.unwrap().rejections.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_first_after_a_short_failure_of_the_server_and_last_after_a_long_one() {
    for (failures, expected) in [(2, "SSSB"), (4, "SSSSBS")] {
        let left = Arc::new(std::sync::atomic::AtomicI32::new(failures));
        let patch = json!({"status": {"a": 1}, "metadata": {"annotations": {"progress": "done"}}});
        let outcome = apply(body("1", json!({})), change(patch), move |got| {
            let is_status = got.path.ends_with("/status");
            if is_status && left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) > 0 {
                return failure_response(503, None);
            }
            let more = json!({"status": {"a": 1}, "metadata": {"annotations": {"progress": "done"}}});
            (200, Some(body("2", more)))
        })
        .await;
        let order: String =
            outcome.requests.iter().map(|(_, path, _)| if path == "/status" { 'S' } else { 'B' }).collect();
        assert_eq!(order, expected);
        let applied = outcome.result.unwrap();
        assert!(applied.rejections.is_empty());
        assert!(applied.merged.contains_key("status"));
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_subresource_the_status_is_a_field_of_the_body() {
    let patch = json!({"status": {"a": 1}, "metadata": {"annotations": {"progress": "done"}}});
    let outcome = apply(body("1", json!({})), change(patch.clone()), move |got| {
        if got.path.ends_with("/status") {
            failure_response(404, None)
        } else {
            (200, Some(body("2", patch.clone())))
        }
    })
    .await;
    let applied = outcome.result.unwrap();
    assert!(applied.rejections.is_empty() && !applied.gone);
    assert_eq!(applied.merged["status"], json!({"a": 1}));
    assert_eq!(outcome.requests[1].2["status"], json!({"a": 1}));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_exist_is_gone_also_if_only_its_status_was_to_be_written() {
    let outcome =
        apply(body("1", json!({})), change(json!({"status": {"a": 1}})), |_| failure_response(404, None))
            .await;
    assert_eq!(outcome.sent(), ["PATCH /status", "PATCH"]);
    assert!(outcome.result.unwrap().gone);
}

#[tokio::test(start_paused = true)]
async fn only_the_fields_that_the_server_names_are_left_out_of_the_status() {
    let patch = json!({"status": {"bad": 1, "good": 2}});
    let outcome = apply(body("1", json!({})), change(patch), |got| match got.body["status"].get("bad") {
        Some(_) => failure_response(422, Some("status.bad")),
        None => (200, Some(body("2", json!({"status": {"good": 2}})))),
    })
    .await;
    let applied = outcome.result.unwrap();
    assert_eq!(Value::Object(applied.merged), json!({"status": {"good": 2}}));
    let [rejection] = &applied.rejections[..] else { panic!() };
    assert_eq!(Value::Object(rejection.patch.clone()), json!({"status": {"bad": 1}}));
}

#[tokio::test(start_paused = true)]
async fn parts_rejected_before_are_sent_in_separate_requests() {
    let rejected_patch = map(json!({"status": {"old": 1}, "spec": {"old": 1}}));
    let change = WriteRequest { rejected_patch, ..change(json!({"spec": {"new": 1}})) };
    let outcome = apply(body("1", json!({})), change, |got| match got.body["spec"].get("old") {
        Some(_) => failure_response(422, Some("spec.old")),
        None => (200, Some(body("2", json!({"status": {"old": 1}, "spec": {"new": 1}})))),
    })
    .await;
    assert_eq!(outcome.sent(), ["PATCH", "PATCH /status", "PATCH"]);
    let applied = outcome.result.unwrap();
    assert_eq!(Value::Object(applied.merged), json!({"spec": {"new": 1}, "status": {"old": 1}}));
    assert_eq!(Value::Object(applied.rejections[0].patch.clone()), json!({"spec": {"old": 1}}));
}

fn listed(version: &str, more: Value) -> FakeResponse {
    let items = json!([body(version, more)]);
    (200, Some(json!({"kind": "ThingList", "apiVersion": "example.com/v1", "metadata": {}, "items": items})))
}

#[tokio::test(start_paused = true)]
async fn a_result_of_functions_that_is_rejected_is_no_conflict() {
    let change = WriteRequest { functions: true, ..WriteRequest::default() };
    let outcome = apply(body("1", json!({})), change, |got| match &*got.method {
        "PATCH" => failure_response(422, Some("spec.x")),
        _ => listed("1", json!({})),
    })
    .await;
    let PatchFailure { applied, error } = outcome.result.unwrap_err();
    assert!(applied.functions_rejected && applied.carry);
    assert!(matches!(error, WriteFailure::Functions(_)));
    assert!(error.to_string().contains("spec.x"), "{error}");
    assert_eq!(outcome.requests.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_result_of_functions_does_not_block_the_finalizer() {
    let is_about_spec = |one: &Value| one["path"].as_str().is_some_and(|path| path.starts_with("/spec"));
    let released = || json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    for code in [400, 403, 413, 422] {
        let change = WriteRequest {
            functions: true,
            finalizer: Some(Edit::Allow),
            deletion_handled: true,
            ..WriteRequest::default()
        };
        let outcome = apply(body("1", deleting()), change, move |got| match &*got.method {
            "PATCH" if got.body.as_array().unwrap().iter().any(is_about_spec) => {
                failure_response(code, Some("spec.x"))
            }
            "PATCH" => (200, Some(body("2", released()))),
            _ => listed("1", deleting()),
        })
        .await;
        let PatchFailure { applied, error } = outcome.result.unwrap_err();
        assert!(matches!(error, WriteFailure::Functions(_)), "{code}");
        assert_eq!(applied.latest.unwrap().finalizers().count(), 0, "{code}: the object is released");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_conflict_the_object_is_reread_by_a_list_request() {
    let change = WriteRequest { functions: true, ..WriteRequest::default() };
    let outcome = apply(body("1", json!({})), change, |got| match &*got.method {
        "PATCH" if got.body[0]["value"] == "1" => failure_response(422, None),
        "PATCH" => (200, Some(body("3", json!({"spec": {"x": "made"}})))),
        _ => listed("2", json!({})),
    })
    .await;
    assert!(outcome.result.is_ok());
    assert_eq!(outcome.sent(), ["PATCH", "GET ?fieldSelector=metadata.name%3Dx", "PATCH"]);
    assert!(outcome.seconds < 0.01);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_left_to_the_next_event_without_the_permission_to_list() {
    let change = WriteRequest { functions: true, ..WriteRequest::default() };
    let outcome = apply(body("1", json!({})), change, |got| match &*got.method {
        "PATCH" => failure_response(422, None),
        _ => failure_response(403, None),
    })
    .await;
    let applied = outcome.result.unwrap();
    assert!(applied.carry && applied.must_retry);
    assert_eq!(outcome.requests.len(), 2);
    assert!(outcome.seconds < 0.01);
}

#[tokio::test(start_paused = true)]
async fn a_partial_patch_without_an_answer_keeps_both_errors() {
    let object = Arc::new(Object::decode(&body("1", json!({})).to_string()).unwrap());
    let fixture = Fixture::new(&json!({"networking": {"error_backoffs": []}}), |got| {
        if got.body.get("spec").is_some() {
            failure_response(422, Some("spec.bad"))
        } else {
            failure_response(504, None)
        }
    });
    let (things, fake) = (resource("example.com", "things", true), Arc::new(FakeHost::default()));
    let host: Arc<dyn Host> = fake;
    let mut patching = Patching {
        client: &fixture.shared.base.client,
        host: &host,
        resource: &things,
        finalizer: "f",
        compat: false,
        is_versioned: false,
        is_deleted: &|| false,
        release_cleanup: None,
        handling: None,
        partial: None,
        conditions: None,
    };
    let progress = json!({"kopf.zalando.org/make": "{}"});
    let patch = json!({"spec": {"bad": 1}, "metadata": {"annotations": progress}});
    let failure = result_of(patching.apply(&object, 1, change(patch.clone())).await).unwrap_err();
    assert!(failure.error.is_rejection() && !failure.error.is_outcome_unknown());
    let persistence = Persistence::default();
    patching.partial = Some(&persistence);
    let PatchFailure { applied, error } =
        result_of(patching.apply(&object, 1, change(patch.clone())).await).unwrap_err();
    assert!(matches!(error, WriteFailure::Partial { .. }));
    assert!(error.is_outcome_unknown() && !error.is_rejection());
    assert!(error.to_string().contains("status=422") && error.to_string().contains("status=504"), "{error}");
    assert_eq!(Value::Object(applied.unwritten), patch, "it is kept for the next patch");
}

#[tokio::test(start_paused = true)]
async fn a_field_dropped_by_the_schema_is_logged_with_advice() {
    let outcome = apply(body("1", json!({})), change(json!({"status": {"greet": {"x": 1}}})), |_| {
        (200, Some(body("2", json!({"status": {"other": 1}}))))
    })
    .await;
    let is_it = |line: &String| {
        line.starts_with(
            "WARNING Merge-patching finished with inconsistencies: (('remove', ('status', 'greet'",
        ) && line.ends_with(
            "The CRD's schema drops status.greet: declare it or set x-kubernetes-preserve-unknown-fields.",
        )
    };
    assert!(outcome.log.iter().any(is_it), "{:?}", outcome.log);
}

/// The response of a server where another object has the name now.
fn replaced_response(got: &Got) -> FakeResponse {
    if got.path.ends_with("/status") {
        (200, Some(body("7", json!({"metadata": {"uid": "other"}}))))
    } else {
        failure_response(422, Some("metadata.uid"))
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_with_another_uid_is_not_the_patched_one() {
    let annotations = json!({"annotations": {"progress": "done"}});
    for (patch, sent) in [
        (json!({"metadata": annotations}), vec!["PATCH"]),
        (json!({"spec": {"a": 1}, "status": {"a": 1}}), vec!["PATCH /status", "PATCH"]),
        (json!({"status": {"a": 1}}), vec!["PATCH /status"]),
    ] {
        let change = WriteRequest { finalizer: Some(Edit::Block), ..change(patch) };
        let outcome = apply(body("1", json!({})), change, replaced_response).await;
        assert_eq!(outcome.sent(), sent);
        let applied = outcome.result.unwrap();
        assert!(applied.gone && applied.merged.is_empty() && applied.rejections.is_empty());
        assert!(applied.latest.is_none(), "it is another object");
        let skipped = "Patching was skipped: the object does not exist anymore.";
        assert!(outcome.log.last().is_some_and(|line| line.ends_with(skipped)), "{:?}", outcome.log);
        assert!(outcome.log.iter().all(|line| line.starts_with("DEBUG") && !line.contains("uid")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_rejected_before_is_not_sent_to_another_object() {
    let rejected_patch = map(json!({"status": {"old": 1}, "spec": {"old": 1}}));
    let change = WriteRequest { rejected_patch, ..WriteRequest::default() };
    let outcome = apply(body("1", json!({})), change, replaced_response).await;
    assert_eq!(outcome.sent(), ["PATCH /status"]);
    assert!(outcome.result.unwrap().gone);
}

#[tokio::test(start_paused = true)]
async fn a_patch_has_the_uid_as_its_precondition() {
    for (patch, sent) in [
        (json!({"spec": {"a": 1}}), json!({"metadata": {"uid": "u"}, "spec": {"a": 1}})),
        (
            json!({"metadata": {"labels": {"a": "b"}}}),
            json!({"metadata": {"uid": "u", "labels": {"a": "b"}}}),
        ),
        (json!({"metadata": {"uid": "mine"}}), json!({"metadata": {"uid": "mine"}})),
        (json!({"metadata": null}), json!({"metadata": null})),
        // Custom resources ignore it here.
        (json!({"status": {"a": 1}}), json!({"metadata": {"resourceVersion": "1"}, "status": {"a": 1}})),
    ] {
        let outcome = apply(body("1", json!({})), change(patch), |_| (200, Some(body("2", json!({}))))).await;
        assert_eq!(outcome.requests[0].2, sent);
        assert!(!outcome.result.unwrap().merged.contains_key("uid"));
    }
}

/// The JSON patch of a status whose only field is set.
fn operations(version: u8) -> Value {
    json!([
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "add", "path": "/status/a", "value": version},
    ])
}

#[tokio::test(start_paused = true)]
async fn a_status_of_an_object_that_has_one_is_a_json_patch_with_the_uid() {
    let object = body("1", json!({"status": {"b": 1}}));
    let outcome = apply(object, change(json!({"status": {"a": 1}})), |_| {
        (200, Some(body("2", json!({"status": {"a": 1, "b": 1}}))))
    })
    .await;
    assert_eq!(outcome.sent(), ["PATCH /status"]);
    assert_eq!(outcome.requests[0].2, operations(1));
    assert_eq!(Value::Object(outcome.result.unwrap().merged), json!({"status": {"a": 1}}));
}

#[tokio::test(start_paused = true)]
async fn a_status_for_another_object_of_the_name_is_not_written() {
    for known in [json!({}), json!({"status": {"b": 1}})] {
        let patch = json!({"status": {"a": 1}, "metadata": {"annotations": {"progress": "done"}}});
        let outcome = apply(body("1", known), change(patch), |got| match &*got.method {
            "GET" => listed("7", json!({"metadata": {"uid": "other"}})),
            _ if got.body.is_array() => failure_response(422, None),
            _ => failure_response(409, None),
        })
        .await;
        assert_eq!(outcome.sent(), ["PATCH /status", "GET ?fieldSelector=metadata.name%3Dx"]);
        let applied = outcome.result.unwrap();
        assert!(applied.gone && applied.merged.is_empty() && applied.rejections.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_is_sent_again_for_the_latest_state_after_a_conflict() {
    // The first one is for an object without a status, which another client has changed.
    let outcome =
        apply(body("1", json!({})), change(json!({"status": {"a": 1}})), |got| match &*got.method {
            "GET" => listed("2", json!({"status": {"b": 1}})),
            _ if got.body.is_array() => (200, Some(body("3", json!({"status": {"a": 1, "b": 1}})))),
            _ => failure_response(409, None),
        })
        .await;
    assert_eq!(outcome.sent(), ["PATCH /status", "GET ?fieldSelector=metadata.name%3Dx", "PATCH /status"]);
    assert_eq!(outcome.requests[2].2, operations(1));
    assert!(outcome.result.unwrap().rejections.is_empty() && outcome.seconds < 0.01);
    // Another client has removed the status meanwhile.
    let object = body("1", json!({"status": {"b": 1}}));
    let outcome = apply(object, change(json!({"status": {"a": 1}})), |got| match &*got.method {
        "GET" => listed("2", json!({})),
        _ if got.body.is_array() => failure_response(422, None),
        _ => (200, Some(body("3", json!({"status": {"a": 1}})))),
    })
    .await;
    let expected = json!({"metadata": {"resourceVersion": "2"}, "status": {"a": 1}});
    assert_eq!(outcome.requests[2].2, expected);
    assert!(outcome.result.unwrap().rejections.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_status_is_never_sent_without_a_precondition() {
    let versions = Arc::new(std::sync::atomic::AtomicI32::new(1));
    let patch = json!({"status": {"a": 1}, "metadata": {"annotations": {"progress": "done"}}});
    let outcome = apply(body("1", json!({})), change(patch.clone()), move |got| {
        match (&*got.method, got.path.ends_with("/status")) {
            ("GET", _) => {
                let version = versions.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
                listed(&version.to_string(), json!({}))
            }
            (_, true) => failure_response(409, None),
            (_, false) => (200, Some(body("100", patch.clone()))),
        }
    })
    .await;
    let sent: Vec<_> = outcome.requests.iter().filter(|(_, path, _)| path == "/status").collect();
    assert_eq!(sent.len(), CONFLICTS + 1);
    assert!(sent.iter().all(|(_, _, sent)| sent["metadata"]["resourceVersion"].is_string()));
    let applied = outcome.result.unwrap();
    assert_eq!(Value::Object(applied.rejections[0].patch.clone()), json!({"status": {"a": 1}}));
    assert!(applied.merged.contains_key("metadata"), "the progress does not wait");
}

#[tokio::test(start_paused = true)]
async fn an_accepted_status_is_known_although_the_body_failed() {
    let patch = json!({"status": {"a": 1}, "spec": {"b": 1}});
    let outcome = apply(body("1", json!({})), change(patch), |got| {
        if got.path.ends_with("/status") {
            (200, Some(body("2", json!({"status": {"a": 1}}))))
        } else {
            failure_response(422, None)
        }
    })
    .await;
    let PatchFailure { applied, .. } = outcome.result.unwrap_err();
    assert_eq!(Value::Object(applied.merged), json!({"status": {"a": 1}}));
    assert_eq!(Value::Object(applied.unwritten), json!({"spec": {"b": 1}}));
    assert_eq!(applied.latest.unwrap().resource_version(), Some("2"));
}

#[tokio::test(start_paused = true)]
async fn operations_accepted_before_a_conflict_of_the_status_are_ours() {
    let change = WriteRequest { functions: true, finalizer: Some(Edit::Block), ..WriteRequest::default() };
    let outcome = apply(body("1", json!({"status": {"done": 0}})), change, |got| {
        let made = json!({"spec": {"x": "made"}, "metadata": {"finalizers": ["f"]}, "status": {"done": 0}});
        match (&*got.method, got.path.ends_with("/status"), &got.body[0]["value"]) {
            ("PATCH", true, version) if version == "2" => failure_response(422, None),
            ("PATCH", false, _) => (200, Some(body("2", made))),
            ("PATCH", true, _) => {
                let mut object = body("4", made);
                object["status"] = json!({"done": 1});
                (200, Some(object))
            }
            _ => listed("3", made),
        }
    })
    .await;
    assert_eq!(outcome.sent()[..2], ["PATCH", "PATCH /status"]);
    let expected = json!({"metadata": {"finalizers": ["f"]}, "spec": {"x": "made"}, "status": {"done": 1}});
    assert_eq!(Value::Object(outcome.result.unwrap().merged), expected);
}
