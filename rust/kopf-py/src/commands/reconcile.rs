//! `CallReconciler` and related commands: calls of reconcilers, their flags, and the functions of their declarations.

use std::sync::Arc;

use kopf_core::conditions::{ConditionChange, ConditionChanges, changed_conditions};
use kopf_core::daemon::StopReasons;
use kopf_core::json::value::Value;
use kopf_core::relations::ObjectName;
use kopf_core::schedule::ReconcileResult;
use kopf_engine::host::Responder;
use kopf_engine::host::reconcile::{
    CallReconcilerReply, CallReconcilerTask, Cancellation, InspectObjectTask, Inspection, Mapped, PrimaryRef,
};
use kopf_engine::operator::Operator;
use kopf_engine::reconciling::PrimaryName;
use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use pythonize::depythonize;

use crate::commands::pending_reply::PendingReply;
use crate::commands::reply_sender::ReplySender;
use crate::convert::{python_to_map, python_to_value, value_to_python};
use crate::errors::declaration;
use crate::time::now;
use crate::views::Object;

/// Call a reconciler.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct CallReconciler {
    /// The id of the call.
    #[pyo3(get)]
    run: u64,
    /// The handler.
    #[pyo3(get)]
    handler: usize,
    /// The key of the primary.
    #[pyo3(get)]
    uid: String,
    /// The resource of the primary.
    #[pyo3(get)]
    resource: Py<PyAny>,
    /// The primary.
    #[pyo3(get)]
    object: Py<Object>,
    /// Whether the primary is being deleted.
    #[pyo3(get)]
    deleting: bool,
    /// Number of failures since the last success.
    #[pyo3(get)]
    retry: u32,
    /// The start of the first failed call of the series, in microseconds since the epoch.
    #[pyo3(get)]
    started: i64,
    /// Seconds since then.
    #[pyo3(get)]
    runtime: f64,
    reply: PendingReply<CallReconcilerReply>,
}

impl CallReconciler {
    pub(crate) fn new(py: Python<'_>, call: CallReconcilerTask, resource: Py<PyAny>) -> PyResult<Self> {
        Ok(Self {
            run: call.run,
            handler: call.handler,
            uid: call.uid.to_string(),
            resource,
            object: Py::new(py, Object::new(call.object))?,
            deleting: call.is_deleting,
            retry: call.start.retry,
            started: call.start.started.micros(),
            runtime: call.start.runtime,
            reply: PendingReply::new(call.reply),
        })
    }

    /// Takes the prepared reply and its sender.
    pub(crate) fn take(&self) -> Option<(Responder<Option<CallReconcilerReply>>, CallReconcilerReply)> {
        self.reply.take()
    }
}

#[pymethods]
impl CallReconciler {
    /// Authors' functions get its values, and may store in them what refers to it: see `Object`.
    #[expect(clippy::needless_pass_by_value, reason = "the signature of pyo3")]
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.object)
    }

    /// Prepares the reply, which `Engine.complete()` sends. The result is one of `succeeded`, `requeued` (with the delay),
    /// `failed` (with the delay, if it is not that of the back-off), `permanent`, `cancelled`. Of the patch, only the part that
    /// changes the primary is sent. The changes of conditions come with the generation of the body, if they are not among the
    /// functions.
    ///
    /// # Errors
    /// If the patch is not JSON; nothing is prepared then.
    #[pyo3(signature = (result, delay=None, patch=None, fns=false, conditions=None))]
    fn reply(
        &self,
        result: &str,
        delay: Option<f64>,
        patch: Option<&Bound<'_, PyDict>>,
        fns: bool,
        conditions: Option<(Vec<ConditionTuple>, Option<i64>)>,
    ) -> PyResult<()> {
        let result = result_of(result, delay)?;
        let patch = patch.map(|patch| python_to_map(patch.as_any())).transpose()?;
        let patch = patch.map(|patch| self.object.get().object().changing_part(patch));
        let conditions = conditions.map(|(changes, generation)| ConditionChanges {
            changes: changes.into_iter().map(condition_change).collect(),
            generation,
        });
        self.reply.prepare(CallReconcilerReply { result, patch, fns, conditions })
    }
}

/// The result with this name.
fn result_of(name: &str, delay: Option<f64>) -> PyResult<ReconcileResult> {
    match name {
        "succeeded" => Ok(ReconcileResult::Succeeded),
        "requeued" => Ok(ReconcileResult::Requeued(delay.unwrap_or_default())),
        "failed" => Ok(ReconcileResult::Failed(delay)),
        "permanent" => Ok(ReconcileResult::FailedPermanently),
        "cancelled" => Ok(ReconcileResult::Cancelled),
        other => Err(PyValueError::new_err(format!("Unknown result of a reconciler: {other}"))),
    }
}

/// The name of a result with its delay, as `CallReconciler.reply()` takes them.
pub(crate) fn name_and_delay(result: ReconcileResult) -> (&'static str, Option<f64>) {
    match result {
        ReconcileResult::Succeeded => ("succeeded", None),
        ReconcileResult::Requeued(delay) => ("requeued", Some(delay)),
        ReconcileResult::Failed(delay) => ("failed", delay),
        ReconcileResult::FailedPermanently => ("permanent", None),
        ReconcileResult::Cancelled => ("cancelled", None),
    }
}

