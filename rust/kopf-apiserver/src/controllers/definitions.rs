//! CRDs.

use std::sync::Arc;

use serde_json::json;

use super::gc::delete;
use crate::base::json::strings;
use crate::cluster::Cluster;
use crate::cluster::work_queue::WorkItem;
use crate::registry::crd::CLEANUP;

/// Deletes a declared kind's objects, then lets the definition go.
pub(super) fn finalize_crd(cluster: &Arc<Cluster>, name: &str) {
    let Some(definitions) = cluster.builtin("apiextensions.k8s.io", "customresourcedefinitions") else {
        return;
    };
    let registry = cluster.registry();
    let mut remaining = false;
    for resource in registry.all().filter(|r| r.custom.as_ref().is_some_and(|c| c.definition == name)) {
        for object in cluster.store.list(&resource.store_key, None).objects {
            delete(cluster, resource, &object, None);
        }
        remaining |= !cluster.store.list(&resource.store_key, None).objects.is_empty();
    }
    if remaining {
        // Finalizers hold some of them: look again when they may be gone.
        let (cluster, name) = (cluster.clone(), name.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            cluster.enqueue(WorkItem::CrdDeletion(name.into()));
        });
        return;
    }
    cluster.update(&definitions, "", name, |value| {
        let mut finalizers = strings(value.pointer("/metadata/finalizers"));
        finalizers.retain(|f| f != CLEANUP);
        value["metadata"]["finalizers"] = json!(finalizers);
        true
    });
}
