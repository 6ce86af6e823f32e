//! What is asked next if all goes as it usually does: put along with the first question, it spares a crossing.
//!
//! A copy of the machine goes ahead with the expected answers. If they come true, it takes the place of the original; if not,
//! it is as if nothing was foreseen. Whoever runs the script knows which of it is: see `Activation::then`.

use super::{Cycle, Effect, Phase};
use crate::activation::log::LogMessage;
use crate::activation::{Command, CommandResult, Completion, FilterResult};
use crate::log_level::Level;

impl Cycle {
    /// Adds the calls that are likely to follow to the first activation. Nothing is added if a line is to be logged before
    /// the calls, on a level that is enabled.
    pub fn speculate(&mut self, next: &mut Effect, is_enabled: impl Fn(Level) -> bool) {
        let Effect::Run(activation) = next else { return };
        let Some(reason) = self.cause.filter(|reason| reason.is_handled()) else { return };
        // What is known beforehand needs no copy: the beginning of the handling is said always, and daemons come in between.
        let is_said = is_enabled(LogMessage::InProgress(reason).level());
        if !matches!(self.phase, Phase::Opening { .. }) || is_said || !self.plan.spawning.is_empty() {
            return;
        }
        let mut ahead = self.clone();
        let phase = std::mem::replace(&mut ahead.phase, Phase::Over);
        let expected =
            Completion { steps: activation.steps.iter().map(expected).collect(), ..Completion::default() };
        let Effect::Run(tail) = ahead.on_completion(&phase, expected) else { return };
        let is_calling = matches!(ahead.phase, Phase::Handling { .. });
        let is_silent = ahead.drain_log().iter().all(|note| !is_enabled(note.level()));
        if !is_calling || !is_silent || tail.initial_patch.is_some() {
            return;
        }
        activation.then = tail.steps;
        activation.change = tail.change;
        self.foreseen = Some(Box::new(ahead));
    }

    /// What was foreseen has come true, and that is how it went; none if it does not fit.
    pub(super) fn commit_speculation(&mut self, then: &[CommandResult]) -> Option<Effect> {
        let ahead = *self.foreseen.take()?;
        let (now, patch, fns) = (self.moment.now, std::mem::take(&mut self.patch), self.fns);
        *self = ahead;
        (self.moment.now, self.patch, self.fns) = (now, patch, fns);
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        (phase == Phase::Handling { steps: then.len() }).then(|| self.handled(then))
    }
}

/// Seconds that the steps of a script may take before what was foreseen is out of date: the moment at which the calls count
/// as begun was set before.
const MOMENT: f64 = 0.1;

impl Completion {
    /// Whether the replies to the steps are such that the foreseen ones may follow. That nobody has touched the patch, the
    /// caller knows.
    pub fn is_as_foreseen(replies: &[CommandResult], seconds: f64) -> bool {
        let is_willing = |reply: &CommandResult| match reply {
            CommandResult::Matched(answers) => answers.iter().all(|answer| answer.prematch && answer.full),
            _ => true,
        };
        seconds <= MOMENT && replies.iter().all(is_willing)
    }
}

fn expected(step: &Command) -> CommandResult {
    let yes = FilterResult { prematch: true, full: true };
    match step {
        Command::Match { handlers } | Command::Spawn { handlers } => {
            CommandResult::Matched(vec![yes; handlers.len()])
        }
        _ => CommandResult::Skipped,
    }
}
