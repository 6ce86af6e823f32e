//! Integration tests of CRDs: discovery of their groups, and what their changes do to objects and watches.

use kopf_apiserver::Server;
use serde_json::{Value, json};

use crate::running::plain;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

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
