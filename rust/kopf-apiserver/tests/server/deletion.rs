//! Deletion of objects: namespaces, finalizers, and dependents of several owners.

use crate::running::{MAPS, lines, map, plain, send, wait_until};
use kopf_apiserver::Server;
use serde_json::{Value, json};

const GONE: &str = "/api/v1/namespaces/gone";

async fn patch(server: &Server, path: &str, change: &Value) {
    server.call("PATCH", path, Some(change)).await.expect("patched");
}

/// A configmap with a finalizer, and the given owners.
fn held(name: &str, owners: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "finalizers": ["test.dev/x"], "ownerReferences": owners}})
}

fn reference(owner: &Value) -> Value {
    json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true})
}

async fn is_deleting(server: &Server, path: &str) {
    wait_until(server, path, |found| {
        found.as_ref().is_ok_and(|object| object["metadata"].get("deletionTimestamp").is_some())
    })
    .await;
}

#[tokio::test]
async fn a_deleted_namespace_goes_with_its_last_finalizer() {
    let server = plain().await;
    let namespace = json!({"metadata": {"name": "gone", "finalizers": ["test.dev/x"]}});
    server.create("/api/v1/namespaces", &namespace).await.expect("created");
    server.call("DELETE", GONE, None).await.expect("deleted");
    wait_until(&server, GONE, |found| {
        found.as_ref().is_ok_and(|object| object["spec"].get("finalizers").is_none())
    })
    .await;
    patch(&server, GONE, &json!({"metadata": {"finalizers": null}})).await;
    assert!(server.get(GONE).await.is_err());
}

#[tokio::test]
async fn a_namespace_stays_for_its_contents_without_finalizers_of_its_own() {
    let server = plain().await;
    let namespace = json!({"metadata": {"name": "gone", "finalizers": ["test.dev/x"]}});
    server.create("/api/v1/namespaces", &namespace).await.expect("created");
    let maps = format!("{GONE}/configmaps");
    server.create(&maps, &held("a", &json!([]))).await.expect("created");
    server.call("DELETE", GONE, None).await.expect("deleted");
    is_deleting(&server, &format!("{maps}/a")).await;
    patch(&server, GONE, &json!({"metadata": {"finalizers": null}})).await;
    server.get(GONE).await.expect("it has contents");
    patch(&server, &format!("{maps}/a"), &json!({"metadata": {"finalizers": null}})).await;
    wait_until(&server, GONE, Result::is_err).await;
}

#[tokio::test]
async fn a_foreground_deletion_of_a_namespace_waits_for_its_contents() {
    let server = plain().await;
    server.create("/api/v1/namespaces", &json!({"metadata": {"name": "gone"}})).await.expect("created");
    let maps = format!("{GONE}/configmaps");
    server.create(&maps, &held("a", &json!([]))).await.expect("created");
    server.call("DELETE", &format!("{GONE}?propagationPolicy=Foreground"), None).await.expect("deleted");
    is_deleting(&server, &format!("{maps}/a")).await;
    wait_until(&server, GONE, |found| {
        found
            .as_ref()
            .is_ok_and(|object| object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty))
    })
    .await;
    patch(&server, &format!("{maps}/a"), &json!({"metadata": {"finalizers": null}})).await;
    wait_until(&server, GONE, Result::is_err).await;
}

#[tokio::test]
async fn a_namespace_with_an_owner_is_emptied_after_the_owner() {
    let server = plain().await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "owner"}});
    let owner = server.create(roles, &role).await.expect("created");
    let namespace = json!({"metadata": {"name": "gone", "ownerReferences": [reference(&owner)]}});
    server.create("/api/v1/namespaces", &namespace).await.expect("created");
    let maps = format!("{GONE}/configmaps");
    server.create(&maps, &held("a", &json!([]))).await.expect("created");
    server.call("DELETE", &format!("{roles}/owner"), None).await.expect("deleted");
    is_deleting(&server, &format!("{maps}/a")).await;
    assert_eq!(server.get(GONE).await.expect("it has contents")["status"]["phase"], "Terminating");
    patch(&server, &format!("{maps}/a"), &json!({"metadata": {"finalizers": null}})).await;
    wait_until(&server, GONE, Result::is_err).await;
}

