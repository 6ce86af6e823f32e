//! The workers of an operator.

use tokio::runtime::Handle;

use super::Worker;
use crate::objects::dispatcher::{Work, WorkerPool};

/// Runs each worker as a task of the operator.
pub struct Pool;

impl WorkerPool for Pool {
    fn spawn(&self, work: Work, runtime: Option<&Handle>) {
        let Work { dispatcher, key, arrived, is_listed, task } = work;
        let workers = dispatcher.shared.workers.clone();
        let running = Worker { dispatcher, key, arrived, is_listed }.run(task);
        match runtime {
            Some(runtime) => drop(workers.spawn_on(running, runtime)),
            None => drop(workers.spawn(running)),
        }
    }
}
