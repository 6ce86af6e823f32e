//! Writes that change nothing, or only the owners of fields. The expected values are those of kube-apiserver 1.36.

#![allow(clippy::expect_used, reason = "a test may stop")]

mod support;

use std::collections::BTreeMap;

use kopf_apiserver::{Server, ServerOptions, start};
use serde_json::{Value, json};
use support::client::Client;

const JSON: &str = "application/json";
const APPLY: &str = "application/apply-patch+yaml";
const THINGS: &str = "/apis/test.dev/v1/namespaces/default/things";

async fn server() -> Server {
    start(ServerOptions { tls: false, ..ServerOptions::default() }).await.expect("a server")
}

async fn send(server: &Server, method: &str, path: &str, media: &str, body: &Value) -> (u16, Value) {
    let client = Client::plain(server.port(), server.token());
    let headers: BTreeMap<String, String> = [
        ("authorization".to_owned(), format!("Bearer {}", server.token())),
        ("content-type".to_owned(), media.to_owned()),
    ]
    .into();
    let answer = client.send(method, path, &headers, &body.to_string()).await;
    (answer.code, serde_json::from_str(&answer.body).expect("JSON"))
}

/// The entry of a field manager.
fn entry<'v>(object: &'v Value, manager: &str) -> Option<&'v Value> {
    let list = object["metadata"]["managedFields"].as_array().expect("managed fields");
    list.iter().find(|entry| entry["manager"] == manager)
}

async fn with_things() -> Server {
    let server = server().await;
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.test.dev"},
        "spec": {"group": "test.dev", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"}, "versions": [{
            "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {
                    "note": {"type": "string", "nullable": true},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
                    "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "protocol"],
                        "items": {"type": "object", "required": ["name"], "properties": {
                            "name": {"type": "string"}, "protocol": {"type": "string", "default": "TCP"}}}}}}}}}}]}});
    let (code, answer) =
        send(&server, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", JSON, &crd).await;
    assert_eq!(code, 201, "{answer}");
    server
}

fn thing(spec: &Value) -> Value {
    json!({"apiVersion": "test.dev/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": spec})
}

#[tokio::test]
async fn an_update_of_an_unchanged_pod_keeps_its_generation() {
    let server = server().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"},
        "spec": {"containers": [{"name": "main", "image": "x:1"}]}});
    send(&server, "POST", pods, JSON, &pod).await;
    let (code, updated) = send(&server, "PUT", &format!("{pods}/one"), JSON, &pod).await;
    assert_eq!((code, &updated["metadata"]["generation"]), (200, &json!(1)));
    let mut changed = pod.clone();
    changed["spec"]["containers"][0]["image"] = "x:2".into();
    let (_, changed) = send(&server, "PUT", &format!("{pods}/one"), JSON, &changed).await;
    assert_eq!(changed["metadata"]["generation"], 2);
}

#[tokio::test]
async fn the_template_generation_of_a_daemon_set_counts_template_changes() {
    let server = server().await;
    let sets = "/apis/apps/v1/namespaces/default/daemonsets";
    let annotation =
        |set: &Value| set["metadata"]["annotations"]["deprecated.daemonset.template.generation"].clone();
    let mut set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "one"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "main", "image": "x:1"}]}}}});
    let (_, created) = send(&server, "POST", &format!("{sets}?fieldManager=first"), JSON, &set).await;
    assert_eq!(annotation(&created), "1");
    let path = format!("{sets}/one?fieldManager=second");
    let (_, updated) = send(&server, "PUT", &path, JSON, &set).await;
    assert_eq!(annotation(&updated), "1");
    // A request without the annotation sets it to zero before the server sets it: its manager owns it.
    let owned = json!({"f:metadata": {"f:annotations": {"f:deprecated.daemonset.template.generation": {}}}});
    assert_eq!(entry(&updated, "second").expect("an entry")["fieldsV1"], owned);
    set["spec"]["template"]["spec"]["containers"][0]["image"] = "x:2".into();
    let (_, updated) = send(&server, "PUT", &path, JSON, &set).await;
    assert_eq!(annotation(&updated), "2");
}

