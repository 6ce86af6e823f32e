//! The daemons and timers that match the object. The cycle does not know which of them already run.

use super::detect::has_filter_result;
use super::{Cycle, Effect};
use crate::activation::{Command, CommandResult};
use crate::cause::EssenceChange;
use crate::daemon::DesiredDaemons;
use crate::handler::Kind;
use crate::handler::filters::{self, FilterVerdict};

/// The state of a cycle that concerns the daemons and timers of its object.
#[derive(Clone, Debug, Default)]
pub(super) struct DaemonPhase {
    /// The handlers that may match.
    candidates: Vec<(usize, FilterVerdict)>,
    /// The position of the command that evaluates their callable filters.
    asked: Option<usize>,
    /// Whether the matching handlers are decided.
    decided: bool,
    /// Seconds until the next check, if some daemons are still stopping.
    pub(super) delay: Option<f64>,
    /// Whether the daemons block the deletion of the object.
    pub(super) holds: bool,
}

impl Cycle {
    /// The command that evaluates callable filters, if there are any. `position` is its place among the commands.
    pub(super) fn daemon_filter_command(&mut self, position: usize) -> Option<Command> {
        // No daemon is started for a deleted object.
        if self.resource_handlers.spawning.is_empty() || self.is_gone() {
            return None;
        }
        let handlers = &self.config.registry.handlers;
        let verdicts = self.resource_handlers.spawning.iter().filter_map(|&index| {
            Some((index, filters::on_object(handlers.get(index)?, &self.object)))
                .filter(|(_, verdict)| *verdict != FilterVerdict::No)
        });
        self.daemon_phase.candidates = verdicts.collect();
        let in_doubt =
            self.daemon_phase.candidates.iter().filter(|(_, verdict)| *verdict == FilterVerdict::Ask);
        let handlers: Vec<usize> = in_doubt.map(|(index, _)| *index).collect();
        if handlers.is_empty() {
            return None;
        }
        self.daemon_phase.asked = Some(position);
        Some(Command::FilterDaemons { handlers })
    }

    /// Applies the results of the callable filters; false if they do not fit the command.
    pub(super) fn apply_spawn_filters(&mut self, results: &[CommandResult]) -> bool {
        let Some(position) = self.daemon_phase.asked.take() else {
            return true;
        };
        let in_doubt =
            self.daemon_phase.candidates.iter_mut().filter(|(_, verdict)| *verdict == FilterVerdict::Ask);
        let in_doubt: Vec<_> = in_doubt.collect();
        let Some(CommandResult::Filtered(matched)) = results.get(position) else {
            return false;
        };
        if matched.len() != in_doubt.len() {
            return false;
        }
        for ((_, verdict), result) in in_doubt.into_iter().zip(matched) {
            *verdict = has_filter_result(*verdict, result.full);
        }
        true
    }

    /// The daemons and timers that should run; none if the cycle has decided that before.
    pub(super) fn desired(&mut self) -> Option<DesiredDaemons> {
        let may_hold =
            !(self.resource_handlers.spawning.is_empty() && self.resource_handlers.reconciling.is_empty());
        if self.daemon_phase.decided || !may_hold {
            return None;
        }
        self.daemon_phase.decided = true;
        let matching =
            self.daemon_phase.candidates.iter().filter(|(_, verdict)| *verdict == FilterVerdict::Yes);
        let handlers = self.config.registry.deduplicated(matching.map(|(index, _)| *index));
        let reset = self.is_reset();
        Some(DesiredDaemons { handlers, deleting: self.is_deleting(), gone: self.is_gone(), reset })
    }

    /// Whether the essence differs from the last handled one. It is compared only if a timer has an idle time.
    fn is_reset(&mut self) -> bool {
        let has_idle = |index: &usize| match self.config.registry.handlers.get(*index).map(|it| &it.kind) {
            Some(Kind::Timer(timer)) => timer.idle.is_some(),
            _ => false,
        };
        !self.event.requeued
            && !self.is_gone()
            && self.resource_handlers.spawning.iter().any(has_idle)
            && self.comparison().essence_change() != EssenceChange::Same
    }

    /// Continues after the daemons and timers are started and stopped.
    pub(super) fn spawned(&mut self, delay: Option<f64>, holds: bool) -> Effect {
        self.daemon_phase.delay = delay;
        self.daemon_phase.holds = holds;
        self.decide()
    }
}
