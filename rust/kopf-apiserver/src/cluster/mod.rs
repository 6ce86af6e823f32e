//! State of one server: objects, served resources, faults and the request log.
//!
//! All writes go through `insert`, `replace` and `remove`, which trigger the consequences: CRDs are served, dependents
//! are collected, controllers run.

mod crds;
pub(crate) mod work_queue;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use serde_json::{Value, json};

use crate::base::options::ServerOptions;
use crate::base::random::{self, random_token};
use crate::base::tasks::Tasks;
use crate::base::user::User;
use crate::cluster::work_queue::{WorkItem, WorkQueue};
use crate::registry::deletion;
use crate::schema::formats;
use crate::scheme::conversion;
use crate::scheme::resources::{Registry, Resource};
use crate::storage::object::Stored;
use crate::storage::store::{Store, StoreError};
use crate::testkit::faults::Faults;
use crate::testkit::pod_logs::PodLogs;
use crate::testkit::request_log::RequestLog;

/// Maximum size of an object in bytes, as in etcd.
pub(crate) const OBJECT_LIMIT: usize = 1_572_864;

/// The attribute of users that identifies their credentials.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// State of one server.
pub(crate) struct Cluster {
    pub(crate) store: Store,
    pub(crate) options: ServerOptions,
    pub(crate) faults: Faults,
    pub(crate) request_log: RequestLog,
    pub(crate) pod_logs: PodLogs,
    registry: RwLock<Arc<Registry>>,
    pub(crate) queue: WorkQueue,
    pub(crate) tasks: Tasks,
    /// The uids of the objects whose collection waits for admission.
    collecting: Mutex<HashSet<Box<str>>>,
    /// Tokens of service accounts.
    issued: Mutex<HashMap<String, Arc<User>>>,
    /// Configured tokens.
    users: Vec<(String, Arc<User>)>,
}

impl Cluster {
    /// Creates the state with the initial namespaces and the `kubernetes` service.
    pub(crate) fn new(options: ServerOptions) -> Arc<Self> {
        let cluster = Arc::new(Self {
            store: Store::new(),
            faults: Faults::default(),
            request_log: RequestLog::default(),
            pod_logs: PodLogs::default(),
            registry: RwLock::new(Arc::new(Registry::builtin())),
            users: options
                .users
                .iter()
                .map(|(token, user)| (token.clone(), Arc::new(user.clone())))
                .collect(),
            options,
            queue: WorkQueue::default(),
            tasks: Tasks::default(),
            collecting: Mutex::default(),
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
        // The store is empty: there is no conflict.
        let _ = self.store.insert(&"namespaces".into(), &namespace);
    }

    /// Creates the service `kubernetes`.
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

    /// User of a token.
    pub(crate) fn authenticate(&self, token: &str) -> Option<Arc<User>> {
        let configured = self.users.iter().find(|(t, _)| t == token).map(|(_, user)| user.clone());
        configured.or_else(|| self.issued.lock().unwrap_or_else(PoisonError::into_inner).get(token).cloned())
    }
    /// Issues a token for a service account with this uid.
    pub(crate) fn issue_token(&self, namespace: &str, name: &str, uid: &str) -> String {
        let token = random_token();
        let prefix = "system:serviceaccounts";
        let user = User {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            uid: uid.to_owned(),
            groups: vec![prefix.to_owned(), format!("{prefix}:{namespace}"), "system:authenticated".into()],
            extra: [(CREDENTIAL_ID.to_owned(), vec![format!("JTI={}", random::uid())])].into(),
        };
        self.issued.lock().unwrap_or_else(PoisonError::into_inner).insert(token.clone(), Arc::new(user));
        token
    }

    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Resource of a table in the store.
    pub(crate) fn resource_of(&self, table: &str) -> Option<Arc<Resource>> {
        self.registry().stored_resources().into_iter().find(|r| *r.store_key == *table)
    }
    /// Built-in resource by name.
    pub(crate) fn builtin(&self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        let registry = self.registry();
        let group = registry.groups.get(group)?;
        group.versions.iter().find_map(|(_, resources)| resources.get(plural).cloned())
    }
    pub(crate) fn collecting(&self) -> MutexGuard<'_, HashSet<Box<str>>> {
        self.collecting.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn enqueue(&self, work: WorkItem) {
        self.queue.add(work);
    }

    pub(crate) fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        self.store.get(&resource.store_key, namespace, name)
    }

    pub(crate) fn insert(&self, resource: &Resource, mut value: Value) -> Result<Arc<Stored>, StoreError> {
        conversion::to_storage(&mut value, resource);
        if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            crate::registry::meta::sort_members(meta);
        }
        let stored = if is_crd(resource) {
            self.write_crd(resource, None, || self.store.insert(&resource.store_key, &value))?
        } else {
            self.insert_served(resource, &value)?
        };
        self.on_written(resource, None, &stored);
        Ok(stored)
    }

