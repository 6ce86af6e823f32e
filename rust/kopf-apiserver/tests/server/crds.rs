//! Integration tests of CRDs: discovery of their groups, and what their changes do to objects and watches.

use std::sync::Arc;

use kopf_apiserver::Server;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::running::{lines, plain, send, wait_for_requests, wait_until};
use crate::support::client::Answer;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/test.dev/v1/namespaces/default/things";

/// Versions of a CRD, of which the first one is stored.
fn versions(names: &[&str]) -> Value {
    let versions = names.iter().enumerate().map(|(number, name)| {
        json!({"name": name, "served": true, "storage": number == 0,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    });
    versions.collect()
}

async fn create_crd(server: &Server, plural: &str, kind: &str, names: &[&str]) {
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.test.dev")},
        "spec": {"group": "test.dev", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": versions(names)}});
    server.create(CRDS, &crd).await.expect("created");
}

async fn patch(server: &Server, path: &str, change: &Value) {
    server.call("PATCH", path, Some(change)).await.expect("patched");
}

async fn create_thing(server: &Server, name: &str, finalizers: &Value) {
    let thing = json!({"apiVersion": "test.dev/v1", "kind": "Thing", "metadata": {"name": name, "finalizers": finalizers}});
    server.create(THINGS, &thing).await.expect("created");
}

/// Opens a watch from the current version.
async fn watch(server: &Arc<Server>, path: &str) -> JoinHandle<Answer> {
    let before = server.request_log().entries().len();
    let path = format!("{path}?watch=1&timeoutSeconds=8&resourceVersion={}", server.resource_version());
    let other = server.clone();
    let watching = tokio::spawn(async move { send(&other, "GET", &path, "", &Value::Null).await });
    wait_for_requests(server, before + 1).await;
    watching
}

/// Types, versions and names of the events.
fn summary(answer: &Answer) -> Vec<String> {
    let events = lines(answer);
    let text = |event: &Value, pointer: &str| {
        event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let summary = events.iter().map(|event| {
        ["/type", "/object/apiVersion", "/object/metadata/name"].map(|pointer| text(event, pointer)).join(" ")
    });
    summary.collect()
}

#[tokio::test]
async fn the_preferred_version_of_a_group_does_not_depend_on_the_order_of_writes() {
    for order in [["olds", "news"], ["news", "olds"]] {
        let server = plain().await;
        for plural in order {
            let (kind, version) = if plural == "olds" { ("Old", "v1alpha1") } else { ("New", "v1") };
            create_crd(&server, plural, kind, &[version]).await;
        }
        let preferred = async || {
            let group = server.get("/apis/test.dev").await.expect("a group");
            group["preferredVersion"]["version"].as_str().map(str::to_owned)
        };
        assert_eq!(preferred().await.as_deref(), Some("v1"), "{order:?}");
        patch(&server, &format!("{CRDS}/news.test.dev"), &json!({"metadata": {"labels": {"a": "b"}}})).await;
        assert_eq!(preferred().await.as_deref(), Some("v1"), "{order:?}");
    }
}

#[tokio::test]
async fn a_crd_that_is_being_deleted_offers_no_changes_but_accepts_them() {
    let server = plain().await;
    create_crd(&server, "things", "Thing", &["v1"]).await;
    create_thing(&server, "held", &json!(["test.dev/x"])).await;
    server.call("DELETE", &format!("{CRDS}/things.test.dev"), None).await.expect("deleted");
    let resources = server.get("/apis/test.dev/v1").await.expect("resources");
    let verbs = json!(["delete", "deletecollection", "get", "list", "watch"]);
    assert_eq!(resources["resources"][0]["verbs"], verbs);
    patch(&server, &format!("{THINGS}/held"), &json!({"metadata": {"finalizers": null}})).await;
    wait_until(&server, &format!("{CRDS}/things.test.dev"), Result::is_err).await;
}

#[tokio::test]
async fn the_objects_of_a_deleted_crd_are_deleted_from_its_watches() {
    let server = Arc::new(plain().await);
    create_crd(&server, "things", "Thing", &["v1"]).await;
    create_thing(&server, "a", &json!([])).await;
    let watching = watch(&server, THINGS).await;
    server.call("DELETE", &format!("{CRDS}/things.test.dev"), None).await.expect("deleted");
    let answer = watching.await.expect("an answer");
    assert_eq!(summary(&answer), ["DELETED test.dev/v1 a"]);
}

#[tokio::test]
async fn a_changed_crd_ends_its_watches() {
    let server = Arc::new(plain().await);
    create_crd(&server, "things", "Thing", &["v1", "v1beta1"]).await;
    let watching = watch(&server, THINGS).await;
    let crd = format!("{CRDS}/things.test.dev");
    patch(&server, &crd, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    create_thing(&server, "before", &json!([])).await;
    let version = server.resource_version();
    patch(&server, &crd, &json!({"spec": {"versions": versions(&["v1beta1", "v1"])}})).await;
    create_thing(&server, "after", &json!([])).await;
    let answer = watching.await.expect("an answer");
    assert_eq!(summary(&answer), ["ADDED test.dev/v1 before"]);
    // Its earlier events are in another version, so watches begin with a new list.
    let path = format!("{THINGS}?watch=1&timeoutSeconds=1&resourceVersion=");
    let answer = send(&server, "GET", &format!("{path}{version}"), "", &Value::Null).await;
    assert_eq!(lines(&answer)[0]["object"]["code"], 410);
    let list = server.get(THINGS).await.expect("a list");
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2));
    create_thing(&server, "later", &json!([])).await;
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
    let answer = send(&server, "GET", &format!("{path}{version}"), "", &Value::Null).await;
    assert_eq!(summary(&answer), ["ADDED test.dev/v1 later"]);
}

#[tokio::test]
async fn a_version_that_is_not_served_any_more_has_no_watches() {
    let server = Arc::new(plain().await);
    create_crd(&server, "things", "Thing", &["v1", "v1beta1"]).await;
    let old = THINGS.replace("/v1/", "/v1beta1/");
    let watching = watch(&server, &old).await;
    let mut changed = versions(&["v1", "v1beta1"]);
    changed[1]["served"] = false.into();
    patch(&server, &format!("{CRDS}/things.test.dev"), &json!({"spec": {"versions": changed}})).await;
    create_thing(&server, "after", &json!([])).await;
    let answer = watching.await.expect("an answer");
    assert_eq!((answer.code, summary(&answer)), (200, Vec::new()));
    assert_eq!(send(&server, "GET", &old, "", &Value::Null).await.code, 404);
}

#[tokio::test]
async fn unchanged_values_that_violate_a_new_rule_are_reported_as_warnings() {
    let server = plain().await;
    create_crd(&server, "things", "Thing", &["v1"]).await;
    wait_until(&server, THINGS, Result::is_ok).await;
    let thing =
        json!({"apiVersion": "test.dev/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": {"n": 0}});
    server.create(THINGS, &thing).await.expect("created");
    let crd = format!("{CRDS}/things.test.dev");
    let one = format!("{THINGS}/one");
    let merge = "application/merge-patch+json";
    let label = |value: &str| json!({"metadata": {"labels": {"a": value}}});
    for (rule, code, expected) in [
        ("self.n > 0", 200, "spec: Invalid value: no"),
        ("self.m > 0", 422, "Invalid value: \\\"object\\\": no such key: m evaluating rule: no"),
    ] {
        let number = json!({"type": "integer"});
        let spec = json!({"type": "object", "properties": {"n": number, "m": number},
            "x-kubernetes-validations": [{"rule": rule, "message": "no"}]});
        let mut changed = versions(&["v1"]);
        changed[0]["schema"]["openAPIV3Schema"]["properties"] = json!({"spec": spec});
        patch(&server, &crd, &json!({"spec": {"versions": changed}})).await;
        let answer = send(&server, "PATCH", &one, merge, &label(&code.to_string())).await;
        assert_eq!(answer.code, code, "{rule}: {}", answer.body);
        let found = if code == 200 { answer.warnings.join("\n") } else { answer.body };
        assert!(found.contains(expected), "{rule}: {found}");
    }
}
