//! Injection of work in the engine's place, for tests and benchmarks (feature `testing`): without a cluster or cycles.

use std::sync::{Arc, Mutex, PoisonError};

use kopf_core::activation::{Activation, Command, Completion};
use kopf_core::admission::AdmissionResources;
use kopf_core::cause::{EventType, Reason};
use kopf_core::handler::ErrorsMode;
use kopf_core::handling::attempt::Attempt;
use kopf_core::handling::change::Change;
use kopf_core::indexing::{Call, IndexPass};
use kopf_core::json::value::Value;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::persistence::essence::LazyEssence;
use kopf_core::resource::Resource;
use kopf_engine::host::{ActivationTask, Host as _, HostTask, LogRecord, Responder, TransformTask};
use pyo3::prelude::*;
use tokio::sync::oneshot;

use crate::convert::python_to_value;
use crate::engine::Engine;
use crate::errors::{declaration, decoding};
use crate::time::now;

/// The completions of injected activations.
#[pyclass(frozen, name = "InjectedWork", module = "kopf._kopf")]
pub(crate) struct Rehearsal {
    scripts: Mutex<Vec<oneshot::Receiver<Completion>>>,
    transform: Mutex<Option<oneshot::Receiver<Result<Value, String>>>>,
}

#[pymethods]
impl Rehearsal {
    /// The completions so far, in Rust's debug format.
    fn replies(&self) -> Vec<String> {
        let mut scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        scripts
            .iter_mut()
            .filter_map(|reply| reply.try_recv().ok())
            .map(|reply| format!("{reply:?}"))
            .collect()
    }

    /// The transformed object, as JSON; or the error.
    fn transformed(&self) -> Option<String> {
        let mut receiver = self.transform.lock().unwrap_or_else(PoisonError::into_inner);
        let reply = receiver.as_mut()?.try_recv().ok()?;
        Some(reply.map_or_else(|error| error, |value| value.to_string()))
    }
}

/// Puts `count` activations into the queue of an engine, each with the same steps.
///
/// Steps are pairs of a word and handlers: `watch`, `guarded`, `handle`, `match`, `pick`, `index`, `exclude`; `log`, `transform`, `close`,
/// `carry`, `cancel`, `forget` put that instead.
#[pyfunction]
#[pyo3(name = "inject")]
#[pyo3(signature = (engine, object, steps, *, cycle=1, count=1, reason=None, old=None, new=None, retries=None, retry=0))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments, with their names at the call")]
#[expect(clippy::needless_pass_by_value, reason = "arguments as Python gives them")]
pub(crate) fn rehearse(
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
) -> PyResult<Rehearsal> {
    let object = Arc::new(Object::decode(object).map_err(decoding)?);
    let old = old.map(python_to_value).transpose()?;
    let new = new.map(python_to_value).transpose()?;
    let reason = match reason {
        Some("update") => Some(Reason::Update),
        Some("delete") => Some(Reason::Delete),
        Some("resume") => Some(Reason::Resume),
        Some(_) => Some(Reason::Create),
        None => None,
    };
    let change = reason.map(|reason| {
        let (old, new) = (old.map(LazyEssence::of), new.map(LazyEssence::of));
        Arc::new(Change::new((reason, false), old, new, None))
    });
    let host_queue = engine.host_queue();
    let mut receivers = Vec::new();
    let mut transform = None;
    for index in 0..count {
        let mut script = Activation { change: change.clone(), ..Activation::default() };
        for (word, handlers) in &steps {
            match word.as_str() {
                "watch" | "guarded" => script.steps.extend(handlers.iter().map(|handler| Command::Watch {
                    handler: *handler,
                    guarded: word == "guarded",
                    attempt: attempt(*handler, ErrorsMode::Ignored, retries, retry),
                })),
                "handle" => script.steps.extend(handlers.iter().map(|handler| Command::Handle {
                    attempt: attempt(*handler, ErrorsMode::Temporary, retries, retry),
                })),
                "index" => script.steps.push(Command::Index(IndexPass {
                    calls: handlers.iter().map(|handler| index_call(*handler, retries, retry)).collect(),
                    excluded: vec![],
                })),
                "exclude" => {
                    script
                        .steps
                        .push(Command::Index(IndexPass { calls: vec![], excluded: handlers.clone() }));
                }
                "match" => script.steps.push(Command::Match { handlers: handlers.clone() }),
                "pick" => {
                    script.steps.push(Command::Pick { handlers: handlers.iter().map(|h| (*h, 0)).collect() });
                }
                "log" => host_queue
                    .log(LogRecord::posted(Level::Info, &object, "A line.").with_exception_of(cycle)),
                "close" | "carry" => host_queue.submit(HostTask::Close { cycle, carry: word == "carry" }),
                "cancel" => host_queue.submit(HostTask::Cancel(cycle)),
                "forget" => host_queue.submit(HostTask::Forget(object.uid().unwrap_or_default().into())),
                _ => {
                    let (reply, receiver) = oneshot::channel();
                    transform = Some(receiver);
                    host_queue.submit(HostTask::Transform(TransformTask {
                        cycle,
                        object: Arc::clone(&object),
                        reply,
                    }));
                }
            }
        }
        if script.steps.is_empty() {
            continue;
        }
        let (reply, receiver) = oneshot::channel();
        receivers.push(receiver);
        host_queue.submit(HostTask::Activation(ActivationTask {
            cycle: cycle + index,
            uid: object.uid().unwrap_or_default().into(),
            resource: resource(),
            event: EventType::Modified,
            object: Arc::clone(&object),
            activation: script,
            reply: Responder::through(reply),
        }));
    }
    Ok(Rehearsal { scripts: Mutex::new(receivers), transform: Mutex::new(transform) })
}

/// Makes an engine review admission requests for this resource, as if it were discovered in a cluster.
#[pyfunction]
#[pyo3(name = "inject_review")]
pub(crate) fn admit(engine: &Engine, resource: &Bound<'_, PyAny>) -> PyResult<()> {
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

fn index_call(handler: usize, retries: Option<u64>, retry: u64) -> Call {
    Call { guarded: true, attempt: attempt(handler, ErrorsMode::Ignored, retries, retry) }
}

fn attempt(handler: usize, errors: ErrorsMode, retries: Option<u64>, retry: u64) -> Attempt {
    let label = format!("Handler 'h{handler}'").into();
    Attempt { handler, label, errors, timeout: None, retries, backoff: 60.0, started: now(), retry }
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
