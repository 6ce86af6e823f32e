//! The state of a runtime's only worker thread, observed from another thread.

use tokio::runtime::RuntimeMetrics;

/// The state of a worker thread at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerState {
    /// How often the thread was parked and unparked so far. If two observations are equal, it has executed nothing in between.
    pub parks: u64,
    /// The number of tasks that other threads have woken up, and that the thread has not taken yet.
    pub queued: usize,
}

impl WorkerState {
    /// The current state of the thread. The counts are not read at the same moment: compare [`parks`](Self::parks) of two
    /// observations.
    pub fn of(metrics: &RuntimeMetrics) -> Self {
        Self { parks: metrics.worker_park_unpark_count(0), queued: metrics.global_queue_depth() }
    }

    /// Whether the thread executes nothing, and has nothing to execute. Timers and sockets may still wake it up.
    pub fn is_idle(self) -> bool {
        self.parks % 2 == 1 && self.queued == 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;

    use tokio::runtime::{Builder, Runtime};
    use tokio::sync::Notify;

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    }

    fn wait_until_idle(runtime: &Runtime) -> WorkerState {
        loop {
            let state = WorkerState::of(&runtime.metrics());
            if state.is_idle() {
                return state;
            }
            std::thread::yield_now();
        }
    }

    /// Blocks the worker thread, as a processor that it does not get would.
    fn block(runtime: &Runtime) -> mpsc::Sender<()> {
        let (release, released) = mpsc::channel::<()>();
        let (started, is_started) = mpsc::channel();
        runtime.spawn(async move {
            started.send(()).unwrap();
            released.recv().unwrap();
        });
        is_started.recv().unwrap();
        release
    }

    #[test]
    fn a_thread_that_executes_a_task_is_not_idle() {
        let runtime = runtime();
        let before = wait_until_idle(&runtime);
        let release = block(&runtime);
        let during = WorkerState::of(&runtime.metrics());
        assert!(!during.is_idle() && during.parks > before.parks && during.queued == 0);
        release.send(()).unwrap();
        assert!(wait_until_idle(&runtime).parks > during.parks);
    }

    #[test]
    fn spawned_and_woken_tasks_count_until_the_thread_takes_them() {
        let runtime = runtime();
        let bell = Arc::new(Notify::new());
        let waiting = runtime.spawn({
            let bell = Arc::clone(&bell);
            async move { bell.notified().await }
        });
        wait_until_idle(&runtime);
        let release = block(&runtime);
        bell.notify_one();
        runtime.spawn(async {});
        assert_eq!(WorkerState::of(&runtime.metrics()).queued, 2);
        release.send(()).unwrap();
        runtime.block_on(waiting).unwrap();
        assert_eq!(wait_until_idle(&runtime).queued, 0);
    }

    #[test]
    fn an_idle_thread_that_is_woken_up_has_executed_something() {
        let runtime = runtime();
        let before = wait_until_idle(&runtime);
        runtime.block_on(runtime.spawn(async {})).unwrap();
        assert!(wait_until_idle(&runtime).parks >= before.parks + 2);
    }
}
