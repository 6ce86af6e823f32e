//! Between the halves: which daemons and timers match the object. Who of them runs already is not known here.

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
    /// Those that may match.
    guests: Vec<(usize, FilterVerdict)>,
    /// The step that asks the callable filters of those in doubt, by its position.
    asked: Option<usize>,
    /// They are started and stopped.
    settled: bool,
    /// Some are still stopping: seconds until the next look.
    pub(super) delay: Option<f64>,
    /// The deletion of the object is to be held because of them.
    pub(super) holds: bool,
}

impl Cycle {
    /// The question to callable filters, if there is any; `position` is where it would stand.
    pub(super) fn spawn_step(&mut self, position: usize) -> Option<Command> {
        // For what is no more, nobody is started.
        if self.plan.spawning.is_empty() || self.is_gone() {
            return None;
        }
        let handlers = &self.rules.registry.handlers;
        let verdicts = self.plan.spawning.iter().filter_map(|&index| {
            Some((index, filters::on_object(handlers.get(index)?, &self.object)))
                .filter(|(_, verdict)| *verdict != FilterVerdict::No)
        });
        self.daemon_phase.guests = verdicts.collect();
        let in_doubt = self.daemon_phase.guests.iter().filter(|(_, verdict)| *verdict == FilterVerdict::Ask);
        let handlers: Vec<usize> = in_doubt.map(|(index, _)| *index).collect();
        if handlers.is_empty() {
            return None;
        }
        self.daemon_phase.asked = Some(position);
        Some(Command::Spawn { handlers })
    }

    /// Takes the answers of the callable filters; false if they do not fit the questions.
    pub(super) fn spawn_answered(&mut self, replies: &[CommandResult]) -> bool {
        let Some(position) = self.daemon_phase.asked.take() else {
            return true;
        };
        let in_doubt =
            self.daemon_phase.guests.iter_mut().filter(|(_, verdict)| *verdict == FilterVerdict::Ask);
        let in_doubt: Vec<_> = in_doubt.collect();
        let Some(CommandResult::Matched(answers)) = replies.get(position) else {
            return false;
        };
        if answers.len() != in_doubt.len() {
            return false;
        }
        for ((_, verdict), answer) in in_doubt.into_iter().zip(answers) {
            *verdict = has_filter_result(*verdict, answer.full);
        }
        true
    }

    /// What is to be running, if that is not settled yet.
    pub(super) fn wanted(&mut self) -> Option<DesiredDaemons> {
        if self.daemon_phase.settled || self.plan.spawning.is_empty() {
            return None;
        }
        self.daemon_phase.settled = true;
        let matching = self.daemon_phase.guests.iter().filter(|(_, verdict)| *verdict == FilterVerdict::Yes);
        let handlers = self.rules.registry.deduplicated(matching.map(|(index, _)| *index));
        let reset = self.is_reset();
        Some(DesiredDaemons { handlers, deleting: self.is_deleting(), gone: self.is_gone(), reset })
    }

    /// Whether the essence is another than the last handled one; looked at only if somebody waits for idleness.
    fn is_reset(&mut self) -> bool {
        let idles = |index: &usize| match self.rules.registry.handlers.get(*index).map(|it| &it.kind) {
            Some(Kind::Timer(timer)) => timer.idle.is_some(),
            _ => false,
        };
        !self.requeued
            && !self.is_gone()
            && self.plan.spawning.iter().any(idles)
            && self.comparison().likeness() != EssenceChange::Same
    }

    /// Daemons and timers are started and stopped.
    pub(super) fn spawned(&mut self, delay: Option<f64>, holds: bool) -> Effect {
        self.daemon_phase.delay = delay;
        self.daemon_phase.holds = holds;
        self.decide()
    }
}
