//! Integration tests of conversion webhooks: requests in all versions of a custom resource.

use kopf_apiserver::{Server, ServerOptions, start};
use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::webhook::Webhook;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/test.dev/v1/namespaces/default/hosts";
const V2: &str = "/apis/test.dev/v2/namespaces/default/hosts";

/// In v1, an object has `address: host:port`; in v2, which is stored, it has `host` and `port`.
fn converted(request: &Value) -> Value {
    let desired = request["desiredAPIVersion"].as_str().unwrap_or_default();
    let objects = request["objects"].as_array().into_iter().flatten().map(|object| {
        let mut object = object.clone();
        object["apiVersion"] = desired.into();
        let spec = object["spec"].take();
        object["spec"] = if desired.ends_with("v1") {
            json!({"address": format!("{}:{}", spec["host"].as_str().unwrap_or_default(), spec["port"])})
        } else {
            let address = spec["address"].as_str().unwrap_or_default();
            let (host, port) = address.split_once(':').unwrap_or((address, "80"));
            json!({"host": host, "port": port.parse::<u16>().unwrap_or(80)})
        };
        object
    });
    json!({"result": {"status": "Success"}, "convertedObjects": objects.collect::<Vec<_>>()})
}

async fn server_with_webhook(answers: fn(&str, &Value) -> Value) -> (Server, Webhook) {
    let server = start(ServerOptions { tls: false, ..ServerOptions::default() }).await.expect("a server");
    let webhook = Webhook::start(answers).await;
    let version = |name: &str, is_stored: bool, properties: Value| {
        json!({"name": name, "served": true, "storage": is_stored, "selectableFields": [{"jsonPath":
            if is_stored { ".spec.host" } else { ".spec.address" }}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}}})
    };
    let versions = json!([
        version("v1", false, json!({"address": {"type": "string"}})),
        version(
            "v2",
            true,
            json!({"host": {"type": "string"}, "port": {"type": "integer"}, "tls": {"type": "boolean", "default": true}})
        ),
    ]);
    let conversion = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
        "clientConfig": webhook.client_config("/convert")}});
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "hosts.test.dev"},
        "spec": {"group": "test.dev", "scope": "Namespaced", "conversion": conversion, "versions": versions,
            "names": {"plural": "hosts", "singular": "host", "kind": "Host"}}});
    server.create(CRDS, &crd).await.expect("created");
    (server, webhook)
}

fn host(version: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("test.dev/{version}"), "kind": "Host", "metadata": {"name": "h"}, "spec": spec})
}

#[tokio::test]
async fn objects_are_served_in_all_versions() {
    let (server, webhook) = server_with_webhook(|_, request| converted(request)).await;
    let made = server.create(V1, &host("v1", &json!({"address": "a:1"}))).await.expect("created");
    assert_eq!((&made["apiVersion"], &made["spec"]), (&"test.dev/v1".into(), &json!({"address": "a:1"})));
    let stored = server.get(&format!("{V2}/h")).await.expect("found");
    assert_eq!((&stored["apiVersion"], &stored["kind"]), (&"test.dev/v2".into(), &"Host".into()));
    assert_eq!(stored["spec"]["host"], "a");
    let patched = server
        .call("PATCH", &format!("{V1}/h"), Some(&json!({"spec": {"address": "b:2"}})))
        .await
        .expect("patched");
    assert_eq!(patched["spec"], json!({"address": "b:2"}));
    let stored = server.get(&format!("{V2}/h")).await.expect("found");
    assert_eq!(stored["spec"], json!({"host": "b", "port": 2, "tls": true}));
    webhook.take_calls();
    let list = server.get(V1).await.expect("a list");
    assert_eq!(list["items"][0]["spec"], json!({"address": "b:2"}));
    assert_eq!(webhook.take_calls().len(), 1);
    for (selector, expected) in [("b:2", 1), ("c:3", 0)] {
        let path = format!("{V1}?fieldSelector=spec.address%3D{selector}");
        let found = server.get(&path).await.expect("a list");
        assert_eq!(found["items"].as_array().map(Vec::len), Some(expected), "{selector}");
    }
    server.call("DELETE", &format!("{V1}/h"), None).await.expect("deleted");
    assert!(server.get(&format!("{V2}/h")).await.is_err());
}

