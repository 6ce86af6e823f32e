//! `Probe`: the call of the probe handlers.

use kopf_engine::host::ProbeTask;
use pyo3::prelude::*;

use crate::commands::reply_sender::ReplySender;

/// Call the probes.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct Probe {
    reply: ReplySender<Option<String>>,
}

impl Probe {
    pub(crate) fn new(task: ProbeTask) -> Self {
        Self { reply: task.reply.into() }
    }
}

#[pymethods]
impl Probe {
    /// Replies with the results of all probes, as JSON.
    fn complete(&self, results: String) {
        self.reply.send(Some(results));
    }

    /// Replies that a probe has failed.
    fn fail(&self) {
        self.reply.send(None);
    }
}
