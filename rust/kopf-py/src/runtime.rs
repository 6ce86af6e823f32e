//! The tokio runtime of the process, created on first use, with one worker thread.
//!
//! It runs for all operators until the interpreter exits, and is joined then: a thread that goes on would run during the
//! destructors of native libraries. It does not survive a fork: its use in a fork is an error that explains this.

use std::process;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use pyo3::types::PyAnyMethods as _;
use pyo3::{PyResult, Python, pyfunction, wrap_pyfunction};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::errors::{forked, misuse, system};

/// Maximum time that the exit waits. It is reached only if a call in a thread cannot be interrupted, such as the resolution of a
/// name by the system.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

struct ProcessRuntime {
    handle: Handle,
    /// None after the exit has begun.
    runtime: Mutex<Option<Runtime>>,
    pid: u32,
}

impl ProcessRuntime {
    fn is_running(&self) -> bool {
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

static RUNTIME: OnceLock<ProcessRuntime> = OnceLock::new();

/// The runtime, started if it is not yet running.
///
/// # Errors
/// If threads cannot be started, if this process is a fork of the one that has the runtime, or if the interpreter is exiting.
pub(crate) fn runtime() -> PyResult<&'static Handle> {
    if let Some(started) = RUNTIME.get() {
        check_process(started.pid)?;
        if started.is_running() {
            return Ok(&started.handle);
        }
        return Err(misuse(
            "The interpreter is exiting: operators, clients and servers cannot be used any more.",
        ));
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("kopf-engine")
        .enable_all()
        .build()
        .map_err(|error| system("The engine's runtime cannot be started", error))?;
    Python::attach(|py| {
        let stop = wrap_pyfunction!(stop_at_exit, py)?;
        py.import("atexit")?.call_method1("register", (stop,)).map(drop)
    })?;
    // Another thread may have started one meanwhile; then that one is used, and ours is shut down by its drop.
    let started = RUNTIME.get_or_init(|| ProcessRuntime {
        handle: runtime.handle().clone(),
        runtime: Mutex::new(Some(runtime)),
        pid: process::id(),
    });
    Ok(&started.handle)
}

/// The runtime for the end of something that runs in it; none if that has ended with the runtime.
///
/// # Errors
/// As of [`runtime`], except at the exit.
pub(crate) fn runtime_unless_exiting() -> PyResult<Option<&'static Handle>> {
    match RUNTIME.get() {
        Some(started) if check_process(started.pid).is_ok() && !started.is_running() => Ok(None),
        _ => runtime().map(Some),
    }
}

/// Ends all tasks, and waits until no thread of the runtime is left.
#[pyfunction]
fn stop_at_exit(py: Python<'_>) {
    // A fork has a copy of the state, but not the threads.
    let Some(started) = RUNTIME.get().filter(|started| check_process(started.pid).is_ok()) else { return };
    let runtime = started.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(runtime) = runtime {
        py.detach(|| runtime.shutdown_timeout(GRACE_PERIOD));
    }
}

/// Returns an error in a fork of the process with the given id.
pub(crate) fn check_process(pid: u32) -> PyResult<()> {
    match process::id() {
        here if here == pid => Ok(()),
        here => Err(forked(pid, here)),
    }
}
