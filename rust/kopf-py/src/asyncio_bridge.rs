//! Awaitables of asyncio for what goes on in the runtime: for the testing kit only, since an operator has its border.
//!
//! When such a future is ready, somebody must attach to the interpreter and tell its loop. That is done in a thread of the
//! runtime's blocking pool, never in the engine's own. And it must not happen in an interpreter that is exiting: attaching to
//! one ends the thread, and with that, in Rust, the process. So all tasks and calls are counted here; at the exit, before the
//! interpreter is finalised, the tasks are cancelled, and those calls that have begun are waited for. Nothing is left then
//! that could attach, and nothing new begins.

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

/// How long the exit waits at most. It would take a loop that does not even take a callback.
const GRACE_PERIOD: Duration = Duration::from_secs(5);

/// The tasks that may attach to the interpreter.
struct AttachedTasks {
    handle: Handle,
    tracker: TaskTracker,
    closing: CancellationToken,
    home: u32,
}

static VISITORS: OnceLock<AttachedTasks> = OnceLock::new();

/// Makes an awaitable for the running loop of asyncio. If it is cancelled, so is the work.
pub(crate) fn awaitable<T>(
    py: Python<'_>,
    work: impl Future<Output = PyResult<T>> + Send + 'static,
) -> PyResult<Bound<'_, PyAny>>
where
    T: for<'py> IntoPyObject<'py> + Send + 'static,
{
    let handle = runtime()?.handle().clone();
    let attached = VISITORS.get_or_init(|| AttachedTasks {
        handle,
        tracker: TaskTracker::new(),
        closing: CancellationToken::new(),
        home: process::id(),
    });
    check_process(attached.home)?;
    join_at_exit(py)?;
    if attached.closing.is_cancelled() {
        return Err(misuse("The interpreter is exiting: nobody can wait for anything any more."));
    }
    generic::future_into_py::<AttachedTasks, _, T>(py, work)
}

/// Has the visitors seen off before the interpreter is finalised.
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

/// Cancels what is awaited, and waits until nobody of it can come back.
#[pyfunction]
fn join_all(py: Python<'_>) {
    // In a fork, there is nobody but their memory.
    let Some(attached) = VISITORS.get().filter(|attached| check_process(attached.home).is_ok()) else {
        return;
    };
    attached.closing.cancel();
    attached.tracker.close();
    // Those who have begun to attach need the interpreter for that.
    py.detach(|| {
        let _late = attached.handle.block_on(async { timeout(GRACE_PERIOD, attached.tracker.wait()).await });
    });
}

/// A task, or a call in a thread; nothing if there is no runtime.
pub(crate) struct Visit(Option<JoinHandle<()>>);

/// Why a visit has ended without a result.
pub(crate) struct Lost(Option<tokio::task::JoinError>);

impl Future for Visit {
    type Output = Result<(), Lost>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Some(task) => Pin::new(task).poll(context).map_err(|error| Lost(Some(error))),
            None => Poll::Ready(Err(Lost(None))),
        }
    }
}

impl generic::JoinError for Lost {
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
    type JoinError = Lost;
    type JoinHandle = Visit;

    fn spawn<F>(task: F) -> Visit
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Visit(VISITORS.get().map(|attached| {
            let closing = attached.closing.clone();
            let task = async move {
                let _cancelled = closing.run_until_cancelled_owned(task).await;
            };
            attached.tracker.spawn_on(task, &attached.handle)
        }))
    }

    fn spawn_blocking<F>(call: F) -> Visit
    where
        F: FnOnce() + Send + 'static,
    {
        let attached = VISITORS.get().filter(|attached| !attached.closing.is_cancelled());
        Visit(attached.map(|attached| attached.tracker.spawn_blocking_on(call, &attached.handle)))
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
