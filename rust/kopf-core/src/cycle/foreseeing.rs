//! What is asked next if all goes as it usually does: put along with the first question, it spares a crossing.
//!
//! A copy of the machine goes ahead with the expected answers. If they come true, it takes the place of the original; if not,
//! it is as if nothing was foreseen. Whoever runs the script knows which of it is: see `Script::then`.

use super::{Cycle, Next, Phase};
use crate::notes::{Level, Note};
use crate::script::{Matched, Reply, Step, StepReply};

impl Cycle {
    /// Puts the calls that are likely to follow to the opening script. Nothing is foreseen if something is to be said before
    /// the calls, on a level that is `told`.
    pub fn foresee(&mut self, next: &mut Next, told: impl Fn(Level) -> bool) {
        let Next::Run(script) = next else { return };
        let Some(reason) = self.cause.filter(|reason| reason.is_handled()) else { return };
        // What is known beforehand needs no copy: the beginning of the handling is said always, and daemons come in between.
        let is_said = told(Note::InProgress(reason).level());
        if !matches!(self.phase, Phase::Opening { .. }) || is_said || !self.plan.spawning.is_empty() {
            return;
        }
        let mut ahead = self.clone();
        let phase = std::mem::replace(&mut ahead.phase, Phase::Over);
        let expected = Reply { steps: script.steps.iter().map(expected).collect(), ..Reply::default() };
        let Next::Run(tail) = ahead.hear(&phase, expected) else { return };
        let is_calling = matches!(ahead.phase, Phase::Handling { .. });
        let is_silent = ahead.take_notes().iter().all(|note| !told(note.level()));
        if !is_calling || !is_silent || tail.preset.is_some() {
            return;
        }
        script.then = tail.steps;
        script.change = tail.change;
        self.foreseen = Some(Box::new(ahead));
    }

    /// What was foreseen has come true, and that is how it went; none if it does not fit.
    pub(super) fn fulfilled(&mut self, then: &[StepReply]) -> Option<Next> {
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

impl Reply {
    /// Whether the replies to the steps are such that the foreseen ones may follow. That nobody has touched the patch, the
    /// caller knows.
    pub fn is_as_foreseen(replies: &[StepReply], seconds: f64) -> bool {
        let is_willing = |reply: &StepReply| match reply {
            StepReply::Matched(answers) => answers.iter().all(|answer| answer.prematch && answer.full),
            _ => true,
        };
        seconds <= MOMENT && replies.iter().all(is_willing)
    }
}

fn expected(step: &Step) -> StepReply {
    let yes = Matched { prematch: true, full: true };
    match step {
        Step::Match { handlers } | Step::Spawn { handlers } => StepReply::Matched(vec![yes; handlers.len()]),
        _ => StepReply::Skipped,
    }
}
