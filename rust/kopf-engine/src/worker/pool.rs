//! The workers of an operator.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::Worker;
use crate::objects::dispatcher::{Work, WorkerPool};

/// Runs each worker as a task of the operator.
pub struct Pool;

impl WorkerPool for Pool {
    fn spawn(&self, work: Work, runtime: Option<&Handle>) {
        let Work { dispatcher, key, signals, is_listed, task, term } = work;
        let (workers, failing) =
            (dispatcher.shared.workers.clone(), Arc::clone(&dispatcher.shared.base.failing));
        let running = Worker { dispatcher, key, signals, is_listed, term }.run(task);
        // The worker recovers from panics of its cycles.
        let running = failing.guard("The worker of an object", running);
        match runtime {
            Some(runtime) => drop(workers.spawn_on(running, runtime)),
            None => drop(workers.spawn(running)),
        }
    }
}
