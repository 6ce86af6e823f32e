//! Effects of events, collected while the slots are locked and executed after the lock is released.

use super::Work;
use crate::context::OperatorContext;
use crate::host::{HostTask, LogRecord};

/// The effects, executed in the order of the fields.
#[derive(Default)]
pub(crate) struct Effects(Vec<DispatchEffect>);

enum DispatchEffect {
    Log(LogRecord),
    Submit(HostTask),
    Spawn(Work),
}

impl Effects {
    /// Logs a line.
    pub(crate) fn log(&mut self, entry: LogRecord) {
        self.0.push(DispatchEffect::Log(entry));
    }

    /// Logs these lines.
    pub(super) fn log_all(&mut self, entries: Vec<LogRecord>) {
        self.0.extend(entries.into_iter().map(DispatchEffect::Log));
    }

    /// Submits a task to the host.
    pub(super) fn submit(&mut self, job: HostTask) {
        self.0.push(DispatchEffect::Submit(job));
    }

    /// Starts a worker.
    pub(super) fn spawn(&mut self, work: Work) {
        self.0.push(DispatchEffect::Spawn(work));
    }

    /// Executes all effects.
    pub(super) fn take_place(self, shared: &OperatorContext) {
        for effect in self.0 {
            match effect {
                DispatchEffect::Log(entry) => shared.host.log(entry),
                DispatchEffect::Submit(job) => shared.host.submit(job),
                DispatchEffect::Spawn(work) => work.spawn(None),
            }
        }
    }
}
