//! The rules of the commands that inspect and release objects: `inspect`, `release_patch`, `live_peers`.

use std::sync::Arc;

use kopf_core::handler::registry::Registry;
use kopf_core::inspection::{Fetched, Operator, inspect as inspect_object};
use kopf_core::json::value::Value;
use kopf_core::object::Object;
use kopf_core::peering;
use kopf_core::persistence::release::release;
use kopf_core::persistence::{Persistence, PersistenceConfig};
use kopf_core::resource::Resource;
use kopf_core::time::Timestamp;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use pythonize::depythonize;

use crate::convert::{python_to_map, python_to_value, value_to_python};
use crate::errors::{declaration, decoding};

/// The JSON of an object, with the state that custom storages have of it.
type Inspected<'py> = (String, Option<(Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyDict>)>);

/// Inspects objects of one resource. The handlers are those of the resource; none if they are unknown. The time is in
/// microseconds since the epoch.
#[pyfunction]
#[pyo3(signature = (objects, *, persistence, resource, handlers=None, finalizers, compat=false, now))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments, with their names at the call")]
#[expect(clippy::needless_pass_by_value, reason = "arguments as Python gives them")]
pub(crate) fn inspect<'py>(
    py: Python<'py>,
    objects: Vec<Inspected<'py>>,
    persistence: &Bound<'py, PyDict>,
    resource: &Bound<'py, PyDict>,
    handlers: Option<&Bound<'py, PyList>>,
    finalizers: Vec<String>,
    compat: bool,
    now: i64,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let persistence: Persistence =
        depythonize(persistence).map_err(|error| declaration("settings", error))?;
    let resource: Resource = depythonize(resource).map_err(|error| declaration("resource", error))?;
    let handlers = handlers.map(|handlers| depythonize(handlers)).transpose();
    let registry = handlers.map_err(|error| declaration("handlers", error))?;
    let registry = registry.map(|handlers| Arc::new(Registry { handlers }));
    let selected = registry.as_ref().map(|registry| registry.handlers_of(&Arc::new(resource), &|_| true));
    let operator = Operator {
        settings: PersistenceConfig { persistence: &persistence, compat },
        finalizers: &finalizers,
        handlers: registry.as_deref().zip(selected.as_ref()),
    };
    let now = Timestamp::from_micros(now);
    let inspected = objects.into_iter().map(|(text, fetched)| {
        let object = Object::decode(&text).map_err(decoding)?;
        let fetched = fetched.map(|(old, new, records)| read_fetched(&old, &new, &records)).transpose()?;
        let inspection = inspect_object(&object, operator, fetched.as_ref(), now);
        value_to_python(py, &inspection.to_value())
    });
    inspected.collect()
}

/// The JSON patch that removes finalizers from an object, given as JSON; with the persistence settings, also the annotations
/// with the state. None if there is nothing to remove.
#[pyfunction]
#[pyo3(signature = (object, finalizers, purged=None))]
#[expect(clippy::needless_pass_by_value, reason = "arguments as Python gives them")]
pub(crate) fn release_patch<'py>(
    py: Python<'py>,
    object: &str,
    finalizers: Vec<String>,
    purged: Option<&Bound<'py, PyDict>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let object = Object::decode(object).map_err(decoding)?;
    let purged: Option<Persistence> = purged
        .map(|purged| depythonize(purged))
        .transpose()
        .map_err(|error| declaration("settings", error))?;
    let patch = release(&object, &finalizers, purged.as_ref());
    patch.map(|patch| value_to_python(py, &Value::Array(patch))).transpose()
}

/// The identities, the priorities and the times of the last keep-alives of the operators in the status of a peering object
/// whose records have not expired. Times are in microseconds since the epoch.
#[pyfunction]
pub(crate) fn live_peers(status: &Bound<'_, PyAny>, now: i64) -> PyResult<Vec<(String, i64, i64)>> {
    let peers = peering::live(&python_to_value(status)?, Timestamp::from_micros(now));
    Ok(peers.into_iter().map(|peer| (peer.id, peer.priority, peer.lastseen.micros())).collect())
}

fn read_fetched(
    old: &Bound<'_, PyAny>,
    new: &Bound<'_, PyAny>,
    records: &Bound<'_, PyDict>,
) -> PyResult<Fetched> {
    let old = python_to_value(old)?;
    let old = if old == Value::Null { None } else { Some(old) };
    let records = python_to_map(records.as_any())?.into_iter().collect();
    Ok(Fetched { old, new: python_to_value(new)?, records })
}
