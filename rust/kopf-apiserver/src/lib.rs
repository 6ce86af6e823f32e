//! An in-memory Kubernetes API server, for running and testing operators with no cluster.
//!
//! It speaks the protocol of Kubernetes 1.36 over loopback (HTTP/1.1 and HTTP/2, TLS or plain, bearer tokens), keeps
//! objects in memory with one counter of versions, and can misbehave on request. `tests/conformance` of the repository compares
//! its answers with those of a real server: 1,339 of 1,370 are equal; `tests/kubectl` works with it by the real kubectl.
//!
//! # What it bears
//!
//! `benches/load.rs` measures it, over loopback HTTP with kept connections, objects of 1 kB with a declared schema, and counts
//! the processor's time of the server's threads alone: 34 us for a creation, 50 us for a replacement, 53 to 68 us for a merge
//! patch, that is 20,000 writes a second for each processor that the server has. A change told to one of 1,000 watchers
//! takes 6 us. An update of an object of 2 kB through memory takes 22 us by the clock while one reader is told of all of them. An
//! object takes 1.2 to 1.8 times its JSON in memory. Starting and stopping with TLS takes 0.3 ms.
//!
//! # Where compared answers differ
//!
//! - hashes of storage versions of two groups whose storage version is older than what is served;
//! - texts that quote the internal types of the real server (a diff of a pod's fields, Go structures of a definition), its YAML
//!   parser, and its accessors of scale paths;
//! - a second complaint about an integer outside a port's range, or a root schema that is no object;
//! - the generation annotation of a daemon set after it was wiped; managed fields of access reviews;
//! - 429 while the real server still prepares the storage of a freshly declared kind, and 404 of paths below `/version`.
//!
//! # What is not imitated
//!
//! - **Encodings**: answers are JSON. Bodies may also be YAML and, for built-in kinds, protocol buffers; no CBOR.
//! - **Validation of built-in kinds**: unknown fields, types, enumerations, names, labels and the most common demands
//!   (selectors, containers, ports, immutability); not the hundreds of rules for volumes, affinities, quantities and so on.
//! - **Defaults of built-in kinds**: those of pods, workloads, jobs, services, secrets, RBAC, webhooks and storage; rarer
//!   kinds get what their published schema says.
//! - **Admission** other than webhooks: no quotas, limit ranges, admission policies, pod security or service accounts'
//!   tokens; `ValidatingAdmissionPolicy` and the like are stored but do nothing.
//! - **Between versions**: declared kinds convert with strategy `None` only; events and autoscalers by their main fields.
//! - **Machinery**: no scheduler, kubelet, exec, attach, port-forward, proxy or logs (logs are empty); `controllers` are
//!   simulations that say what a cluster would say. Evictions ask no budget.
//! - **Tables** have the usual columns of common kinds and name with age for the rest; descriptions are short.
//! - **`OpenAPI`** documents carry types, merge keys and paths; declared kinds as they were declared, short descriptions of
//!   the main built-in kinds and fields. Version 2 is empty for who wants it in protocol buffers: kubectl looks there only
//!   for kinds that are not in version 3.
//! - **CEL** rules run in a CEL library: their cost is counted when they run, with the limits of the real server but other
//!   weights, and not estimated for definitions; no type checking of expressions before they run, and quantities are numbers.
//! - **Watches** from a version before the server's start are told everything since the start; the history keeps the last
//!   10,000 events of each kind (or 32 MB), not five minutes.
//! - **Nesting**: objects may have 127 levels, and results of JSON patches 120; the real server takes thousands.
//! - **Access**: anonymous requests are off; users have tokens, no certificates, no aggregation of cluster roles.
//! - **Priority and fairness, audit, metrics, aggregation of other API servers**: not there.

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
mod patch;
mod registry;
mod schema;
mod scheme;
mod server;
mod storage;
mod testkit;

pub use base::clock::set_time;
pub use base::options::{Controllers, ServerOptions};
pub use base::user::User;
pub use error::server::ServerError;
pub use server::{Server, start};
pub use testkit::faults::{CutOffPoint, Fault, Faults, Injection};
pub use testkit::request_log::{LoggedRequest, RequestLog};
