//! The second half: who is called now, and what comes of it.

use super::{Cycle, Effect, Phase};
use crate::activation::log::LogMessage;
use crate::activation::{Activation, Command, CommandResult};
use crate::cause::Reason;
use crate::handler::filters::FilterVerdict;
use crate::handler::lifecycle::Lifecycle;
use crate::handling::progress::HandlingProgress;
use crate::json::merge_patch::Patch;
use crate::persistence::pending_state::{self, ObservedEssences};
use std::sync::Arc;

impl Cycle {
    /// Handling begins, or goes on where earlier cycles left it.
    pub(super) fn handle(&mut self) -> Effect {
        let Some(reason) = self.cause else {
            return self.conclude();
        };
        // The operator has died before the progress of the handling before was removed. With a record of another one among
        // them, it would not be known which of them are over: they are removed first.
        if self.has_leftovers() {
            let persistence = &self.rules.settings.persistence;
            self.patch.merge(pending_state::stale_progress(&self.object, persistence, &self.plan).0);
            return self.postpone();
        }
        let selected = self.selected();
        let differs = self.comparison().differs();
        let mut state = self.load(&selected, reason);
        let others = state.others(reason);
        self.log_messages.extend(others.iter().map(|(old, counts)| LogMessage::Superseded {
            old: *old,
            new: reason,
            succeeded: counts.succeeded,
            failed: counts.failed,
            running: counts.running,
        }));
        state.supersede(reason, &others);
        // The user's storages are told of everything at the end, and only then.
        if self.custom_storage.is_none() {
            let mut obsolete = Patch::default();
            self.purge_obsolete(&state, &mut obsolete);
            self.initial_patch = Some(obsolete.0).filter(|patch| !patch.is_empty());
        }
        self.log_messages.push(LogMessage::InProgress(reason));
        // The essence is built only if somebody will see it: handlers, or the storage.
        if (!selected.is_empty() || differs)
            && let Some(change) = self.change()
            && change.has_old()
            && !change.diff().is_empty()
        {
            self.log_messages.push(LogMessage::Diff(change));
        }
        let awakened = state.due(self.moment.now);
        self.state = Some(state);
        self.choose(awakened)
    }

    /// Whether the progress on the object is of a handling that is over.
    fn has_leftovers(&self) -> bool {
        self.seen == ObservedEssences::default()
            && pending_state::is_over(&self.object, &self.rules.settings, &self.plan)
    }

    /// The handlers of this cause, each function once for one id.
    fn selected(&self) -> Vec<usize> {
        let matching =
            self.candidates.iter().filter(|one| one.full == FilterVerdict::Yes).map(|one| one.handler);
        let selected: Vec<usize> = matching.filter(|handler| self.is_selectable(*handler)).collect();
        // Most often there is nobody or one.
        if selected.len() < 2 {
            return selected;
        }
        self.rules.registry.deduplicated(selected.into_iter())
    }

    /// The progress as it is on the object. Records that cannot be read are none, and will be written anew.
    fn load(&mut self, selected: &[usize], reason: Reason) -> HandlingProgress {
        let mut state = HandlingProgress::default();
        for id in &self.plan.owned {
            match self.fetch_record(id) {
                Ok(Some(record)) => state.found(id, record),
                Ok(None) => {}
                Err(malformed) => {
                    state.damaged = true;
                    self.log_messages.push(LogMessage::Malformed(malformed));
                }
            }
        }
        for &index in selected {
            if let Some(handler) = self.rules.registry.handlers.get(index) {
                state.select(index, &handler.id, reason, self.moment.now);
            }
        }
        state
    }

    fn choose(&mut self, awakened: Vec<(usize, u64)>) -> Effect {
        // All may be finished or delayed.
        // A user's lifecycle is told of that too, if there are handlers at all.
        let selected = self.state.as_ref().is_some_and(|state| !state.selected.is_empty());
        if self.rules.lifecycle == Lifecycle::Custom && selected {
            self.phase = Phase::Picking;
            self.undecided = !awakened.is_empty();
            let steps = vec![Command::Pick { handlers: awakened }];
            return Effect::Run(Activation { steps, change: self.change(), ..Activation::default() });
        }
        if awakened.is_empty() {
            return self.conclude();
        }
        let chosen = self.rules.lifecycle.choose(&awakened, self.moment.entropy);
        self.call(&chosen)
    }

    /// Takes the choice of the user's lifecycle; none if it does not fit the question.
    pub(super) fn on_selected(&mut self, replies: &[CommandResult]) -> Option<Effect> {
        let [CommandResult::Picked(picked)] = replies else {
            return None;
        };
        // It is free to choose any handlers of this cause, but no others, and none twice.
        let mut chosen: Vec<usize> = Vec::with_capacity(picked.len());
        for &handler in picked {
            let is_ours = self.state.as_ref().is_some_and(|state| state.record(handler).is_some());
            if is_ours && !chosen.contains(&handler) {
                chosen.push(handler);
            }
        }
        if chosen.is_empty() {
            return Some(self.conclude());
        }
        self.undecided = false;
        Some(self.call(&chosen))
    }

    /// Handlers chosen together are called one after another.
    fn call(&mut self, chosen: &[usize]) -> Effect {
        let attempts = chosen.iter().filter_map(|&handler| {
            let record = self.state.as_ref()?.record(handler)?;
            self.attempt(handler, record.started.unwrap_or(self.moment.now), record.retries)
        });
        let steps: Vec<Command> = attempts.map(|attempt| Command::Handle { attempt }).collect();
        self.phase = Phase::Handling { steps: steps.len() };
        Effect::Run(Activation {
            steps,
            change: self.change(),
            initial_patch: self.initial_patch.take(),
            ..Activation::default()
        })
    }

    /// Takes what came of the calls.
    pub(super) fn handled(&mut self, replies: &[CommandResult]) -> Effect {
        if let Some(state) = &mut self.state {
            for reply in replies {
                if let CommandResult::Attempted(outcome) = reply {
                    state.record_outcome(outcome);
                    self.advanced |= outcome.final_ || !outcome.subrefs.is_empty();
                }
            }
        }
        self.conclude()
    }

    /// All ids whose records are to be removed: everything that was ever remembered of this handling.
    pub(super) fn record_ids(&self, state: &HandlingProgress) -> Vec<Arc<str>> {
        let mut ids: Vec<Arc<str>> = self.plan.owned.clone();
        for entry in &state.entries {
            ids.extend(entry.record.subrefs.iter().map(|id| Arc::from(id.as_str())));
        }
        ids
    }
}
