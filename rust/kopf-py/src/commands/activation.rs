//! `Activation`: the commands for one object, in their order, and the completion.

use std::sync::Arc;

use kopf_core::activation::{self, Command, CommandResult, Completion, FilterResult};
use kopf_core::handling::attempt;
use kopf_core::handling::cause_id::Handling;
use kopf_core::indexing;
use kopf_core::json::value::Value;
use kopf_core::object;
use kopf_engine::host::{ActivationTask, Responder};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use tracing::Span;

use crate::commands::attempt::{Attempt, Outcome};
use crate::commands::change::Change;
use crate::commands::handler_state::handler_states;
use crate::commands::pending_reply::PendingReply;
use crate::commands::storage::{FetchState, StoreState, fetched_state};
use crate::convert::{python_to_map, value_to_python};
use crate::errors::misuse;
use crate::views::Object;

/// Call index functions; `excluded` are handlers whose indices the object leaves, unless another one of the same id is called.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct CallIndexers {
    #[pyo3(get)]
    calls: Py<PyTuple>,
    #[pyo3(get)]
    excluded: Vec<usize>,
}

/// A call of an index function. If guarded, its filters are called first.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct IndexerCall {
    #[pyo3(get)]
    handler: usize,
    #[pyo3(get)]
    guarded: bool,
    #[pyo3(get)]
    attempt: Py<Attempt>,
}

/// Call an `on.event` handler. If guarded, its filters are called first.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct CallEventHandler {
    #[pyo3(get)]
    handler: usize,
    #[pyo3(get)]
    guarded: bool,
    #[pyo3(get)]
    attempt: Py<Attempt>,
}

/// Call the filters of change handlers.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct FilterHandlers {
    #[pyo3(get)]
    handlers: Vec<usize>,
}

/// Call the filters of daemons and timers.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct FilterDaemons {
    #[pyo3(get)]
    handlers: Vec<usize>,
}

/// Call the user's lifecycle to select handlers, which are given with the numbers of their attempts.
///
/// `states` are the states of all known handlers of the object, by their ids.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct SelectHandlers {
    #[pyo3(get)]
    handlers: Vec<(usize, u64)>,
    #[pyo3(get)]
    states: Py<PyDict>,
}

/// Call a change handler.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct CallChangeHandler {
    #[pyo3(get)]
    handler: usize,
    #[pyo3(get)]
    attempt: Py<Attempt>,
}

/// The commands for one object.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct Activation {
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
    object: Py<Object>,
    /// The resource of the object.
    #[pyo3(get)]
    resource: Py<PyAny>,
    /// The commands.
    #[pyo3(get)]
    commands: Py<PyTuple>,
    /// The change that the change handlers are called for.
    #[pyo3(get)]
    change: Option<Py<Change>>,
    /// The initial patch, from the rules of the core.
    #[pyo3(get)]
    initial_patch: Option<Py<PyAny>>,
    /// Whether these are the last commands of the cycle.
    #[pyo3(get)]
    is_final: bool,
    /// Whether the functions of an earlier cycle are still to be applied; otherwise, they are dropped.
    #[pyo3(get)]
    remaining_fns: bool,
    /// The name of the asyncio task: the first handler and the object.
    #[pyo3(get)]
    task_name: String,
    /// The handling that the calls of change handlers belong to.
    handling: Option<Handling>,
    kinds: Vec<CommandKind>,
    reply: PendingReply<Completion>,
}

impl Activation {
    /// Converts the commands for one object.
    ///
    /// # Errors
    /// If it cannot be converted. The engine gets the error as the reply, and retries the object later.
    pub(crate) fn new(
        py: Python<'_>,
        mut task: ActivationTask,
        resource: PyResult<Py<PyAny>>,
    ) -> PyResult<Self> {
        let activation = std::mem::take(&mut task.activation);
        match resource.and_then(|resource| Self::convert(py, &task, activation, resource)) {
            Ok(item) => {
                item.reply.attach(task.reply);
                Ok(item)
            }
            Err(error) => {
                task.reply.send(Some(Completion { error: Some(error.to_string()), ..Completion::default() }));
                Err(error)
            }
        }
    }

