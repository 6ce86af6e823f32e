//! Notifications: the ends of cycles, objects, and the engine; only cancellations have a reply.

use kopf_engine::error::{Failure, FailureKind};
use kopf_engine::host::CancelCycleTask;
use pyo3::prelude::*;

use crate::commands::reply_sender::ReplySender;

/// The cycle has ended; if `keep_fns`, the functions of its patch are kept for the object's next cycle.
#[pyclass(frozen, get_all, module = "kopf._kopf")]
pub(crate) struct CycleClosed {
    pub(crate) cycle: u64,
    pub(crate) keep_fns: bool,
}

/// The running handlers of a cycle are to be cancelled.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct CancelCycle {
    #[pyo3(get)]
    cycle: u64,
    reply: ReplySender<Option<usize>>,
}

impl CancelCycle {
    pub(crate) fn new(task: CancelCycleTask) -> Self {
        Self { cycle: task.cycle, reply: task.reply.into() }
    }
}

#[pymethods]
impl CancelCycle {
    /// Replies that the handlers have ended; `handler` is the one whose call was cancelled.
    #[pyo3(signature = (handler=None))]
    fn complete(&self, handler: Option<usize>) {
        self.reply.send(handler);
    }
}

/// The object is deleted.
#[pyclass(frozen, get_all, module = "kopf._kopf")]
pub(crate) struct ObjectDeleted {
    pub(crate) uid: String,
}

/// The command has written its record to a peering object, or removed it. The namespace is none if the object is
/// cluster-scoped.
#[pyclass(frozen, get_all, module = "kopf._kopf")]
pub(crate) struct PeeringWritten {
    pub(crate) resource: Py<PyAny>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

/// The engine has ended: after a stop, or by a failure of this kind, with this message and maybe an explanation.
#[pyclass(frozen, get_all, module = "kopf._kopf")]
pub(crate) struct EngineStopped {
    failure: Option<(&'static str, String, Option<String>)>,
}

impl EngineStopped {
    pub(crate) fn new(failure: Option<Failure>) -> Self {
        let kind = |kind| match kind {
            FailureKind::Login => "login",
            FailureKind::Activity => "activity",
            FailureKind::Api => "api",
            FailureKind::Unreachable => "unreachable",
            FailureKind::Leadership => "leadership",
            FailureKind::Other => "other",
        };
        let fields = |failure: Failure| (kind(failure.kind), failure.message, failure.explanation);
        Self { failure: failure.map(fields) }
    }
}
