//! `ComputeKeys`: the functions that compute keys of caches.

use kopf_core::caches::ComputedKeys;
use kopf_core::json::value::Value;
use kopf_engine::host::caching::ComputeKeysTask;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::commands::reply_sender::ReplySender;
use crate::convert::python_to_value;
use crate::views::Object;

/// Call the functions that compute the keys of an object.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct ComputeKeys {
    /// The number of the cache.
    #[pyo3(get)]
    cache: usize,
    /// The resource of the object.
    #[pyo3(get)]
    resource: Py<PyAny>,
    /// The object.
    #[pyo3(get)]
    object: Py<Object>,
    reply: ReplySender<Option<ComputedKeys>>,
}

impl ComputeKeys {
    pub(crate) fn new(py: Python<'_>, task: ComputeKeysTask, resource: Py<PyAny>) -> PyResult<Self> {
        let object = Py::new(py, Object::new(task.object))?;
        Ok(Self { cache: task.cache, resource, object, reply: task.reply.into() })
    }
}

#[pymethods]
impl ComputeKeys {
    /// Authors' functions get its values, and may store in them what refers to it: see `Object`.
    #[expect(clippy::needless_pass_by_value, reason = "the signature of pyo3")]
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.object)
    }

    /// Replies with the keys: pairs of names and lists of values.
    ///
    /// # Errors
    /// If a value is not JSON; the reply is not sent then.
    fn complete(&self, py: Python<'_>, computed: Vec<(String, Vec<Bound<'_, PyAny>>)>) -> PyResult<()> {
        let mut keys: ComputedKeys = vec![];
        for (name, values) in computed {
            let values = values.iter().map(python_to_value).collect::<PyResult<Vec<Value>>>()?;
            keys.push((name, values));
        }
        // Other threads may wait for the interpreter with the lock of the cache.
        py.detach(|| self.reply.send(Some(keys)));
        Ok(())
    }
}