#[tokio::test]
async fn undeclared_fields_of_custom_resources_cannot_be_applied() {
    let server = with_things().await;
    let path = format!("{THINGS}/one?fieldManager=m");
    for (spec, errors) in [
        (json!({"nope": 1}), ".spec.nope: field not declared in schema"),
        (json!({"nope": null}), ".spec.nope: field not declared in schema"),
        (
            json!({"ports": [{"name": "a", "more": 2}]}),
            ".spec.ports[name=\"a\",protocol=\"TCP\"].more: field not declared in schema",
        ),
        (
            json!({"nope": 1, "pod": {"kind": "Pod", "metadata": {"nope": 1}}}),
            "errors:\n  .spec.nope: field not declared in schema\n  .spec.pod.metadata.nope: field not declared in schema",
        ),
    ] {
        let (code, status) = send(&server, "PATCH", &path, APPLY, &thing(&spec)).await;
        let expected =
            format!("failed to create typed patch object (/one; test.dev/v1, Kind=Thing): {errors}");
        assert_eq!((code, status["message"].as_str()), (500, Some(expected.as_str())), "{spec}");
    }
    let free =
        json!({"free": {"any": {"thing": 1}}, "pod": {"apiVersion": "v1", "kind": "Pod", "spec": {"x": 1}}});
    assert_eq!(send(&server, "PATCH", &path, APPLY, &thing(&free)).await.0, 201);
}

#[tokio::test]
async fn the_null_of_a_nullable_field_can_be_applied() {
    let server = with_things().await;
    let path = format!("{THINGS}/one?fieldManager=m");
    let (code, created) = send(&server, "PATCH", &path, APPLY, &thing(&json!({"note": null}))).await;
    assert_eq!((code, &created["spec"]), (201, &json!({"note": null})));
    assert_eq!(entry(&created, "m").expect("an entry")["fieldsV1"], json!({"f:spec": {"f:note": {}}}));
}

#[tokio::test]
async fn plain_text_of_secrets_has_owners() {
    let server = server().await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}, "stringData": {"user": "x"}});
    let path = |manager: &str| format!("/api/v1/namespaces/default/secrets/one?fieldManager={manager}");
    for _ in 0..2 {
        let (_, applied) = send(&server, "PATCH", &path("m"), APPLY, &secret).await;
        assert_eq!(applied["data"], json!({"user": "eA=="}));
        assert_eq!(
            entry(&applied, "m").expect("an entry")["fieldsV1"],
            json!({"f:stringData": {"f:user": {}}})
        );
    }
    let (code, conflict) = send(&server, "PATCH", &path("other"), APPLY, &secret).await;
    assert_eq!((code, &conflict["details"]["causes"][0]["field"]), (409, &json!(".stringData.user")));
}

#[tokio::test]
async fn a_new_manager_of_unchanged_fields_has_no_time() {
    let server = server().await;
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let rbac = "rbac.authorization.k8s.io";
    let mut binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "one"},
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "x"}, "subjects": [{"kind": "User", "name": "u"}]});
    send(&server, "POST", bindings, JSON, &binding).await;
    // Subjects are atomic: those without defaults count as changed.
    let (_, applied) =
        send(&server, "PATCH", &format!("{bindings}/one?fieldManager=m&force=true"), APPLY, &binding).await;
    assert!(entry(&applied, "m").expect("an entry")["time"].is_string(), "{applied}");
    binding["subjects"][0]["apiGroup"] = rbac.into();
    let (_, applied) =
        send(&server, "PATCH", &format!("{bindings}/one?fieldManager=n"), APPLY, &binding).await;
    assert!(entry(&applied, "n").expect("an entry")["time"].is_null(), "{applied}");
}
