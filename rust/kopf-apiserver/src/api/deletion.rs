//! The deletion of a stored object: by a request, after its admission, or by a controller.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::admission::{self, Attributes, Operation, Warnings};
use crate::base::json::{strings, text};
use crate::base::user::User;
use crate::cluster::Cluster;
use crate::cluster::work_queue::WorkItem;
use crate::error::status::Status;
use crate::http::render;
use crate::registry::deletion;
use crate::schema::formats;
use crate::scheme::resources::Resource;
use crate::storage::object::Stored;
use crate::storage::store::StoreError;
use crate::webhook::conversion;

/// Maximum number of attempts of a controller after conflicts.
const ATTEMPTS: usize = 50;

/// The options of a deletion that matter for the stored object.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Deletion<'d> {
    pub(super) propagation: Option<&'d str>,
    /// The grace period in seconds.
    pub(super) grace: Option<i64>,
}

/// Result of a deletion.
pub(super) enum DeleteResult {
    Deleted(Value),
    /// Marked for deletion: finalizers, a grace period or the contents of a namespace are pending.
    Pending(Value),
}

/// Deletes this version of an object with this propagation policy as a user, with admission. The error is the rejection.
pub(crate) async fn delete_as(
    user: &User,
    cluster: &Arc<Cluster>,
    resource: &Arc<Resource>,
    object: &Arc<Stored>,
    propagation: &str,
) -> Result<(), Status> {
    let mut options = Map::new();
    let version = object.version.to_string();
    options.insert("preconditions".into(), json!({"uid": &*object.uid, "resourceVersion": version}));
    options.insert("propagationPolicy".into(), propagation.into());
    let attributes = Attributes {
        cluster,
        resource,
        subresource: None,
        namespace: &object.namespace,
        name: &object.name,
        user,
        operation: Operation::Delete,
        options: &options,
        dry_run: false,
        warnings: &Warnings::default(),
    };
    let converted = conversion::from_storage(resource, vec![Arc::clone(object)]).await?;
    let before = render::object_value(converted.first().unwrap_or(object), resource);
    admission::validate(&attributes, None, Some(&before)).await?;
    let found = cluster.get(resource, &object.namespace, &object.name);
    if found.is_some_and(|found| found.version != object.version) {
        return Err(Status::modified(resource.group_resource(), &object.name));
    }
    delete_stored(cluster, resource, object, Some(propagation));
    Ok(())
}

/// Deletes an object without admission, unless it was replaced.
pub(crate) fn delete_stored(
    cluster: &Cluster,
    resource: &Resource,
    object: &Stored,
    propagation: Option<&str>,
) {
    let deletion = Deletion { propagation, ..Deletion::default() };
    for _ in 0..ATTEMPTS {
        let found = cluster.get(resource, &object.namespace, &object.name);
        let Some(old) = found.filter(|found| found.uid == object.uid) else { return };
        let mut value = old.value();
        let effect = mark(resource, &mut value, &deletion);
        if try_delete(cluster, resource, &old, value, effect).is_ok() {
            return;
        }
    }
}

/// The effect of a deletion on the stored object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Remove,
    /// It is marked for deletion.
    Mark,
    /// It is marked already, or has as short a grace period.
    Nothing,
}

/// Marks an object for deletion, and returns the effect on the stored object.
pub(super) fn mark(resource: &Resource, value: &mut Value, options: &Deletion<'_>) -> Effect {
    let is_deleting = value.pointer("/metadata/deletionTimestamp").is_some();
    let pending = deletion::pending_grace_period(value);
    let shortened = pending.and_then(|pending| deletion::shortened(pending, options.grace));
    if pending.is_some() && shortened.is_none() {
        return Effect::Nothing;
    }
    let changed = set_propagation(value, options, orphans_by_default(resource)) || shortened.is_some();
    if resource.is("apiextensions.k8s.io", "customresourcedefinitions") && !is_deleting {
        add_crd_cleanup(value);
    }
    let is_held = deletion::is_held(resource, value);
    let grace = match shortened {
        Some(shortened) => shortened,
        None if is_deleting => 0,
        None => deletion::grace_period(resource, value, options.grace),
    };
    let counts = resource.tracks_generation() && resource.group != "apiextensions.k8s.io";
    if let Some(pending) = pending {
        shorten(value, pending, grace);
    } else if !is_deleting && (is_held || grace > 0 || resource.is("", "pods")) {
        set_deletion_timestamp(resource, value, grace, counts || resource.is("", "pods"));
        if resource.is("", "namespaces") {
            value["status"]["phase"] = "Terminating".into();
        }
    }
    if !is_held && grace == 0 {
        Effect::Remove
    } else if is_deleting && !changed {
        Effect::Nothing
    } else {
        Effect::Mark
    }
}

