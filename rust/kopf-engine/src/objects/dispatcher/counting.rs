//! The counting of cycles and calls by a dispatcher, for metrics.

use kopf_core::activation::{Activation, Command};
use kopf_core::cause::{EventType, Reason};
use kopf_core::cycle::Cycle;
use kopf_core::time::Timestamp;

use super::Dispatcher;
use crate::metrics::EndedCycle;

/// The facts about a cycle that are recorded at its end.
#[derive(Debug, Clone, Copy)]
pub struct CycleSummary {
    /// When it was opened.
    pub opened: Timestamp,
    /// Whether it has called anything in Python.
    pub has_run: bool,
    reason: Option<Reason>,
    is_deleted: bool,
    waited: Option<f64>,
}

impl CycleSummary {
    /// Of a cycle that was decided.
    pub fn of(running: &Cycle) -> Self {
        let (event, opened) = (running.event(), running.opened());
        let waited = event.arrived.map_or(0.0, |arrived| opened.seconds_since(arrived));
        Self {
            opened,
            has_run: running.has_run(),
            reason: running.reason(),
            is_deleted: event.kind == EventType::Deleted,
            waited: (!event.requeued).then_some(waited),
        }
    }
}

impl Dispatcher {
    /// Counts a cycle that has ended, with or without a write.
    pub(crate) fn count_cycle(&self, summary: CycleSummary, has_written: bool) {
        let CycleSummary { opened, has_run, reason, is_deleted, waited } = summary;
        let duration = (has_run || has_written).then(|| self.shared.base.clock.now().seconds_since(opened));
        self.metrics.cycles.on_end(EndedCycle { reason, is_deleted, waited, duration });
    }

    /// Counts the calls of an activation that is submitted now. `is_first`: the cycle has called no handlers before.
    pub(crate) fn count_calls(
        &self,
        running: &Cycle,
        activation: &Activation,
        is_first: bool,
        now: Timestamp,
    ) {
        let is_call = |command: &Command| {
            matches!(command, Command::CallEventHandler { .. } | Command::CallChangeHandler { .. })
        };
        let event = running.event();
        if is_first && !event.requeued && activation.commands.iter().any(is_call) {
            let arrived = event.arrived.unwrap_or_else(|| running.opened());
            self.metrics.cycles.reaction.observe(now.seconds_since(arrived));
        }
        self.shared.base.metrics.handlers.on_activation(activation);
    }
}
