//! Garbage collector: dependents of deleted owners, and propagation policies.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::admission;
use crate::api::{delete_as, delete_stored};
use crate::apply::managed_fields;
use crate::base::background::BackgroundOperation;
use crate::base::clock;
use crate::base::json::{strings, text};
use crate::base::names::split_api_version;
use crate::base::user::User;
use crate::cluster::Cluster;
use crate::cluster::work_queue::WorkItem;
use crate::scheme::resources::Resource;
use crate::storage::object::Stored;

/// The delay after a rejected deletion. That of kube-controller-manager grows.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Collects the dependents of a deleted owner.
pub(super) fn collect_dependents(cluster: &Arc<Cluster>, uid: &str) {
    for (table, object) in cluster.store.dependents(uid) {
        if let Some(resource) = cluster.resource_of(&table) {
            collect(cluster, &resource, &object);
        }
    }
}

/// Deletes an object with owners, or only removes its references to some of them if another one keeps it.
fn collect(cluster: &Arc<Cluster>, resource: &Arc<Resource>, object: &Arc<Stored>) {
    if object.is_deleting || object.owners().is_empty() {
        return;
    }
    let value = object.value();
    let references = value.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let references = references.map_or(&[][..], Vec::as_slice);
    if has_impossible_owner(cluster, object, references) {
        return;
    }
    let owners: Vec<_> =
        references.iter().map(|it| (text(it, "/uid"), OwnerState::new(cluster, it, object))).collect();
    if owners.iter().any(|(_, state)| *state == OwnerState::Existing) {
        for (uid, _) in owners.iter().filter(|(_, state)| *state != OwnerState::Existing) {
            remove_owner_reference(cluster, resource, object, uid);
        }
        return;
    }
    let is_foreground = owners.iter().any(|(_, state)| *state == OwnerState::WaitingForDependents)
        && has_dependents(cluster, object);
    let mut object = Arc::clone(object);
    if is_foreground && is_in_circle(cluster, &object) {
        unblock_owners(cluster, resource, &object);
        let Some(latest) = cluster.get(resource, &object.namespace, &object.name) else { return };
        object = latest;
    }
    // The policy of an earlier request is kept.
    let propagation = match () {
        () if is_foreground => "Foreground",
        () if has_finalizer(&value, "orphan") => "Orphan",
        () if has_finalizer(&value, "foregroundDeletion") => "Foreground",
        () => "Background",
    };
    delete(cluster, resource, &object, propagation);
}

/// Deletes an object as kube-controller-manager does: by a request, which webhooks and policies can reject. Then it is tried again.
fn delete(cluster: &Arc<Cluster>, resource: &Arc<Resource>, object: &Arc<Stored>, propagation: &'static str) {
    if !admission::is_configured(cluster) {
        return delete_stored(cluster, resource, object, Some(propagation));
    }
    if !cluster.collecting().insert(object.uid.clone()) {
        return;
    }
    let (cluster, resource, object) = (cluster.clone(), resource.clone(), object.clone());
    let operation = BackgroundOperation::start();
    cluster.tasks.clone().spawn(async move {
        let deleted = delete_as(&user(), &cluster, &resource, &object, propagation).await;
        cluster.collecting().remove(&object.uid);
        drop(operation);
        if deleted.is_err() {
            clock::sleep(RETRY_DELAY).await;
            cluster.enqueue(WorkItem::OwnersChanged(
                resource.store_key.clone(),
                object.namespace.clone(),
                object.name.clone(),
            ));
        }
    });
}

/// The user of the garbage collector of kube-controller-manager.
fn user() -> User {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"];
    User {
        name: "system:serviceaccount:kube-system:generic-garbage-collector".to_owned(),
        groups: groups.map(str::to_owned).to_vec(),
        ..User::default()
    }
}

/// State of an owner, as its dependent sees it.
#[derive(Debug, PartialEq, Eq)]
enum OwnerState {
    /// It keeps the dependent.
    Existing,
    /// It is deleted in the foreground.
    WaitingForDependents,
    /// It does not exist, it is in another namespace, or it has another kind or name.
    Absent,
}

