//! The tasks of reconcilers: their calls, and the functions of their declarations.

use std::fmt;
use std::sync::Arc;

use kopf_core::conditions::ConditionChanges;
use kopf_core::json::value::{Map, Value};
use kopf_core::object::Object;
use kopf_core::relations::ObjectName;
use kopf_core::resource::Resource;
use kopf_core::schedule::{ReconcileResult, Start};

use super::{Responder, RunId};

/// The reason for the cancellation of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancellation {
    /// It has exceeded the timeout of the reconciler.
    TimedOut,
    /// The operator does not wait for it any longer.
    Stopped,
}

/// One call of a reconciler.
pub struct CallReconcilerTask {
    /// The id of the call, unique in the process, also among cycles.
    pub run: RunId,
    /// The index of the handler.
    pub handler: usize,
    /// The key of the primary.
    pub uid: Arc<str>,
    /// The resource of the primary.
    pub resource: Arc<Resource>,
    /// The state of the primary.
    pub object: Arc<Object>,
    /// Whether the primary is being deleted.
    pub is_deleting: bool,
    /// The failure series.
    pub start: Start,
    /// Receives the result; none if the call is lost.
    pub reply: Responder<Option<CallReconcilerReply>>,
}

/// The result of one call.
#[derive(Debug)]
pub struct CallReconcilerReply {
    /// The result.
    pub result: ReconcileResult,
    /// The merge patch for the primary.
    pub patch: Option<Map<String, Value>>,
    /// Whether there are transformation functions.
    pub fns: bool,
    /// The changes of conditions, if they are not among these functions.
    pub conditions: Option<ConditionChanges>,
}

/// A request to call the functions of a declaration: filters, `changed`, and `map`.
pub struct InspectObjectTask {
    /// The index of the handler.
    pub handler: usize,
    /// The position of the owned or watched kind; none for primaries.
    pub related: Option<usize>,
    /// The resource of the object.
    pub resource: Arc<Resource>,
    /// The object.
    pub object: Arc<Object>,
    /// Receives the results; none if the request is lost.
    pub reply: Responder<Option<Inspection>>,
}

/// The results of the functions of a declaration.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// Whether the filters match.
    pub matches: bool,
    /// The hashes of the values of the functions in `changed`; none for failed ones.
    pub functions: Vec<Option<u64>>,
    /// The primaries that `map` has returned; none if it has failed.
    pub mapped: Option<Mapped>,
}

/// The primaries that a mapping function has returned.
#[derive(Clone, Debug)]
pub enum Mapped {
    /// All primaries.
    Everything,
    /// The primaries of these names or uids.
    To(Vec<PrimaryRef>),
}

/// A reference to a primary.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PrimaryRef {
    /// By its uid.
    Uid(Arc<str>),
    /// By its name, and its namespace if it is namespaced.
    Name(ObjectName),
}

impl fmt::Debug for CallReconcilerTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallReconcilerTask").field(&self.run).field(&self.handler).finish()
    }
}

impl fmt::Debug for InspectObjectTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InspectObjectTask").field(&self.handler).field(&self.related).finish()
    }
}
