//! The state of one server: its objects, the kinds that it serves, and the one door through which objects change.
//!
//! Every write goes through `insert`, `replace` or `remove` here, so that what follows from a change (declared kinds
//! appear, garbage is collected, controllers wake) cannot be forgotten by a verb.

pub(crate) mod work_queue;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde_json::{Value, json};

use crate::base::options::ServerOptions;
use crate::base::random::random_token;
use crate::base::user::User;
use crate::cluster::work_queue::{Queue, Work};
use crate::registry::crd;
use crate::schema::formats;
use crate::scheme::conversion;
use crate::scheme::resources::{Registry, Resource};
use crate::storage::store::{Refused, Store, Stored};
use crate::testkit::faults::Faults;
use crate::testkit::journal::Journal;

/// The largest object that can be stored.
pub(crate) const OBJECT_LIMIT: usize = 1_572_864;

/// One server's state.
pub(crate) struct Cluster {
    pub(crate) store: Store,
    pub(crate) options: ServerOptions,
    pub(crate) faults: Faults,
    pub(crate) journal: Journal,
    registry: RwLock<Arc<Registry>>,
    pub(crate) queue: Queue,
    /// Tokens that were given out to service accounts.
    issued: Mutex<HashMap<String, Arc<User>>>,
    /// Whom the tokens stand for that were known from the start.
    users: Vec<(String, Arc<User>)>,
}