impl OwnerState {
    fn new(cluster: &Cluster, reference: &Value, dependent: &Stored) -> Self {
        let is_owner = |(table, owner): &(Arc<str>, Arc<Stored>)| {
            (owner.namespace.is_empty() || owner.namespace == dependent.namespace)
                && *owner.name == *text(reference, "/name")
                && resource_of_owner(cluster, reference).is_none_or(|resource| resource.store_key == *table)
        };
        let found = cluster.store.find_by_uid(text(reference, "/uid")).filter(is_owner);
        match found.map(|(_, owner)| owner) {
            None => Self::Absent,
            Some(owner) if is_waiting_for_dependents(&owner) => Self::WaitingForDependents,
            Some(_) => Self::Existing,
        }
    }
}

/// Whether a dependent of the object is deleted in the foreground, so that both would wait for each other. As in
/// kube-controller-manager, this may be true without a circle.
fn is_in_circle(cluster: &Cluster, object: &Stored) -> bool {
    let dependents = cluster.store.dependents(&object.uid);
    dependents.iter().any(|(_, dependent)| is_waiting_for_dependents(dependent))
}

fn is_waiting_for_dependents(object: &Stored) -> bool {
    object.is_deleting && has_finalizer(&object.value(), "foregroundDeletion")
}

/// Lets the owners of the object not wait for it.
fn unblock_owners(cluster: &Cluster, resource: &Resource, object: &Stored) {
    cluster.update(resource, &object.namespace, &object.name, |value| {
        let owners = value.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
        let mut is_changed = false;
        for owner in owners.into_iter().flatten().filter(|owner| owner["blockOwnerDeletion"] == true) {
            owner["blockOwnerDeletion"] = false.into();
            is_changed = true;
        }
        is_changed
    });
}

/// Whether an object without a namespace refers to an owner with a namespace. kube-controller-manager never collects it.
fn has_impossible_owner(cluster: &Cluster, object: &Stored, references: &[Value]) -> bool {
    let is_namespaced =
        |reference| resource_of_owner(cluster, reference).is_some_and(|owner| owner.namespaced);
    object.namespace.is_empty() && references.iter().any(is_namespaced)
}

/// The resource that an owner reference names; `None` if it is not served.
fn resource_of_owner(cluster: &Cluster, reference: &Value) -> Option<Arc<Resource>> {
    let (group, version) = split_api_version(text(reference, "/apiVersion"));
    cluster.registry().by_kind(group, version, text(reference, "/kind")).cloned()
}

fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    strings(object.pointer("/metadata/finalizers")).iter().any(|have| have == finalizer)
}

fn remove_owner_reference(cluster: &Cluster, resource: &Resource, object: &Stored, uid: &str) {
    cluster.update(resource, &object.namespace, &object.name, |value| {
        let Some(owners) = value.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut)
        else {
            return false;
        };
        let before = owners.len();
        owners.retain(|o| o["uid"] != *uid);
        if owners.len() == before {
            return false;
        }
        let was_the_last = owners.is_empty();
        if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            if was_the_last {
                meta.shift_remove("ownerReferences");
            }
            disown_reference(meta, uid, was_the_last);
        }
        true
    });
}

/// Removes an owner reference from the managed fields, or all of them.
fn disown_reference(meta: &mut Map<String, Value>, uid: &str, all: bool) {
    if !meta.contains_key("managedFields") {
        return;
    }
    let key = format!("k:{}", json!({"uid": uid}));
    let mut entries = managed_fields::read(meta);
    for entry in &mut entries {
        entry.set.retain(|path| {
            let mut elements = path.iter().map(|element| &**element);
            let is_reference =
                elements.next() == Some("f:metadata") && elements.next() == Some("f:ownerReferences");
            !(is_reference && (all || elements.next() == Some(key.as_str())))
        });
    }
    managed_fields::write(meta, entries);
}

/// Collects an object whose owners have changed.
pub(super) fn check_owners(cluster: &Arc<Cluster>, table: &str, namespace: &str, name: &str) {
    let Some(resource) = cluster.resource_of(table) else { return };
    if let Some(object) = cluster.get(&resource, namespace, name) {
        collect(cluster, &resource, &object);
    }
}

