//! The first half: who is interested, and whether handling may begin.

use super::comparison::EssenceComparison;
use super::{Candidate, Cycle, Effect, Phase};
use crate::activation::log::LogMessage;
use crate::activation::{Activation, Command, CommandResult, FilterResult};
use crate::cause;
use crate::cause::{CauseInput, Reason};
use crate::handler::filters::{self, ChangeVerdict, FilterVerdict};
use crate::handler::{Changing, Handler};
use crate::handling::change::Change;
use crate::persistence::finalizer::Edit;
use std::sync::Arc;

impl Cycle {
    /// Asks everything that must be asked before deciding; decides at once if there is nothing to ask.
    pub(super) fn begin(&mut self) -> Effect {
        let mut steps = if self.requeued { vec![] } else { self.watch_steps() };
        if !self.plan.changing.is_empty() {
            self.find_cause();
        }
        steps.extend(self.spawn_step(steps.len()));
        let asked = self.pending_filters();
        if !asked.is_empty() {
            let handlers = asked.iter().map(|position| self.candidates[*position].handler).collect();
            steps.push(Command::Match { handlers });
        }
        if steps.is_empty() {
            return self.decide();
        }
        let change = if asked.is_empty() { None } else { self.change() };
        let last = asked.is_empty()
            && self.custom_storage.is_none()
            && self.plan.spawning.is_empty()
            && self.cause.is_none_or(|reason| !reason.is_handled());
        self.phase = Phase::Opening { steps: steps.len(), asked };
        Effect::Run(Activation { steps, change, last, ..Activation::default() })
    }

    /// The event handlers: all that match, each as if for the first time.
    fn watch_steps(&self) -> Vec<Command> {
        let matching = self.plan.watching.iter().filter_map(|&index| {
            let handler = self.rules.registry.handlers.get(index)?;
            let verdict = filters::on_object(handler, &self.object);
            (verdict != FilterVerdict::No).then_some((index, verdict == FilterVerdict::Ask))
        });
        let mut steps: Vec<Command> = Vec::new();
        for (handler, guarded) in matching {
            // One function is called once for one id; whether a guarded one is called is not known yet, so both stay.
            if !guarded && steps.iter().any(|step| self.is_same(step, handler)) {
                continue;
            }
            if let Some(attempt) = self.attempt(handler, self.moment.now, 0) {
                steps.push(Command::Watch { handler, guarded, attempt });
            }
        }
        steps
    }

    fn is_same(&self, step: &Command, index: usize) -> bool {
        let handlers = &self.rules.registry.handlers;
        let Command::Watch { handler, guarded: false, .. } = step else {
            return false;
        };
        let (Some(one), Some(other)) = (handlers.get(*handler), handlers.get(index)) else {
            return false;
        };
        one.key == other.key && one.id == other.id
    }

    /// Why we act, and who might be interested in that.
    fn find_cause(&mut self) {
        // Nobody is interested in such labels and annotations: the object is left alone, its essence is not even looked at.
        if !self.is_labelled_for_anybody() {
            return;
        }
        let signs = CauseInput {
            gone: self.is_gone(),
            deleting: self.is_deleting(),
            blocked: self.is_blocked(),
            initial: self.is_initial(),
        };
        let reason = cause::reason(signs, || self.comparison().likeness());
        self.cause = Some(reason);
        if matches!(reason, Reason::Gone | Reason::Free) {
            return;
        }
        let plan = Arc::clone(&self.plan);
        for &handler in &plan.changing {
            // If nobody will be called, it only matters who holds the deletion.
            if !reason.is_handled() && !self.holds_deletion(handler) {
                continue;
            }
            let ChangeVerdict { prematch, full } = self.verdict(handler);
            if prematch != FilterVerdict::No {
                self.candidates.push(Candidate { handler, prematch, full });
            }
        }
    }

    pub(super) fn is_labelled_for_anybody(&self) -> bool {
        let handlers = &self.rules.registry.handlers;
        let mut changing = self.plan.changing.iter().filter_map(|index| handlers.get(*index));
        changing.any(|handler| filters::metadata(handler, &self.object) != FilterVerdict::No)
    }

