//! `FetchState` and `StoreState`: commands to the user's storages of progress and diff-bases.

use kopf_core::activation::{self, FetchedState};
use kopf_core::json::value::Value;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::convert::{option_to_python, python_to_value};

/// Fetch the stored state from the user's storages.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct FetchState {
    /// The handlers whose progress is requested.
    #[pyo3(get)]
    ids: Vec<String>,
    /// The additional fields of the essence.
    #[pyo3(get)]
    extra_fields: Vec<Py<PyTuple>>,
}

impl FetchState {
    pub(crate) fn new(
        py: Python<'_>,
        ids: &[std::sync::Arc<str>],
        fields: &[kopf_core::json::path::FieldPath],
    ) -> PyResult<Self> {
        let ids = ids.iter().map(ToString::to_string).collect();
        let tuple = |field: &kopf_core::json::path::FieldPath| {
            PyTuple::new(py, field.keys().iter().map(|key| &**key)).map(Bound::unbind)
        };
        Ok(Self { ids, extra_fields: fields.iter().map(tuple).collect::<PyResult<_>>()? })
    }
}

/// Store the state in the user's storages.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct StoreState {
    /// The progress by the ids of handlers; `None` to remove it.
    #[pyo3(get)]
    records: Vec<(String, Py<PyAny>)>,
    /// Whether the fetched current essence becomes the last-handled configuration.
    #[pyo3(get)]
    essence: bool,
    /// Whether to write even if the patch is empty.
    #[pyo3(get)]
    written: bool,
}

impl StoreState {
    pub(crate) fn new(py: Python<'_>, request: activation::StoreRequest) -> PyResult<Self> {
        let records = request.records.into_iter().map(|(id, record)| {
            let record = record.map(|record| Value::Object(record.to_map()));
            Ok((id.to_string(), option_to_python(py, record.as_ref())?.unbind()))
        });
        let records = records.collect::<PyResult<_>>()?;
        Ok(Self { records, essence: request.essence, written: request.written })
    }
}

/// Decodes the reply to `FetchState`: the last-handled configuration or `None`, the current essence, and the records by handler
/// ids.
pub(crate) fn fetched_state(reply: &Bound<'_, PyTuple>) -> PyResult<FetchedState> {
    let (old, new, records): (Bound<'_, PyAny>, Bound<'_, PyAny>, Bound<'_, PyDict>) = reply.extract()?;
    let records = records.iter().map(|(id, record)| Ok((id.extract()?, python_to_value(&record)?)));
    Ok(FetchedState {
        old: (!old.is_none()).then(|| python_to_value(&old)).transpose()?,
        new: python_to_value(&new)?,
        records: records.collect::<PyResult<_>>()?,
    })
}
