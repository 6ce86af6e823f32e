//! Deletion of CRDs.

use std::sync::Arc;

use serde_json::json;

use crate::api::delete_stored;
use crate::base::json::strings;
use crate::cluster::Cluster;
use crate::registry::crd::CLEANUP;
use crate::storage::object::Stored;

/// Deletes the custom resources of a CRD, then removes its finalizer. If finalizers block some of them, the removal of each of them
/// enqueues the CRD again.
pub(super) fn finalize_crd(cluster: &Arc<Cluster>, name: &str) {
    let Some(crds) = cluster.builtin("apiextensions.k8s.io", "customresourcedefinitions") else {
        return;
    };
    // It may have been removed, and created again, since the item was queued.
    let is_terminating = |crd: &Stored| {
        crd.is_deleting && strings(crd.value().pointer("/metadata/finalizers")).iter().any(|f| f == CLEANUP)
    };
    if !cluster.get(&crds, "", name).is_some_and(|crd| is_terminating(&crd)) {
        return;
    }
    let registry = cluster.registry();
    let mut remaining = false;
    for resource in registry.all().filter(|r| r.custom.as_ref().is_some_and(|c| c.crd == name)) {
        for object in cluster.store.list(&resource.store_key, None).objects {
            delete_stored(cluster, resource, &object, None);
        }
        remaining |= !cluster.store.list(&resource.store_key, None).objects.is_empty();
    }
    if remaining {
        return;
    }
    cluster.update(&crds, "", name, |value| {
        let mut finalizers = strings(value.pointer("/metadata/finalizers"));
        finalizers.retain(|f| f != CLEANUP);
        value["metadata"]["finalizers"] = json!(finalizers);
        true
    });
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::base::options::ServerOptions;
    use crate::controllers::process;
    use crate::scheme::resources::Resource;

    fn process_all(cluster: &Arc<Cluster>) {
        while let Some(work) = cluster.queue.try_next() {
            process(cluster, work);
        }
    }

    fn cluster_with_things() -> (Arc<Cluster>, Arc<Resource>) {
        let cluster = Cluster::new(ServerOptions::default());
        let crds = cluster.builtin("apiextensions.k8s.io", "customresourcedefinitions").unwrap();
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.test.dev", "uid": "crd"},
            "spec": {"group": "test.dev", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true}]}});
        cluster.insert(&crds, crd).unwrap();
        (cluster, crds)
    }

    fn thing(cluster: &Arc<Cluster>, finalizers: &Value) -> Arc<Stored> {
        let things = cluster.resource_of("test.dev/things").unwrap();
        let thing = json!({"apiVersion": "test.dev/v1", "kind": "Thing",
            "metadata": {"name": "a", "uid": "thing", "finalizers": finalizers}});
        cluster.insert(&things, thing).unwrap()
    }

    #[test]
    fn a_crd_is_removed_with_the_last_object_that_a_finalizer_has_blocked() {
        let (cluster, crds) = cluster_with_things();
        thing(&cluster, &json!(["test.dev/x"]));
        cluster.update(&crds, "", "things.test.dev", |crd| {
            crd["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z".into();
            crd["metadata"]["finalizers"] = json!([CLEANUP]);
            true
        });
        finalize_crd(&cluster, "things.test.dev");
        process_all(&cluster);
        assert!(cluster.get(&crds, "", "things.test.dev").is_some());
        let things = cluster.resource_of("test.dev/things").unwrap();
        cluster.update(&things, "", "a", |thing| {
            thing["metadata"]["finalizers"] = json!([]);
            true
        });
        process_all(&cluster);
        assert!(cluster.get(&crds, "", "things.test.dev").is_none());
    }

    #[test]
    fn a_crd_that_was_created_again_keeps_its_objects() {
        let (cluster, _) = cluster_with_things();
        thing(&cluster, &json!([]));
        finalize_crd(&cluster, "things.test.dev");
        let things = cluster.resource_of("test.dev/things").unwrap();
        assert!(cluster.get(&things, "", "a").is_some());
    }
}
