//! Retries of verbs, with scripted responses and a paused clock.

use std::time::Duration;

use tokio::runtime::Handle;

use super::*;
use crate::host::HostTask;
use crate::testing::{Fixture, Got, lock};

fn response(code: u16, body: Value) -> (u16, Option<Value>) {
    (code, Some(body))
}

fn status(code: u16, reason: &str) -> (u16, Option<Value>) {
    let details = if code == 503 { json!({"retryAfterSeconds": 2}) } else { json!({}) };
    response(
        code,
        json!({"kind": "Status", "code": code, "reason": reason, "message": "no", "details": details}),
    )
}

/// A api for a server that responds to the n-th request of the method with the n-th response, and then with the last one.
fn api(method: &'static str, responses: Vec<(u16, Option<Value>)>) -> (Fixture, Api) {
    let count = Arc::new(AtomicUsize::new(0));
    let fixture =
        Fixture::new(&json!({"networking": {"error_backoffs": [1.0, 1.0, 1.0]}}), move |got: &Got| {
            if got.path == "/api/v1" {
                let pods = json!({"name": "pods", "kind": "Pod", "namespaced": true});
                return response(200, json!({"kind": "APIResourceList", "resources": [pods]}));
            }
            if got.method != method {
                return response(200, json!({"kind": "Pod", "metadata": {"name": "existing"}}));
            }
            let index = count.fetch_add(1, Ordering::Relaxed).min(responses.len() - 1);
            responses[index].clone()
        });
    let api = Api::new(fixture.shared.base.client.clone(), CancellationToken::new());
    (fixture, api)
}

fn options() -> CallOptions {
    CallOptions {
        write: WriteOptions::default(),
        namespace: DefaultNamespace::OfCredentials,
        timeout: None,
        retries: true,
        headers: HeaderMap::new(),
        run: None,
    }
}

fn call(verb: Verb) -> Call {
    Call {
        verb,
        namespace: None,
        body_namespace: None,
        name: Some("p".to_owned()),
        subresource: None,
        body: Some(b"{}".to_vec()),
        query: vec![],
        is_guarded: false,
        metadata_only: false,
    }
}

fn failure(result: Result<Response, CallError>) -> Failure {
    match result {
        Err(CallError::Failed(failure)) => *failure,
        other => panic!("it did not fail: {other:?}"),
    }
}

fn sent(fixture: &Fixture, method: &str) -> Vec<u64> {
    fixture.requests().iter().filter(|got| got.method == method).map(|got| got.at).collect()
}

