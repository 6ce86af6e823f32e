//! `ApplyPatchFns`: the call of the transformation functions of a patch.

use std::sync::Arc;

use kopf_core::json::value::Value;
use kopf_engine::host::ApplyPatchFnsTask;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::commands::reply_sender::ReplySender;
use crate::convert::python_to_value;
use crate::views::Object;

/// Apply the functions of a cycle's patch to an object.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct ApplyPatchFns {
    #[pyo3(get)]
    cycle: u64,
    #[pyo3(get)]
    object: Py<Object>,
    reply: ReplySender<Result<Value, String>>,
}

impl ApplyPatchFns {
    pub(crate) fn new(py: Python<'_>, task: ApplyPatchFnsTask) -> PyResult<Self> {
        let object = Py::new(py, Object::new(Arc::clone(&task.object)))?;
        Ok(Self { cycle: task.cycle, object, reply: task.reply.into() })
    }
}

#[pymethods]
impl ApplyPatchFns {
    /// Authors' functions get its values, and may store in them what refers to it: see `Object`.
    #[expect(clippy::needless_pass_by_value, reason = "the signature of pyo3")]
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.object)
    }

    /// Replies with the transformed object.
    fn complete(&self, object: &Bound<'_, PyAny>) -> PyResult<()> {
        self.reply.send(Ok(python_to_value(object)?));
        Ok(())
    }

    /// Replies with the error of the functions.
    fn fail(&self, error: String) {
        self.reply.send(Err(error));
    }
}
