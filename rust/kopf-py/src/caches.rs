//! `CacheReader`: a cache as Python reads it, and `CacheChanges`, its changes.

use std::sync::{Arc, Mutex, PoisonError};

use kopf_core::caches::{CacheChangeKind, Query};
use kopf_core::json::path::FieldPath;
use kopf_core::json::value::Value;
use kopf_core::object;
use kopf_engine::caches::{self, Cache, NotReady};
use kopf_engine::operator::Operator;
use pyo3::exceptions::{PyLookupError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use tokio::task::AbortHandle;

use crate::client::block_on;
use crate::client::outcome::Outcome;
use crate::client::response_queue::{ResponseQueue, RunningCall};
use crate::convert::{python_to_value, value_to_python};
use crate::errors::misuse;
use crate::runtime::runtime;
use crate::views::Object;

/// A cache of a running operator.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct CacheReader {
    operator: Operator,
    /// The number of the cache among the handlers.
    number: usize,
}

/// The fields of a query: paths and values.
type Fields<'py> = Vec<(Vec<String>, Bound<'py, PyAny>)>;

impl CacheReader {
    pub(crate) fn new(operator: Operator, number: usize) -> Self {
        Self { operator, number }
    }

    fn cache(&self) -> PyResult<&Arc<Cache>> {
        let caches = self.operator.caches().and_then(|caches| caches.get(self.number));
        caches.ok_or_else(|| PyLookupError::new_err("The operator is starting: its caches are not ready."))
    }
}

#[pymethods]
impl CacheReader {
    /// The object of this name. Without a namespace, of any.
    fn get(&self, py: Python<'_>, name: &str, namespace: Option<&str>) -> PyResult<Option<Py<Object>>> {
        let found = self.cache()?.get(namespace, name).map_err(not_ready)?;
        found.map(|object| Py::new(py, Object::new(object))).transpose()
    }

    /// The object of this name, if it has the owner with this uid. The namespace is that of namespaced kinds.
    fn get_owned(
        &self,
        py: Python<'_>,
        name: &str,
        namespace: Option<&str>,
        owner: &str,
    ) -> PyResult<Option<Py<Object>>> {
        let found = self.cache()?.get_owned(namespace, name, owner).map_err(not_ready)?;
        found.map(|object| Py::new(py, Object::new(object))).transpose()
    }

    /// The objects of this name in all namespaces.
    fn named(&self, py: Python<'_>, name: &str) -> PyResult<Vec<Py<Object>>> {
        views(py, self.cache()?.named(name).map_err(not_ready)?)
    }

