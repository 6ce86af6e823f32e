//! What is done behind the requests: garbage of owners, ends of namespaces and of declared kinds, simulated controllers.
//!
//! One task takes one piece of work after the other from a queue that writes fill; without writes it sleeps.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::cluster::Cluster;
use crate::kinds::Resource;
use crate::schema::{formats, strings};
use crate::store::Stored;
use crate::{controllers, crd};

/// One piece of work.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    /// An object with dependents is gone: its uid.
    Removed(Box<str>),
    /// A dependent is gone: its owner's uid.
    Owner(Box<str>),
    /// An object has new owners: do they exist?
    Owned(Arc<str>, Box<str>, Box<str>),
    /// An object was marked for deletion and may wait for its dependents.
    Deleting(Arc<str>, Box<str>, Box<str>),
    /// A namespace ends.
    Namespace(Box<str>),
    /// A declared kind ends.
    Definition(Box<str>),
    /// A controller has to look at an object.
    Control(Arc<str>, Box<str>, Box<str>),
    /// The same later, when time has passed.
    Pod(Box<str>, Box<str>),
}

/// The work that waits, in order. What waits already is not added again, so that the number of objects limits it.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    order: VecDeque<Work>,
    known: HashSet<Work>,
}

impl Queue {
    pub(crate) fn add(&self, work: Work) {
        let mut waiting = self.lock();
        if waiting.known.insert(work.clone()) {
            waiting.order.push_back(work);
            self.added.notify_one();
        }
    }
    pub(crate) fn try_next(&self) -> Option<Work> {
        let mut waiting = self.lock();
        let work = waiting.order.pop_front()?;
        waiting.known.remove(&work);
        Some(work)
    }
    async fn next(&self) -> Work {
        loop {
            match self.try_next() {
                Some(work) => return work,
                None => self.added.notified().await,
            }
        }
    }
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does the work of one server until it stops.
pub(crate) async fn run(cluster: Arc<Cluster>) {
    loop {
        let work = cluster.queue.next().await;
        carry_out(&cluster, work);
        // A long queue must not starve the requests.
        tokio::task::yield_now().await;
    }
}

/// Does one piece.
pub(crate) fn carry_out(cluster: &Arc<Cluster>, work: Work) {
    match work {
        Work::Removed(uid) => collect(cluster, &uid),
        Work::Owner(uid) => release_owner(cluster, &uid),
        Work::Owned(table, namespace, name) => check_owners(cluster, &table, &namespace, &name),
        Work::Deleting(table, namespace, name) => {
            wait_for_dependents(cluster, &table, &namespace, &name);
        }
        Work::Namespace(name) => end_namespace(cluster, &name),
        Work::Definition(name) => end_definition(cluster, &name),
        Work::Control(table, namespace, name) => controllers::look(cluster, &table, &namespace, &name),
        Work::Pod(namespace, name) => controllers::advance_pod(cluster, &namespace, &name),
    }
}

/// Deletes an object as a controller does: marked when finalizers hold it, else removed.
pub(crate) fn delete(cluster: &Cluster, resource: &Resource, object: &Stored, finalizer: Option<&str>) {
    for _ in 0..50 {
        let Some(old) =
            cluster.get(resource, &object.namespace, &object.name).filter(|o| o.uid == object.uid)
        else {
            return;
        };
        let mut value = old.value();
        let deleting = value.pointer("/metadata/deletionTimestamp").is_some();
        let mut finalizers = strings(value.pointer("/metadata/finalizers"));
        if let Some(finalizer) = finalizer.filter(|f| !finalizers.iter().any(|have| have == f)) {
            finalizers.push(finalizer.to_owned());
            value["metadata"]["finalizers"] = finalizers.clone().into();
        } else if deleting && !finalizers.is_empty() {
            return;
        }
        if finalizers.is_empty() {
            if cluster.remove(resource, &old, value).is_ok() {
                return;
            }
            continue;
        }
        if !deleting {
            value["metadata"]["deletionTimestamp"] = formats::now().into();
            value["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        }
        if let Ok(stored) = cluster.replace(resource, &old, value) {
            cluster.later(Work::Deleting(
                resource.store_key.clone(),
                stored.namespace.clone(),
                stored.name.clone(),
            ));
            return;
        }
    }
}

/// The owner is gone: dependents without another owner go too, others forget it.
fn collect(cluster: &Cluster, uid: &str) {
    for (table, object) in cluster.store.dependents(uid) {
        let Some(resource) = cluster.resource_of(&table) else { continue };
        if object.owners.iter().any(|owner| &**owner != uid && cluster.store.has(owner)) {
            drop_reference(cluster, &resource, &object, uid);
        } else {
            delete(cluster, &resource, &object, None);
        }
    }
}

fn drop_reference(cluster: &Cluster, resource: &Resource, object: &Stored, uid: &str) {
    cluster.edit(resource, &object.namespace, &object.name, |value| {
        let Some(owners) = value.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut)
        else {
            return false;
        };
        let before = owners.len();
        owners.retain(|o| o["uid"] != *uid);
        let changed = owners.len() != before;
        if owners.is_empty()
            && let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut)
        {
            meta.shift_remove("ownerReferences");
        }
        changed
    });
}

/// An object that names only owners which do not exist is garbage from the start.
fn check_owners(cluster: &Cluster, table: &str, namespace: &str, name: &str) {
    let Some(resource) = cluster.resource_of(table) else { return };
    let Some(object) = cluster.get(&resource, namespace, name) else { return };
    if object.owners.is_empty() {
        return;
    }
    if !object.owners.iter().any(|owner| cluster.store.has(owner)) {
        delete(cluster, &resource, &object, None);
    }
}

/// Foreground: dependents first. Orphan: dependents are let go.
fn wait_for_dependents(cluster: &Cluster, table: &str, namespace: &str, name: &str) {
    let Some(resource) = cluster.resource_of(table) else { return };
    let Some(object) = cluster.get(&resource, namespace, name) else { return };
    let value = object.value();
    if value.pointer("/metadata/deletionTimestamp").is_none() {
        return;
    }
    let finalizers = strings(value.pointer("/metadata/finalizers"));
    let has = |f: &str| finalizers.iter().any(|have| have == f);
    if has("orphan") {
        for (table, dependent) in cluster.store.dependents(&object.uid) {
            if let Some(resource) = cluster.resource_of(&table) {
                drop_reference(cluster, &resource, &dependent, &object.uid);
            }
        }
        release(cluster, &resource, &object, "orphan");
    } else if has("foregroundDeletion") {
        let blocking: Vec<_> = cluster
            .store
            .dependents(&object.uid)
            .into_iter()
            .filter(|(_, d)| {
                let owners =
                    d.value().pointer("/metadata/ownerReferences").and_then(Value::as_array).cloned();
                owners
                    .into_iter()
                    .flatten()
                    .any(|o| o["uid"] == *object.uid && o["blockOwnerDeletion"] == true)
            })
            .collect();
        let all = cluster.store.dependents(&object.uid);
        for (table, dependent) in &all {
            if let Some(resource) = cluster.resource_of(table) {
                delete(
                    cluster,
                    &resource,
                    dependent,
                    Some("foregroundDeletion").filter(|_| has_dependents(cluster, dependent)),
                );
            }
        }
        let left =
            blocking.iter().any(|(table, d)| cluster.store.get(table, &d.namespace, &d.name).is_some());
        if !left {
            release(cluster, &resource, &object, "foregroundDeletion");
        }
    }
}

fn has_dependents(cluster: &Cluster, object: &Stored) -> bool {
    cluster.store.has_dependents(&object.uid)
}

fn release(cluster: &Cluster, resource: &Resource, object: &Stored, finalizer: &str) {
    cluster.edit(resource, &object.namespace, &object.name, |value| {
        let mut left = strings(value.pointer("/metadata/finalizers"));
        left.retain(|f| f != finalizer);
        value["metadata"]["finalizers"] = left.into();
        true
    });
}

/// A dependent went: an owner that waits in the foreground may go now.
fn release_owner(cluster: &Cluster, uid: &str) {
    if cluster.store.has_dependents(uid) {
        return;
    }
    if let Some((table, owner)) = cluster.store.find(uid) {
        wait_for_dependents(cluster, &table, &owner.namespace, &owner.name);
    }
}

/// Empties a namespace and lets it go when nothing is left.
fn end_namespace(cluster: &Cluster, name: &str) {
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

/// Deletes a declared kind's objects, then lets the definition go.
fn end_definition(cluster: &Arc<Cluster>, name: &str) {
    let Some(definitions) = cluster.builtin("apiextensions.k8s.io", "customresourcedefinitions") else {
        return;
    };
    let registry = cluster.registry();
    let mut left = false;
    for resource in registry.all().filter(|r| r.custom.as_ref().is_some_and(|c| c.definition == name)) {
        for object in cluster.store.list(&resource.store_key, None).objects {
            delete(cluster, resource, &object, None);
        }
        left |= !cluster.store.list(&resource.store_key, None).objects.is_empty();
    }
    if left {
        // Finalizers hold some of them: look again when they may be gone.
        let (cluster, name) = (cluster.clone(), name.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            cluster.later(Work::Definition(name.into()));
        });
        return;
    }
    cluster.edit(&definitions, "", name, |value| {
        let mut finalizers = strings(value.pointer("/metadata/finalizers"));
        finalizers.retain(|f| f != crd::CLEANUP);
        value["metadata"]["finalizers"] = json!(finalizers);
        true
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_waits_is_not_added_again() {
        let queue = Queue::default();
        let work = |name: &str| Work::Namespace(name.into());
        for name in ["a", "b", "a"] {
            queue.add(work(name));
        }
        assert_eq!(queue.try_next(), Some(work("a")));
        // It is being done now: what happens meanwhile is looked at later.
        queue.add(work("a"));
        assert_eq!(
            [queue.try_next(), queue.try_next(), queue.try_next()],
            [Some(work("b")), Some(work("a")), None]
        );
    }
}
