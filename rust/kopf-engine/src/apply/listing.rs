//! The objects of one listing, as hashes: which remembered children and owners it does not have.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use kopf_core::apply::ChildKey;
use kopf_core::object::Object;
use kopf_core::resource::Resource;

/// A listing of the objects of a resource, in all namespaces or in one.
///
/// An object with the same hash as a missing one hides it. So what is missing may be remembered until the next listing.
pub(super) struct Listing {
    resource: Arc<Resource>,
    namespace: Option<String>,
    hasher: RandomState,
    names: HashSet<u64>,
    uids: HashSet<u64>,
}

impl Listing {
    pub(super) fn new(resource: Arc<Resource>, namespace: Option<String>) -> Self {
        let hasher = RandomState::new();
        Self { resource, namespace, hasher, names: HashSet::new(), uids: HashSet::new() }
    }

    /// The listing has this object.
    pub(super) fn add(&mut self, object: &Object) {
        self.names.insert(self.hasher.hash_one((object.namespace(), object.name().unwrap_or_default())));
        self.uids.insert(self.hasher.hash_one(object.uid().unwrap_or_default()));
    }

    /// Whether the object would be listed if it existed, but is not.
    pub(super) fn lacks(&self, key: &ChildKey) -> bool {
        let name = (key.namespace.as_deref(), &*key.name);
        self.covers(key) && !self.names.contains(&self.hasher.hash_one(name))
    }

    /// The same for the object with this uid: it may have been replaced by another one of the same name.
    pub(super) fn lacks_uid(&self, key: &ChildKey, uid: &str) -> bool {
        self.covers(key) && !self.uids.contains(&self.hasher.hash_one(uid))
    }

    fn covers(&self, key: &ChildKey) -> bool {
        let Resource { group, kind, .. } = &*self.resource;
        let is_in_namespace = self.namespace.is_none() || self.namespace == key.namespace;
        *group == key.group && kind.as_deref() == Some(&*key.kind) && is_in_namespace
    }
}
