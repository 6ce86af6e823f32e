//! Namespaces.

use serde_json::Value;

use super::gc::delete;
use crate::base::json::strings;
use crate::cluster::Cluster;
use crate::cluster::work_queue::Work;

/// Empties a namespace and lets it go when nothing is left.
pub(super) fn end_namespace(cluster: &Cluster, name: &str) {
    let Some(namespaces) = cluster.builtin("", "namespaces").filter(|_| cluster.options.namespace_lifecycle)
    else {
        return;
    };
    if !cluster.is_terminating(name) {
        return;
    }
    for (table, objects) in cluster.store.contents(name) {
        let Some(resource) = cluster.resource_of(&table) else { continue };
        for object in objects {
            delete(cluster, &resource, &object, None);
        }
    }
    if !cluster.store.contents(name).is_empty() {
        return;
    }
    let Some(old) = cluster.get(&namespaces, "", name) else { return };
    let mut value = old.value();
    let held = !strings(value.pointer("/metadata/finalizers")).is_empty();
    if let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
        let mut left = strings(spec.get("finalizers"));
        left.retain(|f| f != "kubernetes");
        if left.is_empty() {
            spec.shift_remove("finalizers")
        } else {
            spec.insert("finalizers".into(), left.clone().into())
        };
        let done = if left.is_empty() && !held {
            cluster.remove(&namespaces, &old, value)
        } else {
            cluster.replace(&namespaces, &old, value)
        };
        if done.is_err() {
            cluster.later(Work::Namespace(name.into()));
        }
    }
}
