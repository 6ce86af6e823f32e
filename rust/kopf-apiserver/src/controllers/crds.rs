//! Deletion of CRDs.

use std::sync::Arc;

use serde_json::json;

use crate::api::delete_stored;
use crate::base::json::strings;
use crate::cluster::Cluster;
use crate::cluster::work_queue::WorkItem;
use crate::registry::crd::CLEANUP;
use crate::storage::object::Stored;

/// Deletes the custom resources of a CRD, then removes its finalizer.
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
        // Finalizers block some objects: retry.
        let tasks = cluster.tasks.clone();
        let (cluster, name) = (cluster.clone(), name.to_owned());
        tasks.spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            cluster.enqueue(WorkItem::CrdDeletion(name.into()));
        });
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
    use serde_json::json;

    use super::*;
    use crate::base::options::ServerOptions;

    #[test]
    fn a_crd_that_was_created_again_keeps_its_objects() {
        let cluster = Cluster::new(ServerOptions::default());
        let crds = cluster.builtin("apiextensions.k8s.io", "customresourcedefinitions").unwrap();
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.test.dev", "uid": "crd"},
            "spec": {"group": "test.dev", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true}]}});
        cluster.insert(&crds, crd).unwrap();
        let things = cluster.resource_of("test.dev/things").unwrap();
        let thing =
            json!({"apiVersion": "test.dev/v1", "kind": "Thing", "metadata": {"name": "a", "uid": "thing"}});
        cluster.insert(&things, thing).unwrap();
        finalize_crd(&cluster, "things.test.dev");
        assert!(cluster.get(&things, "", "a").is_some());
    }
}