#[tokio::test]
async fn failures_of_the_webhook_are_errors_of_the_request() {
    let (server, _webhook) =
        server_with_webhook(|_, _| json!({"result": {"status": "Failure", "message": "not today"}})).await;
    let error = server.create(V1, &host("v1", &json!({"address": "a:1"}))).await.expect_err("a failure");
    let expected = "conversion webhook for test.dev/v1, Kind=Host failed: not today";
    assert!(error.to_string().contains(expected), "{error}");
    let made = server.create(V2, &host("v2", &json!({"host": "a"}))).await.expect("created");
    assert_eq!(made["spec"], json!({"host": "a", "tls": true}));
    let error = server.get(&format!("{V1}/h")).await.expect_err("a failure").to_string();
    assert!(error.contains("conversion webhook for test.dev/v2, Kind=Host failed: not today"), "{error}");
}

#[tokio::test]
async fn objects_of_an_earlier_stored_version_are_served() {
    let server = start(ServerOptions { tls: false, ..ServerOptions::default() }).await.expect("a server");
    let version = |name: &str, is_stored: bool| {
        json!({"name": name, "served": true, "storage": is_stored,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "hosts.test.dev"},
        "spec": {"group": "test.dev", "scope": "Namespaced", "versions": [version("v1", true), version("v2", false)],
            "names": {"plural": "hosts", "singular": "host", "kind": "Host"}}});
    server.create(CRDS, &crd).await.expect("created");
    server.create(V1, &host("v1", &json!({}))).await.expect("created");
    let changed = json!({"spec": {"versions": [version("v1", false), version("v2", true)]}});
    server.call("PATCH", &format!("{CRDS}/hosts.test.dev"), Some(&changed)).await.expect("patched");
    for (path, version) in [(V1, "test.dev/v1"), (V2, "test.dev/v2")] {
        let found = server.get(&format!("{path}/h")).await.expect("found");
        assert_eq!(found["apiVersion"], version);
    }
}

fn crd_without_webhook(versions: &[(&str, bool, Value)]) -> Value {
    let versions = versions.iter().map(|(name, is_stored, properties)| {
        json!({"name": name, "served": true, "storage": is_stored, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"spec": {"type": "object", "properties": properties}}}}})
    });
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "hosts.test.dev"},
        "spec": {"group": "test.dev", "scope": "Namespaced", "versions": versions.collect::<Vec<_>>(),
            "names": {"plural": "hosts", "singular": "host", "kind": "Host"}}})
}

async fn server_without_webhook(v1: Value, v2: Value) -> Server {
    let server = start(ServerOptions { tls: false, ..ServerOptions::default() }).await.expect("a server");
    let crd = crd_without_webhook(&[("v1", true, v1), ("v2", false, v2)]);
    server.create(CRDS, &crd).await.expect("created");
    server
}

/// The specs in the events of a watch of one version, by their types.
async fn watched(server: &Server, path: &str, from: &Value) -> Vec<(String, Value)> {
    let client = Client::plain(server.port(), server.token());
    let headers = [("authorization".to_owned(), format!("Bearer {}", server.token()))].into();
    let version = from["metadata"]["resourceVersion"].as_str().expect("a version");
    let path = format!("{path}?watch=1&timeoutSeconds=1&resourceVersion={version}");
    let answer = client.send("GET", &path, &headers, "").await;
    let events = answer.body.lines().map(|line| serde_json::from_str::<Value>(line).expect("an event"));
    events.map(|e| (e["type"].as_str().unwrap_or_default().to_owned(), e["object"]["spec"].clone())).collect()
}

#[tokio::test]
async fn an_object_that_is_deleted_in_another_version_is_shown_as_it_was_stored() {
    let integer = json!({"type": "integer"});
    let server = server_without_webhook(json!({"a": integer, "old": integer}), json!({"a": integer})).await;
    let made = server.create(V1, &host("v1", &json!({"a": 1, "old": 2}))).await.expect("created");
    server.call("DELETE", &format!("{V2}/h?dryRun=All"), None).await.expect("not deleted");
    server.call("DELETE", &format!("{V2}/h"), None).await.expect("deleted");
    for (path, spec) in [(V1, json!({"a": 1, "old": 2})), (V2, json!({"a": 1}))] {
        assert_eq!(watched(&server, path, &made).await, [("DELETED".to_owned(), spec)]);
    }
}