#[tokio::test]
async fn a_foreground_deletion_spares_dependents_of_other_owners() {
    let server = plain().await;
    let a = server.create(MAPS, &map("a")).await.expect("created");
    let b = server.create(MAPS, &map("b")).await.expect("created");
    server.create(MAPS, &held("child", &json!([reference(&a), reference(&b)]))).await.expect("created");
    server.call("DELETE", &format!("{MAPS}/a?propagationPolicy=Foreground"), None).await.expect("deleted");
    wait_until(&server, &format!("{MAPS}/a"), Result::is_err).await;
    let child = server.get(&format!("{MAPS}/child")).await.expect("still there");
    assert_eq!(child["metadata"].get("deletionTimestamp"), None);
    assert_eq!(child["metadata"]["ownerReferences"], json!([reference(&b)]));
}

#[tokio::test]
async fn owners_in_other_namespaces_do_not_keep_an_object() {
    let server = plain().await;
    let owner = server.create(MAPS, &map("owner")).await.expect("created");
    let others = "/api/v1/namespaces/kube-public/configmaps";
    server.create(others, &held("child", &json!([reference(&owner)]))).await.expect("created");
    is_deleting(&server, &format!("{others}/child")).await;
}

#[tokio::test]
async fn owners_with_a_namespace_have_no_dependents_without_one() {
    let server = plain().await;
    let owner = server.create(MAPS, &map("owner")).await.expect("created");
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "child", "ownerReferences": [reference(&owner)]}});
    server.create(roles, &role).await.expect("created");
    server.create(MAPS, &held("sibling", &json!([reference(&owner)]))).await.expect("created");
    server.call("DELETE", &format!("{MAPS}/owner"), None).await.expect("deleted");
    // The dependents are deleted in the order of their tables.
    is_deleting(&server, &format!("{MAPS}/sibling")).await;
    server.get(&format!("{roles}/child")).await.expect("still there");
}

#[tokio::test]
async fn the_last_event_of_a_released_object_has_its_stored_state() {
    let server = plain().await;
    server.create(MAPS, &held("a", &json!([]))).await.expect("created");
    server.call("DELETE", &format!("{MAPS}/a"), None).await.expect("deleted");
    let from = server.resource_version();
    let change = json!({"metadata": {"finalizers": null, "labels": {"x": "1"}}});
    let answer = server.call("PATCH", &format!("{MAPS}/a"), Some(&change)).await.expect("patched");
    assert_eq!(answer["metadata"]["labels"], json!({"x": "1"}));
    let path = format!("{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={from}");
    let events = lines(&send(&server, "GET", &path, "", &Value::Null).await);
    assert_eq!(events[0]["type"], "DELETED");
    let meta = &events[0]["object"]["metadata"];
    assert_eq!(meta["finalizers"], json!(["test.dev/x"]));
    assert_eq!(meta.get("labels"), None);
    assert_eq!(meta["resourceVersion"], json!(server.resource_version().to_string()));
}

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A pod on a node, or on none, with the given owners.
fn pod(name: &str, node: Option<&str>, owners: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "ownerReferences": owners},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "any"}]}})
}

/// The seconds until a pod is due to be removed, and its grace period.
fn grace(pod: &Value, since: jiff::Timestamp) -> (i64, &Value) {
    let due: jiff::Timestamp =
        pod["metadata"]["deletionTimestamp"].as_str().expect("a time").parse().expect("a time");
    (due.as_second() - since.as_second(), &pod["metadata"]["deletionGracePeriodSeconds"])
}

#[tokio::test]
async fn a_pod_on_a_node_remains_for_its_grace_period_which_can_only_be_shortened() {
    let server = plain().await;
    server.create(PODS, &pod("a", Some("node"), &json!([]))).await.expect("created");
    let path = format!("{PODS}/a");
    let since = jiff::Timestamp::now();
    let first = server.call("DELETE", &path, None).await.expect("deleted");
    let (left, seconds) = grace(&first, since);
    assert!((30..35).contains(&left) && *seconds == 30, "{first}");
    for later in [json!({}), json!({"gracePeriodSeconds": 30}), json!({"gracePeriodSeconds": 60})] {
        let again = server.call("DELETE", &path, Some(&later)).await.expect("pending");
        assert_eq!(again["metadata"], first["metadata"], "{later}");
    }
    let shorter = json!({"gracePeriodSeconds": 5});
    let again = server.call("DELETE", &path, Some(&shorter)).await.expect("pending");
    assert_eq!(grace(&again, since), (left - 25, &json!(5)));
    // A pod does not go with the end of its grace period, but when the kubelet deletes it.
    let now = json!({"gracePeriodSeconds": 0});
    let last = server.call("DELETE", &path, Some(&now)).await.expect("deleted");
    assert_eq!(grace(&last, since), (left - 30, &json!(0)));
    assert!(server.get(&path).await.is_err());
}

