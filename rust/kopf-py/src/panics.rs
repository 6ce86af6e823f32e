//! Panics of the engine's tasks on demand, for tests (feature `testing`): a task panics where it submits something to Python.

use std::sync::{Mutex, PoisonError};

use kopf_core::activation::Command;
use kopf_core::object::Object;
use kopf_engine::host::HostTask;
use pyo3::prelude::*;

/// The ordered panics. They are of the process, as an operator's handlers do not know its engine.
static PANICS: Mutex<Vec<Ordered>> = Mutex::new(Vec::new());

struct Ordered {
    step: String,
    name: Option<String>,
    left: u64,
}

/// Makes a task of the engine panic at its next `times` steps of one sort, for the object of that name if one is given.
///
/// Sorts: `watch` (a watch event is received), `handle` (the worker of an object calls handlers), `index` (index functions are
/// called), `transform` (functions of a patch are applied), `run` (a daemon or a timer is called), `forget` (an object is gone).
#[pyfunction]
#[pyo3(name = "inject_panics", signature = (step, *, name=None, times=1))]
pub(crate) fn order(step: String, name: Option<String>, times: u64) {
    PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(Ordered { step, name, left: times });
}

/// Panics if a panic is ordered for the task that submits this.
pub(crate) fn on_submit(task: &HostTask) {
    match task {
        HostTask::Activation(task) => {
            let is_index = task.activation.steps.iter().any(|step| matches!(step, Command::Index(_)));
            if is_index {
                explode("index", Some(&task.object));
            }
            if task.activation.change.is_some() {
                explode("handle", Some(&task.object));
            }
        }
        HostTask::Transform(task) => explode("transform", Some(&task.object)),
        HostTask::Run(task) => explode("run", Some(&task.object)),
        HostTask::Forget(_) => explode("forget", None),
        _ => {}
    }
}

/// Panics if a panic is ordered for a watch. Watches ask for the backlog with each event.
pub(crate) fn on_watch_event() {
    explode("watch", None);
}

fn explode(step: &str, object: Option<&Object>) {
    let name = object.and_then(Object::name);
    let is_hit = {
        let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
        let ordered = panics.iter_mut().find(|it| {
            it.left > 0 && it.step == step && it.name.as_deref().is_none_or(|only| name == Some(only))
        });
        ordered.is_some_and(|ordered| {
            ordered.left -= 1;
            true
        })
    };
    assert!(!is_hit, "an injected panic ({step})");
}