#[tokio::test]
async fn an_object_that_is_marked_in_another_version_is_written_in_the_stored_one() {
    let integer = json!({"type": "integer"});
    let server = server_without_webhook(json!({"a": integer, "old": integer}), json!({"a": integer})).await;
    let mut new = host("v1", &json!({"a": 1, "old": 2}));
    new["metadata"]["finalizers"] = json!(["test.dev/held"]);
    let made = server.create(V1, &new).await.expect("created");
    server.call("DELETE", &format!("{V2}/h"), None).await.expect("marked");
    assert_eq!(watched(&server, V1, &made).await, [("MODIFIED".to_owned(), json!({"a": 1}))]);
}

/// A deletion that writes nothing needs no conversion to the stored version.
#[tokio::test]
async fn an_object_is_deleted_although_a_webhook_cannot_convert_it_back() {
    let (server, _webhook) = server_with_webhook(|_, request| {
        let is_back = request["desiredAPIVersion"] == "test.dev/v2";
        if is_back { json!({"result": {"status": "Failure"}}) } else { converted(request) }
    })
    .await;
    let made = server.create(V2, &host("v2", &json!({"host": "a", "port": 1}))).await.expect("created");
    server.call("DELETE", &format!("{V1}/h"), None).await.expect("deleted");
    let stored = json!({"host": "a", "port": 1, "tls": true});
    assert_eq!(watched(&server, V2, &made).await, [("DELETED".to_owned(), stored)]);
}

async fn spec_in(server: &Server, version: &str) -> Value {
    server.get(&format!("{version}/h")).await.expect("found")["spec"].clone()
}

#[tokio::test]
async fn fields_that_the_stored_version_does_not_have_are_lost() {
    let integer = json!({"type": "integer"});
    let server = server_without_webhook(json!({"a": integer}), json!({"a": integer, "b": integer})).await;
    let new = host("v2", &json!({"a": 1, "b": 2}));
    for path in [format!("{V2}?dryRun=All"), V2.to_owned()] {
        let made = server.create(&path, &new).await.expect("created");
        assert_eq!((&made["apiVersion"], &made["spec"]), (&"test.dev/v2".into(), &json!({"a": 1})));
    }
    for version in [V1, V2] {
        assert_eq!(spec_in(&server, version).await, json!({"a": 1}));
    }
    let change = json!({"spec": {"a": 3, "b": 4}});
    let patched = server.call("PATCH", &format!("{V2}/h"), Some(&change)).await.expect("patched");
    assert_eq!(patched["spec"], json!({"a": 3}));
    assert_eq!(server.get(V2).await.expect("a list")["items"][0]["spec"], json!({"a": 3}));
}

#[tokio::test]
async fn fields_of_the_stored_version_are_hidden_in_the_others_and_its_defaults_are_set() {
    let integer = json!({"type": "integer"});
    let v1 = json!({"a": integer, "old": integer, "filled": {"type": "integer", "default": 7}});
    let v2 = json!({"a": integer, "filled": integer});
    let server = server_without_webhook(v1, v2).await;
    let made = server.create(V1, &host("v1", &json!({"a": 1, "old": 2}))).await.expect("created");
    assert_eq!(made["spec"], json!({"a": 1, "old": 2, "filled": 7}));
    assert_eq!(spec_in(&server, V2).await, json!({"a": 1, "filled": 7}));
    server.call("DELETE", &format!("{V1}/h"), None).await.expect("deleted");
    let made = server.create(V2, &host("v2", &json!({"a": 1}))).await.expect("created");
    assert_eq!(made["spec"], json!({"a": 1, "filled": 7}));
}

