//! Effects of a step of daemons and timers: collected while their state is locked, sent after the lock is released.

use std::sync::Arc;

use kopf_core::daemon::StopReasons;
use kopf_core::handler::label;
use kopf_core::handler::{Handler, Kind};

use super::ObjectDaemons;
use super::commands::{ScheduledRun, SchedulerCommand};
use crate::daemons::DaemonContext;
use crate::host::{HostTask, LogRecord, Responder, RunId};

/// The effects to send.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) tasks: Vec<HostTask>,
    pub(crate) sleeps: Vec<ScheduledRun>,
    pub(crate) entries: Vec<LogRecord>,
    pub(crate) wakes: Vec<Arc<ObjectDaemons>>,
}

impl Effects {
    /// Sends all effects.
    pub(crate) fn flush(self, shared: &Arc<DaemonContext>) {
        for due in self.sleeps {
            shared.manager.send(SchedulerCommand::Sleep(due));
        }
        for entry in self.entries {
            shared.base.host.log(entry);
        }
        if !self.tasks.is_empty() {
            shared.base.host.submit_all(self.tasks);
        }
        if !self.wakes.is_empty() {
            shared.manager.send(SchedulerCommand::Wake(self.wakes));
        }
    }

    /// Takes the scheduled runs out: the scheduler adds them to its heap itself.
    pub(crate) fn take_sleeps(&mut self) -> Vec<ScheduledRun> {
        std::mem::take(&mut self.sleeps)
    }
}

/// The log messages of an exit.
pub(crate) fn exit_messages(handler: &Handler, reasons: StopReasons) -> impl Iterator<Item = String> {
    let label = label::label(handler);
    let halted = StopReasons::OPERATOR_EXITING | StopReasons::OPERATOR_PAUSING;
    let is_halted = (reasons.bits() & halted.bits()) != 0;
    let is_graceful =
        is_halted && !reasons.contains(StopReasons::CANCELLED) && !reasons.contains(StopReasons::ABANDONED);
    let how = if reasons.is_empty() { "on its own" } else { "on request" };
    let ended = matches!(handler.kind, Kind::Daemon(_))
        .then(|| format!("{label} has exited {how} and will not be retried or restarted."));
    ended.into_iter().chain(is_graceful.then(|| format!("{label} has exited gracefully.")))
}

/// A reply that is sent to the scheduler as a command.
pub(crate) fn report<T: Default + Send + 'static>(
    shared: &Arc<DaemonContext>,
    object_daemons: &Arc<ObjectDaemons>,
    run: RunId,
    message: impl FnOnce(Arc<ObjectDaemons>, RunId, T) -> SchedulerCommand + Send + 'static,
) -> Responder<T> {
    let (shared, object_daemons) = (Arc::clone(shared), Arc::clone(object_daemons));
    Responder::new(move |reply| shared.manager.send(message(object_daemons, run, reply)))
}
