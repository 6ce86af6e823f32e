//! What follows from a step of daemons and timers: collected while their state is locked, sent afterwards.

use std::sync::Arc;

use kopf_core::daemon::Reasons;
use kopf_core::handler::{Handler, Kind};
use kopf_core::ids;

use super::subject::Subject;
use super::wheel::{Due, Message};
use crate::dispatch::Shared;
use crate::invoke::{Entry, Job, Reporter, RunId};

/// What is to be sent when the state is not locked any more.
#[derive(Default)]
pub(super) struct Outbox {
    pub(super) jobs: Vec<Job>,
    pub(super) sleeps: Vec<Due>,
    pub(super) entries: Vec<Entry>,
    pub(super) wakes: Vec<Arc<Subject>>,
}

impl Outbox {
    /// Sends everything.
    pub(super) fn flush(self, shared: &Arc<Shared>) {
        for due in self.sleeps {
            shared.background.tell(Message::Sleep(due));
        }
        for entry in self.entries {
            shared.invoker.log(entry);
        }
        if !self.jobs.is_empty() {
            shared.invoker.submit_all(self.jobs);
        }
        if !self.wakes.is_empty() {
            shared.background.tell(Message::Wake(self.wakes));
        }
    }

    /// Takes the sleeps out: for the wheel itself.
    pub(super) fn take_sleeps(&mut self) -> Vec<Due> {
        std::mem::take(&mut self.sleeps)
    }
}

impl Message {
    /// Wakes up the cycles of these objects.
    pub(super) fn wake_all(subjects: &[Arc<Subject>]) {
        for subject in subjects {
            subject.wake();
        }
    }
}

/// What is said at the end.
pub(super) fn farewells(handler: &Handler, reasons: Reasons) -> impl Iterator<Item = String> {
    let label = ids::label(handler);
    let halted = Reasons::OPERATOR_EXITING | Reasons::OPERATOR_PAUSING;
    let is_halted = (reasons.bits() & halted.bits()) != 0;
    let is_graceful =
        is_halted && !reasons.contains(Reasons::CANCELLED) && !reasons.contains(Reasons::ABANDONED);
    let how = if reasons.is_empty() { "on its own" } else { "on request" };
    let ended = matches!(handler.kind, Kind::Daemon(_))
        .then(|| format!("{label} has exited {how} and will not be retried or restarted."));
    ended.into_iter().chain(is_graceful.then(|| format!("{label} has exited gracefully.")))
}

/// A way for a reply to the wheel's task.
pub(super) fn report<T: Default + Send + 'static>(
    shared: &Arc<Shared>,
    subject: &Arc<Subject>,
    run: RunId,
    message: impl FnOnce(Arc<Subject>, RunId, T) -> Message + Send + 'static,
) -> Reporter<T> {
    let (shared, subject) = (Arc::clone(shared), Arc::clone(subject));
    Reporter::new(move |reply| shared.background.tell(message(subject, run, reply)))
}
