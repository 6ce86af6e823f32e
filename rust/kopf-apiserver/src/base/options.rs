//! Options of the server and of requests.

use crate::base::user::User;

/// Options of a server.
#[expect(clippy::struct_excessive_bools, reason = "each part is switched on its own")]
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Port on loopback; 0 for any free one.
    pub port: u16,
    /// Serve TLS with a generated CA; otherwise plain HTTP.
    pub tls: bool,
    /// Token of the administrator; random if absent.
    pub token: Option<String>,
    /// Tokens of further users.
    pub users: Vec<(String, User)>,
    /// Authorize requests by RBAC; otherwise every authenticated user may do everything.
    pub authorization: bool,
    /// Delete dependents of deleted objects.
    pub garbage_collection: bool,
    /// Delete the contents of terminating namespaces, then the namespaces.
    pub namespace_lifecycle: bool,
    /// Simulated controllers.
    pub controllers: Controllers,
    /// Support `shardSelector`, which is an alpha feature of 1.36.
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

/// Simulated controllers. All are off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each controller is switched on its own")]
pub struct Controllers {
    /// Pods become Running and Ready, and are removed after their deletion.
    pub pods: bool,
    /// Deployments create replica sets; replica sets and stateful sets create pods.
    pub workloads: bool,
    /// Jobs create pods and complete.
    pub jobs: bool,
    /// Services get endpoints of ready pods.
    pub endpoints: bool,
}

impl Controllers {
    /// All controllers.
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

/// `fieldValidation`: handling of unknown and duplicate fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}