    /// The candidates whose callable filters must be asked, by their positions.
    fn pending_filters(&self) -> Vec<usize> {
        let is_known = self.candidates.iter().any(|one| one.prematch == FilterVerdict::Yes);
        let is_held = self.is_held();
        let matters = |one: &Candidate| {
            // Nobody is interested for sure: it takes all the answers to know that nobody is.
            (one.prematch == FilterVerdict::Ask && !is_known)
                // It depends on the answer whether the deletion is to be held.
                || (one.prematch == FilterVerdict::Ask && !is_held && self.holds_deletion(one.handler))
                // It depends on the answer whether the handler is called.
                || (one.full == FilterVerdict::Ask && self.is_selectable(one.handler))
        };
        let positions = self.candidates.iter().enumerate().filter(|(_, one)| matters(one));
        positions.map(|(position, _)| position).collect()
    }

    /// Takes the answers of the callable filters; false if they do not fit the questions.
    pub(super) fn opened(&mut self, asked: &[usize], replies: &[CommandResult]) -> bool {
        if !self.spawn_answered(replies) {
            return false;
        }
        if asked.is_empty() {
            return true;
        }
        let Some(CommandResult::Matched(answers)) = replies.last() else {
            return false;
        };
        if answers.len() != asked.len() {
            return false;
        }
        for (position, FilterResult { prematch, full }) in asked.iter().zip(answers) {
            let one = &mut self.candidates[*position];
            one.prematch = has_filter_result(one.prematch, *prematch);
            one.full = has_filter_result(one.full, *full).min(one.prematch);
        }
        true
    }

    /// What the finalizer needs, and whether handling may begin.
    pub(super) fn decide(&mut self) -> Effect {
        if let Some(wanted) = self.wanted() {
            self.phase = Phase::Spawning;
            return Effect::Spawn(wanted);
        }
        // What is no more needs no finalizer, and nothing will be written to it.
        if self.is_gone() {
            return self.finish_without_handlers();
        }
        let (held, blocked) = (self.is_held(), self.is_blocked());
        // Nobody is called again for a deletion that only waits for daemons, or for its own release; which may be done.
        if self.memory.deletion_handled && self.is_deleting() && blocked {
            self.cause = None;
            return self.check_consistency();
        }
        // A deletion is to be held from now on; handling begins when that is sure.
        if held && !blocked && !self.is_deleting() {
            return self.edit_finalizer(Edit::Block, LogMessage::FinalizerAdded);
        }
        // Nobody needs the deletion to be held any more.
        if !held && blocked {
            return self.edit_finalizer(Edit::Allow, LogMessage::FinalizerUnneeded);
        }
        let Some(reason) = self.cause else {
            return self.conclude();
        };
        if !reason.is_handled() {
            return self.finish_without_handlers();
        }
        if self.unfinished && !self.is_deleting() {
            self.cause = None;
            return self.conclude();
        }
        // Nobody is interested after all: as if the object were not there.
        if !self.candidates.iter().any(|one| one.prematch == FilterVerdict::Yes) {
            self.cause = None;
            return self.conclude();
        }
        self.check_consistency()
    }

    /// Change handlers must not see states from before our own last write.
    fn check_consistency(&mut self) -> Effect {
        // Transformations of an earlier cycle are still to be written.
        if self.memory.remaining_fns {
            return self.postpone();
        }
        if self.moment.consistent {
            return self.handle();
        }
        // There is something to be written already, which will bring an event anyway.
        if !self.patch.is_empty() || self.fns {
            return self.postpone();
        }
        self.phase = Phase::Waiting;
        Effect::AwaitConsistency
    }

    fn edit_finalizer(&mut self, edit: Edit, note: LogMessage) -> Effect {
        self.log_messages.push(note);
        self.finalizer = Some(edit);
        self.cause = None;
        self.conclude()
    }

