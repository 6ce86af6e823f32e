//! Panics of the engine's tasks on demand, for tests (feature `testing`): a task panics where it submits something to Python.

use std::sync::{Mutex, PoisonError};

use kopf_core::activation::Command;
use kopf_core::object::Object;
use kopf_engine::host::HostTask;
use pyo3::prelude::*;

/// The injected panics. They are of the process, as an operator's handlers do not know its engine.
static PANICS: Mutex<Vec<InjectedPanic>> = Mutex::new(Vec::new());

struct InjectedPanic {
    step: String,
    name: Option<String>,
    remaining: u64,
}

/// Makes a task of the engine panic at its next `times` steps of one sort, for the object of that name if one is given.
///
/// Sorts: `watch` (a watch event is received), `handle` (the worker of an object calls handlers), `index` (index functions are
/// called), `transform` (functions of a patch are applied), `run` (a daemon or a timer is called), `forget` (an object is gone), `webhook` (a
/// webhook server without an engine receives a request).
#[pyfunction]
#[pyo3(signature = (step, *, name=None, times=1))]
pub(crate) fn inject_panics(step: String, name: Option<String>, times: u64) {
    PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(InjectedPanic {
        step,
        name,
        remaining: times,
    });
}

/// Panics if a panic is injected for the task that submits this.
pub(crate) fn on_submit(task: &HostTask) {
    match task {
        HostTask::Activation(task) => {
            let is_index =
                task.activation.commands.iter().any(|command| matches!(command, Command::CallIndexers(_)));
            if is_index {
                panic_if_injected("index", Some(&task.object));
            }
            if task.activation.change.is_some() {
                panic_if_injected("handle", Some(&task.object));
            }
        }
        HostTask::ApplyPatchFns(task) => panic_if_injected("transform", Some(&task.object)),
        HostTask::CallDaemon(task) => panic_if_injected("run", Some(&task.object)),
        HostTask::ObjectDeleted(_) => panic_if_injected("forget", None),
        _ => {}
    }
}

/// Panics if a panic is injected for a watch. Watches ask for the backlog with each event.
pub(crate) fn on_watch_event() {
    panic_if_injected("watch", None);
}

/// Panics if a panic is injected for a request of a webhook server.
pub(crate) fn on_webhook_request() {
    panic_if_injected("webhook", None);
}

fn panic_if_injected(step: &str, object: Option<&Object>) {
    let name = object.and_then(Object::name);
    let is_hit = {
        let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
        let injected = panics.iter_mut().find(|it| {
            it.remaining > 0 && it.step == step && it.name.as_deref().is_none_or(|only| name == Some(only))
        });
        injected.is_some_and(|injected| {
            injected.remaining -= 1;
            true
        })
    };
    assert!(!is_hit, "an injected panic ({step})");
}