    pub(crate) fn replace(
        &self,
        resource: &Resource,
        old: &Arc<Stored>,
        mut value: Value,
    ) -> Result<Arc<Stored>, StoreError> {
        conversion::to_storage(&mut value, resource);
        if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            crate::registry::meta::sort_members(meta);
        }
        let replace = || self.store.replace(&resource.store_key, old.version, &value);
        let stored =
            if is_crd(resource) { self.write_crd(resource, Some(old), replace)? } else { replace()? };
        self.on_written(resource, Some(old), &stored);
        Ok(stored)
    }

    /// Removes an object. `last` is its final state; that of a custom object is the stored one.
    pub(crate) fn remove(
        &self,
        resource: &Resource,
        old: &Arc<Stored>,
        mut last: Value,
    ) -> Result<Arc<Stored>, StoreError> {
        if resource.custom.is_none() {
            conversion::to_storage(&mut last, resource);
        }
        let remove = || self.store.remove(&resource.store_key, old.version, &last);
        let stored = if is_crd(resource) { self.remove_crd(resource, remove)? } else { remove()? };
        if self.options.garbage_collection {
            if self.store.has_dependents(&stored.uid) {
                self.enqueue(WorkItem::OwnerDeleted(stored.uid.clone()));
            }
            for owner in stored.owners() {
                self.enqueue(WorkItem::DependentReleased(owner.clone()));
            }
        }
        if resource.namespaced && self.is_terminating(&stored.namespace) {
            self.enqueue(WorkItem::NamespaceDeletion(stored.namespace.clone()));
        }
        if let Some(custom) = &resource.custom
            && self.is_crd_terminating(&custom.crd)
        {
            self.enqueue(WorkItem::CrdDeletion(custom.crd.as_str().into()));
        }
        self.wake_controllers(resource, &stored);
        Ok(stored)
    }

    fn on_written(&self, resource: &Resource, old: Option<&Arc<Stored>>, new: &Arc<Stored>) {
        if self.options.garbage_collection {
            self.enqueue_changed_owners(resource, old, new);
        }
        self.wake_controllers(resource, new);
    }

    fn enqueue_changed_owners(&self, resource: &Resource, old: Option<&Arc<Stored>>, new: &Stored) {
        if !new.owners().is_empty() && old.is_none_or(|o| o.owners() != new.owners()) {
            self.enqueue(WorkItem::OwnersChanged(
                resource.store_key.clone(),
                new.namespace.clone(),
                new.name.clone(),
            ));
        }
        let blocked = old.into_iter().flat_map(|old| &old.blocked_owners);
        for owner in blocked.filter(|owner| !new.blocked_owners.contains(owner)) {
            self.enqueue(WorkItem::DependentReleased(owner.clone()));
        }
    }

    fn wake_controllers(&self, resource: &Resource, object: &Stored) {
        if self.options.controllers.cover(&resource.store_key) {
            self.enqueue(WorkItem::Reconcile(
                resource.store_key.clone(),
                object.namespace.clone(),
                object.name.clone(),
            ));
        }
    }

    pub(crate) fn is_terminating(&self, namespace: &str) -> bool {
        self.store.get("namespaces", "", namespace).is_some_and(|ns| ns.is_deleting)
    }

    /// Updates an object in the background, with retries after conflicts. `f` returns false to leave it unchanged.
    /// Returns whether it was updated.
    pub(crate) fn update(
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
            let is_released =
                !deletion::remains(resource, &value) && deletion::remains(resource, &old.value());
            let result = if deleting && is_released {
                self.remove(resource, &old, old.value())
            } else {
                self.replace(resource, &old, value)
            };
            match result {
                Ok(_) => return true,
                Err(StoreError::Conflict) => {}
                Err(_) => return false,
            }
        }
        false
    }
}

fn is_crd(resource: &Resource) -> bool {
    resource.is("apiextensions.k8s.io", "customresourcedefinitions")
}
