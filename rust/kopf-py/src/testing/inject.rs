//! Injection of work in the engine's place: without a cluster or cycles.

use std::sync::{Arc, Mutex, PoisonError};

use kopf_core::activation::{Activation, Command, Completion};
use kopf_core::admission::AdmissionResources;
use kopf_core::cause::{EventType, Reason};
use kopf_core::handler::ErrorsMode;
use kopf_core::handling::attempt::Attempt;
use kopf_core::handling::change::Change;
use kopf_core::indexing::{IndexPass, IndexerCall};
use kopf_core::json::value::Value;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::persistence::essence::LazyEssence;
use kopf_core::resource::Resource;
use kopf_engine::host::{
    ActivationTask, ApplyPatchFnsTask, CancelCycleTask, Host as _, HostTask, LogRecord, Responder,
};
use pyo3::prelude::*;
use tokio::sync::oneshot;

use super::completion::to_value;
use crate::bridge::HostQueue;
use crate::convert::{python_to_value, value_to_python};
use crate::engine::Engine;
use crate::errors::{declaration, decoding};
use crate::time::now;

/// The completions of injected activations.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct InjectedWork {
    completions: Mutex<Vec<oneshot::Receiver<Completion>>>,
    transform: Mutex<Option<TransformReply>>,
    cancelled: Mutex<Option<oneshot::Receiver<Option<usize>>>>,
}

type TransformReply = oneshot::Receiver<Result<Value, String>>;

#[pymethods]
impl InjectedWork {
    /// The new completions as dicts.
    fn replies<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut completions = self.completions.lock().unwrap_or_else(PoisonError::into_inner);
        let replies = completions.iter_mut().filter_map(|reply| reply.try_recv().ok());
        replies.map(|reply| value_to_python(py, &to_value(&reply))).collect()
    }

    /// The handler whose call was cancelled, once; none before the end of the call.
    fn cancelled(&self) -> Option<usize> {
        let mut receiver = self.cancelled.lock().unwrap_or_else(PoisonError::into_inner);
        receiver.as_mut()?.try_recv().ok()?
    }

    /// The transformed object, as JSON; or the error.
    fn transformed(&self) -> Option<String> {
        let mut receiver = self.transform.lock().unwrap_or_else(PoisonError::into_inner);
        let reply = receiver.as_mut()?.try_recv().ok()?;
        Some(reply.map_or_else(|error| error, |value| value.to_string()))
    }
}

/// Puts `count` activations into the queue of an engine, each with the same commands; with `together`, all of them at once.
///
/// A step is a pair of a word and handlers: `watch`, `guarded`, `handle`, `filter`, `select`, `index`, `exclude`; `log`, `transform`, `closed`,
/// `keep_fns`, `cancel`, `deleted` put that instead. With `remaining_fns`, functions of an earlier cycle are still to be applied.
#[pyfunction]
#[pyo3(signature = (engine, object, steps, *, cycle=1, count=1, reason=None, old=None, new=None, retries=None, retry=0,
                    together=false, remaining_fns=false))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments, with their names at the call")]
#[expect(clippy::needless_pass_by_value, reason = "arguments as Python gives them")]
pub(crate) fn inject(
    engine: &Engine,
    object: &str,
    steps: Vec<(String, Vec<usize>)>,
    cycle: u64,
    count: u64,
    reason: Option<&str>,
    old: Option<&Bound<'_, PyAny>>,
    new: Option<&Bound<'_, PyAny>>,
    retries: Option<u64>,
    retry: u64,
    together: bool,
    remaining_fns: bool,
) -> PyResult<InjectedWork> {
    let mut injection = Injection {
        host_queue: engine.host_queue(),
        object: Arc::new(Object::decode(object).map_err(decoding)?),
        cycle,
        limits: Limits { retries, retry },
        transform: None,
        cancelled: None,
    };
    let change = change(reason, old, new)?;
    let (mut completions, mut tasks) = (Vec::new(), Vec::new());
    for index in 0..count {
        let commands: Vec<Command> =
            steps.iter().flat_map(|(word, handlers)| injection.step(word, handlers)).collect();
        if !commands.is_empty() {
            let activation =
                Activation { change: change.clone(), commands, remaining_fns, ..Activation::default() };
            let (task, completion) = injection.activation(cycle + index, activation);
            completions.push(completion);
            if together {
                tasks.push(task);
            } else {
                injection.host_queue.submit(task);
            }
        }
    }
    injection.host_queue.submit_all(tasks);
    Ok(InjectedWork {
        completions: Mutex::new(completions),
        transform: Mutex::new(injection.transform),
        cancelled: Mutex::new(injection.cancelled),
    })
}

fn change(
    reason: Option<&str>,
    old: Option<&Bound<'_, PyAny>>,
    new: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<Arc<Change>>> {
    let old = old.map(python_to_value).transpose()?.map(LazyEssence::of);
    let new = new.map(python_to_value).transpose()?.map(LazyEssence::of);
    let reason = match reason {
        Some("update") => Reason::Update,
        Some("delete") => Reason::Delete,
        Some("resume") => Reason::Resume,
        Some(_) => Reason::Create,
        None => return Ok(None),
    };
    Ok(Some(Arc::new(Change::new((reason, false), old, new, None))))
}

/// The data that all steps of one call share.
struct Injection<'e> {
    host_queue: &'e Arc<HostQueue>,
    object: Arc<Object>,
    cycle: u64,
    limits: Limits,
    transform: Option<TransformReply>,
    cancelled: Option<oneshot::Receiver<Option<usize>>>,
}

