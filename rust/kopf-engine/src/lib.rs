//! The runtime of a Kopf operator: everything that waits or talks.
//!
//! It holds no rule (those are in `kopf-core`) and no object of the handlers' language (that is behind the port
//! [`invoke::Invoker`]). The tasks of an operator:
//!
//! ```text
//! operator ── orchestration ─┬─ observation of definitions
//!                            ├─ observation of namespaces
//!                            ├─ peering: signs of life, and a watchman, per peering object
//!                            └─ one watch-stream per resource and namespace ── dispatch
//!                                                                                 └─ a worker per object, while it is busy
//!          ├─ the wheel of daemons and timers: one task for all of them, whether they sleep or run
//!          ├─ posting ── a lane per object, while there are events about it
//!          ├─ probes
//!          ├─ managed webhook configurations
//!          └─ the server of webhooks ── a task per connection
//! ```
//!
//! The way of one event: [`watch`] decodes it, [`dispatch`] finds the object's slot ([`slots`]) and opens a cycle of the core;
//! most cycles end right there. Others get a [`worker`], which hands scripts to the handlers' side and applies the conclusion
//! ([`patching`]).

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail loudly")
)]

pub mod admission;
pub mod api;
pub mod backlog;
pub mod client;
pub mod clock;
pub mod credentials;
pub mod daemons;
pub mod departures;
pub mod discovery;
pub mod dispatch;
pub mod errands;
pub mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod guests;
pub mod health;
pub mod indexing;
pub mod invoke;
pub mod observation;
pub mod operator;
pub mod orchestration;
pub mod patching;
mod patience;
pub mod peering;
pub mod posting;
pub mod probes;
pub mod rules;
pub mod salvage;
pub mod slots;
pub mod supervision;
pub mod territory;
#[cfg(test)]
mod testing;
pub mod toggles;
pub mod vault;
pub mod virtual_time;
pub mod watch;
pub mod worker;