#[tokio::test(start_paused = true)]
async fn rejections_for_now_are_repeated_after_the_delay_of_the_server() {
    for (verb, method) in [(Verb::Create, "POST"), (Verb::Delete, "DELETE"), (Verb::JsonPatch, "PATCH")] {
        let busy = status(503, "ServiceUnavailable");
        let (fixture, api) = api(method, vec![busy.clone(), busy.clone(), busy, response(200, json!({}))]);
        assert_eq!(api.call("v1/pods", &call(verb), &options()).await.unwrap().status, 200);
        let times = sent(&fixture, method);
        let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(gaps, [2, 2, 2], "{verb:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_with_unknown_outcomes_are_repeated_only_if_that_has_no_other_effect() {
    let nameless = Call { name: None, ..call(Verb::Create) };
    let (fixture, failing) = api("POST", vec![status(500, "")]);
    let error = failure(failing.call("v1/pods", &nameless, &options()).await);
    assert!(error.is_uncertain && error.class == Class::ServerFailed, "{error:?}");
    assert_eq!(sent(&fixture, "POST").len(), 1);
    let (fixture, failing) = api("PATCH", vec![status(504, ""), response(200, json!({}))]);
    assert!(failing.call("v1/pods", &call(Verb::MergePatch), &options()).await.is_ok());
    assert_eq!(sent(&fixture, "PATCH").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_named_object_whose_creation_was_lost_is_returned_with_the_conflict() {
    let (_stage, api) = api("POST", vec![status(504, ""), status(409, "AlreadyExists")]);
    let error = failure(api.call("v1/pods", &call(Verb::Create), &options()).await);
    assert!(error.is_uncertain && error.class == Class::AlreadyExists);
    assert!(String::from_utf8(error.existing.unwrap()).unwrap().contains("existing"));
}

#[tokio::test(start_paused = true)]
async fn a_missing_object_after_a_lost_deletion_is_a_success_if_the_object_is_identified() {
    let responses = || vec![status(500, ""), status(404, "NotFound")];
    let (_stage, lost) = api("DELETE", responses());
    let guarded = Call { is_guarded: true, ..call(Verb::Delete) };
    assert_eq!(lost.call("v1/pods", &guarded, &options()).await.unwrap().status, 404);
    let (_stage, missing) = api("DELETE", vec![status(404, "NotFound")]);
    let error = failure(missing.call("v1/pods", &guarded, &options()).await);
    assert!(error.class == Class::NotFound && !error.is_uncertain);
    assert_eq!(error.text(), "cannot delete pods credentials-ns/p: no (404 NotFound)");
    let (fixture, by_name) = api("DELETE", responses());
    assert!(failure(by_name.call("v1/pods", &call(Verb::Delete), &options()).await).is_uncertain);
    assert_eq!(sent(&fixture, "DELETE").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rejections_are_raised_at_once_and_retries_can_be_switched_off() {
    let (fixture, denied) = api("GET", vec![status(403, "Forbidden")]);
    assert_eq!(failure(denied.call("v1/pods", &call(Verb::Get), &options()).await).class, Class::Forbidden);
    assert_eq!(sent(&fixture, "GET").len(), 2, "the discovery, and one attempt");
    let (fixture, busy) = api("PATCH", vec![status(503, "")]);
    let once = CallOptions { retries: false, ..options() };
    let error = failure(busy.call("v1/pods", &call(Verb::MergePatch), &once).await);
    assert!(error.retry_after == Some(2.0) && !error.is_uncertain);
    assert_eq!(sent(&fixture, "PATCH").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn watches_of_users_code_end_at_once_if_they_are_forbidden() {
    // The API server itself accepts credentials that a server behind it rejects.
    let accepted = response(200, json!({"major": "1"}));
    for responses in [vec![status(403, "Forbidden")], vec![status(401, "Unauthorized"), accepted]] {
        let attempts = responses.len();
        let (fixture, denied) = api("GET", responses);
        let started = tokio::time::Instant::now();
        let call = Call { name: None, body: None, ..call(Verb::Watch) };
        let watch = ("v1/pods".to_owned(), call);
        let stream = denied.watch(&Handle::current(), watch, options(), (true, None)).unwrap();
        tokio::time::timeout(Duration::from_mins(5), stream.ready()).await.unwrap();
        let Some(StreamItem::End(Err(CallError::Failed(failure)))) = stream.take().pop_front() else {
            panic!("the watch has no end");
        };
        assert_eq!((failure.class, started.elapsed().as_secs()), (Class::Forbidden, 0));
        assert_eq!(sent(&fixture, "GET").len(), 1 + attempts, "the discovery, and one attempt");
        assert_eq!(fixture.lines("ERROR"), [""; 0]);
    }
}

/// A api for a server that accepts the credentials or not, and rejects them for the service behind it.
fn api_with_service(accepts: bool) -> (Fixture, Api) {
    let fixture = Fixture::new(&json!({}), move |got: &Got| {
        let is_accepted = accepts && got.path == "/version";
        if is_accepted { response(200, json!({"major": "1"})) } else { status(401, "Unauthorized") }
    });
    let api = Api::new(fixture.shared.base.client.clone(), CancellationToken::new());
    (fixture, api)
}

#[tokio::test(start_paused = true)]
async fn credentials_that_only_a_service_rejects_stay_in_use() {
    let path = "/api/v1/namespaces/ns/services/x:80/proxy/health";
    let (fixture, api) = api_with_service(true);
    let (call_options, limit) = (options(), Duration::from_secs(30));
    let calling = api.request(("GET", path), None, "*/*", &call_options);
    let error = failure(tokio::time::timeout(limit, calling).await.unwrap());
    assert_eq!((error.class, error.code), (Class::Forbidden, 401));
    assert!(api.client.is_logged_in());
    let paths: Vec<_> = fixture.requests().into_iter().map(|got| got.path).collect();
    assert_eq!(paths, [path, "/version"]);

    let (fixture, api) = api_with_service(false);
    let calling = api.request(("GET", path), None, "*/*", &call_options);
    assert!(tokio::time::timeout(limit, calling).await.is_err(), "it waits for a login");
    assert!(!api.client.is_logged_in());
    assert_eq!(fixture.host.tasks.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_failed_test_of_a_json_patch_after_an_unknown_attempt_is_an_uncertain_conflict() {
    let guarded = Call { is_guarded: true, ..call(Verb::JsonPatch) };
    let invalid = |causes: Value| {
        let details = json!({"causes": causes});
        response(
            422,
            json!({"kind": "Status", "code": 422, "reason": "Invalid", "message": "no", "details": details}),
        )
    };
    let after = |responses| {
        let guarded = guarded.clone();
        async move {
            let (_stage, api) = api("PATCH", responses);
            let error = failure(api.call("v1/pods", &guarded, &options()).await);
            (error.class, error.is_uncertain)
        }
    };
    let failed_test = || invalid(Value::Null);
    assert_eq!(after(vec![status(504, ""), failed_test()]).await, (Class::Conflict, true));
    assert_eq!(after(vec![failed_test()]).await, (Class::Invalid, false));
    assert_eq!(after(vec![status(429, ""), failed_test()]).await, (Class::Invalid, false));
    // The patch was executed only now, so that the first attempt was not executed.
    let causes = json!([{"reason": "FieldValueInvalid", "field": "spec"}]);
    assert_eq!(after(vec![status(504, ""), invalid(causes)]).await, (Class::Invalid, false));
}

#[tokio::test(start_paused = true)]
async fn conflicts_after_unknown_attempts_are_uncertain() {
    let guarded = Call { is_guarded: true, ..call(Verb::Delete) };
    for (call, method) in [(guarded, "DELETE"), (call(Verb::Apply), "PATCH")] {
        let (_stage, lost) = api(method, vec![status(504, ""), status(409, "Conflict")]);
        let error = failure(lost.call("v1/pods", &call, &options()).await);
        assert!(error.class == Class::Conflict && error.is_uncertain, "{error:?}");
        let (_stage, rejected) = api(method, vec![status(409, "Conflict")]);
        assert!(!failure(rejected.call("v1/pods", &call, &options()).await).is_uncertain);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_login_after_an_unknown_attempt_is_an_uncertain_failure() {
    for (first, is_uncertain) in [(504, true), (429, false)] {
        let patches = Arc::new(AtomicUsize::new(0));
        let settings = json!({"networking": {"error_backoffs": [1.0]}});
        let fixture = Fixture::new(&settings, move |got: &Got| match &*got.path {
            "/api/v1" => {
                let pods = json!({"name": "pods", "kind": "Pod", "namespaced": true});
                response(200, json!({"kind": "APIResourceList", "resources": [pods]}))
            }
            "/version" => status(401, "Unauthorized"),
            _ if patches.fetch_add(1, Ordering::Relaxed) == 0 => status(first, ""),
            _ => status(401, "Unauthorized"),
        });
        let api = Api::new(fixture.shared.base.client.clone(), CancellationToken::new());
        let calling =
            tokio::spawn(async move { api.call("v1/pods", &call(Verb::MergePatch), &options()).await });
        let login = tokio::time::timeout(Duration::from_secs(30), async {
            loop {
                let task = lock(&fixture.host.tasks).pop();
                if let Some(HostTask::Login(task)) = task {
                    return task;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let _gone = login.await.unwrap().reply.send(Err("no credentials".to_owned()));
        match calling.await.unwrap() {
            Err(CallError::Failed(failure)) => {
                assert!(is_uncertain && failure.is_uncertain && failure.class == Class::Unreachable);
                assert!(failure.text().contains("no credentials"), "{}", failure.text());
            }
            Err(CallError::Login(_)) => assert!(!is_uncertain),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn resources_that_are_not_served_any_more_are_discovered_again() {
    let unserved =
        || response(404, json!({"kind": "Status", "code": 404, "reason": "NotFound", "details": {}}));
    let missing = json!({"kind": "Status", "code": 404, "reason": "NotFound", "details": {"name": "p"}});
    for (answer, expected) in [(unserved(), 2), (response(404, missing), 1)] {
        let (fixture, api) = api("GET", vec![answer]);
        for _ in 0..2 {
            let error = failure(api.call("v1/pods", &call(Verb::Get), &options()).await);
            assert_eq!(error.class, Class::NotFound);
        }
        let discovered = fixture.requests().iter().filter(|got| got.path == "/api/v1").count();
        assert_eq!(discovered, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_timeout_and_with_its_client() {
    let (_stage, silent) = api("PATCH", vec![(200, None)]);
    let limited = CallOptions { timeout: Some(5.0), ..options() };
    let error = failure(silent.call("v1/pods", &call(Verb::JsonPatch), &limited).await);
    assert!(error.class == Class::TimedOut && error.is_uncertain, "{error:?}");
    assert!(error.text().starts_with("cannot patch pods credentials-ns/p: "), "{}", error.text());
    let closing = silent.clone();
    let calling = tokio::spawn(async move { silent.call("v1/pods", &call(Verb::Apply), &options()).await });
    tokio::task::yield_now().await;
    closing.close();
    assert_eq!(calling.await.unwrap().err(), Some(CallError::Closed));
}

#[tokio::test(start_paused = true)]
async fn kinds_are_discovered_once_and_unknown_ones_are_errors() {
    let (fixture, api) = api("PATCH", vec![response(200, json!({}))]);
    for _ in 0..3 {
        api.call("v1/pods", &call(Verb::MergePatch), &options()).await.unwrap();
    }
    assert_eq!(sent(&fixture, "GET").len(), 1);
    let unknown = api.call("v1/nothing", &call(Verb::Get), &options()).await;
    assert!(matches!(unknown, Err(CallError::Kind(_))), "{unknown:?}");
}

#[tokio::test(start_paused = true)]
async fn the_paths_of_requests_may_end_with_a_slash_unless_they_delete() {
    let (fixture, api) = api("GET", vec![response(200, json!({}))]);
    for path in ["/apis/", "/api/v1/namespaces/ns/services/web:80/proxy/?a=b"] {
        for method in ["GET", "POST", "DELETE"] {
            let result = api.request((method, path), None, "*/*", &options()).await;
            assert_eq!(
                matches!(result, Err(CallError::Misuse(_))),
                method == "DELETE",
                "{method} {result:?}"
            );
            let last = fixture.requests().pop().map(|got| got.path);
            assert_eq!(last.as_deref(), Some(path));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_that_does_not_respond_to_discovery_delays_no_calls_for_others() {
    let fixture = Fixture::new(&json!({}), |got: &Got| match &*got.path {
        "/apis/down.example.com/v1" => (0, None),
        "/api/v1" => {
            let pods = json!({"name": "pods", "kind": "Pod", "namespaced": true});
            response(200, json!({"kind": "APIResourceList", "resources": [pods]}))
        }
        _ => response(200, json!({})),
    });
    let api = Api::new(fixture.shared.base.client.clone(), CancellationToken::new());
    let other = api.clone();
    let waiting =
        tokio::spawn(async move { other.resolve("down.example.com/v1/things", &options()).await.is_ok() });
    while fixture.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    let resolved = tokio::time::timeout(Duration::from_secs(5), api.resolve("v1/pods", &options())).await;
    assert_eq!(resolved.unwrap().unwrap().plural, "pods");
    assert!(!waiting.is_finished());
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn a_stream_whose_task_panics_ends_with_the_error() {
    let (_fixture, api) = api("GET", vec![response(200, json!({}))]);
    let stream = api.open_stream(&Handle::current(), |_| async { panic!("an injected panic") }).unwrap();
    tokio::time::timeout(Duration::from_secs(30), stream.ready()).await.unwrap();
    let Some(StreamItem::End(Err(CallError::Panicked(panicked)))) = stream.take().pop_front() else {
        panic!("the stream has no end");
    };
    assert_eq!(panicked.to_string(), "The task of a watch or a log has panicked: an injected panic");
}