    fn convert(
        py: Python<'_>,
        task: &ActivationTask,
        activation: activation::Activation,
        resource: Py<PyAny>,
    ) -> PyResult<Self> {
        let kinds = activation.commands.iter().map(CommandKind::of).collect();
        let task_name = task_name(&activation.commands, &task.object);
        let commands = commands_to_python(py, activation.commands, &task.span)?;
        let change = activation.change.map(|change| Py::new(py, Change::new(change))).transpose()?;
        let initial_patch = activation
            .initial_patch
            .map(|initial_patch| value_to_python(py, &Value::Object(initial_patch)))
            .transpose()?;
        Ok(Self {
            cycle: task.cycle,
            uid: task.uid.to_string(),
            event: task.event.as_str(),
            object: Py::new(py, Object::new(Arc::clone(&task.object)))?,
            resource,
            commands,
            change,
            initial_patch: initial_patch.map(Bound::unbind),
            is_final: activation.last,
            remaining_fns: activation.remaining_fns,
            task_name,
            handling: activation.handling,
            kinds,
            reply: PendingReply::default(),
        })
    }

    /// Takes the prepared reply and its sender.
    pub(crate) fn take(&self) -> Option<(Responder<Option<Completion>>, Completion)> {
        self.reply.take()
    }
}

#[pymethods]
impl Activation {
    /// Authors' functions get its values, and may store in them what refers to it: see `Object`.
    #[expect(clippy::needless_pass_by_value, reason = "the signature of pyo3")]
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.object)?;
        visit.call(&self.change)?;
        visit.call(&self.initial_patch)
    }

    /// The id of the cause and the reason of the handling that the calls of change handlers belong to.
    #[getter]
    fn handling(&self) -> Option<(String, &'static str)> {
        self.handling.map(|handling| (handling.cause_id(&self.uid), handling.reason.as_str()))
    }

    /// Prepares the completion, which `Engine.complete()` sends.
    ///
    /// The result of a command is `None` if it was skipped, `Outcome` for an attempt, a list of pairs (prematch, full match) for
    /// `FilterHandlers` and `FilterDaemons`, a list of handlers for `SelectHandlers`, a dict of the calls' numbers and
    /// `Outcome` or `None` for `CallIndexers`, a tuple (old, new, records) for `FetchState`, `None` for `StoreState`. The patch
    /// is `None` if it is untouched.
    ///
    /// After an error, the results of the remaining commands are absent.
    ///
    /// # Errors
    /// If the patch is not JSON, or a result is not of the kind of its command; nothing is prepared then.
    #[pyo3(signature = (results, patch=None, fns=false, error=None, closed=false))]
    fn reply(
        &self,
        results: &Bound<'_, PyList>,
        patch: Option<&Bound<'_, PyDict>>,
        fns: bool,
        error: Option<String>,
        closed: bool,
    ) -> PyResult<()> {
        if results.len() > self.kinds.len() {
            return Err(misuse("There are more results than commands."));
        }
        let results = self.kinds.iter().zip(results.iter()).map(|(kind, reply)| kind.result(&reply));
        let results = results.collect::<PyResult<_>>()?;
        let patch = patch.map(|patch| python_to_map(patch.as_any())).transpose()?;
        self.reply.prepare(Completion { results, patch, fns, error, closed })
    }
}

/// The first handler that the commands call, if any, and the object.
fn task_name(commands: &[Command], object: &object::Object) -> String {
    let label = commands.iter().find_map(|command| match command {
        Command::CallEventHandler { attempt, .. } | Command::CallChangeHandler { attempt } => {
            Some(&attempt.label)
        }
        Command::CallIndexers(pass) => pass.calls.first().map(|call| &call.attempt.label),
        _ => None,
    });
    let label = label.map_or("Handling", |label| label);
    let name = object.name().unwrap_or("None");
    match object.namespace().filter(|namespace| !namespace.is_empty()) {
        Some(namespace) => format!("{label} of {namespace}/{name}"),
        None => format!("{label} of {name}"),
    }
}

fn commands_to_python(py: Python<'_>, commands: Vec<Command>, span: &Span) -> PyResult<Py<PyTuple>> {
    let commands = commands.into_iter().map(|command| command_to_python(py, command, span));
    Ok(PyTuple::new(py, commands.collect::<PyResult<Vec<_>>>()?)?.unbind())
}