#[tokio::test]
async fn pods_without_a_node_and_ended_ones_are_removed_at_once() {
    let server = plain().await;
    server.create(PODS, &pod("waiting", None, &json!([]))).await.expect("created");
    server.create(PODS, &pod("ended", Some("node"), &json!([]))).await.expect("created");
    patch(&server, &format!("{PODS}/ended/status"), &json!({"status": {"phase": "Succeeded"}})).await;
    for name in ["waiting", "ended"] {
        let path = format!("{PODS}/{name}?gracePeriodSeconds=60");
        server.call("DELETE", &path, None).await.expect("deleted");
        assert!(server.get(&format!("{PODS}/{name}")).await.is_err(), "{name}");
    }
    server.create(PODS, &pod("odd", Some("node"), &json!([]))).await.expect("created");
    let negative = json!({"gracePeriodSeconds": -7});
    let odd = server.call("DELETE", &format!("{PODS}/odd"), Some(&negative)).await.expect("pending");
    assert_eq!(odd["metadata"]["deletionGracePeriodSeconds"], 1);
}

#[tokio::test]
async fn pods_are_deleted_gracefully_with_their_owner_and_with_their_namespace() {
    let server = plain().await;
    let owner = server.create(MAPS, &map("owner")).await.expect("created");
    let dependent = pod("owned", Some("node"), &json!([reference(&owner)]));
    server.create(PODS, &dependent).await.expect("created");
    server.call("DELETE", &format!("{MAPS}/owner"), None).await.expect("deleted");
    is_deleting(&server, &format!("{PODS}/owned")).await;
    let found = server.get(&format!("{PODS}/owned")).await.expect("it is terminating");
    assert_eq!(found["metadata"]["deletionGracePeriodSeconds"], 30);

    server.create("/api/v1/namespaces", &json!({"metadata": {"name": "gone"}})).await.expect("created");
    let inside = format!("{GONE}/pods");
    server.create(&inside, &pod("a", Some("node"), &json!([]))).await.expect("created");
    server.create(&inside, &pod("b", None, &json!([]))).await.expect("created");
    server.call("DELETE", GONE, None).await.expect("deleted");
    is_deleting(&server, &format!("{inside}/a")).await;
    wait_until(&server, &format!("{inside}/b"), Result::is_err).await;
    server.get(GONE).await.expect("it has contents");
    let now = json!({"gracePeriodSeconds": 0});
    server.call("DELETE", &format!("{inside}/a"), Some(&now)).await.expect("deleted");
    wait_until(&server, GONE, Result::is_err).await;
}

#[tokio::test]
async fn a_foreground_deletion_waits_for_blocking_dependents_only() {
    let server = plain().await;
    let owner = server.create(MAPS, &map("owner")).await.expect("created");
    let mut free = reference(&owner);
    free["blockOwnerDeletion"] = false.into();
    server.create(MAPS, &held("free", &json!([free]))).await.expect("created");
    server.create(MAPS, &held("blocking", &json!([reference(&owner)]))).await.expect("created");
    server
        .call("DELETE", &format!("{MAPS}/owner?propagationPolicy=Foreground"), None)
        .await
        .expect("deleted");
    is_deleting(&server, &format!("{MAPS}/blocking")).await;
    server.get(&format!("{MAPS}/owner")).await.expect("it waits");
    patch(&server, &format!("{MAPS}/blocking"), &json!({"metadata": {"finalizers": null}})).await;
    wait_until(&server, &format!("{MAPS}/owner"), Result::is_err).await;
    server.get(&format!("{MAPS}/free")).await.expect("its finalizer holds it");
}

#[tokio::test]
async fn a_foreground_deletion_continues_when_a_dependent_does_not_block_any_more() {
    for references in [
        |_: &Value| Value::Null,
        |owner: &Value| {
            let mut free = reference(owner);
            free["blockOwnerDeletion"] = false.into();
            json!([free])
        },
    ] {
        let server = plain().await;
        let owner = server.create(MAPS, &map("owner")).await.expect("created");
        server.create(MAPS, &held("child", &json!([reference(&owner)]))).await.expect("created");
        server
            .call("DELETE", &format!("{MAPS}/owner?propagationPolicy=Foreground"), None)
            .await
            .expect("deleted");
        is_deleting(&server, &format!("{MAPS}/child")).await;
        server.get(&format!("{MAPS}/owner")).await.expect("it waits");
        let change = json!({"metadata": {"ownerReferences": references(&owner)}});
        patch(&server, &format!("{MAPS}/child"), &change).await;
        wait_until(&server, &format!("{MAPS}/owner"), Result::is_err).await;
    }
}