/// Handles the propagation policies `Foreground` (deletes dependents first) and `Orphan` (removes their references).
pub(super) fn wait_for_dependents(cluster: &Arc<Cluster>, table: &str, namespace: &str, name: &str) {
    let Some(resource) = cluster.resource_of(table) else { return };
    let Some(object) = cluster.get(&resource, namespace, name) else { return };
    let value = object.value();
    if value.pointer("/metadata/deletionTimestamp").is_none() {
        return;
    }
    if has_finalizer(&value, "orphan") {
        for (table, dependent) in cluster.store.dependents(&object.uid) {
            if let Some(resource) = cluster.resource_of(&table) {
                remove_owner_reference(cluster, &resource, &dependent, &object.uid);
            }
        }
        remove_finalizer(cluster, &resource, &object, "orphan");
    } else if has_finalizer(&value, "foregroundDeletion") {
        collect_dependents(cluster, &object.uid);
        if !cluster.store.is_blocked(&object.uid) {
            remove_finalizer(cluster, &resource, &object, "foregroundDeletion");
        }
    }
}

fn has_dependents(cluster: &Cluster, object: &Stored) -> bool {
    cluster.store.has_dependents(&object.uid)
}

fn remove_finalizer(cluster: &Cluster, resource: &Resource, object: &Stored, finalizer: &str) {
    cluster.update(resource, &object.namespace, &object.name, |value| {
        let mut remaining = strings(value.pointer("/metadata/finalizers"));
        remaining.retain(|f| f != finalizer);
        value["metadata"]["finalizers"] = remaining.into();
        true
    });
}

/// Rechecks an owner that waits for its dependents, after one was deleted or does not block the owner any more.
pub(super) fn recheck_owner(cluster: &Arc<Cluster>, uid: &str) {
    if cluster.store.is_blocked(uid) {
        return;
    }
    if let Some((table, owner)) = cluster.store.find_by_uid(uid) {
        wait_for_dependents(cluster, &table, &owner.namespace, &owner.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::options::ServerOptions;
    use crate::controllers::process;
    use crate::storage::object::READS_OF_OWNERS;

    fn process_all(cluster: &Arc<Cluster>) {
        while let Some(work) = cluster.queue.try_next() {
            process(cluster, work);
        }
    }

    /// How often the owners of objects are read until an owner with so many dependents is deleted with all of them.
    fn reads_for_deletion(dependents: usize, propagation: &'static str) -> usize {
        let cluster = Cluster::new(ServerOptions::default());
        let maps = cluster.builtin("", "configmaps").unwrap();
        let object = |name: &str, uid: &str, owners: Value| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"namespace": "default", "name": name, "uid": uid, "ownerReferences": owners},
            })
        };
        let owner = cluster.insert(&maps, object("owner", "owner", json!([]))).unwrap();
        for number in 0..dependents {
            let owners = json!([{
                "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "owner", "blockOwnerDeletion": true,
            }]);
            let name = format!("owned-{number}");
            cluster.insert(&maps, object(&name, &name, owners)).unwrap();
        }
        process_all(&cluster);
        let before = READS_OF_OWNERS.get();
        delete(&cluster, &maps, &owner, propagation);
        process_all(&cluster);
        assert!(cluster.store.list(&maps.store_key, None).objects.is_empty());
        READS_OF_OWNERS.get() - before
    }

    #[test]
    fn the_cost_of_deletions_is_proportional_to_the_number_of_dependents() {
        for propagation in ["Background", "Foreground"] {
            let [few, many] = [100, 1_000].map(|dependents| reads_for_deletion(dependents, propagation));
            assert!(few >= 100, "the reads are counted: {few}");
            assert!(many <= 11 * few, "{propagation}: {few} reads for 100 dependents, {many} for 1,000");
        }
    }

    #[test]
    fn a_removed_reference_has_no_managers() {
        let references = json!({".": {}, "k:{\"uid\":\"a\"}": {}, "k:{\"uid\":\"b\"}": {}});
        let entry = |manager: &str, fields: Value| {
            json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": "10", "fieldsType": "FieldsV1",
                "fieldsV1": fields})
        };
        let only = entry("only", json!({"f:metadata": {"f:ownerReferences": references}}));
        let both = entry("both", json!({"f:data": {}, "f:metadata": {"f:ownerReferences": references}}));
        let mut meta = Map::new();
        meta.insert("managedFields".into(), json!([both, only]));

        disown_reference(&mut meta, "a", false);
        let rest = json!({".": {}, "k:{\"uid\":\"b\"}": {}});
        assert_eq!(meta["managedFields"][1]["fieldsV1"], json!({"f:metadata": {"f:ownerReferences": rest}}));
        disown_reference(&mut meta, "b", true);
        assert_eq!(meta["managedFields"], json!([entry("both", json!({"f:data": {}}))]));
    }
}
