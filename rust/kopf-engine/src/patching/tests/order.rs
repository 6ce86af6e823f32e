//! The order of the requests with Kopf's own records: no progress is removed before the diff-base is written.

use super::*;

const RECORD: &str = "kopf.zalando.org/h";

/// The rejections of a status. A 404 is none: the subresource does not exist then.
fn codes() -> impl Iterator<Item = u16> {
    CODES.into_iter().filter(|code| *code != 404)
}

/// Progress in annotations, and the diff-base in the status.
fn base_in_status() -> Persistence {
    let diffbase_storage =
        serde_json::from_value(json!({"type": "Status", "field": ["status", "base"]})).unwrap();
    Persistence { diffbase_storage, ..Persistence::default() }
}

/// Progress in the status, and the diff-base in an annotation.
fn progress_in_status() -> Persistence {
    let storage =
        json!({"type": "Status", "field": ["status", "progress"], "touch_field": ["status", "dummy"]});
    Persistence { progress_storage: serde_json::from_value(storage).unwrap(), ..Persistence::default() }
}

/// All rejected parts.
fn rejected(rejections: Vec<Rejection>) -> Value {
    let mut rejected = Patch::default();
    for rejection in rejections {
        rejected.merge(rejection.patch);
    }
    Value::Object(rejected.0)
}

#[tokio::test(start_paused = true)]
async fn progress_stays_until_the_diffbase_is_written() {
    let removal = json!({"metadata": {"annotations": {RECORD: null}}});
    let base = json!({"status": {"base": "{}"}});
    for code in codes() {
        for more in [json!({}), json!({"spec": {"a": 1}})] {
            let mut patch = Patch(map(removal.clone()));
            patch.merge(map(more.clone()));
            patch.merge(map(base.clone()));
            let (persistence, patch) = (base_in_status(), Value::Object(patch.0));
            let object = body("1", json!({}));
            let outcome = apply_with(Some(&persistence), object, change(patch), move |got| {
                match (&*got.method, got.path.ends_with("/status")) {
                    ("GET", _) => listed("1", json!({})),
                    (_, true) => failure_response(code, None),
                    (_, false) => (200, Some(body("2", json!({"spec": {"a": 1}})))),
                }
            })
            .await;
            for (_, _, sent) in &outcome.requests {
                assert!(sent["metadata"].get("annotations").is_none(), "{code}: {sent}");
            }
            let applied = outcome.result.unwrap();
            assert_eq!(Value::Object(applied.merged), more, "{code}: changes of handlers are written");
            let expected = json!({"status": base["status"], "metadata": removal["metadata"]});
            assert_eq!(rejected(applied.rejections), expected, "{code}: both are sent later");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn progress_kept_for_the_diffbase_is_removed_after_it() {
    let pending = json!({"status": {"base": "{}"}, "metadata": {"annotations": {RECORD: null}}});
    for (accepted, sent) in [(true, vec!["PATCH /status", "PATCH"]), (false, vec!["PATCH /status"])] {
        let change = WriteRequest { rejected_patch: map(pending.clone()), ..WriteRequest::default() };
        let persistence = base_in_status();
        let outcome = apply_with(Some(&persistence), body("1", json!({})), change, move |got| {
            if got.path.ends_with("/status") && !accepted {
                failure_response(500, None)
            } else {
                (200, Some(body("2", json!({"status": {"base": "{}"}}))))
            }
        })
        .await;
        assert_eq!(outcome.sent(), sent);
        let applied = outcome.result.unwrap();
        let (written, kept) = (Value::Object(applied.merged), rejected(applied.rejections));
        assert_eq!(if accepted { written } else { kept }, pending);
    }
}

#[tokio::test(start_paused = true)]
async fn older_progress_stays_until_a_newer_diffbase_is_written() {
    let older = map(json!({"metadata": {"annotations": {"kopf.zalando.org/old": null}}}));
    let newer = json!({"status": {"base": "{}"}, "metadata": {"annotations": {RECORD: null}}});
    let change = WriteRequest { rejected_patch: older, ..change(newer) };
    let persistence = base_in_status();
    let outcome = apply_with(Some(&persistence), body("1", json!({})), change, |got| match &*got.method {
        "GET" => listed("1", json!({})),
        _ => failure_response(403, None),
    })
    .await;
    assert_eq!(outcome.sent(), ["PATCH /status"]);
    let annotations = json!({RECORD: null, "kopf.zalando.org/old": null});
    let expected = json!({"status": {"base": "{}"}, "metadata": {"annotations": annotations}});
    assert_eq!(rejected(outcome.result.unwrap().rejections), expected);
}

#[tokio::test(start_paused = true)]
async fn without_the_subresource_the_diffbase_and_the_progress_are_one_request() {
    let patch = json!({"status": {"base": "{}"}, "metadata": {"annotations": {RECORD: null}}});
    let persistence = base_in_status();
    let outcome = apply_with(Some(&persistence), body("1", json!({})), change(patch.clone()), |got| {
        if got.path.ends_with("/status") {
            failure_response(404, None)
        } else {
            (200, Some(body("2", json!({"status": {"base": "{}"}}))))
        }
    })
    .await;
    assert_eq!(outcome.sent(), ["PATCH /status", "PATCH"]);
    let applied = outcome.result.unwrap();
    assert!(applied.rejections.is_empty());
    assert_eq!(Value::Object(applied.merged), patch);
}

#[tokio::test(start_paused = true)]
async fn other_rejected_fields_of_the_status_do_not_keep_the_progress() {
    let patch = json!({"status": {"base": "{}", "bad": 1}, "metadata": {"annotations": {RECORD: null}}});
    let persistence = base_in_status();
    let outcome = apply_with(Some(&persistence), body("1", json!({})), change(patch), |got| {
        match got.body["status"].get("bad") {
            Some(_) => failure_response(422, Some("status.bad")),
            None => (200, Some(body("2", json!({"status": {"base": "{}"}})))),
        }
    })
    .await;
    assert_eq!(outcome.sent(), ["PATCH /status", "PATCH /status", "PATCH"]);
    let applied = outcome.result.unwrap();
    assert_eq!(rejected(applied.rejections), json!({"status": {"bad": 1}}));
    assert!(applied.merged.contains_key("metadata"));
}

#[tokio::test(start_paused = true)]
async fn all_that_follows_a_failed_request_is_unwritten_and_all_before_it_is_not() {
    let base = json!({"metadata": {"annotations": {"kopf.zalando.org/last-handled-configuration": "{}"}}});
    for is_denied in [false, true] {
        let patch = json!({
            "status": {"result": 1, "progress": {"h": null}},
            "metadata": base["metadata"],
        });
        let persistence = progress_in_status();
        let outcome =
            apply_with(Some(&persistence), body("1", json!({})), change(patch), move |got| {
                match got.path.ends_with("/status") {
                    true if is_denied => failure_response(403, None),
                    true => (200, Some(body("2", json!({"status": {"result": 1}})))),
                    false => failure_response(422, None),
                }
            })
            .await;
        assert_eq!(outcome.sent(), ["PATCH /status", "PATCH"]);
        let PatchFailure { applied, .. } = outcome.result.unwrap_err();
        let unwritten = json!({"metadata": base["metadata"], "status": {"progress": {"h": null}}});
        assert_eq!(Value::Object(applied.unwritten), unwritten, "{is_denied}");
        let result = json!({"status": {"result": 1}});
        let (merged, rejected) = (Value::Object(applied.merged), rejected(applied.rejections));
        let expected = if is_denied { (json!({}), result) } else { (result, json!({})) };
        assert_eq!((merged, rejected), expected);
    }
}
