//! The peering of an operator while its CRD changes.

use serde_json::{Value, json};

use crate::fixture::{CRDS_PATH, Fixture, handler};

const PEERINGS: &str = "/apis/kopf.dev/v1/clusterkopfpeerings";

fn crd(subresources: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusterkopfpeerings.kopf.dev"},
        "spec": {
            "group": "kopf.dev", "scope": "Cluster",
            "names": {"plural": "clusterkopfpeerings", "singular": "clusterkopfpeering", "kind": "ClusterKopfPeering"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": subresources,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// The statuses of the responses to the operator's writes to this path.
fn written(fixture: &Fixture, path: &str) -> Vec<u16> {
    let log = fixture.server.request_log().entries();
    let of_operator = |method: &str, agent: &str| method == "PATCH" && agent == "engine-tests";
    let writes =
        log.iter().filter(|entry| of_operator(&entry.method, &entry.user_agent) && entry.path == path);
    writes.map(|entry| entry.code).collect()
}

#[tokio::test]
async fn a_peering_goes_on_when_its_resource_gets_a_status_subresource() {
    let mut fixture = Fixture::new().await;
    fixture.server.create(CRDS_PATH, &crd(&json!({}))).await.unwrap();
    let other = json!({"priority": 1, "lifetime": 100_000, "lastseen": fixture.clock.now().to_string()});
    let object = json!({
        "apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering", "metadata": {"name": "default"},
        "status": {"other": other},
    });
    while fixture.server.create(PEERINGS, &object).await.is_err() {
        fixture.settle().await;
    }
    let join = |settings: &mut kopf_core::settings::Settings| {
        settings.peering.standalone = false;
        settings.peering.clusterwide = true;
    };
    fixture.start(vec![handler("make", "create")], join).await;
    let path = format!("{PEERINGS}/default");
    fixture.until("the record", |fixture| written(fixture, &path) == [200]).await;
    fixture.create("one", json!({"x": 1})).await;
    fixture.settle().await;
    let extended = json!({"spec": crd(&json!({"status": {}}))["spec"]});
    let url = format!("{CRDS_PATH}/clusterkopfpeerings.kopf.dev");
    fixture.server.call("PATCH", &url, Some(&extended)).await.unwrap();
    let of_status = format!("{path}/status");
    fixture.pass_until("the record", 1.0, 60.0, |fixture| written(fixture, &of_status) == [200]).await;
    assert_eq!(fixture.host.called(0), 0, "it is paused all the time");
}
