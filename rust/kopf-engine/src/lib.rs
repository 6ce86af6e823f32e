//! The runtime of a Kopf operator: everything that waits or talks.
//!
//! It holds no rule (those are in `kopf-core`) and no object of the handlers' language (that is behind the port
//! [`invoke::Invoker`]). The tasks of an operator:
//!
//! ```text
//! operator ── orchestration ─┬─ observation of definitions
//!                            ├─ observation of namespaces
//!                            └─ one watch-stream per resource and namespace ── dispatch
//!                                                                                 └─ a worker per object, while it is busy
//!          ── managed webhook configurations
//!          ── the server of webhooks ── a task per connection
//! ```
//!
//! The way of one event: [`watch`] decodes it, [`dispatch`] finds the object's slot ([`slots`]) and opens a cycle of the core;
//! most cycles end right there. Others get a [`worker`], which hands scripts to the handlers' side and applies the conclusion
//! ([`patching`]).

pub mod admission;
pub mod api;
pub mod client;
pub mod clock;
pub mod credentials;
pub mod discovery;
pub mod dispatch;
pub mod error;
pub mod invoke;
pub mod observation;
pub mod operator;
pub mod orchestration;
pub mod patching;
pub mod slots;
pub mod vault;
pub mod watch;
pub mod worker;
