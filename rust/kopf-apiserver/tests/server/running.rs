//! Integration tests of the server: watches, garbage collection, faults, webhooks, limits, and the handle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::client::{Answer, Client};
use crate::support::webhook::{Webhook, patched};
use kopf_apiserver::{Controllers, Fault, Injection, Server, ServerOptions, start};
use serde_json::{Value, json};

pub(crate) async fn plain() -> Server {
    start(ServerOptions { tls: false, ..ServerOptions::default() }).await.expect("a server")
}

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub(crate) fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

pub(crate) async fn send(server: &Server, method: &str, path: &str, media: &str, body: &Value) -> Answer {
    let client = Client::plain(server.port(), server.token());
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    headers.insert("authorization".into(), format!("Bearer {}", server.token()));
    headers.insert("content-type".into(), media.into());
    let text = if body.is_null() { String::new() } else { body.to_string() };
    client.send(method, path, &headers, &text).await
}

/// Polls until the response is as expected: background work has no notification.
pub(crate) async fn wait_until(
    server: &Server,
    path: &str,
    is_expected: impl Fn(&Result<Value, kopf_apiserver::ServerError>) -> bool,
) {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let found = server.get(path).await;
        if is_expected(&found) {
            return;
        }
        assert!(Instant::now() < deadline, "{path} stays {found:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until the server has logged this number of requests.
pub(crate) async fn wait_for_requests(server: &Server, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while server.request_log().entries().len() < count {
        assert!(Instant::now() < deadline, "there are no {count} requests");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) fn lines(answer: &Answer) -> Vec<Value> {
    answer.body.lines().map(|l| serde_json::from_str(l).expect("a line of a watch")).collect()
}

#[tokio::test]
async fn a_server_with_tls_starts_and_stops() {
    let server = start(ServerOptions::default()).await.expect("a server");
    assert!(server.kubeconfig_text().contains("certificate-authority-data"));
    let port = server.port();
    server.shutdown().await;
    assert!(tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err());
}

#[tokio::test]
async fn tokens_are_texts_in_the_kubeconfig() {
    let options = ServerOptions { tls: false, token: Some("123".to_owned()), ..ServerOptions::default() };
    let server = start(options).await.expect("a server");
    assert!(server.kubeconfig_text().contains("\n    token: \"123\"\n"));
}

#[tokio::test]
async fn a_watch_sends_all_events_after_its_version() {
    let server = plain().await;
    let from = server.resource_version();
    for i in 0..200 {
        server.create(MAPS, &map(&format!("m{i}"))).await.expect("created");
    }
    let path = format!("{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={from}");
    let answer = send(&server, "GET", &path, "", &Value::Null).await;
    let names: Vec<String> = lines(&answer)
        .iter()
        .map(|l| l["object"]["metadata"]["name"].as_str().unwrap_or_default().into())
        .collect();
    assert_eq!(names, (0..200).map(|i| format!("m{i}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_watch_sends_all_events_of_a_burst_in_order() {
    let server = Arc::new(plain().await);
    let from = server.resource_version();
    let path = format!("{MAPS}?watch=1&timeoutSeconds=2&resourceVersion={from}");
    let watching = tokio::spawn({
        let server = server.clone();
        async move { send(&server, "GET", &path, "", &Value::Null).await }
    });
    server.create(MAPS, &map("a")).await.expect("created");
    for i in 0..3_000 {
        let change = json!({"data": {"text": format!("{i}").repeat(20)}});
        server.execute("PATCH", &format!("{MAPS}/a"), Some(&change)).await.expect("patched");
        if i % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let events = lines(&watching.await.expect("an answer"));
    let versions: Vec<u64> = events
        .iter()
        .filter_map(|l| l["object"]["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()))
        .collect();
    assert_eq!(versions, (from + 1..=from + 3_001).collect::<Vec<_>>());
}

#[tokio::test]
async fn namespaces_with_a_common_prefix_have_separate_sorted_objects() {
    let server = plain().await;
    for scope in ["a", "a-b", "ab"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": scope}});
        server.create("/api/v1/namespaces", &namespace).await.expect("created");
        for name in ["x.y", "x", "x-y"] {
            let path = format!("/api/v1/namespaces/{scope}/configmaps");
            server.create(&path, &map(name)).await.expect("created");
        }
    }
    let names = async |path: &str| -> Vec<String> {
        let list = server.get(path).await.expect("a list");
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let namespace = |meta: &Value| format!("{}/{}", text(&meta["namespace"]), text(&meta["name"]));
        list["items"].as_array().into_iter().flatten().map(|item| namespace(&item["metadata"])).collect()
    };
    assert_eq!(names("/api/v1/namespaces/a/configmaps").await, ["a/x", "a/x-y", "a/x.y"]);
    let all = names("/api/v1/configmaps").await;
    let mut sorted = all.clone();
    sorted.sort_by_key(|it| {
        it.split_once('/').map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
    });
    assert_eq!(all, sorted);
    assert!(all.len() >= 9, "{all:?}");
}

#[tokio::test]
async fn a_watch_from_before_the_compaction_gets_410() {
    let server = plain().await;
    server.create(MAPS, &map("a")).await.expect("created");
    let from = server.resource_version();
    server.compact();
    let answer = send(
        &server,
        "GET",
        &format!("{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={from}"),
        "",
        &Value::Null,
    )
    .await;
    assert_eq!(lines(&answer)[0]["object"]["code"], 410);
}

#[tokio::test]
async fn an_object_that_leaves_the_selection_is_deleted_from_the_watch() {
    let server = plain().await;
    let mut labelled = map("a");
    labelled["metadata"]["labels"] = json!({"x": "1"});
    server.create(MAPS, &labelled).await.expect("created");
    let from = server.resource_version();
    server
        .call("PATCH", &format!("{MAPS}/a"), Some(&json!({"metadata": {"labels": {"x": "2"}}})))
        .await
        .expect("patched");
    let path = format!("{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={from}&labelSelector=x%3D1");
    let answer = send(&server, "GET", &path, "", &Value::Null).await;
    assert_eq!(lines(&answer)[0]["type"], "DELETED");
    // The previous state with the version of the change.
    let events = &lines(&answer)[0]["object"]["metadata"];
    assert_eq!(events["labels"], json!({"x": "1"}));
    assert_eq!(events["resourceVersion"], json!(server.resource_version().to_string()));
}

#[tokio::test]
async fn chunks_of_a_list_are_consistent() {
    let server = plain().await;
    for name in ["a", "b", "c"] {
        server.create(MAPS, &map(name)).await.expect("created");
    }
    let first = server.get(&format!("{MAPS}?limit=2")).await.expect("a page");
    server.call("DELETE", &format!("{MAPS}/c"), None).await.expect("deleted");
    server.create(MAPS, &map("d")).await.expect("created");
    let token = first["metadata"]["continue"].as_str().expect("more pages");
    let second = server.get(&format!("{MAPS}?limit=2&continue={token}")).await.expect("a page");
    assert_eq!(second["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(second["items"][0]["metadata"]["name"], "c");
}

#[tokio::test]
async fn dependents_are_deleted_after_their_owner() {
    let server = plain().await;
    let owner = server.create(MAPS, &map("owner")).await.expect("created");
    let mut child = map("child");
    child["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true}]);
    server.create(MAPS, &child).await.expect("created");
    server
        .call("DELETE", &format!("{MAPS}/owner?propagationPolicy=Foreground"), None)
        .await
        .expect("deleted");
    wait_until(&server, &format!("{MAPS}/child"), Result::is_err).await;
    wait_until(&server, &format!("{MAPS}/owner"), Result::is_err).await;
}

#[tokio::test]
async fn orphans_stay_without_owner_references() {
    let server = plain().await;
    let owner = server.create(MAPS, &map("owner")).await.expect("created");
    let mut child = map("child");
    child["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    server.create(MAPS, &child).await.expect("created");
    server.call("DELETE", &format!("{MAPS}/owner?propagationPolicy=Orphan"), None).await.expect("deleted");
    wait_until(&server, &format!("{MAPS}/owner"), Result::is_err).await;
    let child = server.get(&format!("{MAPS}/child")).await.expect("still there");
    assert_eq!(child["metadata"].get("ownerReferences"), None);
}

#[tokio::test]
async fn a_deleted_namespace_is_emptied() {
    let server = plain().await;
    server.create("/api/v1/namespaces", &json!({"metadata": {"name": "gone"}})).await.expect("created");
    server.create("/api/v1/namespaces/gone/configmaps", &map("a")).await.expect("created");
    server.call("DELETE", "/api/v1/namespaces/gone", None).await.expect("deleted");
    wait_until(&server, "/api/v1/namespaces/gone", Result::is_err).await;
}

fn crd() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.test.dev"},
        "spec": {"group": "test.dev", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
                {"name": "v1beta1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

#[tokio::test]
async fn a_crd_is_served_in_its_versions_until_its_deletion() {
    let server = plain().await;
    server.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd()).await.expect("declared");
    let thing = json!({"apiVersion": "test.dev/v1beta1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"x": 1}});
    server.create("/apis/test.dev/v1beta1/namespaces/default/things", &thing).await.expect("created");
    let seen = server.get("/apis/test.dev/v1/namespaces/default/things/t").await.expect("served");
    assert_eq!(seen["apiVersion"], "test.dev/v1");
    server
        .call("DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.test.dev", None)
        .await
        .expect("deleted");
    wait_until(&server, "/apis/test.dev/v1/namespaces/default/things", Result::is_err).await;
}

#[tokio::test]
async fn faults_are_injected_the_given_number_of_times() {
    let server = plain().await;
    server.faults().inject(Injection::always(Fault::TooManyRequests(3)).times(1).on_verb("list"));
    assert_eq!(send(&server, "GET", MAPS, "", &Value::Null).await.code, 429);
    assert_eq!(send(&server, "GET", MAPS, "", &Value::Null).await.code, 200);
    server.faults().inject(Injection::always(Fault::Reset).times(1).on_resource("configmaps"));
    assert_eq!(send(&server, "GET", MAPS, "", &Value::Null).await.code, 0);
    let codes: Vec<u16> = server.request_log().entries().iter().map(|e| e.code).collect();
    assert_eq!(codes, [429, 200, 0]);
}

#[tokio::test]
async fn a_cut_watch_ends_and_a_silenced_one_sends_nothing() {
    let server = std::sync::Arc::new(plain().await);
    let watching = {
        let server = server.clone();
        tokio::spawn(async move {
            send(&server, "GET", &format!("{MAPS}?watch=1&timeoutSeconds=9"), "", &Value::Null).await
        })
    };
    while server.request_log().entries().is_empty() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    server.faults().inject(Injection::always(Fault::Silence));
    server.create(MAPS, &map("unheard")).await.expect("created");
    server.faults().cut_watches("configmaps");
    let answer = watching.await.expect("an answer");
    assert_eq!((answer.code, answer.body.as_str()), (200, ""));
}

#[tokio::test]
async fn a_deployment_becomes_available() {
    let options = ServerOptions { tls: false, controllers: Controllers::all(), ..ServerOptions::default() };
    let server = start(options).await.expect("a server");
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let path = "/apis/apps/v1/namespaces/default/deployments";
    server.create(path, &deployment).await.expect("created");
    wait_until(&server, &format!("{path}/d"), |d| {
        d.as_ref().is_ok_and(|d| d["status"]["readyReplicas"] == 2)
    })
    .await;
    server.call("DELETE", &format!("{path}/d"), None).await.expect("deleted");
    wait_until(&server, "/api/v1/namespaces/default/pods", |l| {
        l.as_ref().is_ok_and(|l| l["items"] == json!([]))
    })
    .await;
}

#[tokio::test]
async fn a_job_completes() {
    let controllers = Controllers { jobs: true, pods: true, ..Controllers::default() };
    let server =
        start(ServerOptions { tls: false, controllers, ..ServerOptions::default() }).await.expect("a server");
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let path = "/apis/batch/v1/namespaces/default/jobs";
    server.create(path, &job).await.expect("created");
    wait_until(&server, &format!("{path}/j"), |j| j.as_ref().is_ok_and(|j| j["status"]["succeeded"] == 1))
        .await;
}

#[tokio::test]
async fn rbac_is_enforced_if_authorization_is_on() {
    let user = kopf_apiserver::User {
        name: "jane".into(),
        groups: vec!["system:authenticated".into()],
        ..Default::default()
    };
    let options = ServerOptions {
        tls: false,
        authorization: true,
        users: vec![("jane-token".into(), user)],
        ..ServerOptions::default()
    };
    let server = start(options).await.expect("a server");
    let client = Client::plain(server.port(), "jane-token");
    let headers: BTreeMap<String, String> =
        [("authorization".to_owned(), "Bearer jane-token".to_owned())].into();
    assert_eq!(client.send("GET", MAPS, &headers, "").await.code, 403);
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({"metadata": {"name": "reader"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]});
    server.create(&format!("{rbac}/roles"), &role).await.expect("created");
    let binding = json!({"metadata": {"name": "jane"}, "subjects": [{"kind": "User", "name": "jane"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}});
    server.create(&format!("{rbac}/rolebindings"), &binding).await.expect("created");
    assert_eq!(client.send("GET", MAPS, &headers, "").await.code, 200);
    assert_eq!(client.send("DELETE", &format!("{MAPS}/x"), &headers, "").await.code, 403);
}

#[tokio::test]
async fn a_service_account_without_a_namespace_is_in_that_of_the_binding() {
    let options = ServerOptions { tls: false, authorization: true, ..ServerOptions::default() };
    let server = start(options).await.expect("a server");
    let core = "/api/v1/namespaces/default";
    server
        .create(&format!("{core}/serviceaccounts"), &json!({"metadata": {"name": "op"}}))
        .await
        .expect("created");
    let token = server
        .create(&format!("{core}/serviceaccounts/op/token"), &json!({"spec": {}}))
        .await
        .expect("a token");
    let token = token["status"]["token"].as_str().expect("a token");
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({"metadata": {"name": "reader"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]});
    server.create(&format!("{rbac}/roles"), &role).await.expect("created");
    let binding = json!({"metadata": {"name": "op"}, "subjects": [{"kind": "ServiceAccount", "name": "op"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}});
    server.create(&format!("{rbac}/rolebindings"), &binding).await.expect("created");
    let client = Client::plain(server.port(), token);
    let headers: BTreeMap<String, String> = [("authorization".to_owned(), format!("Bearer {token}"))].into();
    assert_eq!(client.send("GET", MAPS, &headers, "").await.code, 200);
    let others = "/api/v1/namespaces/kube-public/configmaps";
    assert_eq!(client.send("GET", others, &headers, "").await.code, 403);
}

#[tokio::test]
async fn watches_have_any_timeout() {
    let server = std::sync::Arc::new(plain().await);
    let other = server.clone();
    let path = format!("{MAPS}?watch=1&timeoutSeconds={}", i64::MAX);
    let watching = tokio::spawn(async move { send(&other, "GET", &path, "", &Value::Null).await });
    wait_for_requests(&server, 1).await;
    server.faults().cut_watches("configmaps");
    assert_eq!(watching.await.expect("an answer").code, 200);
}

#[tokio::test]
async fn malformed_requests_get_a_status() {
    let server = plain().await;
    for body in ["{", "[", "null", "{\"metadata\": 5}", "{\"metadata\":{\"name\":[]}}"] {
        let client = Client::plain(server.port(), server.token());
        let headers: BTreeMap<String, String> = [
            ("authorization".to_owned(), format!("Bearer {}", server.token())),
            ("content-type".into(), "application/json".into()),
        ]
        .into();
        let answer = client.send("POST", MAPS, &headers, body).await;
        assert_eq!(answer.code, 400, "{body}: {answer:?}");
    }
}

/// A server with a webhook that labels objects, and denies names that start with `bad`.
async fn server_with_webhook() -> Server {
    let server = plain().await;
    let webhook = Webhook::start(|_, request| {
        let operation = request["operation"].as_str().unwrap_or_default();
        let mut response = if request["name"].as_str().is_some_and(|n| n.starts_with("bad")) {
            json!({"allowed": false, "status": {"message": "no bad names", "code": 418}})
        } else if operation == "DELETE" {
            json!({"allowed": true})
        } else {
            patched(&json!([{"op": "add", "path": "/data", "value": {"marked": "yes"}}]))
        };
        response["warnings"] = json!([format!("on \"{operation}\"")]);
        response
    });
    let hook = json!({"metadata": {"name": "hook"}, "webhooks": [{"name": "hook.test.dev", "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "clientConfig": webhook.await.client_config("/"),
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}]}]});
    server
        .create("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", &hook)
        .await
        .expect("created");
    server
}

#[tokio::test]
async fn warnings_of_webhooks_reach_the_client_for_all_verbs() {
    let server = server_with_webhook().await;
    let (json, merge, apply) =
        ("application/json", "application/merge-patch+json", "application/apply-patch+yaml");
    let (one, applied) = (format!("{MAPS}/one"), format!("{MAPS}/applied?fieldManager=m"));
    let requests = [
        ("POST", MAPS, json, map("one"), 201, "CREATE"),
        ("POST", MAPS, json, map("bad"), 418, "CREATE"),
        ("PUT", &one, json, map("one"), 200, "UPDATE"),
        ("PATCH", &one, merge, json!({"data": {"a": "b"}}), 200, "UPDATE"),
        ("PATCH", &applied, apply, map("applied"), 201, "CREATE"),
        ("PATCH", &applied, apply, map("applied"), 200, "UPDATE"),
        ("DELETE", &one, json, Value::Null, 200, "DELETE"),
        ("DELETE", MAPS, json, Value::Null, 200, "DELETE"),
    ];
    for (method, path, media, body, code, operation) in requests {
        let answer = send(&server, method, path, media, &body).await;
        let expected = format!("299 - \"on \\\"{operation}\\\"\"");
        assert_eq!((answer.code, answer.warnings), (code, vec![expected]), "{method} {path}");
    }
}

#[tokio::test]
async fn webhooks_mutate_and_deny() {
    let server = server_with_webhook().await;
    let made = server.create(MAPS, &map("good")).await.expect("created");
    assert_eq!(made["data"]["marked"], "yes");
    let rejected = server.create(MAPS, &map("bad")).await.expect_err("rejected").to_string();
    assert!(
        rejected.contains("(418)") && rejected.contains("denied the request: no bad names"),
        "{rejected}"
    );
}

const BOMBS: &str = "/apis/test.dev/v1/namespaces/default/bombs";

/// A server with a CRD that preserves unknown fields and has a rule.
async fn server_with_rule(rule: &str) -> Server {
    let server = plain().await;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
        "l": {"type": "array", "maxItems": 90, "items": {"type": "integer"}},
        "m": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "integer"}}}},
        "s": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}}},
        "x-kubernetes-validations": [{"rule": rule}]});
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "bombs.test.dev"}, "spec": {"group": "test.dev", "scope": "Namespaced",
            "names": {"plural": "bombs", "singular": "bomb", "kind": "Bomb"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    server.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await.expect("created");
    wait_until(&server, BOMBS, Result::is_ok).await;
    server
}

fn custom_resource(content: Value) -> Value {
    let mut custom_resource =
        json!({"apiVersion": "test.dev/v1", "kind": "Bomb", "metadata": {"name": "one"}});
    if let (Value::Object(custom_resource), Value::Object(content)) = (&mut custom_resource, content) {
        custom_resource.extend(content);
    }
    custom_resource
}

#[tokio::test]
async fn expensive_rules_are_cancelled_without_blocking_requests() {
    let server = server_with_rule("self.l.all(a, self.l.all(b, self.l.all(c, a + b + c >= 0)))").await;
    // The estimate for the longest list is below the limit of CRDs, but its cost is above the one of calls.
    let list = custom_resource(json!({"l": vec![1; 90]}));
    let mut creating = std::pin::pin!(server.create(BOMBS, &list));
    let first = async {
        // Meanwhile the creation continues in a thread.
        tokio::select! {
            biased;
            created = creating.as_mut() => Err(created),
            listed = server.get(MAPS) => Ok(listed),
        }
    };
    first.await.expect("another request is served first").expect("a list");
    let rejected = creating.await.expect_err("rejected").to_string();
    let why = "no further validation rules will be run due to call cost exceeds limit for rule";
    assert!(rejected.contains("(422)") && rejected.contains(why), "{rejected}");
}

#[tokio::test]
async fn patches_cannot_create_objects_that_cannot_be_deleted() {
    let server = server_with_rule("true").await;
    server.create(BOMBS, &custom_resource(json!({"a": 1}))).await.expect("created");
    let path = format!("{BOMBS}/one");
    let code_of = async |operations: Vec<Value>| {
        send(&server, "PATCH", &path, "application/json-patch+json", &operations.into()).await.code
    };
    let copies = (0..32).map(|i| json!({"op": "copy", "from": "", "path": format!("/c{i}")}));
    assert_eq!(code_of(copies.collect()).await, 422);
    let level = [
        json!({"op": "add", "path": "/b", "value": {}}),
        json!({"op": "move", "from": "/a", "path": "/b/c"}),
        json!({"op": "move", "from": "/b", "path": "/a"}),
    ];
    assert_eq!(code_of(vec![level.clone(); 140].concat()).await, 422);
    assert_eq!(code_of(vec![level.clone(); 100].concat()).await, 200);
    assert_eq!(code_of(vec![level; 100].concat()).await, 422);
    assert_eq!(send(&server, "DELETE", &path, "", &Value::Null).await.code, 200);
}

#[tokio::test]
async fn long_associative_lists_are_compared() {
    let server = server_with_rule("true").await;
    let numbers: Vec<u32> = (0..5_000).collect();
    let items: Vec<Value> = numbers.iter().map(|i| json!({"k": i})).collect();
    let mut long = custom_resource(json!({"s": numbers, "m": items}));
    server.create(BOMBS, &long).await.expect("created");
    long["s"][4_999] = 0.into();
    let path = format!("{BOMBS}/one");
    let rejected = server.call("PATCH", &path, Some(&long)).await.expect_err("rejected").to_string();
    assert!(rejected.contains("(422)") && rejected.contains("s[4999]: Duplicate value: 0"), "{rejected}");
    long["s"] = json!([]);
    long["m"] = json!([{"k": 7}, {"k": 8}, {"k": 7}]);
    let rejected = server.call("PATCH", &path, Some(&long)).await.expect_err("rejected").to_string();
    assert!(rejected.contains("m[2]: Duplicate value: {\"k\":7}"), "{rejected}");
}

#[tokio::test]
async fn a_watch_that_is_far_behind_catches_up() {
    let server = plain().await;
    let before = server.resource_version();
    for number in 0..8 {
        let mut large = map(&format!("large-{number}"));
        large["data"] = json!({"x": "x".repeat(500_000)});
        server.create(MAPS, &large).await.expect("created");
    }
    let mut chosen = map("chosen");
    chosen["metadata"]["labels"] = json!({"chosen": "yes"});
    server.create(MAPS, &chosen).await.expect("created");
    let path = |selector: &str| format!("{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={before}{selector}");
    let one = send(&server, "GET", &path("&labelSelector=chosen"), "", &Value::Null).await;
    assert_eq!(lines(&one).len(), 1);
    let all = send(&server, "GET", &path(""), "", &Value::Null).await;
    assert_eq!(lines(&all).len(), 9);
}

#[tokio::test]
async fn many_dependents_are_deleted_after_their_owner() {
    let server = plain().await;
    let owner = server.create(MAPS, &map("owner")).await.expect("created");
    for number in 0..1_000 {
        let mut dependent = map(&format!("owned-{number}"));
        dependent["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
        server.execute("POST", MAPS, Some(&dependent)).await.expect("created");
    }
    server.execute("DELETE", &format!("{MAPS}/owner"), None).await.expect("deleted");
    wait_until(&server, &format!("{MAPS}/owned-999"), Result::is_err).await;
    assert_eq!(server.get(MAPS).await.expect("a list")["items"], json!([]));
}

#[tokio::test]
async fn the_request_log_limits_the_size_of_bodies() {
    let server = plain().await;
    let mut large = map("large");
    large["data"] = json!({"x": "x".repeat(70_000)});
    for _ in 0..1_100 {
        send(&server, "POST", MAPS, "application/json", &large).await;
    }
    let entries = server.request_log().entries();
    assert_eq!(entries.len(), 1_024);
    assert_eq!(server.request_log().since(0).0, 1_100);
}
