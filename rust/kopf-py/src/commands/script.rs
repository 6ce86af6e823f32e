//! `WorkItem`: the commands for one object, in their order, and the completion.

use std::sync::Arc;

use kopf_core::activation::{Command, CommandResult, Completion, FilterResult};
use kopf_core::cause::EventType;
use kopf_core::indexing::Call;
use kopf_core::json::value::Value;
use kopf_engine::host::{ActivationTask, Responder};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::commands::attempt::{AttemptView, SettledView};
use crate::commands::change::ChangeView;
use crate::commands::pending_reply::PendingReply;
use crate::commands::storage::{Keep, Recall, recalled};
use crate::convert::{python_to_map, value_to_python};
use crate::views::ObjectView;

/// Call index functions; `excluded` are handlers whose indices the object leaves, unless another one of the same id is called.
#[pyclass(frozen, name = "CallIndexers", module = "kopf._kopf")]
pub(crate) struct Index {
    #[pyo3(get)]
    calls: Py<PyTuple>,
    #[pyo3(get)]
    excluded: Vec<usize>,
}

/// A call of an index function. If guarded, its filters are called first.
#[pyclass(frozen, name = "IndexerCall", module = "kopf._kopf")]
pub(crate) struct IndexCall {
    #[pyo3(get)]
    handler: usize,
    #[pyo3(get)]
    guarded: bool,
    #[pyo3(get)]
    attempt: Py<AttemptView>,
}

/// Call an `on.event` handler. If guarded, its filters are called first.
#[pyclass(frozen, name = "CallEventHandler", module = "kopf._kopf")]
pub(crate) struct Watch {
    #[pyo3(get)]
    handler: usize,
    #[pyo3(get)]
    guarded: bool,
    #[pyo3(get)]
    attempt: Py<AttemptView>,
}

/// Call the filters of change handlers.
#[pyclass(frozen, name = "FilterHandlers", module = "kopf._kopf")]
pub(crate) struct Match {
    #[pyo3(get)]
    handlers: Vec<usize>,
}

/// Call the filters of daemons and timers.
#[pyclass(frozen, name = "FilterDaemons", module = "kopf._kopf")]
pub(crate) struct Spawn {
    #[pyo3(get)]
    handlers: Vec<usize>,
}

/// Call the user's lifecycle to select handlers, which are given with the numbers of their attempts.
#[pyclass(frozen, name = "SelectHandlers", module = "kopf._kopf")]
pub(crate) struct Pick {
    #[pyo3(get)]
    handlers: Vec<(usize, u64)>,
}

/// Call a change handler.
#[pyclass(frozen, name = "CallChangeHandler", module = "kopf._kopf")]
pub(crate) struct Handle {
    #[pyo3(get)]
    handler: usize,
    #[pyo3(get)]
    attempt: Py<AttemptView>,
}

/// The commands for one object.
#[pyclass(frozen, name = "WorkItem", module = "kopf._kopf")]
pub(crate) struct Script {
    /// The id of the cycle.
    #[pyo3(get)]
    cycle: u64,
    /// The key of the object's memo.
    #[pyo3(get)]
    uid: String,
    /// The event's type: `None`, `ADDED`, `MODIFIED`, `DELETED`.
    #[pyo3(get)]
    event: Option<&'static str>,
    /// The object.
    #[pyo3(get)]
    object: Py<ObjectView>,
    /// The resource of the object.
    #[pyo3(get)]
    resource: Py<PyAny>,
    /// The commands.
    #[pyo3(get)]
    steps: Py<PyTuple>,
    /// The change that the change handlers are called for.
    #[pyo3(get)]
    change: Option<Py<ChangeView>>,
    /// The initial patch, from the rules of the core.
    #[pyo3(get)]
    initial_patch: Option<Py<PyAny>>,
    /// Whether these are the last commands of the cycle.
    #[pyo3(get, name = "is_final")]
    last: bool,
    reply: PendingReply<Completion>,
}

impl Script {
    /// Converts the commands for one object.
    ///
    /// # Errors
    /// If it cannot be converted. The engine gets the error as the reply, and retries the object later.
    pub(crate) fn new(
        py: Python<'_>,
        mut job: ActivationTask,
        resource: PyResult<Py<PyAny>>,
    ) -> PyResult<Self> {
        let script = std::mem::take(&mut job.activation);
        match resource.and_then(|resource| Self::convert(py, &job, script, resource)) {
            Ok(script) => {
                script.reply.attach(job.reply);
                Ok(script)
            }
            Err(error) => {
                job.reply.send(Some(Completion { error: Some(error.to_string()), ..Completion::default() }));
                Err(error)
            }
        }
    }

    fn convert(
        py: Python<'_>,
        job: &ActivationTask,
        script: kopf_core::activation::Activation,
        resource: Py<PyAny>,
    ) -> PyResult<Self> {
        let steps = steps_to_python(py, script.steps)?;
        let change = script.change.map(|change| Py::new(py, ChangeView::new(change))).transpose()?;
        let initial_patch = script
            .initial_patch
            .map(|initial_patch| value_to_python(py, &Value::Object(initial_patch)))
            .transpose()?;
        Ok(Self {
            cycle: job.cycle,
            uid: job.uid.to_string(),
            event: event_type(job.event),
            object: Py::new(py, ObjectView::new(Arc::clone(&job.object)))?,
            resource,
            steps,
            change,
            initial_patch: initial_patch.map(Bound::unbind),
            last: script.last,
            reply: PendingReply::default(),
        })
    }

