//! A cycle that waits for its completion without a task.

use kopf_core::time::Timestamp;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::context::RunningActivation;
use crate::host::CycleId;

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