#[tokio::test]
async fn objects_lose_the_fields_that_a_changed_crd_does_not_have() {
    let integer = json!({"type": "integer"});
    let both = json!({"a": integer, "b": integer});
    let server = server_without_webhook(both.clone(), both).await;
    server.create(V1, &host("v1", &json!({"a": 1, "b": 2}))).await.expect("created");
    let only = json!({"a": integer});
    let changed = crd_without_webhook(&[("v1", true, only.clone()), ("v2", false, only)]);
    let change = json!({"spec": {"versions": changed["spec"]["versions"]}});
    server.call("PATCH", &format!("{CRDS}/hosts.test.dev"), Some(&change)).await.expect("patched");
    for version in [V1, V2] {
        assert_eq!(spec_in(&server, version).await, json!({"a": 1}));
    }
}

#[tokio::test]
async fn objects_keep_the_fields_of_their_version_until_they_are_written() {
    let integer = json!({"type": "integer"});
    let (v1, v2) = (json!({"a": integer, "old": integer}), json!({"a": integer}));
    let server = server_without_webhook(v1.clone(), v2.clone()).await;
    server.create(V1, &host("v1", &json!({"a": 1, "old": 2}))).await.expect("created");
    let changed = crd_without_webhook(&[("v1", false, v1), ("v2", true, v2)]);
    let change = json!({"spec": {"versions": changed["spec"]["versions"]}});
    server.call("PATCH", &format!("{CRDS}/hosts.test.dev"), Some(&change)).await.expect("patched");
    assert_eq!(spec_in(&server, V1).await, json!({"a": 1, "old": 2}));
    assert_eq!(spec_in(&server, V2).await, json!({"a": 1}));
    let label = json!({"metadata": {"labels": {"x": "y"}}});
    server.call("PATCH", &format!("{V1}/h"), Some(&label)).await.expect("patched");
    assert_eq!(spec_in(&server, V1).await, json!({"a": 1}));
}

/// The entries of the managed fields, in the order of their managers and versions.
fn entries(object: &Value) -> Vec<(String, String, Value)> {
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let list = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let mut entries: Vec<_> =
        list.map(|e| (text(e, "manager"), text(e, "apiVersion"), e["fieldsV1"]["f:spec"].clone())).collect();
    entries.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    entries
}

fn entry(manager: &str, version: &str, fields: Value) -> (String, String, Value) {
    (manager.to_owned(), format!("test.dev/{version}"), fields)
}

#[tokio::test]
async fn managed_fields_are_compared_in_their_versions() {
    let (server, _webhook) = server_with_webhook(|_, request| converted(request)).await;
    let path = format!("{V1}?fieldManager=one");
    let made = server.create(&path, &host("v1", &json!({"address": "a:1"}))).await.expect("created");
    let address = json!({".": {}, "f:address": {}});
    assert_eq!(entries(&made), [entry("one", "v1", address)]);
    // The address changes with the port, and the host is the same.
    let merge = async |path: &str, spec: Value| {
        server.call("PATCH", path, Some(&json!({"spec": spec}))).await.expect("patched")
    };
    let patched = merge(&format!("{V2}/h?fieldManager=two"), json!({"port": 2})).await;
    let left = json!({});
    assert_eq!(
        entries(&patched),
        [entry("one", "v1", left.clone()), entry("two", "v2", json!({"f:port": {}}))]
    );
    let patched = merge(&format!("{V1}/h?fieldManager=three"), json!({"address": "b:2"})).await;
    let address = json!({"f:address": {}});
    let port = json!({"f:port": {}});
    let expected =
        [entry("one", "v1", left.clone()), entry("three", "v1", address), entry("two", "v2", port)];
    assert_eq!(entries(&patched), expected);
}

#[tokio::test]
async fn an_object_with_managed_fields_of_an_unknown_version_loses_them() {
    let (server, _webhook) = server_with_webhook(|_, request| converted(request)).await;
    let mut made = server.create(V2, &host("v2", &json!({"host": "a"}))).await.expect("created");
    let unknown = json!({"manager": "x", "operation": "Update", "apiVersion": "test.dev/v9", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:host": {}}}});
    made["metadata"]["managedFields"].as_array_mut().expect("a list").push(unknown);
    let updated = server.call("PUT", &format!("{V2}/h"), Some(&made)).await.expect("updated");
    assert_eq!(updated["metadata"].get("managedFields"), None);
}
