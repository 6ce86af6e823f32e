//! Who works on a busy object: a detached cycle, the task of a worker, or no one yet.

use std::sync::Arc;

use kopf_core::time::Timestamp;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::context::RunningActivation;
use crate::host::CycleId;
use crate::objects::worker_signals::WorkerSignals;

/// Who works on a busy object.
#[derive(Debug)]
pub enum Execution {
    /// No one yet: the object waits in the backlog, with this size in bytes.
    Backlog(usize),
    /// A cycle without a task, which only waits for its completion.
    Detached(DetachedCycle),
    /// The task of a worker, with the signals between it and the slot.
    Worker(Arc<WorkerSignals>),
    /// A worker of a predecessor, which still handles the object in another version of its resource.
    Predecessor,
}

/// A cycle that waits for its completion without a task.
#[derive(Debug)]
pub struct DetachedCycle {
    /// The id of the cycle.
    pub(super) id: CycleId,
    /// When it was opened.
    pub(super) opened: Timestamp,
    /// The object is from a listing: the backlog continues when the cycle is done.
    pub(super) is_listed: bool,
    /// Counts as a worker for those who wait until all workers are done.
    pub(super) _token: TaskTrackerToken,
    /// Counts as an activation in progress.
    pub(super) _activation: RunningActivation,
}
