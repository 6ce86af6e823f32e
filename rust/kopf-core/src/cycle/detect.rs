//! The detection of the cause and of the matching handlers, up to the decision whether change handlers can run.

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

/// Why a change handler is not for a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReasonMismatch {
    /// It is for another reason.
    Reason,
    /// It is a resume handler, and the object is created, or was handled by this run of the operator.
    Initial,
    /// It is a resume handler, and the object is being deleted.
    Deleted,
}

impl Cycle {
    /// Runs the event handlers and the callable filters that the decision needs; decides at once if there are none.
    pub(super) fn begin(&mut self) -> Effect {
        let mut commands = if self.event.requeued { vec![] } else { self.event_handler_commands() };
        self.record_called(&commands);
        if !self.resource_handlers.changing.is_empty() {
            self.find_cause();
        }
        commands.extend(self.daemon_filter_command(commands.len()));
        let asked = self.pending_filters();
        if !asked.is_empty() {
            let handlers = asked.iter().map(|position| self.candidates[*position].handler).collect();
            commands.push(Command::FilterHandlers { handlers });
        }
        if commands.is_empty() {
            return self.decide();
        }
        let change = if asked.is_empty() { None } else { self.change() };
        let last = asked.is_empty()
            && self.custom_storage.is_none()
            && self.resource_handlers.spawning.is_empty()
            && self.resource_handlers.reconciling.is_empty()
            && self.cause.is_none_or(|reason| !reason.is_handled());
        self.phase = Phase::Detecting { commands: commands.len(), asked };
        Effect::Run(Activation { commands, change, last, ..Activation::default() })
    }

    /// The commands for the matching event handlers, each as a first attempt.
    fn event_handler_commands(&self) -> Vec<Command> {
        let matching = self.resource_handlers.watching.iter().filter_map(|&index| {
            let handler = self.config.registry.handlers.get(index)?;
            let verdict = filters::on_object(handler, &self.object);
            (verdict != FilterVerdict::No).then_some((index, verdict == FilterVerdict::Ask))
        });
        let mut commands: Vec<Command> = Vec::new();
        for (handler, guarded) in matching {
            // A function is called once per id. A guarded command may turn out to be skipped, so it does not count.
            if !guarded && commands.iter().any(|command| self.is_same(command, handler)) {
                continue;
            }
            if let Some(attempt) = self.attempt(handler, self.moment.now, 0) {
                commands.push(Command::CallEventHandler { handler, guarded, attempt });
            }
        }
        commands
    }

    fn is_same(&self, command: &Command, index: usize) -> bool {
        let handlers = &self.config.registry.handlers;
        let Command::CallEventHandler { handler, guarded: false, .. } = command else {
            return false;
        };
        let (Some(one), Some(other)) = (handlers.get(*handler), handlers.get(index)) else {
            return false;
        };
        one.key == other.key && one.id == other.id
    }

    /// Detects the cause, and the change handlers that may match it.
    fn find_cause(&mut self) {
        let Some(reason) = self.detect_reason() else { return };
        self.cause = Some(reason);
        if matches!(reason, Reason::Gone | Reason::Free) {
            return;
        }
        let resource_handlers = Arc::clone(&self.resource_handlers);
        for &handler in &resource_handlers.changing {
            // If no handler is called for this reason, only the handlers that require the finalizer matter.
            if !reason.is_handled() && !self.requires_finalizer(handler) {
                continue;
            }
            let ChangeVerdict { prematch, full } = self.verdict(handler);
            if prematch != FilterVerdict::No {
                self.candidates.push(Candidate { handler, prematch, full });
            }
        }
    }

    /// The reason to act; none if no change handler can match the object.
    pub(super) fn detect_reason(&mut self) -> Option<Reason> {
        // No handler matches the labels and annotations, so Kopf ignores the object and does not compare its essence.
        if !self.has_matching_metadata() {
            return None;
        }
        let input = CauseInput {
            gone: self.is_gone(),
            deleting: self.is_deleting(),
            blocked: self.is_blocked(),
            initial: self.is_initial(),
        };
        Some(cause::reason(input, || self.comparison().essence_change()))
    }

    pub(super) fn has_matching_metadata(&self) -> bool {
        let handlers = &self.config.registry.handlers;
        let mut changing = self.resource_handlers.changing.iter().filter_map(|index| handlers.get(*index));
        changing.any(|handler| filters::metadata(handler, &self.object) != FilterVerdict::No)
    }

