//! Deletion of namespaces.

use serde_json::Value;

use crate::api::delete_stored;
use crate::base::json::strings;
use crate::cluster::Cluster;
use crate::cluster::work_queue::WorkItem;

/// Deletes the contents of a terminating namespace, then removes its finalizer.
pub(super) fn finalize_namespace(cluster: &Cluster, name: &str) {
    let Some(namespaces) = cluster.builtin("", "namespaces").filter(|_| cluster.options.namespace_lifecycle)
    else {
        return;
    };
    if !cluster.is_terminating(name) {
        return;
    }
    for (table, objects) in cluster.store.namespace_contents(name) {
        let Some(resource) = cluster.resource_of(&table) else { continue };
        for object in objects {
            delete_stored(cluster, &resource, &object, Some("Background"));
        }
    }
    if !cluster.store.namespace_contents(name).is_empty() {
        return;
    }
    let Some(old) = cluster.get(&namespaces, "", name) else { return };
    let mut value = old.value();
    let has_finalizers = !strings(value.pointer("/metadata/finalizers")).is_empty();
    if let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
        let mut remaining = strings(spec.get("finalizers"));
        remaining.retain(|f| f != "kubernetes");
        if remaining.is_empty() {
            spec.shift_remove("finalizers")
        } else {
            spec.insert("finalizers".into(), remaining.clone().into())
        };
        let result = if remaining.is_empty() && !has_finalizers {
            cluster.remove(&namespaces, &old, old.value())
        } else {
            cluster.replace(&namespaces, &old, value)
        };
        if result.is_err() {
            cluster.enqueue(WorkItem::NamespaceDeletion(name.into()));
        }
    }
}