#[derive(Clone, Copy)]
struct Limits {
    retries: Option<u64>,
    retry: u64,
}

impl Injection<'_> {
    /// The commands of one step; none if the step is another item, which is put into the queue.
    fn step(&mut self, word: &str, handlers: &[usize]) -> Vec<Command> {
        let limits = self.limits;
        let each = handlers.iter().copied();
        match word {
            "watch" | "guarded" => each
                .map(|handler| Command::CallEventHandler {
                    handler,
                    guarded: word == "guarded",
                    attempt: limits.attempt(handler, ErrorsMode::Ignored),
                })
                .collect(),
            "handle" => each
                .map(|handler| Command::CallChangeHandler {
                    attempt: limits.attempt(handler, ErrorsMode::Temporary),
                })
                .collect(),
            "index" => {
                let calls = each
                    .map(|handler| IndexerCall {
                        guarded: true,
                        attempt: limits.attempt(handler, ErrorsMode::Ignored),
                    })
                    .collect();
                vec![Command::CallIndexers(IndexPass { calls, excluded: vec![] })]
            }
            "exclude" => {
                vec![Command::CallIndexers(IndexPass { calls: vec![], excluded: handlers.to_vec() })]
            }
            "filter" => vec![Command::FilterHandlers { handlers: handlers.to_vec() }],
            "select" => {
                let handlers = each.map(|handler| (handler, 0)).collect();
                vec![Command::SelectHandlers { handlers, records: vec![] }]
            }
            other => {
                self.submit(other);
                vec![]
            }
        }
    }

    /// Puts an item without commands into the queue.
    fn submit(&mut self, word: &str) {
        let cycle = self.cycle;
        self.host_queue.submit(match word {
            "log" => {
                let record = LogRecord::posted(Level::Info, &self.object, "A line.");
                return self.host_queue.log(record.with_exception_of(cycle));
            }
            "closed" | "keep_fns" => HostTask::CycleClosed { cycle, keep_fns: word == "keep_fns" },
            "cancel" => {
                let (sender, receiver) = oneshot::channel();
                self.cancelled = Some(receiver);
                let reply = Responder::new(|cancelled| {
                    let _dropped = sender.send(cancelled);
                });
                HostTask::CancelCycle(CancelCycleTask { cycle, reply })
            }
            "deleted" => HostTask::ObjectDeleted(self.object.uid().unwrap_or_default().into()),
            _ => {
                let (reply, receiver) = oneshot::channel();
                self.transform = Some(receiver);
                HostTask::ApplyPatchFns(ApplyPatchFnsTask { cycle, object: Arc::clone(&self.object), reply })
            }
        });
    }

    fn activation(&self, cycle: u64, activation: Activation) -> (HostTask, oneshot::Receiver<Completion>) {
        let (reply, receiver) = oneshot::channel();
        let task = HostTask::Activation(ActivationTask {
            cycle,
            uid: self.object.uid().unwrap_or_default().into(),
            resource: resource(),
            event: EventType::Modified,
            object: Arc::clone(&self.object),
            activation,
            span: tracing::debug_span!(target: "kopf_engine::testing", "activation", cycle),
            reply: Responder::through(reply),
        });
        (task, receiver)
    }
}

impl Limits {
    fn attempt(self, handler: usize, errors: ErrorsMode) -> Attempt {
        let Self { retries, retry } = self;
        let label = format!("Handler 'h{handler}'").into();
        Attempt { handler, label, errors, timeout: None, retries, backoff: Some(60.0), started: now(), retry }
    }
}

/// Makes an engine review admission requests for this resource, as if it were discovered in a cluster.
#[pyfunction]
pub(crate) fn inject_review(engine: &Engine, resource: &Bound<'_, PyAny>) -> PyResult<()> {
    let resource: Resource =
        pythonize::depythonize(resource).map_err(|error| declaration("resource", error))?;
    let admission_router = engine.admission_router();
    admission_router.serve(AdmissionResources::select(
        admission_router.handlers(),
        &[Arc::new(resource)],
        &|_, _| true,
    ));
    Ok(())
}

fn resource() -> Arc<Resource> {
    use std::sync::OnceLock;
    static RESOURCE: OnceLock<Arc<Resource>> = OnceLock::new();
    Arc::clone(RESOURCE.get_or_init(|| {
        Arc::new(Resource {
            group: "kopf.dev".to_owned(),
            version: "v1".to_owned(),
            plural: "kopfexamples".to_owned(),
            kind: Some("KopfExample".to_owned()),
            singular: Some("kopfexample".to_owned()),
            shortcuts: ["kex".to_owned()].into(),
            categories: [].into(),
            subresources: ["status".to_owned()].into(),
            verbs: ["list".to_owned(), "watch".to_owned(), "patch".to_owned()].into(),
            namespaced: true,
            preferred: true,
        })
    }))
}