/// Tries the deletion once. `value` is the object after `mark`, in the stored version if it is written. Fails if another request has
/// updated the object.
pub(super) fn try_delete(
    cluster: &Cluster,
    resource: &Resource,
    old: &Arc<Stored>,
    value: Value,
    effect: Effect,
) -> Result<DeleteResult, StoreError> {
    match effect {
        Effect::Nothing => Ok(DeleteResult::Pending(value)),
        Effect::Remove => {
            // Nothing is written: watches get a custom object as it was stored.
            let last = if resource.custom.is_some() { old.value() } else { value };
            let stored = cluster.remove(resource, old, last)?;
            Ok(DeleteResult::Deleted(render::object_value(&stored, resource)))
        }
        Effect::Mark => {
            let stored = cluster.replace(resource, old, value)?;
            enqueue_work(cluster, resource, &stored);
            Ok(DeleteResult::Pending(render::object_value(&stored, resource)))
        }
    }
}

/// Resources whose default propagation policy is `Orphan`.
fn orphans_by_default(resource: &Resource) -> bool {
    resource.is("", "replicationcontrollers") || resource.is("batch", "jobs")
}

/// Adds the finalizer of custom resource cleanup, and the `Terminating` condition.
fn add_crd_cleanup(value: &mut Value) {
    let mut finalizers = strings(value.pointer("/metadata/finalizers"));
    finalizers.push(crate::registry::crd::CLEANUP.to_owned());
    value["metadata"]["finalizers"] = finalizers.into();
    let condition = json!({"type": "Terminating", "status": "True", "lastTransitionTime": formats::now(),
        "reason": "InstanceDeletionPending", "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"});
    if let Some(conditions) = value.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
        conditions.push(condition);
    }
}

/// Enqueues the background work for an object that is marked for deletion.
fn enqueue_work(cluster: &Cluster, resource: &Resource, stored: &Stored) {
    if resource.is("", "namespaces") {
        cluster.enqueue(WorkItem::NamespaceDeletion(stored.name.clone()));
    } else if resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
        cluster.enqueue(WorkItem::CrdDeletion(stored.name.clone()));
    }
    if cluster.options.garbage_collection {
        cluster.enqueue(WorkItem::DeletionStarted(
            resource.store_key.clone(),
            stored.namespace.clone(),
            stored.name.clone(),
        ));
    }
}

fn set_deletion_timestamp(resource: &Resource, value: &mut Value, grace: i64, count: bool) {
    let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let due = later(crate::base::clock::now(), grace);
    meta.insert("deletionTimestamp".into(), formats::stamp(due, false).into());
    if !resource.is("", "namespaces") && resource.group != "apiextensions.k8s.io" {
        meta.insert("deletionGracePeriodSeconds".into(), grace.into());
    }
    if count && let Some(generation) = meta.get("generation").and_then(Value::as_i64) {
        meta.insert("generation".into(), (generation + 1).into());
    }
}

/// Shortens the pending grace period of a deletion. It counts from the first request.
fn shorten(value: &mut Value, pending: i64, grace: i64) {
    let due = text(value, "/metadata/deletionTimestamp").parse::<Timestamp>().ok();
    if let Some(due) = due {
        value["metadata"]["deletionTimestamp"] = formats::stamp(later(due, grace - pending), false).into();
    }
    value["metadata"]["deletionGracePeriodSeconds"] = grace.into();
}

/// The time so many seconds later.
fn later(time: Timestamp, seconds: i64) -> Timestamp {
    time.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// Sets the finalizer of the propagation policy. Returns whether the finalizers have changed.
fn set_propagation(value: &mut Value, options: &Deletion<'_>, orphans_by_default: bool) -> bool {
    let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) else { return false };
    let before = strings(meta.get("finalizers"));
    let mut after = before.clone();
    let finalizer = match options.propagation {
        Some("Orphan") => Some("orphan"),
        Some("Foreground") => Some("foregroundDeletion"),
        Some(_) => None,
        None if orphans_by_default => Some("orphan"),
        None => return false,
    };
    after.retain(|f| !matches!(f.as_str(), "orphan" | "foregroundDeletion") || Some(f.as_str()) == finalizer);
    if let Some(finalizer) = finalizer.filter(|w| !after.iter().any(|f| f == w)) {
        after.push(finalizer.to_owned());
    }
    if after == before {
        return false;
    }
    if after.is_empty() {
        meta.shift_remove("finalizers")
    } else {
        meta.insert("finalizers".into(), after.into())
    };
    true
}
