//! Managed fields of scales. The expected values are those of kube-apiserver 1.36.

use std::collections::BTreeMap;

use crate::support::client::Client;
use kopf_apiserver::{Server, ServerOptions, start};
use serde_json::{Value, json};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/one";
const THING: &str = "/apis/test.dev/v1/namespaces/default/things/one";

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

fn deployment(replicas: &Value) -> Value {
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "one"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}, "template": template}})
}

fn thing(spec: &Value) -> Value {
    json!({"apiVersion": "test.dev/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": spec})
}

fn scale(spec: &Value) -> Value {
    json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "one"}, "spec": spec})
}

/// A server with a deployment and a custom object, which the manager `first` has created with one replica.
async fn server() -> Server {
    let server = start(ServerOptions { tls: false, ..ServerOptions::default() }).await.expect("a server");
    let spec =
        json!({"type": "object", "properties": {"size": {"type": "integer"}, "note": {"type": "string"}}});
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.test.dev"},
        "spec": {"group": "test.dev", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"}, "versions": [{
            "name": "v1", "served": true, "storage": true,
            "subresources": {"scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}});
    server.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await.expect("created");
    for (path, object) in [(DEPLOYMENT, deployment(&json!(1))), (THING, thing(&json!({"size": 1})))] {
        let path = path.strip_suffix("/one").expect("a name");
        let (code, answer) =
            send(&server, "POST", &format!("{path}?fieldManager=first"), JSON, &object).await;
        assert_eq!(code, 201, "{answer}");
    }
    server
}

async fn apply(server: &Server, path: &str, query: &str, spec: &Value) -> (u16, Value) {
    send(server, "PATCH", &format!("{path}/scale?{query}"), APPLY, &scale(spec)).await
}

/// The managers of the number of replicas, with the subresource; those without a time end with a minus.
async fn owners(server: &Server, path: &str) -> Vec<String> {
    let (_, object) = send(server, "GET", path, JSON, &Value::Null).await;
    let list = object["metadata"]["managedFields"].as_array().expect("managed fields").clone();
    let owning = list.iter().filter(|entry| {
        let fields = &entry["fieldsV1"]["f:spec"];
        fields.get("f:replicas").or_else(|| fields.get("f:size")).is_some()
    });
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let shown = owning.map(|entry| {
        let sign = if entry.get("time").is_none() { "-" } else { "" };
        let parts = ["manager", "operation", "subresource"].map(|key| text(entry, key));
        format!("{}{sign}", parts.join("/"))
    });
    let mut shown: Vec<String> = shown.collect();
    shown.sort();
    shown
}

#[tokio::test]
async fn an_apply_to_a_scale_has_conflicts_with_the_managers_of_the_object() {
    for (path, field) in [(DEPLOYMENT, "replicas"), (THING, "size")] {
        let server = server().await;
        let (code, answer) = apply(&server, path, "fieldManager=second", &json!({"replicas": 2})).await;
        let expected =
            "Apply failed with 1 conflict: conflict with \"first\" using autoscaling/v1: .spec.replicas";
        assert_eq!((code, &answer["message"]), (409, &expected.into()));
        // The number does not change.
        let (code, answer) = apply(&server, path, "fieldManager=second", &json!({"replicas": 1})).await;
        assert_eq!((code, &answer["spec"]), (200, &json!({"replicas": 1})));
        assert_eq!(owners(&server, path).await, ["first/Update/-", "second/Apply/scale-"]);
        let config = if path == THING { thing(&json!({"size": 2})) } else { deployment(&json!(2)) };
        let (code, answer) =
            send(&server, "PATCH", &format!("{path}?fieldManager=third"), APPLY, &config).await;
        // The entry of the second write of a manager is read as that of the first one.
        let expected = format!(
            "Apply failed with 1 conflict: conflict with \"second\" with subresource \"scale\": .spec.{field}"
        );
        assert_eq!((code, &answer["message"]), (409, &expected.into()));
    }
}

#[tokio::test]
async fn a_forced_apply_to_a_scale_takes_the_number_of_replicas() {
    let server = server().await;
    let forced = "fieldManager=second&force=true";
    let (code, _) =
        apply(&server, DEPLOYMENT, &format!("{forced}&dryRun=All"), &json!({"replicas": 3})).await;
    assert_eq!((code, owners(&server, DEPLOYMENT).await), (200, vec!["first/Update/".to_owned()]));
    let (code, answer) = apply(&server, DEPLOYMENT, forced, &json!({"replicas": 3})).await;
    assert_eq!((code, &answer["spec"]), (200, &json!({"replicas": 3})));
    assert_eq!(owners(&server, DEPLOYMENT).await, ["second/Apply/scale-"]);
    // Nothing changes.
    let (_, again) = apply(&server, DEPLOYMENT, forced, &json!({"replicas": 3})).await;
    assert_eq!(again["metadata"]["resourceVersion"], answer["metadata"]["resourceVersion"]);
    // A number that is no longer applied is zero.
    let (code, answer) = send(&server, "PATCH", &format!("{DEPLOYMENT}/scale?{forced}"), APPLY, &{
        let mut config = scale(&Value::Null);
        config.as_object_mut().expect("a map").remove("spec");
        config
    })
    .await;
    assert_eq!((code, &answer["spec"]), (200, &json!({})));
    assert_eq!(owners(&server, DEPLOYMENT).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_scale_without_managers_belongs_to_the_clients_before_the_first_apply() {
    let server = server().await;
    let reset = json!({"metadata": {"managedFields": [{}]}});
    send(&server, "PATCH", DEPLOYMENT, MERGE, &reset).await;
    let (code, answer) = apply(&server, DEPLOYMENT, "fieldManager=second", &json!({"replicas": 2})).await;
    let expected = "Apply failed with 1 conflict: conflict with \"before-first-apply\" with subresource \"scale\" using autoscaling/v1: \
                    .spec.replicas";
    assert_eq!((code, &answer["message"]), (409, &expected.into()));
}

#[tokio::test]
async fn updates_of_a_scale_take_the_number_of_replicas_if_they_change_it() {
    for path in [DEPLOYMENT, THING] {
        let server = server().await;
        let put = async |manager: &str, replicas: u32| {
            let path = format!("{path}/scale?fieldManager={manager}");
            send(&server, "PUT", &path, JSON, &scale(&json!({"replicas": replicas}))).await.0
        };
        assert_eq!(
            (put("second", 2).await, owners(&server, path).await),
            (200, vec!["second/Update/scale-".to_owned()])
        );
        let patch = json!({"spec": {"replicas": 3}});
        let third = format!("{path}/scale?fieldManager=third");
        assert_eq!(send(&server, "PATCH", &third, MERGE, &patch).await.0, 200);
        assert_eq!(owners(&server, path).await, ["third/Update/scale-"]);
    }
}

/// The number moves to a separate entry of its manager, which the next write does not read.
#[tokio::test]
async fn an_update_of_a_scale_with_the_same_number_has_no_manager() {
    let server = server().await;
    let path = format!("{DEPLOYMENT}/scale?fieldManager=second");
    for (replicas, expected) in [(1, vec!["first/Update/-".to_owned()]), (2, vec![])] {
        let body = scale(&json!({"replicas": replicas}));
        assert_eq!(send(&server, "PUT", &path, JSON, &body).await.0, 200);
        assert_eq!(owners(&server, DEPLOYMENT).await, expected);
    }
}

#[tokio::test]
async fn a_changed_scale_of_a_custom_object_cannot_be_applied() {
    let server = server().await;
    let (code, answer) =
        apply(&server, THING, "fieldManager=second&force=true", &json!({"replicas": 2})).await;
    let expected = "failed to convert new object (/one; autoscaling/v1, Kind=Scale) to proper version: request to convert CR to an \
                    invalid group/version: autoscaling/v1";
    assert_eq!((code, &answer["message"]), (500, &expected.into()));
    send(&server, "PATCH", THING, MERGE, &json!({"metadata": {"managedFields": [{}]}})).await;
    let (code, answer) = apply(&server, THING, "fieldManager=second", &json!({"replicas": 1})).await;
    let expected = "failed to create manager for existing fields: failed to convert live object (/; autoscaling/v1, Kind=Scale) to \
                    proper version: request to convert CR to an invalid group/version: autoscaling/v1";
    assert_eq!((code, &answer["message"]), (500, &expected.into()));
    let patch = json!({"spec": {"replicas": 3}});
    assert_eq!(send(&server, "PATCH", &format!("{THING}/scale"), STRATEGIC, &patch).await.0, 415);
}

#[tokio::test]
async fn malformed_scales_are_rejected() {
    let server = server().await;
    let path = format!("{DEPLOYMENT}/scale?fieldManager=x&force=true");
    let rejected = async |method: &str, media: &str, body: &Value| {
        let (code, answer) = send(&server, method, &path, media, body).await;
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    };
    let (code, message) = rejected("PATCH", APPLY, &deployment(&json!(2))).await;
    assert_eq!((code, &*message), (400, "invalid object type: apps/v1, Kind=Deployment"));
    let (code, message) = rejected("PATCH", APPLY, &scale(&json!({"replicas": "x"}))).await;
    let expected = "failed to create typed patch object (/one; autoscaling/v1, Kind=Scale): .spec.replicas: expected numeric (int or \
                    float), got string";
    assert_eq!((code, &*message), (500, expected));
    let (code, message) = rejected("PATCH", APPLY, &scale(&json!({"replicas": -1}))).await;
    let expected = "Scale.autoscaling \"one\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0";
    assert_eq!((code, &*message), (422, expected));
    let strict = format!("{path}&fieldValidation=Strict");
    let (code, answer) = send(&server, "PUT", &strict, JSON, &scale(&json!({"size": 2}))).await;
    let expected = "Scale in version \"v1\" cannot be handled as a Scale: strict decoding error: unknown field \"spec.size\"";
    assert_eq!((code, &answer["message"]), (400, &expected.into()));
    let absent = "/apis/apps/v1/namespaces/default/deployments/absent/scale?fieldManager=x";
    let (code, answer) = send(&server, "PATCH", absent, APPLY, &scale(&json!({"replicas": 2}))).await;
    assert_eq!((code, &answer["message"]), (404, &"deployments.apps \"absent\" not found".into()));
}

#[tokio::test]
async fn updates_of_a_scale_without_a_manager_leave_it_without_one() {
    let server = server().await;
    let put = async |replicas: u32| {
        let path = format!("{DEPLOYMENT}/scale?fieldManager=second");
        let (code, answer) = send(&server, "PUT", &path, JSON, &scale(&json!({"replicas": replicas}))).await;
        (code, answer["spec"].clone())
    };
    // A number of zero is omitted.
    assert_eq!(put(0).await, (200, json!({})));
    assert_eq!(put(2).await, (200, json!({"replicas": 2})));
    assert_eq!(owners(&server, DEPLOYMENT).await, Vec::<String>::new());
}