#[tokio::test]
async fn objects_that_own_each_other_do_not_wait_for_each_other() {
    let server = plain().await;
    let a = server.create(MAPS, &map("a")).await.expect("created");
    let mut child = map("b");
    child["metadata"]["ownerReferences"] = json!([reference(&a)]);
    let b = server.create(MAPS, &child).await.expect("created");
    patch(&server, &format!("{MAPS}/a"), &json!({"metadata": {"ownerReferences": [reference(&b)]}})).await;
    server.call("DELETE", &format!("{MAPS}/a?propagationPolicy=Foreground"), None).await.expect("deleted");
    wait_until(&server, &format!("{MAPS}/a"), Result::is_err).await;
    wait_until(&server, &format!("{MAPS}/b"), Result::is_err).await;
}

#[tokio::test]
async fn references_with_another_name_or_kind_keep_no_object() {
    let server = plain().await;
    let owner = server.create(MAPS, &map("owner")).await.expect("created");
    for (name, key, value) in [("other-name", "name", "other"), ("other-kind", "kind", "Secret")] {
        let mut reference = reference(&owner);
        reference[key] = value.into();
        let mut child = map(name);
        child["metadata"]["ownerReferences"] = json!([reference]);
        server.create(MAPS, &child).await.expect("created");
        wait_until(&server, &format!("{MAPS}/{name}"), Result::is_err).await;
    }
    server.get(&format!("{MAPS}/owner")).await.expect("still there");
}

#[tokio::test]
async fn no_custom_resources_are_created_while_their_crd_is_deleted() {
    let server = plain().await;
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let names = json!({"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"});
    let version = json!({"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object"}}});
    let crd = json!({"metadata": {"name": "things.test.dev"},
        "spec": {"group": "test.dev", "scope": "Namespaced", "names": names, "versions": [version]}});
    server.create(crds, &crd).await.expect("created");
    let things = "/apis/test.dev/v1/namespaces/default/things";
    wait_until(&server, things, Result::is_ok).await;
    let thing = |name: &str| {
        json!({"apiVersion": "test.dev/v1", "kind": "Thing",
            "metadata": {"name": name, "finalizers": ["test.dev/x"]}})
    };
    server.create(things, &thing("a")).await.expect("created");
    server.call("DELETE", &format!("{crds}/things.test.dev"), None).await.expect("deleted");
    let apply = format!("{things}/b?fieldManager=x");
    for (method, path, media) in
        [("POST", things, ""), ("PATCH", apply.as_str(), "application/apply-patch+yaml")]
    {
        let answer = send(&server, method, path, media, &thing("b")).await;
        let status: Value = serde_json::from_str(&answer.body).expect("a Status");
        assert_eq!((answer.code, &status["reason"]), (403, &json!("Forbidden")), "{method}");
        let text = "things.test.dev \"b\" is forbidden: create not allowed while custom resource definition is terminating";
        assert_eq!(status["message"], text);
        assert_eq!(status["details"], json!({"name": "b", "group": "test.dev", "kind": "things"}));
    }
    // Others are updated, so that their finalizers can be removed.
    patch(&server, &format!("{things}/a"), &json!({"metadata": {"finalizers": null}})).await;
    wait_until(&server, &format!("{crds}/things.test.dev"), Result::is_err).await;
}

/// The request has the preconditions of other updates.
#[tokio::test]
async fn a_finalize_request_is_about_one_version_of_the_namespace() {
    let server = plain().await;
    let namespace = json!({"metadata": {"name": "gone"}, "spec": {"finalizers": ["a/b"]}});
    let mut made = server.create("/api/v1/namespaces", &namespace).await.expect("created");
    made["spec"]["finalizers"] = json!([]);
    let path = format!("{GONE}/finalize");
    for (key, value) in [("resourceVersion", "1"), ("uid", "other")] {
        let mut other = made.clone();
        other["metadata"][key] = value.into();
        let error = server.call("PUT", &path, Some(&other)).await.expect_err("a conflict");
        assert!(error.to_string().contains("409"), "{error}");
    }
    let finalized = server.call("PUT", &path, Some(&made)).await.expect("finalized");
    assert_eq!(finalized["spec"].get("finalizers"), None);
    made["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
    server.call("PUT", &path, Some(&made)).await.expect("finalized");
}
