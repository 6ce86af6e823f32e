//! CRDs of the cluster: their resources in the registry, and what their changes do to objects and watches.

use std::sync::{Arc, PoisonError};

use serde_json::Value;

use super::Cluster;
use crate::registry::crd;
use crate::scheme::conversion;
use crate::scheme::resources::Resource;
use crate::storage::object::Stored;
use crate::storage::store::StoreError;

const TABLE: &str = "apiextensions.k8s.io/customresourcedefinitions";

impl Cluster {
    /// Inserts an object, unless its resource is no longer served.
    pub(super) fn insert_served(
        &self,
        resource: &Resource,
        value: &Value,
    ) -> Result<Arc<Stored>, StoreError> {
        // A CRD cannot be removed until the object is stored.
        let registry = self.registry.read().unwrap_or_else(PoisonError::into_inner);
        if resource.custom.is_some() && !registry.serves(&resource.group, &resource.plural) {
            return Err(StoreError::NotFound);
        }
        self.store.insert(&resource.store_key, value)
    }

    /// Stores a CRD and serves its resources: a client that receives its event finds them. Updates its status. The watches of its
    /// objects end if its spec has changed: they would send objects in other versions.
    pub(super) fn write_crd(
        &self,
        crds: &Resource,
        old: Option<&Arc<Stored>>,
        write: impl FnOnce() -> Result<Arc<Stored>, StoreError>,
    ) -> Result<Arc<Stored>, StoreError> {
        let mut registry = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        let stored = write()?;
        let crd = stored.value();
        if old.is_some_and(|old| old.value()["spec"] != crd["spec"]) {
            for table in &crd::tables(&registry, &stored.name) {
                self.store.end_watches(table);
            }
        }
        let (registered, conflict) = crd::registered(&registry, &stored.name, &crd);
        *registry = Arc::new(registered);
        drop(registry);
        self.apply_schemas(&stored.name);
        if let Some(status) = crd::AcceptedStatus::new(crd, conflict.as_ref()) {
            self.update(crds, "", &stored.name, |crd| {
                status.write(crd);
                true
            });
        }
        Ok(stored)
    }

    /// Drops the unknown fields of the objects of a changed CRD and sets their defaults, by the schemas of their versions. kube-apiserver
    /// does it whenever it reads an object.
    fn apply_schemas(&self, crd: &str) {
        let registry = self.registry();
        let is_its = |r: &&Arc<Resource>| r.custom.as_ref().is_some_and(|custom| custom.crd == crd);
        let Some(resource) = registry.all().find(is_its) else { return };
        self.store.rewrite(&resource.store_key, |value| {
            let before = value.clone();
            conversion::apply_schema(value, resource);
            *value != before
        });
    }

    pub(super) fn is_crd_terminating(&self, name: &str) -> bool {
        self.store.get(TABLE, "", name).is_some_and(|crd| crd.is_deleting)
    }

    /// Removes a CRD, stops serving its resources and drops their objects. Serves the CRDs whose names were in conflict with it.
    pub(super) fn remove_crd(
        &self,
        crds: &Resource,
        remove: impl FnOnce() -> Result<Arc<Stored>, StoreError>,
    ) -> Result<Arc<Stored>, StoreError> {
        let mut registry = self.registry.write().unwrap_or_else(PoisonError::into_inner);
        let removed = remove()?;
        for table in &crd::tables(&registry, &removed.name) {
            self.store.drop_table(table);
        }
        *registry = Arc::new(crd::unregistered(&registry, &removed.name));
        drop(registry);
        for stored in self.store.list(TABLE, None).objects {
            if !self.registry().all().any(|r| r.custom.as_ref().is_some_and(|c| *c.crd == *stored.name)) {
                // It may be removed meanwhile.
                let read = || self.store.get(TABLE, "", &stored.name).ok_or(StoreError::NotFound);
                drop(self.write_crd(crds, None, read));
            }
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::base::options::ServerOptions;

    fn crds(cluster: &Cluster) -> Arc<Resource> {
        cluster.builtin("apiextensions.k8s.io", "customresourcedefinitions").unwrap()
    }

    fn crd(name: &str) -> Value {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{name}.test.dev"), "uid": name},
            "spec": {"group": "test.dev", "scope": "Cluster", "names": {"plural": name, "kind": name.to_uppercase()},
                "versions": [{"name": "v1", "served": true, "storage": true}]}})
    }

    #[test]
    fn crds_of_concurrent_requests_are_all_served() {
        const THREADS: usize = 8;
        const CRDS: usize = 25;
        let cluster = Cluster::new(ServerOptions::default());
        let resource = crds(&cluster);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (cluster, resource) = (&cluster, &resource);
                scope.spawn(move || {
                    for number in 0..CRDS {
                        cluster.insert(resource, crd(&format!("t{thread}n{number}"))).unwrap();
                    }
                });
            }
        });
        let registry = cluster.registry();
        assert_eq!(registry.version("test.dev", "v1").unwrap().len(), THREADS * CRDS);
    }

    #[test]
    fn objects_of_removed_crds_are_not_stored() {
        let cluster = Cluster::new(ServerOptions::default());
        let resource = crds(&cluster);
        let stored = cluster.insert(&resource, crd("things")).unwrap();
        let things = cluster.resource_of("test.dev/things").unwrap();
        let stored = cluster.get(&resource, "", &stored.name).unwrap();
        cluster.remove(&resource, &stored, stored.value()).unwrap();
        let thing =
            json!({"apiVersion": "test.dev/v1", "kind": "THINGS", "metadata": {"name": "a", "uid": "thing"}});
        assert_eq!(cluster.insert(&things, thing).err(), Some(StoreError::NotFound));
    }
}