    /// A cause that calls nobody is only told, if there is anybody who would be interested.
    fn finish_without_handlers(&mut self) -> Effect {
        let note = match self.cause {
            Some(Reason::Gone) => LogMessage::Gone,
            Some(Reason::Free) => LogMessage::Free,
            Some(Reason::Noop) => LogMessage::Noop,
            _ => return self.conclude(),
        };
        if self.has_matching_handlers() {
            self.log_messages.push(note);
        } else {
            self.cause = None;
        }
        self.conclude()
    }

    /// Callables are given the benefit of the doubt: a log line is not worth to ask them.
    fn has_matching_handlers(&mut self) -> bool {
        if self.candidates.iter().any(|one| one.prematch == FilterVerdict::Yes) {
            return true;
        }
        // Those without a field come first: they need no essence.
        let plan = Arc::clone(&self.plan);
        let mut is_one_interested = |with_field: bool| {
            plan.changing.iter().any(|index| {
                self.handler(*index).is_some_and(|handler| handler.field.is_some() == with_field)
                    && self.candidates.iter().all(|candidate| candidate.handler != *index)
                    && self.verdict(*index).prematch != FilterVerdict::No
            })
        };
        is_one_interested(false) || is_one_interested(true)
    }

    fn is_held(&self) -> bool {
        self.daemon_phase.holds
            || self
                .candidates
                .iter()
                .any(|one| one.prematch == FilterVerdict::Yes && self.holds_deletion(one.handler))
    }

    fn holds_deletion(&self, index: usize) -> bool {
        self.changing(index).is_some_and(|changing| changing.requires_finalizer)
    }

    /// Whether the handler is for this cause, apart from its filters.
    pub(super) fn is_selectable(&self, index: usize) -> bool {
        let (Some(changing), Some(reason)) = (self.changing(index), self.cause) else {
            return false;
        };
        // It is for another reason.
        if changing.reason.is_some_and(|wanted| wanted != reason) {
            return false;
        }
        // It resumes, but there is nothing to resume; what is created is not resumed.
        if changing.initial && !(self.is_initial() && reason != Reason::Create) {
            return false;
        }
        // It resumes, but not what is being deleted.
        if changing.initial && self.is_deleting() && !changing.deleted {
            return false;
        }
        true
    }

    fn handler(&self, index: usize) -> Option<&Handler> {
        self.rules.registry.handlers.get(index)
    }

    fn changing(&self, index: usize) -> Option<&Changing> {
        self.handler(index).and_then(Handler::changing)
    }

    /// What can be said of a change handler without Python.
    fn verdict(&mut self, index: usize) -> ChangeVerdict {
        let Self { comparison, log_messages, object, plan, rules, memory, .. } = self;
        let Some((handler, changing)) =
            rules.registry.handlers.get(index).and_then(|handler| Some((handler, handler.changing()?)))
        else {
            return ChangeVerdict { prematch: FilterVerdict::No, full: FilterVerdict::No };
        };
        filters::on_change(handler, changing, object, |field| {
            let comparison = comparison
                .get_or_insert_with(|| EssenceComparison::read(object, plan, rules, memory, log_messages));
            comparison.field(object, plan, rules, field)
        })
    }

    pub(super) fn comparison(&mut self) -> &mut EssenceComparison {
        let Self { comparison, log_messages, object, plan, rules, memory, .. } = self;
        comparison.get_or_insert_with(|| EssenceComparison::read(object, plan, rules, memory, log_messages))
    }

    /// The cause as handlers and filters get it; made once.
    pub(super) fn change(&mut self) -> Option<Arc<Change>> {
        if self.change.is_none() {
            let reason = self.cause?;
            let initial = self.is_initial();
            let (object, plan, rules) =
                (Arc::clone(&self.object), Arc::clone(&self.plan), Arc::clone(&self.rules));
            self.change = Some(Arc::new(self.comparison().change(&object, &plan, &rules, reason, initial)));
        }
        self.change.clone()
    }
}

pub(super) fn has_filter_result(verdict: FilterVerdict, answer: bool) -> FilterVerdict {
    match verdict {
        FilterVerdict::Ask if answer => FilterVerdict::Yes,
        FilterVerdict::Ask => FilterVerdict::No,
        certain => certain,
    }
}
