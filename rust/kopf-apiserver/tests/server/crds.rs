//! Integration tests of CRDs: discovery of their groups, and what their changes do to objects and watches.

use kopf_apiserver::Server;
use serde_json::{Value, json};

use crate::running::{plain, wait_until};

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
