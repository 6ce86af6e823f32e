//! Deletion of CRDs.

use std::sync::Arc;

use serde_json::json;

use super::gc::delete;
use crate::base::json::strings;
use crate::cluster::Cluster;
use crate::cluster::work_queue::WorkItem;
use crate::registry::crd::CLEANUP;

/// Deletes the custom resources of a CRD, then removes its finalizer.
pub(super) fn finalize_crd(cluster: &Arc<Cluster>, name: &str) {
    let Some(crds) = cluster.builtin("apiextensions.k8s.io", "customresourcedefinitions") else {
        return;
    };
    let registry = cluster.registry();
    let mut remaining = false;
    for resource in registry.all().filter(|r| r.custom.as_ref().is_some_and(|c| c.crd == name)) {
        for object in cluster.store.list(&resource.store_key, None).objects {
            delete(cluster, resource, &object, None);
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
