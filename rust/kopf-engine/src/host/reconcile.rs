//! The tasks of reconcilers: their calls, and the functions of their declarations.

use std::fmt;
use std::sync::Arc;

use kopf_core::conditions::ConditionChanges;
use kopf_core::daemon::StopReasons;
use kopf_core::json::value::{Map, Value};
use kopf_core::object::Object;
use kopf_core::relations::ObjectName;
use kopf_core::resource::Resource;
use kopf_core::schedule::{ReconcileResult, Start};

use super::{Responder, RunId};

/// A task of reconcilers for the host.
pub enum ReconcileTask {
    /// Call a reconciler.
    Call(Box<ReconcileCall>),
    /// Set the stop flag of a call.
    Stop {
        /// The call.
        run: RunId,
        /// The reasons to set on the flag.
        reasons: StopReasons,
        /// Whether to cancel the call, and why.
        cancel: Option<Cancellation>,
    },
    /// The writes of a call have ended: drop the data kept for it.
    End(RunId),
    /// Call the functions of a declaration for an object.
    Inspect(Box<InspectTask>),
}

/// The reason for the cancellation of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancellation {
    /// It has exceeded the timeout of the reconciler.
    TimedOut,
    /// The operator does not wait for it any longer.
    Stopped,
}

/// One call of a reconciler.
pub struct ReconcileCall {
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
    pub reply: Responder<Option<ReconcileReply>>,
}

/// The result of one call.
#[derive(Debug)]
pub struct ReconcileReply {
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
pub struct InspectTask {
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

impl ReconcileTask {
    /// The resource of the task's object.
    pub fn resource(&self) -> Option<&Arc<Resource>> {
        match self {
            Self::Call(call) => Some(&call.resource),
            Self::Inspect(task) => Some(&task.resource),
            Self::Stop { .. } | Self::End(_) => None,
        }
    }

    /// The object of the task.
    pub fn object(&self) -> Option<&Arc<Object>> {
        match self {
            Self::Call(call) => Some(&call.object),
            Self::Inspect(task) => Some(&task.object),
            Self::Stop { .. } | Self::End(_) => None,
        }
    }
}

impl fmt::Debug for ReconcileTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(call) => f.debug_tuple("Call").field(&call.run).field(&call.handler).finish(),
            Self::Stop { run, reasons, cancel } => {
                f.debug_tuple("Stop").field(run).field(reasons).field(cancel).finish()
            }
            Self::End(run) => f.debug_tuple("End").field(run).finish(),
            Self::Inspect(task) => {
                f.debug_tuple("Inspect").field(&task.handler).field(&task.related).finish()
            }
        }
    }
}
