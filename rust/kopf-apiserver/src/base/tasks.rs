//! The tasks of one server. Its shutdown stops and awaits all of them.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long the shutdown waits for functions that run in threads, which cannot be cancelled.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The tasks of one server.
///
/// A panic ends its task only. The panic hook of the process reports it; the client of the task's connection gets no
/// response.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    stopping: CancellationToken,
}

impl Tasks {
    /// Spawns a task that is cancelled when the server stops.
    pub(crate) fn spawn(&self, task: impl Future + Send + 'static) {
        let stopping = self.stopping.clone();
        // The tracker joins it.
        let _joined: JoinHandle<()> = self.tracker.spawn(async move {
            let _cancelled = stopping.run_until_cancelled_owned(task).await;
        });
    }

    /// Runs a function in a thread.
    pub(crate) fn spawn_blocking<T: Send + 'static>(
        &self,
        function: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        self.tracker.spawn_blocking(function)
    }

    /// Cancels all tasks, also those that are spawned later.
    pub(crate) fn stop(&self) {
        self.stopping.cancel();
        self.tracker.close();
    }

    /// Cancels all tasks and waits for their end.
    pub(crate) async fn shutdown(&self) {
        self.stop();
        let _late = timeout(SHUTDOWN_TIMEOUT, self.tracker.wait()).await;
    }
}

impl<F: Future + Send + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};

    use tokio::runtime::Handle;

    use super::*;

    #[tokio::test]
    async fn the_shutdown_awaits_all_tasks() {
        let tasks = Tasks::default();
        tasks.spawn(pending::<()>());
        tasks.spawn(async { assert!(Handle::try_current().is_err(), "an injected panic") });
        let (sender, receiver) = mpsc::channel::<()>();
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        let running = tasks.spawn_blocking(move || {
            let is_dropped = receiver.recv().is_err();
            done.store(true, Ordering::SeqCst);
            is_dropped
        });
        assert_eq!(Handle::current().metrics().num_alive_tasks(), 2);
        drop(sender);
        tasks.shutdown().await;
        assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
        // The runtime registers the end of a function in a thread somewhat later.
        assert!(is_done.load(Ordering::SeqCst) && matches!(running.await, Ok(true)));
        tasks.spawn(pending::<()>());
        tasks.shutdown().await;
    }
}
