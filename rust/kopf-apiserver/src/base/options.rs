//! Options of a server, and of requests.

use crate::base::user::User;

/// How a server is to be.
#[expect(clippy::struct_excessive_bools, reason = "each part is switched on its own")]
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// 0 for any free one.
    pub port: u16,
    /// TLS with a CA of its own; otherwise plain HTTP.
    pub tls: bool,
    /// The administrator's token; random when absent.
    pub token: Option<String>,
    /// Other tokens and whom they stand for.
    pub users: Vec<(String, User)>,
    /// Whether RBAC objects are asked; otherwise every token may do everything.
    pub authorization: bool,
    /// Whether dependents follow their owners.
    pub garbage_collection: bool,
    /// Whether deleted namespaces are emptied and go.
    pub namespace_lifecycle: bool,
    /// Which controllers are simulated.
    pub controllers: Controllers,
    /// Whether `shardSelector` is honoured; real servers of 1.36 ignore it unless told.
    pub sharding: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            port: 0,
            tls: true,
            token: None,
            users: Vec::new(),
            authorization: false,
            garbage_collection: true,
            namespace_lifecycle: true,
            controllers: Controllers::default(),
            sharding: false,
        }
    }
}

/// Which controllers are simulated. All are off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each controller is switched on its own")]
pub struct Controllers {
    /// Pods become Running and Ready, and go when they are deleted.
    pub pods: bool,
    /// Deployments make replica sets, replica sets and stateful sets make pods.
    pub workloads: bool,
    /// Jobs make pods and complete.
    pub jobs: bool,
    /// Services get endpoints of their ready pods.
    pub endpoints: bool,
}

impl Controllers {
    /// All of them.
    pub fn all() -> Self {
        Self { pods: true, workloads: true, jobs: true, endpoints: true }
    }
    pub(crate) fn cover(self, table: &str) -> bool {
        match table {
            "pods" => self.pods || self.workloads || self.jobs || self.endpoints,
            "apps/deployments" | "apps/replicasets" | "apps/statefulsets" => self.workloads,
            "batch/jobs" => self.jobs,
            "services" => self.endpoints,
            _ => false,
        }
    }
}

/// What to do about fields that are unknown or given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}