    /// The positions of the candidates whose callable filters must be evaluated.
    fn pending_filters(&self) -> Vec<usize> {
        let is_known = self.candidates.iter().any(|one| one.prematch == FilterVerdict::Yes);
        let needed = self.needs_finalizer();
        let matters = |one: &Candidate| {
            // No candidate matches for certain, so the result depends on all of them.
            (one.prematch == FilterVerdict::Ask && !is_known)
                // The finalizer depends on this result.
                || (one.prematch == FilterVerdict::Ask && !needed && self.requires_finalizer(one.handler))
                // The call of the handler depends on this result.
                || (one.full == FilterVerdict::Ask && self.is_selectable(one.handler))
        };
        let positions = self.candidates.iter().enumerate().filter(|(_, one)| matters(one));
        positions.map(|(position, _)| position).collect()
    }

    /// Applies the results of the callable filters; false if they do not fit the commands.
    pub(super) fn apply_filters(&mut self, asked: &[usize], results: &[CommandResult]) -> bool {
        if !self.apply_spawn_filters(results) {
            return false;
        }
        if asked.is_empty() {
            return true;
        }
        let Some(CommandResult::Filtered(matched)) = results.last() else {
            return false;
        };
        if matched.len() != asked.len() {
            return false;
        }
        for (position, FilterResult { prematch, full }) in asked.iter().zip(matched) {
            let one = &mut self.candidates[*position];
            one.prematch = has_filter_result(one.prematch, *prematch);
            one.full = has_filter_result(one.full, *full).min(one.prematch);
        }
        true
    }

