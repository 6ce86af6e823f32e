//! Reviews from the router to the response, with a scripted host.

use std::sync::Mutex;

use bytes::Bytes;
use kopf_core::log_level::Level;
use serde_json::json;

use kopf_core::admission::Candidate;
use kopf_core::resource::Resource;
use tokio::sync::oneshot;

use super::*;
use crate::host::LogRecord;
use crate::metrics::add_reviews;

/// A host that only keeps its tasks.
#[derive(Default)]
struct Python {
    tasks: Mutex<Vec<HostTask>>,
}

impl Host for Python {
    fn submit(&self, task: HostTask) {
        self.tasks.lock().unwrap().push(task);
    }

    fn log(&self, _: LogRecord) {}

    fn enabled(&self, _: Level) -> bool {
        false
    }
}

fn admission_router(python: &Arc<Python>) -> AdmissionRouter {
    let handlers = serde_json::from_value(json!([
        {"id": "fn", "kind": "webhook", "reason": "validating"},
        {"id": "labelled", "kind": "webhook", "reason": "validating", "labels": [["a", {"present": true}]]},
    ]));
    let registry = Registry { handlers: handlers.unwrap() };
    let admission_router = AdmissionRouter::new(Arc::new(registry), Arc::clone(python) as Arc<dyn Host>);
    let resource: Resource = serde_json::from_value(json!({
        "group": "kopf.dev", "version": "v1", "plural": "ks", "kind": "K", "singular": "k", "shortcuts": [],
        "categories": [], "subresources": [], "verbs": [], "namespaced": true, "preferred": true,
    }))
    .unwrap();
    admission_router.serve(AdmissionResources(vec![(Arc::new(resource), vec![0, 1])]));
    admission_router
}

fn review(plural: &str) -> Value {
    json!({"request": {
        "uid": "u1", "resource": {"group": "kopf.dev", "version": "v1", "resource": plural},
        "userInfo": {}, "object": {"metadata": {"name": "x"}},
    }})
}

fn call(
    admission_router: &AdmissionRouter,
    webhook: &str,
    body: &str,
) -> oneshot::Receiver<Result<Vec<u8>, Rejection>> {
    let (reply, receiver) = oneshot::channel();
    let body = Bytes::from(body.to_owned());
    admission_router.call(Call { webhook: webhook.to_owned(), headers: vec![], peer: None, body, reply });
    receiver
}

#[test]
fn a_review_becomes_a_job_with_its_handlers() {
    let python = Arc::new(Python::default());
    let receiver = call(&admission_router(&python), "fn", &review("ks").to_string());
    let Some(HostTask::AdmissionReview(task)) = python.tasks.lock().unwrap().pop() else { panic!("no task") };
    assert_eq!(task.review.candidates, [Candidate { handler: 0, guarded: false }]);
    task.reply.send(Ok(b"yes".to_vec())).unwrap();
    assert_eq!(receiver.blocking_recv().unwrap(), Ok(b"yes".to_vec()));
}

#[test]
fn reviews_without_handlers_are_allowed_without_calling_python() {
    let python = Arc::new(Python::default());
    let allowed = |admission_router: &AdmissionRouter, webhook| {
        let response =
            call(admission_router, webhook, &review("ks").to_string()).blocking_recv().unwrap().unwrap();
        let review: Value = serde_json::from_slice(&response).unwrap();
        assert_eq!(review["response"], json!({"uid": "u1", "allowed": true}));
    };
    allowed(&admission_router(&python), "labelled");
    let compatible = admission_router(&python).with_compat(true);
    for webhook in ["labelled", "unknown", ""] {
        allowed(&compatible, webhook);
    }
    assert!(python.tasks.lock().unwrap().is_empty());
}

#[test]
fn reviews_for_unknown_handlers_are_rejected() {
    let python = Arc::new(Python::default());
    let rejection = call(&admission_router(&python), "unknown", "{}").blocking_recv().unwrap().unwrap_err();
    assert_eq!(rejection.status, 404);
    assert_eq!(rejection.reason, "There is no admission handler with the id \"unknown\".");
    assert!(python.tasks.lock().unwrap().is_empty());
}

