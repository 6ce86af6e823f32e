//! Integration tests of injected faults, and of lists at earlier versions and by shards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::support::client::{Answer, Client};
use kopf_apiserver::{CutOffPoint, Fault, Injection, Server, ServerOptions, start};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn plain() -> Server {
    start(ServerOptions { tls: false, ..ServerOptions::default() }).await.expect("a server")
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

async fn send(server: &Server, method: &str, path: &str, body: &Value) -> Answer {
    let client = Client::plain(server.port(), server.token());
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    headers.insert("authorization".into(), format!("Bearer {}", server.token()));
    let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    headers.insert("content-type".into(), media.into());
    client.send(method, path, &headers, &if body.is_null() { String::new() } else { body.to_string() }).await
}

fn status(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).expect("a Status")
}

fn names(list: &Value) -> BTreeSet<String> {
    let items = list["items"].as_array().into_iter().flatten();
    items.filter_map(|i| i["metadata"]["name"].as_str()).map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn latency_delays_matching_requests() {
    let server = plain().await;
    server.faults().inject(Injection::always(Fault::Latency(Duration::from_secs(5))).on_verb("get"));
    let before = tokio::time::Instant::now();
    assert_eq!(send(&server, "GET", MAPS, &Value::Null).await.code, 200);
    assert!(before.elapsed() < Duration::from_secs(5));
    assert_eq!(send(&server, "GET", &format!("{MAPS}/none"), &Value::Null).await.code, 404);
    assert!(before.elapsed() >= Duration::from_secs(5));
}

#[tokio::test]
async fn faults_are_limited_to_a_client() {
    let server = plain().await;
    server.faults().inject(Injection::always(Fault::Code(503)).on_client("other"));
    assert_eq!(send(&server, "GET", MAPS, &Value::Null).await.code, 200);
    let client = Client::plain(server.port(), server.token());
    for (agent, expected) in [("kopf/1", 200), ("other/1.2", 503)] {
        let headers = BTreeMap::from([
            ("authorization".to_owned(), format!("Bearer {}", server.token())),
            ("user-agent".to_owned(), agent.to_owned()),
        ]);
        assert_eq!(client.send("GET", MAPS, &headers, "").await.code, expected, "{agent}");
    }
    server.faults().clear();
    server.faults().inject(Injection::always(Fault::Code(503)).on_client("admin"));
    assert_eq!(send(&server, "GET", MAPS, &Value::Null).await.code, 503);
}

#[tokio::test]
async fn requests_of_the_testing_kit_have_no_faults() {
    let server = plain().await;
    let client = Client::plain(server.port(), server.token());
    let list = async |agent: &str| {
        let headers = BTreeMap::from([
            ("authorization".to_owned(), format!("Bearer {}", server.token())),
            ("user-agent".to_owned(), agent.to_owned()),
        ]);
        client.send("GET", MAPS, &headers, "").await.code
    };
    server.faults().inject(Injection::always(Fault::Code(503)).times(1));
    assert_eq!(list("kopf-testing").await, 200);
    assert_eq!(list("kopf-testing/1").await, 503);
    assert_eq!(list("kopf-testing/1").await, 200);
    server.faults().inject(Injection::always(Fault::CutOff(CutOffPoint::BeforeRequest)).on_verb("list"));
    assert_eq!(list("kopf/1").await, 0);
    assert!(server.faults().is_cut_off());
    assert_eq!(list("kopf-testing").await, 200);
}

#[tokio::test]
async fn too_many_requests_have_retry_after() {
    let server = plain().await;
    server.faults().inject(Injection::always(Fault::TooManyRequests(7)).times(1));
    let response = send(&server, "GET", MAPS, &Value::Null).await;
    assert_eq!((response.code, status(&response)["details"]["retryAfterSeconds"].as_u64()), (429, Some(7)));
    assert_eq!(send(&server, "GET", MAPS, &Value::Null).await.code, 200);
}

#[tokio::test]
async fn status_codes_are_sent_without_handling_the_request() {
    let server = plain().await;
    server.faults().inject(Injection::always(Fault::Code(503)).on_resource("configmaps"));
    let response = send(&server, "POST", MAPS, &map("m")).await;
    assert_eq!((response.code, status(&response)["kind"].as_str()), (503, Some("Status")));
    assert_eq!(send(&server, "GET", "/api/v1/secrets", &Value::Null).await.code, 200);
    server.faults().clear();
    assert_eq!(send(&server, "GET", &format!("{MAPS}/m"), &Value::Null).await.code, 404);
}

#[tokio::test]
async fn resets_close_the_connection() {
    let server = plain().await;
    server.faults().inject(Injection::always(Fault::Reset).on_verb("create").times(1));
    assert_eq!(send(&server, "POST", MAPS, &map("m")).await.code, 0);
    assert_eq!(send(&server, "POST", MAPS, &map("m")).await.code, 201);
    let codes: Vec<u16> = server.request_log().entries().iter().map(|e| e.code).collect();
    assert_eq!(codes, [0, 201]);
}

#[tokio::test]
async fn a_request_with_a_lost_response_is_handled() {
    let server = plain().await;
    server.faults().inject(Injection::always(Fault::Lost).on_verb("create").times(1).after(1));
    assert_eq!(send(&server, "POST", MAPS, &map("spared")).await.code, 201);
    assert_eq!(send(&server, "POST", MAPS, &map("m")).await.code, 0);
    assert_eq!(send(&server, "GET", &format!("{MAPS}/m"), &Value::Null).await.code, 200);
}

#[tokio::test]
async fn a_cut_off_server_is_unreachable_until_the_faults_are_cleared() {
    for (done, code) in [(CutOffPoint::BeforeRequest, 404), (CutOffPoint::AfterRequest, 200)] {
        let server = plain().await;
        server.faults().inject(Injection::always(Fault::CutOff(done)).on_verb("create").times(1));
        assert!(!server.faults().is_cut_off());
        assert_eq!(send(&server, "POST", MAPS, &map("m")).await.code, 0);
        assert!(server.faults().is_cut_off());
        assert_eq!(send(&server, "GET", MAPS, &Value::Null).await.code, 0);
        server.faults().clear();
        assert_eq!(send(&server, "GET", &format!("{MAPS}/m"), &Value::Null).await.code, code);
    }
}

#[tokio::test]
async fn conflicts_are_for_writes_only() {
    let server = plain().await;
    server.create(MAPS, &map("m")).await.expect("created");
    server.faults().inject(Injection::always(Fault::Conflict));
    let response = send(&server, "PATCH", &format!("{MAPS}/m"), &json!({"data": {"a": "b"}})).await;
    assert_eq!((response.code, status(&response)["reason"].as_str()), (409, Some("Conflict")));
    assert_eq!(send(&server, "GET", &format!("{MAPS}/m"), &Value::Null).await.code, 200);
}

#[tokio::test]
async fn gone_is_for_lists_and_watches_only() {
    let server = plain().await;
    server.create(MAPS, &map("m")).await.expect("created");
    server.faults().inject(Injection::always(Fault::Gone).times(2));
    let response = send(&server, "GET", MAPS, &Value::Null).await;
    assert_eq!((response.code, status(&response)["reason"].as_str()), (410, Some("Expired")));
    assert_eq!(send(&server, "GET", &format!("{MAPS}/m"), &Value::Null).await.code, 200);
    assert_eq!(
        send(&server, "GET", &format!("{MAPS}?watch=1&resourceVersion=1"), &Value::Null).await.code,
        410
    );
}

#[tokio::test]
async fn stale_lists_show_an_earlier_state() {
    let server = plain().await;
    server.create(MAPS, &map("old")).await.expect("created");
    let then = server.resource_version();
    server.create(MAPS, &map("new")).await.expect("created");
    server.call("DELETE", &format!("{MAPS}/old"), None).await.expect("deleted");
    server.faults().inject(Injection::always(Fault::Stale(then)).on_resource("configmaps"));
    let stale = status(&send(&server, "GET", MAPS, &Value::Null).await);
    assert_eq!(names(&stale), BTreeSet::from(["old".to_owned()]));
    assert_eq!(stale["metadata"]["resourceVersion"], then.to_string());
    server.faults().clear();
    let fresh = status(&send(&server, "GET", MAPS, &Value::Null).await);
    assert_eq!(names(&fresh), BTreeSet::from(["new".to_owned()]));
}

#[tokio::test]
async fn version_matches_are_exact_or_not_older() {
    let server = plain().await;
    server.create(MAPS, &map("old")).await.expect("created");
    let then = server.resource_version();
    server.create(MAPS, &map("new")).await.expect("created");
    let at = |how: &str| format!("{MAPS}?resourceVersion={then}&resourceVersionMatch={how}");
    let exact = server.get(&at("Exact")).await.expect("a list");
    assert_eq!(names(&exact), BTreeSet::from(["old".to_owned()]));
    let newer = server.get(&at("NotOlderThan")).await.expect("a list");
    assert_eq!(names(&newer).len(), 2);
    server.compact();
    let gone = server.get(&at("Exact")).await.expect_err("gone").to_string();
    assert!(gone.contains("(410)"), "{gone}");
}

#[tokio::test]
async fn expired_lists_continue_with_a_new_token() {
    let server = plain().await;
    for name in ["a", "b", "c"] {
        server.create(MAPS, &map(name)).await.expect("created");
    }
    let token = |list: &Value| list["metadata"]["continue"].as_str().expect("a token").to_owned();
    let at = |token: &str| format!("{MAPS}?limit=2&continue={token}");
    let first = server.get(&format!("{MAPS}?limit=1")).await.expect("a page");
    server.create(MAPS, &map("aa")).await.expect("created");
    server.compact();
    let expired = send(&server, "GET", &at(&token(&first)), &Value::Null).await;
    assert_eq!((expired.code, status(&expired)["reason"].as_str()), (410, Some("Expired")));
    let second = server.get(&at(&token(&status(&expired)))).await.expect("a page");
    assert_eq!(names(&second), BTreeSet::from(["aa".to_owned(), "b".to_owned()]));
    let third = server.get(&at(&token(&second))).await.expect("a page");
    assert_eq!(names(&third), BTreeSet::from(["c".to_owned()]));
}

#[tokio::test]
async fn shards_are_disjoint_and_complete() {
    let server = start(ServerOptions { tls: false, sharding: true, ..ServerOptions::default() })
        .await
        .expect("a server");
    let all: BTreeSet<String> = (0..40).map(|i| format!("m{i}")).collect();
    for name in &all {
        server.create(MAPS, &map(name)).await.expect("created");
    }
    let shard = |from: &str, to: &str| {
        format!("{MAPS}?shardSelector=shardRange(object.metadata.uid,'{from}','{to}')")
    };
    let half = "0x8000000000000000";
    let list = server.get(&shard("0x0000000000000000", half)).await.expect("a list");
    let selector = format!("shardRange(object.metadata.uid,'0x0000000000000000','{half}')");
    assert_eq!(list["metadata"]["shardInfo"]["selector"], selector);
    let left = names(&list);
    let right = names(&server.get(&shard(half, "0x10000000000000000")).await.expect("a list"));
    assert!(!left.is_empty() && !right.is_empty());
    assert!(left.is_disjoint(&right));
    assert_eq!(left.union(&right).cloned().collect::<BTreeSet<_>>(), all);
    let rejected = server.get(&format!("{MAPS}?shardSelector=half")).await.expect_err("rejected").to_string();
    assert!(rejected.contains("shardSelector"), "{rejected}");
    // Without the option, the selector is ignored.
    let other = plain().await;
    other.create(MAPS, &map("m")).await.expect("created");
    assert_eq!(
        names(&other.get(&shard("0x0000000000000000", "0x0000000000000001")).await.expect("a list")).len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silenced_watch_ends_when_its_resource_is_no_longer_served() {
    let server = Arc::new(plain().await);
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.test.dev"},
        "spec": {"group": "test.dev", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    server.create(crds, &crd).await.expect("created");
    let watching = {
        let server = Arc::clone(&server);
        let path = "/apis/test.dev/v1/things?watch=1&timeoutSeconds=600";
        tokio::spawn(async move { send(&server, "GET", path, &Value::Null).await })
    };
    while server.request_log().entries().is_empty() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    server.faults().inject(Injection::always(Fault::Silence));
    server.execute("DELETE", &format!("{crds}/things.test.dev"), None).await.expect("deleted");
    let answer = tokio::time::timeout(Duration::from_mins(1), watching).await.expect("the watch ends");
    assert_eq!(answer.expect("an answer").code, 200);
}

#[tokio::test]
async fn requests_that_a_fault_cannot_affect_are_not_counted() {
    let server = plain().await;
    server.faults().inject(Injection::always(Fault::Conflict).after(1).times(1));
    for name in ["a", "b"] {
        assert_eq!(send(&server, "GET", MAPS, &Value::Null).await.code, 200);
        let expected = if name == "a" { 201 } else { 409 };
        assert_eq!(send(&server, "POST", MAPS, &map(name)).await.code, expected, "{name}");
    }
}

#[tokio::test]
async fn versions_with_faults_are_stale_in_the_aggregated_document() {
    let server = plain().await;
    let apps = Injection::always(Fault::Code(503)).on_resource("apps/v1").times(1);
    server.faults().inject(apps.on_client("kopf/"));
    let client = Client::plain(server.port(), server.token());
    let stale = async |agent: &str| {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let headers = [("accept", accept), ("user-agent", agent)];
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let token = ("authorization".to_owned(), format!("Bearer {}", server.token()));
        let found = client.send("GET", "/apis", &headers.chain([token]).collect(), "").await;
        let found: Value = serde_json::from_str(&found.body).expect("a document");
        let groups = found["items"].as_array().expect("groups").iter();
        let has_stale = |group: &&Value| group["versions"][0]["freshness"] == "Stale";
        groups.filter(has_stale).map(|group| group["metadata"]["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(stale("other/1").await, Vec::<Value>::new());
    for _ in 0..2 {
        assert_eq!(stale("kopf/1").await, ["apps"], "it takes no fault");
    }
    server.faults().clear();
    assert_eq!(stale("kopf/1").await, Vec::<Value>::new());
}
