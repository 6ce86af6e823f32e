//! The dispatcher's interface to the workers.

use std::sync::Arc;

use kopf_core::cause::EventType;
use kopf_core::object_worker::DecidedWrite;
use tokio::runtime::Handle;
use tracing::Span;

use super::{CycleSummary, Dispatcher};
use crate::host::CycleId;
use crate::objects::open_cycle::OpenCycle;
use crate::objects::worker_signals::WorkerSignals;
use crate::term_work::EnteredTerm;

/// An object that needs a worker.
pub struct Work {
    /// The dispatcher of the object.
    pub dispatcher: Arc<Dispatcher>,
    /// The key of the object.
    pub key: Arc<str>,
    /// The signals between the object's slot and the worker.
    pub signals: Arc<WorkerSignals>,
    /// Whether the object is from a listing: the backlog continues when it is done.
    pub is_listed: bool,
    /// The first task; none to start with the next action of the object.
    pub task: Option<WorkerTask>,
    /// The term to which the work belongs.
    pub term: EnteredTerm,
}

/// The first task of a worker.
pub enum WorkerTask {
    /// Continues a cycle.
    Cycle(Box<OpenCycle>),
    /// Writes the decision of a cycle.
    Write {
        /// The id of the cycle.
        id: CycleId,
        /// The host has already closed the cycle.
        closed: bool,
        /// The facts to record about the cycle.
        summary: CycleSummary,
        /// The decided changes.
        write: Box<DecidedWrite>,
        /// The span of the cycle.
        span: Span,
        /// See [`OpenCycle::pauses`].
        pauses: u64,
    },
}

impl WorkerTask {
    /// The write of the decision of a cycle.
    pub(super) fn write(running: &OpenCycle, write: Box<DecidedWrite>) -> Self {
        Self::Write {
            id: running.id,
            closed: running.closed,
            summary: CycleSummary::of(running),
            write,
            span: running.span().clone(),
            pauses: running.pauses(),
        }
    }

    /// The span of the cycle.
    pub(crate) const fn span(&self) -> &Span {
        match self {
            Self::Cycle(running) => running.span(),
            Self::Write { span, .. } => span,
        }
    }

    /// Whether the task is dropped, as a pause of the operator has begun before it starts: no handler was called yet.
    pub(crate) fn is_outdated(&self, dispatcher: &Dispatcher) -> bool {
        match self {
            Self::Cycle(running) => {
                !running.has_run()
                    && running.event().kind != EventType::Deleted
                    && dispatcher.has_paused_since(running.pauses())
            }
            Self::Write { summary, pauses, .. } => !summary.has_run && dispatcher.has_paused_since(*pauses),
        }
    }
}

/// Starts workers of objects.
pub trait WorkerPool: Send + Sync {
    /// Starts a worker, on this runtime or on the current one.
    fn spawn(&self, work: Work, runtime: Option<&Handle>);
}
