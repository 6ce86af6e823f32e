//! An embedded Kubernetes API server for developing and testing operators without a cluster.
//!
//! It implements the API of Kubernetes 1.36 on loopback (HTTP/1.1 and HTTP/2, TLS or plain, bearer tokens), keeps objects in
//! memory with one resource version counter, and injects faults. `tests/conformance` of the repository compares its responses
//! with those of kube-apiserver: 1,336 of 1,370 are equal. `tests/kubectl` runs kubectl against it.
//!
//! # Performance
//!
//! `benches/load.rs` measures CPU time of the server's threads, over loopback HTTP with persistent connections and custom
//! resources of 1 kB: 34 us for a creation, 50 us for an update, 53 to 68 us for a merge patch, which is 20,000 writes per
//! second and core. An event for one of 1,000 watches takes 6 us. An update of an object of 2 kB in memory takes 22 us of wall
//! clock time with one watch. An object takes 1.2 to 1.8 times its JSON in memory. Starting and stopping with TLS takes 0.3 ms.
//!
//! # Known differences in compared responses
//!
//! - hashes of storage versions of two groups whose storage version is older than the served one;
//! - messages with internal types of kube-apiserver (a diff of pod fields, Go structs of a CRD), of its YAML parser, and of its
//!   accessors of scale paths;
//! - a second error about an integer outside a port's range, or about a root schema that is not an object;
//! - the generation annotation of a daemon set whose annotations were removed; managed fields of access reviews;
//! - 401 instead of 403 for anonymous requests, which are off;
//! - 429 while kube-apiserver prepares the storage of a new CRD, and 404 of paths below `/version`.
//!
//! # Not implemented
//!
//! - **Encodings**: responses are JSON. Bodies may also be YAML and, for built-in kinds, protobuf; there is no CBOR.
//! - **Validation and defaults of built-in kinds**: `docs/testing/real-clusters.md` lists the rules that are not imitated.
//! - **Admission** consists of webhooks and `ValidatingAdmissionPolicy`: quotas, limit ranges, `MutatingAdmissionPolicy` and pod
//!   security are stored without effect. Audit annotations are dropped. Webhooks have addresses; services cannot be reached.
//!   The contents of deleted namespaces are deleted without admission.
//! - **Conversion**: events and autoscalers are converted by their main fields.
//! - **Cluster components**: there is no scheduler, kubelet, exec, attach, port-forward or proxy, and logs are empty.
//!   `controllers` simulate the status of workloads. Evictions ignore disruption budgets.
//! - **Tables** have the usual columns of common kinds, and name and age for others. Descriptions are short.
//! - **`OpenAPI`** documents have types, merge keys and paths, the unchanged schemas of CRDs, and short descriptions of the main
//!   built-in kinds and fields. Version 2 is empty in protobuf: kubectl uses it only for kinds that version 3 lacks.
//! - **CEL** rules are evaluated by a CEL library. CRDs are rejected for the estimated costs of their rules as by kube-apiserver.
//!   Costs at run time have the limits of kube-apiserver but other weights. Expressions are not type-checked, and quantities are
//!   numbers.
//! - **Watches** from a version before the start of the server get all events since the start. The history keeps the last 10,000
//!   events of each resource (or 32 MB), not five minutes.
//! - **Nesting**: objects may have 127 levels, and results of JSON patches 120; kube-apiserver allows thousands.
//! - **Access**: anonymous requests are rejected. Users have tokens, not certificates. Tokens of service accounts do not expire.
//!   Cluster roles are not aggregated, and there are no default ones. Privilege escalation is not prevented.
//! - **Priority and fairness, audit, metrics, API aggregation**.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests fail loudly"))]

mod admission;
mod api;
mod apply;
mod authz;
mod base;
mod cluster;
mod controllers;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod http;
mod impersonation;
mod patch;
mod registry;
mod schema;
mod scheme;
mod server;
mod storage;
mod testkit;
mod webhook;

pub use base::background::background_operations;
pub use base::clock::{next_wake_up, set_time};
pub use base::connections::{OpenConnection, listeners, open_connections};
pub use base::options::{Controllers, ServerOptions};
pub use base::user::User;
pub use error::server::ServerError;
pub use server::{Server, start};
pub use testkit::faults::{CutOffPoint, Fault, Faults, Injection};
pub use testkit::request_log::{LoggedRequest, RequestLog};
