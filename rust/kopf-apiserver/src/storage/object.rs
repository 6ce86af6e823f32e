//! Stored objects and their events.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::base::json::member_text;
use crate::storage::encoding::ObjectEncoder;

/// Namespace (empty for cluster-scoped objects) and name. The separator occurs in no name and keeps the order; one
/// string is faster to compare.
pub(super) type Key = Box<str>;

pub(super) fn key(namespace: &str, name: &str) -> Key {
    [namespace, "\0", name].concat().into()
}

/// An object at one version.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
    pub(crate) version: u64,
    pub(crate) labels: Box<[(Box<str>, Box<str>)]>,
    owners: Box<[Box<str>]>,
    /// Uids of the owners whose foreground deletion waits for the object.
    pub(crate) blocked_owners: Box<[Box<str>]>,
    /// Whether it has a deletion timestamp.
    pub(crate) is_deleting: bool,
    /// JSON in the version in which it was stored, `apiVersion` and `kind` first.
    pub(crate) json: Bytes,
    /// Position of the members after `apiVersion` and `kind`.
    pub(crate) body: usize,
}

#[cfg(test)]
thread_local! {
    /// How often this thread has read the owners of objects. Tests of costs count these reads.
    pub(crate) static READS_OF_OWNERS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Stored {
    /// Uids of the owners.
    pub(crate) fn owners(&self) -> &[Box<str>] {
        #[cfg(test)]
        READS_OF_OWNERS.with(|reads| reads.set(reads.get() + 1));
        &self.owners
    }
    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or_default()
    }
    /// Whether it has this `apiVersion`.
    pub(crate) fn is_of_version(&self, api_version: &str) -> bool {
        let head = self.json.get(..self.body).unwrap_or_default();
        let member = format!("\"apiVersion\":\"{api_version}\"");
        head.windows(member.len()).any(|bytes| bytes == member.as_bytes())
    }
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(k, _)| &**k == key).map(|(_, v)| &**v)
    }
    /// The same state of the object with another value.
    pub(crate) fn with_value(&self, value: &Value) -> Self {
        NewObject::new(value).with_version(self.version)
    }
    /// The same object with another version.
    pub(crate) fn with_version(&self, version: u64) -> Self {
        NewObject::new(&self.value()).with_version(version)
    }
}

/// An object before its version is known, which is assigned under the lock.
pub(super) struct NewObject {
    namespace: Box<str>,
    name: Box<str>,
    uid: Box<str>,
    labels: Box<[(Box<str>, Box<str>)]>,
    owners: Box<[Box<str>]>,
    blocked_owners: Box<[Box<str>]>,
    is_deleting: bool,
    encoder: ObjectEncoder,
}

impl NewObject {
    pub(super) fn new(value: &Value) -> Self {
        let text = |v: Option<&Value>| -> Box<str> { v.and_then(Value::as_str).unwrap_or_default().into() };
        let meta = value.get("metadata");
        let get = |name: &str| text(meta.and_then(|m| m.get(name)));
        let labels = meta.and_then(|m| m.get("labels")).and_then(Value::as_object).map(|labels| {
            labels.iter().map(|(k, v)| (k.as_str().into(), v.as_str().unwrap_or_default().into())).collect()
        });
        let owners = meta.and_then(|m| m.get("ownerReferences")).and_then(Value::as_array);
        let owners = owners.map_or(&[][..], Vec::as_slice);
        Self {
            namespace: get("namespace"),
            name: get("name"),
            uid: get("uid"),
            is_deleting: meta.is_some_and(|m| m.get("deletionTimestamp").is_some()),
            labels: labels.unwrap_or_default(),
            owners: uids(owners.iter()),
            blocked_owners: uids(owners.iter().filter(|o| o["blockOwnerDeletion"] == true)),
            encoder: ObjectEncoder::new(value, true),
        }
    }
    pub(super) fn key(&self) -> Key {
        key(&self.namespace, &self.name)
    }
    pub(super) fn with_version(self, version: u64) -> Stored {
        Stored {
            json: self.encoder.with_version(version),
            body: self.encoder.body,
            namespace: self.namespace,
            name: self.name,
            uid: self.uid,
            version,
            labels: self.labels,
            owners: self.owners,
            blocked_owners: self.blocked_owners,
            is_deleting: self.is_deleting,
        }
    }
}

fn uids<'v>(references: impl Iterator<Item = &'v Value>) -> Box<[Box<str>]> {
    references.map(|reference| member_text(reference, "uid").into()).collect()
}

/// A change of an object.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) version: u64,
    /// Previous state; `None` for a creation.
    pub(crate) before: Option<Arc<Stored>>,
    /// New state; for a deletion the last state with the version of the deletion.
    pub(crate) after: Arc<Stored>,
    pub(crate) deleted: bool,
}