fn command_to_python(py: Python<'_>, command: Command, span: &Span) -> PyResult<Py<PyAny>> {
    Ok(match command {
        Command::CallIndexers(pass) => {
            let calls = pass.calls.into_iter().map(|call| indexer_call(py, call, span));
            let calls = PyTuple::new(py, calls.collect::<PyResult<Vec<_>>>()?)?.unbind();
            Py::new(py, CallIndexers { calls, excluded: pass.excluded })?.into_any()
        }
        Command::CallEventHandler { handler, guarded, attempt } => {
            let attempt = Py::new(py, Attempt::new_in(attempt, span.clone()))?;
            Py::new(py, CallEventHandler { handler, guarded, attempt })?.into_any()
        }
        Command::FilterDaemons { handlers } => Py::new(py, FilterDaemons { handlers })?.into_any(),
        Command::FilterHandlers { handlers } => Py::new(py, FilterHandlers { handlers })?.into_any(),
        Command::SelectHandlers { handlers, records } => {
            let states = handler_states(py, records.iter().map(|(id, record)| (id, record)))?.unbind();
            Py::new(py, SelectHandlers { handlers, states })?.into_any()
        }
        Command::FetchState { ids, extra_fields } => {
            Py::new(py, FetchState::new(py, &ids, &extra_fields)?)?.into_any()
        }
        Command::StoreState(request) => Py::new(py, StoreState::new(py, request)?)?.into_any(),
        Command::CallChangeHandler { attempt } => {
            let handler = attempt.handler;
            let attempt = Py::new(py, Attempt::new_in(attempt, span.clone()))?;
            Py::new(py, CallChangeHandler { handler, attempt })?.into_any()
        }
    })
}

fn indexer_call(py: Python<'_>, call: indexing::IndexerCall, span: &Span) -> PyResult<Py<IndexerCall>> {
    let handler = call.attempt.handler;
    let attempt = Py::new(py, Attempt::new_in(call.attempt, span.clone()))?;
    Py::new(py, IndexerCall { handler, guarded: call.guarded, attempt })
}

/// The kinds of commands, by which their results are decoded.
#[derive(Clone, Copy)]
enum CommandKind {
    Index,
    /// A call of an event handler or a change handler.
    Call,
    Filter,
    Select,
    Fetch,
    Store,
}

impl CommandKind {
    fn of(command: &Command) -> Self {
        match command {
            Command::CallIndexers(_) => Self::Index,
            Command::CallEventHandler { .. } | Command::CallChangeHandler { .. } => Self::Call,
            Command::FilterDaemons { .. } | Command::FilterHandlers { .. } => Self::Filter,
            Command::SelectHandlers { .. } => Self::Select,
            Command::FetchState { .. } => Self::Fetch,
            Command::StoreState(_) => Self::Store,
        }
    }

    /// Decodes the result of a command of this kind.
    ///
    /// # Errors
    /// If the result is not of this kind.
    fn result(self, reply: &Bound<'_, PyAny>) -> PyResult<CommandResult> {
        Ok(match self {
            Self::Index => {
                let outcomes = reply.cast::<PyDict>()?.values();
                CommandResult::Indexed(outcomes.iter().map(|one| outcome(&one)).collect::<PyResult<_>>()?)
            }
            Self::Call => outcome(reply)?.map_or(CommandResult::Skipped, CommandResult::Attempted),
            Self::Filter => {
                let results: Vec<(bool, bool)> = reply.extract()?;
                let results = results.into_iter().map(|(prematch, full)| FilterResult { prematch, full });
                CommandResult::Filtered(results.collect())
            }
            Self::Select => CommandResult::Selected(reply.extract()?),
            Self::Fetch => CommandResult::Fetched(Box::new(fetched_state(reply.cast::<PyTuple>()?)?)),
            Self::Store => CommandResult::Skipped,
        })
    }
}

/// The outcome of an attempt; none if the handler was not called.
fn outcome(reply: &Bound<'_, PyAny>) -> PyResult<Option<attempt::Outcome>> {
    Ok(if reply.is_none() { None } else { Some(reply.cast::<Outcome>()?.get().outcome()) })
}