    /// The objects that match: of the namespace, with these labels and values of fields, with this owner, and with these values
    /// of declared keys.
    #[pyo3(signature = (namespace, labels, fields, owner, by))]
    fn select(
        &self,
        py: Python<'_>,
        namespace: Option<String>,
        labels: Option<String>,
        fields: Fields<'_>,
        owner: Option<String>,
        by: Vec<(String, Bound<'_, PyAny>)>,
    ) -> PyResult<Vec<Py<Object>>> {
        let field = |(path, value): (Vec<String>, Bound<'_, PyAny>)| -> PyResult<(FieldPath, Value)> {
            Ok((FieldPath::from_keys(path), python_to_value(&value)?))
        };
        let fields = fields.into_iter().map(field).collect::<PyResult<_>>()?;
        let by = by.into_iter().map(|(name, value)| Ok((name, python_to_value(&value)?)));
        let by = by.collect::<PyResult<_>>()?;
        let query = Query { namespace, labels, fields, owner, by };
        let found = self.cache()?.select(&query).map_err(not_ready)?;
        views(
            py,
            found.map_err(|error| match error {
                kopf_core::caches::QueryError::Key(error) => PyTypeError::new_err(error.to_string()),
                kopf_core::caches::QueryError::Selector(error) => PyValueError::new_err(error.to_string()),
            })?,
        )
    }

    /// The present values of a declared key.
    fn keys<'py>(&self, py: Python<'py>, by: &str) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let keys = self.cache()?.keys(by).map_err(not_ready)?;
        let keys = keys.map_err(|error| PyTypeError::new_err(error.to_string()))?;
        let value = |json: &String| serde_json::from_str(json).unwrap_or(Value::Null);
        keys.iter().map(|json| value_to_python(py, &value(json))).collect()
    }

    /// The number of objects.
    fn __len__(&self) -> PyResult<usize> {
        self.cache()?.count().map_err(not_ready)
    }

    /// Whether objects of the kind are namespaced; none if that is not known.
    #[getter]
    fn namespaced(&self) -> PyResult<Option<bool>> {
        Ok(self.cache()?.is_namespaced())
    }

    /// Whether the cache is filled.
    #[getter]
    fn is_ready(&self) -> bool {
        self.cache().is_ok_and(|cache| cache.is_ready())
    }

    /// The seconds since its streams are failing.
    #[getter]
    fn stale_for(&self) -> PyResult<f64> {
        Ok(self.cache()?.stale_for())
    }

    /// The memory of the objects in bytes.
    #[getter]
    fn memory_size(&self, py: Python<'_>) -> PyResult<usize> {
        let cache = self.cache()?;
        Ok(py.detach(|| cache.memory_size()))
    }

    /// Waits until the cache is filled, at most so many seconds. Returns whether it is. It blocks the thread.
    fn wait_ready(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let cache = Arc::clone(self.cache()?);
        let closing = self.operator.closing();
        block_on(py, async move {
            tokio::select! {
                is_ready = cache.ready_within(timeout) => is_ready,
                () = closing.cancelled() => false,
            }
        })
    }

    /// The same for an event loop: the queue gets an outcome when the cache is filled, or when the time is over.
    fn start_wait_ready(
        &self,
        timeout: Option<f64>,
        queue: &Bound<'_, ResponseQueue>,
        ticket: u64,
    ) -> PyResult<RunningCall> {
        let cache = Arc::clone(self.cache()?);
        let (queue, closing) = (queue.get().queue(), self.operator.closing());
        let task = async move {
            tokio::select! {
                _ = cache.ready_within(timeout) => {}
                () = closing.cancelled() => {}
            }
            queue.put(ticket, Outcome::Ready);
        };
        Ok(RunningCall::new(spawn_wait(task)?))
    }

    /// The changes of the cache; with `initial`, the present objects first.
    fn changes(&self, initial: bool) -> PyResult<CacheChanges> {
        let changes = caches::CacheChanges::new(self.cache()?, !initial, self.operator.closing());
        Ok(CacheChanges(Mutex::new(Some(Arc::new(changes)))))
    }
}

/// Spawns a wait that nothing joins: it ends with the operator at the latest, and holds only the queue.
fn spawn_wait(wait: impl Future<Output = ()> + Send + 'static) -> PyResult<AbortHandle> {
    Ok(runtime()?.spawn(wait).abort_handle())
}

#[expect(clippy::needless_pass_by_value, reason = "an argument of `map_err`")]
fn not_ready(error: NotReady) -> PyErr {
    PyLookupError::new_err(error.to_string())
}

fn views(py: Python<'_>, objects: Vec<Arc<object::Object>>) -> PyResult<Vec<Py<Object>>> {
    objects.into_iter().map(|object| Py::new(py, Object::new(object))).collect()
}

/// The changes of a cache. They end when this is closed or collected.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct CacheChanges(Mutex<Option<Arc<caches::CacheChanges>>>);

impl CacheChanges {
    fn open(&self) -> PyResult<Arc<caches::CacheChanges>> {
        let changes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        changes.clone().ok_or_else(|| misuse("The iterator of changes is closed."))
    }
}

#[pymethods]
impl CacheChanges {
    /// Waits for changes: the queue gets an outcome.
    fn start_wait(&self, queue: &Bound<'_, ResponseQueue>, ticket: u64) -> PyResult<RunningCall> {
        let (ready, queue) = (self.open()?.ready_owned(), queue.get().queue());
        let task = async move {
            ready.await;
            queue.put(ticket, Outcome::Ready);
        };
        Ok(RunningCall::new(spawn_wait(task)?))
    }

    /// Takes the changes that are ready: type, object, previous object. None if the operator has ended.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let Some(changes) = self.open()?.take() else { return Ok(None) };
        let list = PyList::empty(py);
        for change in changes {
            let kind = match change.kind {
                CacheChangeKind::Present => None,
                CacheChangeKind::Added => Some("ADDED"),
                CacheChangeKind::Modified => Some("MODIFIED"),
                CacheChangeKind::Deleted => Some("DELETED"),
            };
            let view = |object: Arc<object::Object>| Py::new(py, Object::new(object));
            let old = change.old.map(view).transpose()?;
            list.append((kind, view(change.object)?, old))?;
        }
        Ok(Some(list))
    }

    /// Closes the iterator. Further calls have no effect.
    fn close(&self) {
        let changes = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(changes);
    }
}