    /// Takes the prepared reply and its sender.
    pub(crate) fn take(&self) -> Option<(Responder<Option<Completion>>, Completion)> {
        self.reply.take()
    }
}

#[pymethods]
impl Script {
    /// Prepares the completion, which `Engine.complete()` sends.
    ///
    /// The result of a step is `None` if it was skipped, `Outcome` for an attempt, a list of pairs (prematch, full match) for
    /// `FilterHandlers` and `FilterDaemons`, a list of handlers for `SelectHandlers`, a dict of the calls' numbers and
    /// `Outcome` or `None` for `CallIndexers`, a tuple (old, new, records) for `FetchState`, `None` for `StoreState`. The patch
    /// is `None` if it is untouched.
    ///
    /// # Errors
    /// If the patch is not JSON; nothing is prepared then.
    #[pyo3(signature = (steps, patch=None, fns=false, error=None, closed=false))]
    fn answer(
        &self,
        steps: &Bound<'_, PyList>,
        patch: Option<&Bound<'_, PyDict>>,
        fns: bool,
        error: Option<String>,
        closed: bool,
    ) -> PyResult<()> {
        let steps = steps_from_python(steps)?;
        let patch = patch.map(|patch| python_to_map(patch.as_any())).transpose()?;
        self.reply.prepare(Completion { steps, patch, fns, error, closed })
    }
}

/// The event's type as in the API; none for objects of a listing.
pub(crate) fn event_type(event: EventType) -> Option<&'static str> {
    match event {
        EventType::Listed => None,
        EventType::Added => Some("ADDED"),
        EventType::Modified => Some("MODIFIED"),
        EventType::Deleted => Some("DELETED"),
    }
}

fn steps_to_python(py: Python<'_>, steps: Vec<Command>) -> PyResult<Py<PyTuple>> {
    let steps = steps.into_iter().map(|step| step_to_python(py, step));
    Ok(PyTuple::new(py, steps.collect::<PyResult<Vec<_>>>()?)?.unbind())
}

fn steps_from_python(replies: &Bound<'_, PyList>) -> PyResult<Vec<CommandResult>> {
    replies.iter().map(|reply| step_from_python(&reply)).collect()
}

fn step_to_python(py: Python<'_>, step: Command) -> PyResult<Py<PyAny>> {
    Ok(match step {
        Command::Index(round) => {
            let calls = round.calls.into_iter().map(|call| index_call(py, call));
            let calls = PyTuple::new(py, calls.collect::<PyResult<Vec<_>>>()?)?.unbind();
            Py::new(py, Index { calls, excluded: round.excluded })?.into_any()
        }
        Command::Watch { handler, guarded, attempt } => {
            let attempt = Py::new(py, AttemptView(attempt))?;
            Py::new(py, Watch { handler, guarded, attempt })?.into_any()
        }
        Command::Spawn { handlers } => Py::new(py, Spawn { handlers })?.into_any(),
        Command::Match { handlers } => Py::new(py, Match { handlers })?.into_any(),
        Command::Pick { handlers } => Py::new(py, Pick { handlers })?.into_any(),
        Command::Load { ids, extra_fields } => Py::new(py, Recall::new(py, &ids, &extra_fields)?)?.into_any(),
        Command::Store(keep) => Py::new(py, Keep::new(py, keep)?)?.into_any(),
        Command::Handle { attempt } => {
            let handler = attempt.handler;
            let attempt = Py::new(py, AttemptView(attempt))?;
            Py::new(py, Handle { handler, attempt })?.into_any()
        }
    })
}

fn index_call(py: Python<'_>, call: Call) -> PyResult<Py<IndexCall>> {
    let handler = call.attempt.handler;
    let attempt = Py::new(py, AttemptView(call.attempt))?;
    Py::new(py, IndexCall { handler, guarded: call.guarded, attempt })
}

fn step_from_python(reply: &Bound<'_, PyAny>) -> PyResult<CommandResult> {
    if reply.is_none() {
        return Ok(CommandResult::Skipped);
    }
    if let Ok(settled) = reply.cast::<SettledView>() {
        return Ok(CommandResult::Attempted(settled.get().outcome()));
    }
    if let Ok(indexed) = reply.cast::<PyDict>() {
        let settled = |one: Bound<'_, PyAny>| -> PyResult<_> {
            Ok(if one.is_none() { None } else { Some(one.cast::<SettledView>()?.get().outcome()) })
        };
        return Ok(CommandResult::Indexed(indexed.values().iter().map(settled).collect::<PyResult<_>>()?));
    }
    if let Ok(answer) = reply.cast::<PyTuple>() {
        return Ok(CommandResult::Loaded(Box::new(recalled(answer)?)));
    }
    if let Ok(picked) = reply.extract::<Vec<usize>>() {
        // An empty list is the same result for both commands.
        return Ok(CommandResult::Picked(picked));
    }
    let matched: Vec<(bool, bool)> = reply.extract()?;
    Ok(CommandResult::Matched(
        matched.into_iter().map(|(prematch, full)| FilterResult { prematch, full }).collect(),
    ))
}
