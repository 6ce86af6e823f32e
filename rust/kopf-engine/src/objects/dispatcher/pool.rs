//! The port of the dispatcher to the workers.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::Dispatcher;
use crate::objects::slots::OpenCycle;

/// An object that a worker is to be started for.
pub struct Work {
    /// The dispatcher of the object.
    pub dispatcher: Arc<Dispatcher>,
    /// The key of the object.
    pub key: Arc<str>,
    /// Notified when an event of the object has come.
    pub arrived: Arc<Notify>,
    /// Whether it is of a listing: the backlog waits for it.
    pub is_listed: bool,
    /// The cycle to go on with.
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
