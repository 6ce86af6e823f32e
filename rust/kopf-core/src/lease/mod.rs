//! Leader election with a Lease: the rules by which replicas acquire, renew and release it, and of the fence of a term.
//!
//! [`Candidate`] decides for one replica: it receives what was read and written, and returns the next action. [`Fence`]
//! decides whether a call or a write of a term may begin. [`Record`] is the content of the Lease, with the semantics of
//! client-go, so that its electors, kubectl and dashboards can read it.
//!
//! Invariants:
//!
//! * Two fences are never open at the same time, if clock rates differ by less than `lease_duration / renew_deadline`, and
//!   only electors modify the Lease. Timestamps of other replicas are never compared with a local clock.
//! * A fence is open until the instant at which the last acknowledged write was sent, plus `renew_deadline`. A closed
//!   fence never opens again for its term.
//! * A candidate never ends by itself, regardless of the responses.

mod candidate;
mod fence;
mod options;
mod record;

pub use candidate::{Action, Candidate, Command, Input, Term, Unavailable, WriteError};
pub use fence::Fence;
pub use options::{LeaderElection, OnLost, Options};
pub use record::{Lease, Record, UnsupportedStrategy, Version};
