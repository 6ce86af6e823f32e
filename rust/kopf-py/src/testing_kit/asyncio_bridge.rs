//! Awaitables of asyncio for futures in the runtime. Only the testing kit uses them; an operator uses `bridge`.
//!
//! When such a future is ready, a thread must attach to the interpreter and notify its event loop. That is done in the
//! runtime's blocking pool, never in the engine's thread. It must not happen while the interpreter is exiting: attaching then
//! ends the thread, and with it, in Rust, the process. So all tasks and calls are tracked here. At the exit, before the
//! interpreter is finalised, the tasks are cancelled, and running calls are awaited. After that, no thread can attach, and no
//! new task starts.

use std::any::Any;
use std::cell::OnceCell;
use std::pin::Pin;
use std::process;
use std::sync::{Once, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3_async_runtimes::TaskLocals;
use pyo3_async_runtimes::generic::{self, ContextExt};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::task_local;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::errors::misuse;
use crate::runtime::{check_process, runtime};

/// Maximum time that the exit waits. It is reached only if an event loop does not accept a callback.
const GRACE_PERIOD: Duration = Duration::from_secs(5);

/// The tasks that may attach to the interpreter.
struct AttachedTasks {
    handle: Handle,
    tracker: TaskTracker,
    closing: CancellationToken,
    pid: u32,
}

static ATTACHED_TASKS: OnceLock<AttachedTasks> = OnceLock::new();

/// Makes an awaitable for the running event loop. Cancelling it cancels the work.
pub(crate) fn awaitable<T>(
    py: Python<'_>,
    work: impl Future<Output = PyResult<T>> + Send + 'static,
) -> PyResult<Bound<'_, PyAny>>
where
    T: for<'py> IntoPyObject<'py> + Send + 'static,
{
    let handle = runtime()?.clone();
    let attached = ATTACHED_TASKS.get_or_init(|| AttachedTasks {
        handle,
        tracker: TaskTracker::new(),
        closing: CancellationToken::new(),
        pid: process::id(),
    });
    check_process(attached.pid)?;
    join_at_exit(py)?;
    if attached.closing.is_cancelled() {
        return Err(misuse("The interpreter is exiting: no new awaitables can be created."));
    }
    generic::future_into_py::<AttachedTasks, _, T>(py, work)
}

/// Registers [`join_all`] to run before the interpreter is finalised.
fn join_at_exit(py: Python<'_>) -> PyResult<()> {
    static REGISTERED: Once = Once::new();
    if REGISTERED.is_completed() {
        return Ok(());
    }
    let join_all = wrap_pyfunction!(join_all, py)?;
    py.import("atexit")?.call_method1("register", (join_all,))?;
    REGISTERED.call_once(|| ());
    Ok(())
}

/// Cancels all awaitables, and waits until no thread can attach to the interpreter for them.
#[pyfunction]
fn join_all(py: Python<'_>) {
    // A fork has a copy of the state, but not the tasks.
    let Some(attached) = ATTACHED_TASKS.get().filter(|attached| check_process(attached.pid).is_ok()) else {
        return;
    };
    attached.closing.cancel();
    attached.tracker.close();
    // Threads that are attaching already need the interpreter for that.
    py.detach(|| {
        let _late = attached.handle.block_on(async { timeout(GRACE_PERIOD, attached.tracker.wait()).await });
    });
}

/// A task, or a call in a thread; none if there is no runtime.
pub(crate) struct AttachedTask(Option<JoinHandle<()>>);

/// The reason why a task has ended without a result.
pub(crate) struct TaskLost(Option<tokio::task::JoinError>);

impl Future for AttachedTask {
    type Output = Result<(), TaskLost>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Some(task) => Pin::new(task).poll(context).map_err(|error| TaskLost(Some(error))),
            None => Poll::Ready(Err(TaskLost(None))),
        }
    }
}

impl generic::JoinError for TaskLost {
    fn is_panic(&self) -> bool {
        self.0.as_ref().is_some_and(tokio::task::JoinError::is_panic)
    }

    fn into_panic(self) -> Box<dyn Any + Send + 'static> {
        match self.0 {
            Some(error) if error.is_panic() => error.into_panic(),
            _ => Box::new("The task is lost."),
        }
    }
}

impl generic::Runtime for AttachedTasks {
    type JoinError = TaskLost;
    type JoinHandle = AttachedTask;

    fn spawn<F>(task: F) -> AttachedTask
    where
        F: Future<Output = ()> + Send + 'static,
    {
        AttachedTask(ATTACHED_TASKS.get().map(|attached| {
            let closing = attached.closing.clone();
            let task = async move {
                let _cancelled = closing.run_until_cancelled_owned(task).await;
            };
            attached.tracker.spawn_on(task, &attached.handle)
        }))
    }

    fn spawn_blocking<F>(call: F) -> AttachedTask
    where
        F: FnOnce() + Send + 'static,
    {
        let attached = ATTACHED_TASKS.get().filter(|attached| !attached.closing.is_cancelled());
        AttachedTask(attached.map(|attached| attached.tracker.spawn_blocking_on(call, &attached.handle)))
    }
}

task_local! {
    static LOCALS: OnceCell<TaskLocals>;
}

impl ContextExt for AttachedTasks {
    fn scope<F, R>(locals: TaskLocals, task: F) -> Pin<Box<dyn Future<Output = R> + Send>>
    where
        F: Future<Output = R> + Send + 'static,
    {
        Box::pin(LOCALS.scope(OnceCell::from(locals), task))
    }

    fn get_task_locals() -> Option<TaskLocals> {
        LOCALS.try_with(|locals| locals.get().cloned()).ok().flatten()
    }
}
