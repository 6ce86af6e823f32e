//! `explain`: the decision of the core about one object, with the functions of the operator's handlers.

use std::sync::Arc;

use kopf_core::activation::FetchedState;
use kopf_core::cause::EventType;
use kopf_core::cycle::OperatorConfig;
use kopf_core::explaining::{Answer, Host, Question, Subject, explain as explain_object};
use kopf_core::handler::filters::obstacle::{Filter, Obstacle};
use kopf_core::handler::lifecycle::Lifecycle;
use kopf_core::handler::registry::Registry;
use kopf_core::handling::change;
use kopf_core::json::path::FieldPath;
use kopf_core::object;
use kopf_core::persistence::progress::Record;
use kopf_core::resource::Resource;
use kopf_core::settings::Settings;
use kopf_core::time::Timestamp;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use pythonize::depythonize;

use crate::commands::change::Change;
use crate::commands::handler_state::handler_states;
use crate::commands::storage::{FetchState, fetched_state};
use crate::convert::value_to_python;
use crate::errors::{declaration, decoding};
use crate::views::Object;

/// Explains the decision about an object, given as JSON. The handlers are those of the resource. The event is `listed`, `added`,
/// `modified` or `deleted`, the time is in microseconds since the epoch.
///
/// The methods of the host are called in this thread: `filter(kind, object, change, handlers)` returns for each handler a tuple
/// of its result (`matches`, `mismatch`, `unasked`, `raised`), of the code of the filter, of the text, and of whether all filters
/// match except those for the old and new value; `select(object, change, handlers, states)` returns handlers; `fetch(object, command)`
/// returns the state in custom storages. Exceptions are raised when the decision is made.
#[pyfunction]
#[pyo3(signature = (object, *, settings, lifecycle, resource, handlers, event, now, host))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments, with their names at the call")]
pub(crate) fn explain<'py>(
    py: Python<'py>,
    object: &str,
    settings: &Bound<'py, PyDict>,
    lifecycle: &Bound<'py, PyString>,
    resource: &Bound<'py, PyDict>,
    handlers: &Bound<'py, PyList>,
    event: &str,
    now: i64,
    host: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let settings: Settings = depythonize(settings).map_err(|error| declaration("settings", error))?;
    let lifecycle: Lifecycle = depythonize(lifecycle).map_err(|error| declaration("lifecycle", error))?;
    let resource: Resource = depythonize(resource).map_err(|error| declaration("resource", error))?;
    let handlers = depythonize(handlers).map_err(|error| declaration("handlers", error))?;
    let registry = Arc::new(Registry { handlers });
    let selected = Arc::new(registry.handlers_of(&Arc::new(resource), &|_| true));
    let config = Arc::new(OperatorConfig { registry, settings: Arc::new(settings), lifecycle });
    let object = Arc::new(object::Object::decode(object).map_err(decoding)?);
    let subject = Subject { object, event: event_type(event)?, now: Timestamp::from_micros(now) };
    let mut functions = Functions { host, view: None, error: None };
    let explanation = explain_object(&subject, &selected, &config, &mut functions);
    match functions.error {
        Some(error) => Err(error),
        None => value_to_python(py, &explanation.to_value()),
    }
}

fn event_type(name: &str) -> PyResult<EventType> {
    match name {
        "listed" => Ok(EventType::Listed),
        "added" => Ok(EventType::Added),
        "modified" => Ok(EventType::Modified),
        "deleted" => Ok(EventType::Deleted),
        _ => Err(PyValueError::new_err(format!("unknown type of an event: {name}"))),
    }
}

/// The result of the filters of a handler: see [`explain`].
type Reply = (String, Option<String>, Option<String>, bool);

/// The functions of the handlers, in Python.
struct Functions<'py> {
    host: Bound<'py, PyAny>,
    view: Option<Py<Object>>,
    /// The first error of the host itself.
    error: Option<PyErr>,
}