/// Set the stop flag of a call, and maybe cancel it: for the reason `timeout` or `stop`.
#[pyclass(frozen, get_all, module = "kopf._kopf")]
pub(crate) struct StopReconciler {
    run: u64,
    reasons: u8,
    cancel: Option<&'static str>,
}

impl StopReconciler {
    pub(crate) fn new(run: u64, reasons: StopReasons, cancel: Option<Cancellation>) -> Self {
        let cancel = cancel.map(|cancel| match cancel {
            Cancellation::TimedOut => "timeout",
            Cancellation::Stopped => "stop",
        });
        Self { run, reasons: reasons.bits(), cancel }
    }
}

/// A call has ended with its writes.
#[pyclass(frozen, get_all, module = "kopf._kopf")]
pub(crate) struct ReconcilerEnded {
    pub(crate) run: u64,
}

/// Call the functions of a reconciler's declaration for an object: filters, `changed`, `map`.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct InspectObject {
    /// The handler.
    #[pyo3(get)]
    handler: usize,
    /// The position of the owned or watched kind; none for primaries.
    #[pyo3(get)]
    related: Option<usize>,
    /// The resource of the object.
    #[pyo3(get)]
    resource: Py<PyAny>,
    /// The object.
    #[pyo3(get)]
    object: Py<Object>,
    reply: ReplySender<Option<Inspection>>,
}

impl InspectObject {
    pub(crate) fn new(py: Python<'_>, task: InspectObjectTask, resource: Py<PyAny>) -> PyResult<Self> {
        Ok(Self {
            handler: task.handler,
            related: task.related,
            resource,
            object: Py::new(py, Object::new(task.object))?,
            reply: task.reply.into(),
        })
    }
}

#[pymethods]
impl InspectObject {
    /// Authors' functions get its values, and may store in them what refers to it: see `Object`.
    #[expect(clippy::needless_pass_by_value, reason = "the signature of pyo3")]
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.object)
    }

    /// Replies with the results: whether the filters match, none if one has failed; the hashes of the functions in `changed`, none for failed ones; and
    /// the primaries that `map` has returned: pairs of a namespace and a name, or triples with a uid. `everything` are all
    /// primaries; without `mapped`, the function has failed, or there is none.
    #[pyo3(signature = (matches, functions, mapped=None, *, everything=false))]
    fn complete(
        &self,
        matches: Option<bool>,
        functions: Vec<Option<u64>>,
        mapped: Option<Vec<PrimaryTuple>>,
        everything: bool,
    ) {
        let primary = |(namespace, name, uid): PrimaryTuple| {
            if let Some(uid) = uid {
                return PrimaryRef::Uid(Arc::from(uid));
            }
            let name: ObjectName = (namespace.map(String::into_boxed_str), name.into_boxed_str());
            PrimaryRef::Name(name)
        };
        let mapped = if everything {
            Some(Mapped::Everything)
        } else {
            mapped.map(|mapped| Mapped::To(mapped.into_iter().map(primary).collect()))
        };
        self.reply.send(matches.map(|matches| Inspection { matches, functions, mapped }));
    }
}

/// A primary: its namespace, its name, and its uid.
pub(crate) type PrimaryTuple = (Option<String>, String, Option<String>);

/// Triggers primaries of the operator. Returns whether there was any.
///
/// # Errors
/// If the kind is not a selector.
pub(crate) fn trigger(
    operator: Option<&Operator>,
    handler: Option<usize>,
    primary: Option<PrimaryTuple>,
    kind: Option<&Bound<'_, PyDict>>,
) -> PyResult<bool> {
    let kind = kind.map(|kind| depythonize(kind).map_err(|error| declaration("kind", error))).transpose()?;
    let primary = primary.map(|(namespace, name, uid)| PrimaryName { uid, kind, namespace, name });
    let reconcilers = operator.and_then(Operator::reconcilers);
    Ok(reconcilers.is_some_and(|reconcilers| reconcilers.trigger(handler, primary.as_ref())))
}

/// A change of a condition: the type; and the status, the reason and the message, or none to remove it.
type ConditionTuple = (String, Option<(Option<bool>, String, String)>);

fn condition_change((type_, set): ConditionTuple) -> ConditionChange {
    match set {
        Some((status, reason, message)) => ConditionChange::Set { type_, status, reason, message },
        None => ConditionChange::Drop(type_),
    }
}

/// The list of conditions with the changes: tuples of the type, and of the status, the reason and the message; without
/// these, the condition is removed. `lastTransitionTime` changes only with the status.
///
/// # Errors
/// If the conditions are not JSON.
#[pyfunction]
#[pyo3(signature = (conditions, changes, generation))]
pub(crate) fn change_conditions<'py>(
    py: Python<'py>,
    conditions: &Bound<'py, PyList>,
    changes: Vec<ConditionTuple>,
    generation: Option<i64>,
) -> PyResult<Bound<'py, PyAny>> {
    let present = python_to_value(conditions.as_any())?;
    let changes: Vec<_> = changes.into_iter().map(condition_change).collect();
    let present = present.as_array().cloned().unwrap_or_default();
    let conditions = changed_conditions(present, &changes, generation, now());
    value_to_python(py, &Value::Array(conditions))
}