impl Cluster {
    /// Makes the state of a fresh cluster.
    pub(crate) fn new(options: ServerOptions) -> Arc<Self> {
        let cluster = Arc::new(Self {
            store: Store::new(),
            faults: Faults::default(),
            journal: Journal::default(),
            registry: RwLock::new(Arc::new(Registry::builtin())),
            users: options
                .users
                .iter()
                .map(|(token, user)| (token.clone(), Arc::new(user.clone())))
                .collect(),
            options,
            queue: Queue::default(),
            issued: Mutex::default(),
        });
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            cluster.seed_namespace(name);
        }
        cluster.seed_service();
        cluster
    }

    fn seed_namespace(&self, name: &str) {
        let namespace = json!({
            "kind": "Namespace", "apiVersion": "v1",
            "metadata": {"name": name, "uid": crate::base::random::uid(), "creationTimestamp": formats::now(),
                "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
        });
        // The store is empty, so nothing can be in the way.
        let _ = self.store.insert(&"namespaces".into(), &namespace);
    }

    /// The service under which every cluster offers its own API.
    fn seed_service(&self) {
        let service = json!({
            "kind": "Service", "apiVersion": "v1",
            "metadata": {"name": "kubernetes", "namespace": "default", "uid": crate::base::random::uid(),
                "creationTimestamp": formats::now(), "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}], "clusterIP": "10.0.0.1",
                "clusterIPs": ["10.0.0.1"], "type": "ClusterIP", "sessionAffinity": "None", "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster"},
            "status": {"loadBalancer": {}},
        });
        let _ = self.store.insert(&"services".into(), &service);
    }

    /// Whom a token stands for.
    pub(crate) fn user_of(&self, token: &str) -> Option<Arc<User>> {
        let known = self.users.iter().find(|(t, _)| t == token).map(|(_, user)| user.clone());
        known.or_else(|| self.issued.lock().unwrap_or_else(PoisonError::into_inner).get(token).cloned())
    }
    /// A new token for a service account.
    pub(crate) fn issue_token(&self, namespace: &str, name: &str) -> String {
        let token = random_token();
        let all = "system:serviceaccounts";
        let user = User {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![all.to_owned(), format!("{all}:{namespace}"), "system:authenticated".into()],
        };
        self.issued.lock().unwrap_or_else(PoisonError::into_inner).insert(token.clone(), Arc::new(user));
        token
    }

    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
    fn set_registry(&self, registry: Registry) {
        *self.registry.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(registry);
    }
    /// The resource whose objects lie in a table of the store.
    pub(crate) fn resource_of(&self, table: &str) -> Option<Arc<Resource>> {
        self.registry().stored().into_iter().find(|r| *r.store_key == *table)
    }
    /// A built-in resource by name; these are always there.
    pub(crate) fn builtin(&self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        let registry = self.registry();
        let group = registry.groups.get(group)?;
        group.versions.iter().find_map(|(_, resources)| resources.get(plural).cloned())
    }
    pub(crate) fn later(&self, work: Work) {
        self.queue.add(work);
    }

    pub(crate) fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        self.store.get(&resource.store_key, namespace, name)
    }

    pub(crate) fn insert(&self, resource: &Resource, mut value: Value) -> Result<Arc<Stored>, Refused> {
        conversion::to_storage(&mut value, resource);
        if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            crate::registry::meta::order(meta);
        }
        let stored = self.store.insert(&resource.store_key, &value)?;
        self.after(resource, None, &stored);
        Ok(stored)
    }

    pub(crate) fn replace(
        &self,
        resource: &Resource,
        old: &Arc<Stored>,
        mut value: Value,
    ) -> Result<Arc<Stored>, Refused> {
        conversion::to_storage(&mut value, resource);
        if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            crate::registry::meta::order(meta);
        }
        let stored = self.store.replace(&resource.store_key, old.version, &value)?;
        self.after(resource, Some(old), &stored);
        Ok(stored)
    }

    pub(crate) fn remove(
        &self,
        resource: &Resource,
        old: &Arc<Stored>,
        mut last: Value,
    ) -> Result<Arc<Stored>, Refused> {
        conversion::to_storage(&mut last, resource);
        let stored = self.store.remove(&resource.store_key, old.version, &last)?;
        if resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
            self.withdraw(&stored.name);
        }
        if self.options.garbage_collection {
            if self.store.has_dependents(&stored.uid) {
                self.later(Work::Removed(stored.uid.clone()));
            }
            for owner in &stored.owners {
                self.later(Work::Owner(owner.clone()));
            }
        }
        if resource.namespaced && self.is_terminating(&stored.namespace) {
            self.later(Work::Namespace(stored.namespace.clone()));
        }
        self.wake_controllers(resource, &stored);
        Ok(stored)
    }

    fn after(&self, resource: &Resource, old: Option<&Arc<Stored>>, new: &Arc<Stored>) {
        if resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
            self.definition_changed(resource, new);
        }
        if self.options.garbage_collection
            && !new.owners.is_empty()
            && old.is_none_or(|o| o.owners != new.owners)
        {
            self.later(Work::Owned(resource.store_key.clone(), new.namespace.clone(), new.name.clone()));
        }
        self.wake_controllers(resource, new);
    }

    /// Brings the served resources in line with a definition that appeared or changed, and its status with that.
    fn definition_changed(&self, resource: &Resource, stored: &Stored) {
        let definition = stored.value();
        let (registry, clash) = crd::registered(&self.registry(), &stored.name, &definition);
        self.set_registry(registry);
        if let Some(acceptance) = crd::Acceptance::new(definition, clash.as_deref()) {
            self.edit(resource, "", &stored.name, |definition| {
                acceptance.write(definition);
                true
            });
        }
    }

    /// Takes a definition's kind out of service.
    fn withdraw(&self, definition: &str) {
        let registry = self.registry();
        self.set_registry(crd::without(&registry, definition));
        for table in crd::tables(&registry, definition) {
            self.store.drop_table(&table);
        }
    }

    fn wake_controllers(&self, resource: &Resource, object: &Stored) {
        if self.options.controllers.cover(&resource.store_key) {
            self.later(Work::Control(
                resource.store_key.clone(),
                object.namespace.clone(),
                object.name.clone(),
            ));
        }
    }

    pub(crate) fn is_terminating(&self, namespace: &str) -> bool {
        self.store.get("namespaces", "", namespace).is_some_and(|ns| ns.deleting)
    }

    /// Changes an object from behind the requests: retried until it is not in anybody's way. `None` leaves it alone.
    pub(crate) fn edit(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        mut f: impl FnMut(&mut Value) -> bool,
    ) -> bool {
        for _ in 0..50 {
            let Some(old) = self.get(resource, namespace, name) else { return false };
            let mut value = old.value();
            if !f(&mut value) {
                return false;
            }
            let deleting = value.pointer("/metadata/deletionTimestamp").is_some();
            let held = value
                .pointer("/metadata/finalizers")
                .and_then(Value::as_array)
                .is_some_and(|f| !f.is_empty());
            let was_held = old
                .value()
                .pointer("/metadata/finalizers")
                .and_then(Value::as_array)
                .is_some_and(|f| !f.is_empty());
            let done = if deleting && !held && was_held {
                self.remove(resource, &old, value)
            } else {
                self.replace(resource, &old, value)
            };
            match done {
                Ok(_) => return true,
                Err(Refused::Changed) => {}
                Err(_) => return false,
            }
        }
        false
    }
}
