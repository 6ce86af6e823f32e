//! `MatchResources` and `MatchNamespaces`: the selectors and patterns that only Python can evaluate.

use kopf_engine::host::{MatchNamespacesTask, MatchResourcesTask};
use pyo3::prelude::*;

use crate::commands::reply_sender::ReplySender;

/// Call the selectors that are functions.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct MatchResources {
    #[pyo3(get)]
    handlers: Vec<usize>,
    #[pyo3(get)]
    resources: Vec<Py<PyAny>>,
    reply: ReplySender<Result<Vec<Vec<bool>>, String>>,
}

impl MatchResources {
    pub(crate) fn new(task: MatchResourcesTask, resources: Vec<Py<PyAny>>) -> Self {
        Self { handlers: task.handlers, resources, reply: task.reply.into() }
    }
}

#[pymethods]
impl MatchResources {
    /// Replies with the results: for each handler, whether it selects each resource.
    fn complete(&self, matches: Vec<Vec<bool>>) {
        self.reply.send(Ok(matches));
    }

    /// Replies with the error of a function.
    fn fail(&self, error: String) {
        self.reply.send(Err(error));
    }
}

/// Match namespaces with the patterns that are not globs.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct MatchNamespaces {
    #[pyo3(get)]
    names: Vec<String>,
    reply: ReplySender<Vec<bool>>,
}

impl MatchNamespaces {
    pub(crate) fn new(task: MatchNamespacesTask) -> Self {
        Self { names: task.names, reply: task.reply.into() }
    }
}

#[pymethods]
impl MatchNamespaces {
    /// Replies with the results for each name.
    fn complete(&self, served: Vec<bool>) {
        self.reply.send(served);
    }
}