impl Functions<'_> {
    fn view(&mut self, object: &Arc<object::Object>) -> PyResult<Py<Object>> {
        let py = self.host.py();
        if let Some(known) = &self.view {
            return Ok(known.clone_ref(py));
        }
        let made = Py::new(py, Object::new(Arc::clone(object)))?;
        self.view = Some(made.clone_ref(py));
        Ok(made)
    }

    fn change(&self, change: Option<&Arc<change::Change>>) -> PyResult<Option<Py<Change>>> {
        change.map(|change| Py::new(self.host.py(), Change::new(Arc::clone(change)))).transpose()
    }

    fn call_filters(
        &mut self,
        object: &Arc<object::Object>,
        question: Question<'_>,
        handlers: &[usize],
    ) -> PyResult<Vec<Answer>> {
        let (kind, change) = match question {
            Question::Event => ("event", None),
            Question::Index => ("index", None),
            Question::Daemon => ("daemon", None),
            Question::Reconciler => ("reconciler", None),
            Question::Change(change) => ("change", Some(change)),
        };
        let arguments = (kind, self.view(object)?, self.change(change)?, handlers.to_vec());
        let replies: Vec<Reply> = self.host.call_method1("filter", arguments)?.extract()?;
        replies.into_iter().map(answer).collect()
    }

    fn fetch_state(
        &mut self,
        object: &Arc<object::Object>,
        ids: &[Arc<str>],
        extra_fields: &[FieldPath],
    ) -> PyResult<FetchedState> {
        let command = FetchState::new(self.host.py(), ids, extra_fields)?;
        let view = self.view(object)?;
        let reply = self.host.call_method1("fetch", (view, command))?;
        fetched_state(reply.cast()?)
    }

    fn select_handlers(
        &mut self,
        object: &Arc<object::Object>,
        change: Option<&Arc<change::Change>>,
        handlers: &[(usize, u64)],
        records: &[(Arc<str>, Record)],
    ) -> PyResult<Vec<usize>> {
        let states = handler_states(self.host.py(), records.iter().map(|(id, record)| (id, record)))?;
        let arguments = (self.view(object)?, self.change(change)?, handlers.to_vec(), states);
        self.host.call_method1("select", arguments)?.extract()
    }

    /// Keeps the error, which is raised at the end, and returns its text.
    fn report<T>(&mut self, result: PyResult<T>) -> Result<T, String> {
        result.map_err(|error| {
            let text = error.to_string();
            self.error.get_or_insert(error);
            text
        })
    }
}

fn answer((result, filter, text, prematch): Reply) -> PyResult<Answer> {
    let text = text.unwrap_or_default();
    Ok(match &*result {
        "matches" => Answer::Matches,
        "unasked" => Answer::Unasked,
        "raised" => Answer::Raised(text),
        _ => {
            let filter = filter.unwrap_or_default();
            let filter: Filter = serde_json::from_value(filter.clone().into())
                .map_err(|_unknown| PyValueError::new_err(format!("unknown filter: {filter}")))?;
            Answer::Mismatch { obstacle: Obstacle { filter, text }, prematch }
        }
    })
}

impl Host for Functions<'_> {
    fn filter(
        &mut self,
        object: &Arc<object::Object>,
        question: Question<'_>,
        handlers: &[usize],
    ) -> Vec<Answer> {
        let answers = self.call_filters(object, question, handlers);
        self.report(answers).unwrap_or_else(|text| vec![Answer::Raised(text); handlers.len()])
    }

    fn select(
        &mut self,
        object: &Arc<object::Object>,
        change: Option<&Arc<change::Change>>,
        handlers: &[(usize, u64)],
        records: &[(Arc<str>, Record)],
    ) -> Result<Vec<usize>, String> {
        let selected = self.select_handlers(object, change, handlers, records);
        self.report(selected)
    }

    fn fetch(
        &mut self,
        object: &Arc<object::Object>,
        ids: &[Arc<str>],
        extra_fields: &[FieldPath],
    ) -> Result<FetchedState, String> {
        let fetched = self.fetch_state(object, ids, extra_fields);
        self.report(fetched)
    }
}
