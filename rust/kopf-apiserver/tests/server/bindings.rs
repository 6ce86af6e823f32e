//! Bindings and evictions of pods, and tokens of service accounts. The expected values are those of kube-apiserver 1.36.

use kopf_apiserver::{Server, ServerOptions, start};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

async fn server_with_pod(spec: &Value) -> Server {
    let server = start(ServerOptions { tls: false, ..ServerOptions::default() }).await.expect("a server");
    let mut pod = json!({"metadata": {"name": "one"}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    for (key, value) in spec.as_object().expect("a map") {
        pod["spec"][key] = value.clone();
    }
    server.create(PODS, &pod).await.expect("created");
    server
}

fn binding(node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "one", "annotations": {"x": "y"}},
        "target": {"kind": "Node", "name": node}})
}

/// The error of a binding or an eviction; empty if there is none.
async fn bind(server: &Server, path: &str, body: &Value) -> String {
    match server.create(path, body).await {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_bound_pod_is_scheduled_once() {
    for path in [format!("{PODS}/one/binding"), "/api/v1/namespaces/default/bindings".to_owned()] {
        let server = server_with_pod(&json!({})).await;
        assert_eq!(bind(&server, &format!("{path}?dryRun=All"), &binding("first")).await, "");
        assert_eq!(bind(&server, &path, &binding("second")).await, "");
        let pod = server.get(&format!("{PODS}/one")).await.expect("found");
        assert_eq!(pod["spec"]["nodeName"], "second");
        assert_eq!(pod["metadata"]["annotations"], json!({"x": "y"}));
        let condition = &pod["status"]["conditions"][0];
        assert_eq!((&condition["type"], &condition["status"]), (&"PodScheduled".into(), &"True".into()));
        let error = bind(&server, &path, &binding("third")).await;
        let expected = "Operation cannot be fulfilled on pods/binding \"one\": pod one is already assigned to node \"second\"";
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn bindings_are_checked() {
    let server = server_with_pod(&json!({"schedulingGates": [{"name": "test.dev/gate"}]})).await;
    let path = format!("{PODS}/one/binding");
    let mut other = binding("node");
    other["metadata"]["name"] = "other".into();
    for (binding, expected) in [
        (binding("node"), "pod one has non-empty .spec.schedulingGates"),
        (binding(""), "target.name: Required value"),
        (other, "name in URL does not match name in Binding object"),
    ] {
        let error = bind(&server, &path, &binding).await;
        assert!(error.contains(expected), "{error}");
    }
    let mut absent = binding("node");
    absent["metadata"]["name"] = "absent".into();
    let error = bind(&server, &format!("{PODS}/absent/binding"), &absent).await;
    assert!(error.contains("pods \"absent\" not found"), "{error}");
}

/// `kubectl drain --dry-run=server` sends the options in the body.
#[tokio::test]
async fn a_dry_run_of_an_eviction_keeps_the_pod() {
    let server = server_with_pod(&json!({})).await;
    let path = format!("{PODS}/one/eviction");
    let eviction = |options: Value| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"}, "deleteOptions": options});
    for (path, options) in [
        (path.clone(), json!({"dryRun": ["All"]})),
        (format!("{path}?dryRun=All"), json!({"gracePeriodSeconds": 0})),
    ] {
        assert_eq!(bind(&server, &path, &eviction(options)).await, "");
    }
    let error = bind(&server, &path, &eviction(json!({"propagationPolicy": "Odd"}))).await;
    let expected = "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Odd\"";
    assert!(error.contains(expected), "{error}");
    server.get(&format!("{PODS}/one")).await.expect("found");
    assert_eq!(bind(&server, &path, &eviction(json!({}))).await, "");
    assert!(server.get(&format!("{PODS}/one")).await.is_err());
}

#[tokio::test]
async fn a_token_has_an_audience_and_a_duration() {
    let server = start(ServerOptions { tls: false, ..ServerOptions::default() }).await.expect("a server");
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    server.create(accounts, &json!({"metadata": {"name": "one"}})).await.expect("created");
    let path = format!("{accounts}/one/token");
    let request =
        |spec: Value| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let made = server.create(&path, &request(json!({}))).await.expect("a token");
    let expected = json!({"audiences": ["https://kubernetes.default.svc"], "expirationSeconds": 3600, "boundObjectRef": null});
    assert_eq!((&made["spec"], &made["metadata"]["name"]), (&expected, &"one".into()));
    let made = server
        .create(&path, &request(json!({"audiences": ["a"], "expirationSeconds": 7200})))
        .await
        .expect("a token");
    let time = |value: &Value| value.as_str().expect("a time").parse::<jiff::Timestamp>().expect("a time");
    let (begin, end) =
        (time(&made["metadata"]["creationTimestamp"]), time(&made["status"]["expirationTimestamp"]));
    assert_eq!((&made["spec"]["audiences"], end.as_second() - begin.as_second()), (&json!(["a"]), 7200));
    let error = bind(&server, &path, &request(json!({"expirationSeconds": 10}))).await;
    assert!(error.contains("may not specify a duration less than 10 minutes"), "{error}");
    let mut other = request(json!({}));
    other["metadata"] = json!({"name": "two"});
    let error = bind(&server, &path, &other).await;
    assert!(error.contains("must match the service account name if specified"), "{error}");
}
