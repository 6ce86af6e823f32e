//! `UserStream`: a watch or a log that users' code reads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use kopf_core::object;
use kopf_engine::user_client::{self, StreamItem};
use pyo3::prelude::*;
use pyo3::types::PyList;
use tokio_util::task::TaskTracker;

use super::block_on;
use super::failure::CallFailure;
use super::outcome::Outcome;
use super::response_queue::{ResponseQueue, RunningCall};
use crate::errors::misuse;
use crate::runtime::runtime;
use crate::views::Object;

/// A watch, or a log that is read. It ends when it is closed or collected.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct UserStream {
    items: Mutex<Option<Arc<user_client::UserStream>>>,
    is_finished: AtomicBool,
    tasks: TaskTracker,
}

impl UserStream {
    pub(crate) fn new(items: user_client::UserStream, tasks: TaskTracker) -> Self {
        Self { items: Mutex::new(Some(Arc::new(items))), is_finished: AtomicBool::new(false), tasks }
    }

    fn open(&self) -> PyResult<Arc<user_client::UserStream>> {
        let items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        items.clone().ok_or_else(|| misuse("The stream is closed."))
    }
}

#[pymethods]
impl UserStream {
    /// Blocks the thread until there are items.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let ready = self.open()?.ready_owned();
        block_on(py, ready)
    }

    /// The same for an event loop: the queue gets an outcome when there are items.
    fn start_wait(&self, queue: &Bound<'_, ResponseQueue>, ticket: u64) -> PyResult<RunningCall> {
        let (ready, queue) = (self.open()?.ready_owned(), queue.get().queue());
        let task = async move {
            ready.await;
            queue.put(ticket, Outcome::Ready);
        };
        Ok(RunningCall::new(self.tasks.spawn_on(task, runtime()?).abort_handle()))
    }

    /// Whether the end without an error was taken.
    #[getter]
    fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::Relaxed)
    }

    /// Takes the items that are ready: changes (type, object, previous object), `None` at the end of a listing, lines of logs, and a
    /// `CallFailure` at the end by an error.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for item in self.open()?.take() {
            match item {
                StreamItem::Synced => list.append(py.None())?,
                StreamItem::Line(line) => list.append(line)?,
                StreamItem::End(Ok(())) => self.is_finished.store(true, Ordering::Relaxed),
                StreamItem::End(Err(error)) => list.append(Py::new(py, CallFailure::new(error))?)?,
                StreamItem::Change(change) => {
                    let view = |object: &Arc<object::Object>| Py::new(py, Object::new(Arc::clone(object)));
                    let old = change.old.as_ref().map(view).transpose()?;
                    list.append((change.kind.as_str(), view(&change.object)?, old))?;
                }
            }
        }
        Ok(list)
    }

    /// Closes the stream. Further calls have no effect.
    fn close(&self) {
        let items = self.items.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(items);
    }
}