    /// Decides about the daemons, the finalizer, and whether change handlers can run.
    pub(super) fn decide(&mut self) -> Effect {
        if let Some(desired) = self.desired() {
            self.phase = Phase::Spawning;
            return Effect::Spawn(desired);
        }
        // A deleted object needs no finalizer, and nothing can be written to it.
        if self.is_gone() {
            return self.finish_without_handlers();
        }
        let (needed, blocked) = (self.needs_finalizer(), self.is_blocked());
        // The deletion handlers have finished: no handler is called again. Only daemons or the removal of the finalizer are
        // pending.
        if self.memory.deletion_handled && self.is_deleting() && blocked {
            self.cause = None;
            return self.check_consistency();
        }
        // Add the finalizer first. Handlers run when the API server has confirmed it.
        if needed && !blocked && !self.is_deleting() {
            return self.edit_finalizer(Edit::Block, LogMessage::FinalizerAdded);
        }
        // No handler requires the finalizer any more.
        if !needed && blocked {
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
        // No handler matches, after the callable filters: ignore the object.
        if !self.candidates.iter().any(|one| one.prematch == FilterVerdict::Yes) {
            self.cause = None;
            return self.conclude();
        }
        self.check_consistency()
    }

    /// Waits for our own last write: change handlers must not be called with an older state.
    fn check_consistency(&mut self) -> Effect {
        // Transformation functions of an earlier cycle are still to be applied.
        if self.memory.remaining_fns {
            return self.postpone();
        }
        if self.moment.view_age.is_consistent() {
            return self.handle();
        }
        // This cycle writes already, which causes another watch event.
        if !self.patch.is_empty() || self.fns {
            return self.postpone();
        }
        self.phase = Phase::Waiting;
        Effect::AwaitConsistency
    }

    fn edit_finalizer(&mut self, edit: Edit, message: LogMessage) -> Effect {
        self.log_messages.push(message);
        self.finalizer = Some(edit);
        self.cause = None;
        self.conclude()
    }

    /// Logs a cause that calls no handlers, if any handler matches the object, and finishes the cycle.
    fn finish_without_handlers(&mut self) -> Effect {
        let message = match self.cause {
            Some(Reason::Gone) => LogMessage::Gone,
            Some(Reason::Free) => LogMessage::Free,
            Some(Reason::Noop) => LogMessage::Noop,
            _ => return self.conclude(),
        };
        if self.has_matching_handlers() {
            self.log_messages.push(message);
        } else {
            self.cause = None;
        }
        self.conclude()
    }

    /// Whether any handler may match. Callable filters count as matching: a log line does not justify their calls.
    fn has_matching_handlers(&mut self) -> bool {
        if self.candidates.iter().any(|one| one.prematch == FilterVerdict::Yes) {
            return true;
        }
        // Handlers without a field come first: their filters need no essence.
        let resource_handlers = Arc::clone(&self.resource_handlers);
        let mut any_may_match = |with_field: bool| {
            resource_handlers.changing.iter().any(|index| {
                self.handler(*index).is_some_and(|handler| handler.field.is_some() == with_field)
                    && self.candidates.iter().all(|candidate| candidate.handler != *index)
                    && self.verdict(*index).prematch != FilterVerdict::No
            })
        };
        any_may_match(false) || any_may_match(true)
    }

    fn needs_finalizer(&self) -> bool {
        self.daemon_phase.holds
            || self
                .candidates
                .iter()
                .any(|one| one.prematch == FilterVerdict::Yes && self.requires_finalizer(one.handler))
    }

    pub(super) fn requires_finalizer(&self, index: usize) -> bool {
        self.changing(index).is_some_and(|changing| changing.requires_finalizer)
    }

    /// Whether the handler is for this cause, apart from its filters.
    pub(super) fn is_selectable(&self, index: usize) -> bool {
        let (Some(changing), Some(reason)) = (self.changing(index), self.cause) else {
            return false;
        };
        self.mismatch(changing, reason).is_none()
    }

    /// Why the handler is not for a reason, apart from its filters.
    pub(super) fn mismatch(&self, changing: &Changing, reason: Reason) -> Option<ReasonMismatch> {
        // The handler is for another reason.
        if changing.reason.is_some_and(|declared| declared != reason) {
            return Some(ReasonMismatch::Reason);
        }
        // A resume handler, but the object is created or already handled by this run of the operator.
        if changing.initial && !(self.is_initial() && reason != Reason::Create) {
            return Some(ReasonMismatch::Initial);
        }
        // A resume handler, but the object is being deleted.
        if changing.initial && self.is_deleting() && !changing.deleted {
            return Some(ReasonMismatch::Deleted);
        }
        None
    }

    pub(super) fn handler(&self, index: usize) -> Option<&Handler> {
        self.config.registry.handlers.get(index)
    }

    pub(super) fn changing(&self, index: usize) -> Option<&Changing> {
        self.handler(index).and_then(Handler::changing)
    }

    /// The verdict of the filters of a change handler, without callables.
    fn verdict(&mut self, index: usize) -> ChangeVerdict {
        let Self {
            known_comparison,
            comparison,
            log_messages,
            object,
            resource_handlers,
            config,
            memory,
            ..
        } = self;
        let Some((handler, changing)) =
            config.registry.handlers.get(index).and_then(|handler| Some((handler, handler.changing()?)))
        else {
            return ChangeVerdict { prematch: FilterVerdict::No, full: FilterVerdict::No };
        };
        filters::on_change(handler, changing, object, |field| {
            let comparison = comparison.get_or_insert_with(|| {
                EssenceComparison::read(
                    known_comparison,
                    object,
                    resource_handlers,
                    config,
                    memory,
                    log_messages,
                )
            });
            comparison.field(object, resource_handlers, config, field)
        })
    }

    pub(super) fn comparison(&mut self) -> &mut EssenceComparison {
        let Self {
            known_comparison,
            comparison,
            log_messages,
            object,
            resource_handlers,
            config,
            memory,
            ..
        } = self;
        comparison.get_or_insert_with(|| {
            EssenceComparison::read(known_comparison, object, resource_handlers, config, memory, log_messages)
        })
    }

    /// The change that handlers and filters get, built once.
    pub(super) fn change(&mut self) -> Option<Arc<Change>> {
        if self.change.is_none() {
            let reason = self.cause?;
            let initial = self.is_initial();
            let (object, resource_handlers, config) =
                (Arc::clone(&self.object), Arc::clone(&self.resource_handlers), Arc::clone(&self.config));
            self.change = Some(Arc::new(self.comparison().change(
                &object,
                &resource_handlers,
                &config,
                reason,
                initial,
            )));
        }
        self.change.clone()
    }
}

pub(super) fn has_filter_result(verdict: FilterVerdict, is_match: bool) -> FilterVerdict {
    match verdict {
        FilterVerdict::Ask if is_match => FilterVerdict::Yes,
        FilterVerdict::Ask => FilterVerdict::No,
        certain => certain,
    }
}