#[test]
fn reviews_without_an_id_are_for_all_handlers() {
    let python = Arc::new(Python::default());
    let _answer = call(&admission_router(&python), "", &review("ks").to_string());
    let Some(HostTask::AdmissionReview(task)) = python.tasks.lock().unwrap().pop() else { panic!("no task") };
    assert_eq!(task.review.candidates, [Candidate { handler: 0, guarded: false }]);
}

#[test]
fn malformed_reviews_are_rejected_with_a_status() {
    let admission_router = admission_router(&Arc::default());
    let status =
        |body: &str| call(&admission_router, "fn", body).blocking_recv().unwrap().unwrap_err().status;
    assert_eq!(status("{"), 400);
    assert_eq!(status("{}"), 500);
    assert_eq!(status(&review("others").to_string()), 404);
    let mut anonymous = review("ks");
    anonymous["request"]["userInfo"] = Value::Null;
    assert_eq!(status(&anonymous.to_string()), 400);
}

/// The counted reviews by their resource and result, such as `ks.kopf.dev allowed 1`.
fn counts(admission_router: &AdmissionRouter) -> Vec<String> {
    let mut text = String::new();
    add_reviews(&mut text, admission_router.reviews());
    let samples = text.lines().filter_map(|line| line.strip_prefix("kopf_reviews_total{resource=\""));
    let words = samples.map(|line| line.replace("\",result=\"", " ").replace("\"}", ""));
    words.filter(|line| !line.ends_with(" 0")).collect()
}

#[test]
fn reviews_count_by_their_resource_and_their_result() {
    let python = Arc::new(Python::default());
    let admission_router = admission_router(&python);
    let send = |webhook: &str, body: &str| drop(call(&admission_router, webhook, body));
    send("labelled", &review("ks").to_string());
    assert_eq!(counts(&admission_router), ["ks.kopf.dev allowed 1"]);
    // Neither a resource nor a handler, and no JSON.
    send("fn", &review("others").to_string());
    send("unknown", &review("ks").to_string());
    send("fn", "{");
    let mut anonymous = review("ks");
    anonymous["request"]["userInfo"] = Value::Null;
    send("fn", &anonymous.to_string());
    assert_eq!(
        counts(&admission_router),
        ["_other errored 3", "ks.kopf.dev allowed 1", "ks.kopf.dev errored 1"]
    );
    send("fn", &review("ks").to_string());
    send("fn", &review("ks").to_string());
    for verdict in [Verdict::Denied, Verdict::Errored] {
        let Some(HostTask::AdmissionReview(task)) = python.tasks.lock().unwrap().pop() else { panic!() };
        if verdict == Verdict::Denied {
            task.review.opened.on_response(verdict);
        }
        // The other one is dropped without a response, such as at the exit.
    }
    assert_eq!(
        counts(&admission_router),
        ["_other errored 3", "ks.kopf.dev allowed 1", "ks.kopf.dev denied 1", "ks.kopf.dev errored 2"]
    );
}

#[test]
fn without_admission_handlers_there_are_no_series_of_reviews() {
    let host = Arc::new(Python::default());
    let admission_router = AdmissionRouter::new(Arc::default(), host);
    assert!(admission_router.open(b"{", ReviewFilter::default()).is_err());
    let mut text = String::new();
    add_reviews(&mut text, admission_router.reviews());
    assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), 0, "{text}");
}

#[tokio::test]
async fn the_cluster_is_not_located_before_it_is_known() {
    assert!(admission_router(&Arc::default()).locate().await.is_err());
}

#[test]
fn an_object_that_is_too_deep_to_be_checked_is_denied() {
    let python = Arc::new(Python::default());
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    for (levels, is_asked) in [(200, true), (400, false), (100_000, false)] {
        let body =
            review("ks").to_string().replace(r#""name":"x""#, &format!(r#""name":"x","y":{}"#, deep(levels)));
        let receiver = call(&admission_router(&python), "fn", &body);
        assert_eq!(python.tasks.lock().unwrap().pop().is_some(), is_asked, "{levels}");
        if !is_asked {
            let review: Value = serde_json::from_slice(&receiver.blocking_recv().unwrap().unwrap()).unwrap();
            let response = &review["response"];
            assert_eq!((&response["uid"], &response["allowed"]), (&json!("u1"), &json!(false)));
            let message = response["status"]["message"].as_str().unwrap();
            assert!(message.starts_with("The object cannot be checked: nested too deeply"), "{message}");
        }
    }
}
