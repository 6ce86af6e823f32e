//! The tokio runtime of the process, created on first use, with one worker thread.
//!
//! It runs until the process exits, for all operators. It does not survive a fork: its use in a fork is an error that explains
//! this.

use std::process;
use std::sync::OnceLock;

use pyo3::PyResult;
use tokio::runtime::{Builder, Runtime};

use crate::errors::{forked, system};

struct RuntimeHandle {
    runtime: Runtime,
    pid: u32,
}

static RUNTIME: OnceLock<RuntimeHandle> = OnceLock::new();

/// The runtime, started if it is not yet running.
///
/// # Errors
/// If threads cannot be started, or if this process is a fork of the one that has the runtime.
pub(crate) fn runtime() -> PyResult<&'static Runtime> {
    if let Some(handle) = RUNTIME.get() {
        check_process(handle.pid)?;
        return Ok(&handle.runtime);
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("kopf-engine")
        .enable_all()
        .build()
        .map_err(|error| system("The engine's runtime cannot be started", error))?;
    // Another thread may have started one meanwhile; then that one is used, and ours is shut down by its drop.
    let handle = RUNTIME.get_or_init(|| RuntimeHandle { runtime, pid: process::id() });
    Ok(&handle.runtime)
}

/// Returns an error in a fork of the process with the given id.
pub(crate) fn check_process(pid: u32) -> PyResult<()> {
    match process::id() {
        here if here == pid => Ok(()),
        here => Err(forked(pid, here)),
    }
}
