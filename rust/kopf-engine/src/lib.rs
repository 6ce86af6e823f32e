//! The runtime of a Kopf operator: requests, watches, timers, tasks.
//!
//! It holds no rules (those are in `kopf-core`) and no Python objects (those are behind the trait [`host::Host`]). The tasks of
//! an operator:
//!
//! ```text
//! operator ── orchestrator ─┬─ observer of CRDs
//!                           ├─ observer of namespaces
//!                           ├─ peering: a keep-alive and a watch per peering object
//!                           └─ one feed per resource and namespace ── dispatcher
//!                                                                       └─ a worker per object, while it is busy
//!          ├─ the scheduler of daemons and timers: one task for all of them, whether they sleep or run
//!          ├─ the reconcilers: one task for all of them
//!          ├─ the caches: one task for all of them
//!          ├─ event recorder ── a queue per object, while there are Kubernetes events about it
//!          ├─ the health monitor, and the status server
//!          ├─ managed webhook configurations
//!          └─ the webhook server ── a task per connection
//! ```
//!
//! The path of one event: [`watch`] decodes it, [`feed`] passes it to the [`objects::dispatcher`], which finds the object's
//! slot ([`objects::slots`]) and starts a cycle of the core. Most cycles end there. For the others, a [`worker`] submits
//! activations to the host and applies the decision ([`patching`]).
//!
//! Folders import downwards: [`operator`], [`status`], [`caches`], [`apply`], [`reconciling`], [`user_client`], [`discovery`], [`peering`], [`event_recorder`], [`feed`], [`worker`],
//! [`objects`], [`context`], [`daemons`], [`admission`], [`task_context`], [`watch`], [`patching`], [`client`], [`host`], and what they share.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail loudly")
)]

pub mod admission;
pub mod apply;
pub mod blocking;
pub mod caches;
pub mod client;
pub mod context;
pub mod daemons;
pub mod discovery;
pub mod error;
pub mod event_recorder;
pub mod feed;
pub mod fence;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod host;
pub mod http_server;
pub mod leadership;
pub mod live_config;
pub mod metrics;
mod metrics_text;
pub mod object_key;
pub mod objects;
pub mod operator;
pub mod operator_pause;
pub mod other_operators;
pub mod patching;
pub mod peering;
pub mod reconciling;
pub mod spans;
pub mod status;
pub mod supervision;
pub mod task_context;
pub mod term_work;
#[cfg(test)]
mod testing;
pub mod time;
pub mod user_client;
pub mod watch;
pub mod watch_health;
pub mod worker;
