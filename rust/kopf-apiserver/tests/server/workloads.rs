//! Integration tests of the simulated workload controllers.

use kopf_apiserver::{Controllers, ServerOptions, start};
use serde_json::{Value, json};

use crate::running::wait_until;

const PODS: &str = "/api/v1/namespaces/default/pods";
const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";

/// The names of the pods in a list.
fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().into_iter().flatten();
    items.filter_map(|pod| pod["metadata"]["name"].as_str()).collect()
}

#[tokio::test]
async fn pods_of_stateful_sets_have_the_lowest_numbers() {
    let options = ServerOptions { tls: false, controllers: Controllers::all(), ..ServerOptions::default() };
    let server = start(options).await.expect("a server");
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "x"},
        "spec": {"replicas": 11, "selector": {"matchLabels": {"a": "b"}}, "template": template, "serviceName": "s"}});
    server.create(SETS, &set).await.expect("created");
    wait_until(&server, &format!("{PODS}/x-10"), Result::is_ok).await;
    let first = server.get(&format!("{PODS}/x-0")).await.expect("a pod");
    server.call("DELETE", &format!("{PODS}/x-0?gracePeriodSeconds=0"), None).await.expect("deleted");
    wait_until(&server, &format!("{PODS}/x-0"), |found| {
        found.as_ref().is_ok_and(|pod| pod["metadata"]["uid"] != first["metadata"]["uid"])
    })
    .await;
    let change = json!({"spec": {"replicas": 3}});
    server.call("PATCH", &format!("{SETS}/x"), Some(&change)).await.expect("patched");
    wait_until(&server, PODS, |found| found.as_ref().is_ok_and(|list| names(list).len() <= 3)).await;
    let list = server.get(PODS).await.expect("a list");
    assert_eq!(names(&list), ["x-0", "x-1", "x-2"]);
}
