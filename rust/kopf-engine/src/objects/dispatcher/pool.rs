//! The dispatcher's interface to the workers.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::Dispatcher;
use crate::objects::slots::OpenCycle;

/// An object that needs a worker.
pub struct Work {
    /// The dispatcher of the object.
    pub dispatcher: Arc<Dispatcher>,
    /// The key of the object.
    pub key: Arc<str>,
    /// Notified about events of the object.
    pub arrived: Arc<Notify>,
    /// Whether the object is from a listing: the backlog continues when it is done.
    pub is_listed: bool,
    /// The cycle to continue with.
    pub open_cycle: Option<Box<OpenCycle>>,
}

impl Work {
    /// Starts the worker, on this runtime or on the current one.
    pub(super) fn spawn(self, runtime: Option<&Handle>) {
        self.dispatcher.pool.spawn(self, runtime);
    }
}

/// Starts workers of objects.
pub trait WorkerPool: Send + Sync {
    /// Starts a worker, on this runtime or on the current one.
    fn spawn(&self, work: Work, runtime: Option<&Handle>);
}
