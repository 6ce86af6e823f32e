//! The calls of the change handlers, and their outcomes.

use super::{Cycle, Effect, Phase};
use crate::activation::log::LogMessage;
use crate::activation::{Activation, Command, CommandResult};
use crate::cause::Reason;
use crate::handler::filters::FilterVerdict;
use crate::handler::lifecycle::Lifecycle;
use crate::handling::cause_id::Handling;
use crate::handling::progress::HandlingProgress;
use crate::json::merge_patch::Patch;
use crate::persistence::completed_handling::CompletedHandling;
use crate::persistence::keeps_pending_state;
use crate::persistence::observed_essences::ObservedEssences;
use crate::persistence::recall::observed_by_some;
use std::sync::Arc;

impl Cycle {
    /// Starts the handling, or continues that of earlier cycles.
    pub(super) fn handle(&mut self) -> Effect {
        let Some(reason) = self.cause else {
            return self.conclude();
        };
        // The operator crashed before it removed the progress of a completed handling. Mixed with records of another handling,
        // the completed ones could not be recognised, so they are removed first.
        if let Some(completed) = self.completed_handling() {
            self.patch.merge(completed.removal(&self.object, &self.config.settings.persistence).0);
            return self.postpone();
        }
        let selected = self.selected();
        let differs = self.comparison().differs();
        let mut state = self.load(&selected, reason);
        self.recall_observed(&state, reason);
        let others = state.others(reason);
        self.log_messages.extend(others.iter().map(|(old, counts)| LogMessage::Superseded {
            old: *old,
            new: reason,
            succeeded: counts.succeeded,
            failed: counts.failed,
            running: counts.running,
        }));
        state.supersede(reason, &others);
        // Custom storages store everything at the end of the cycle.
        if self.custom_storage.is_none() {
            let mut obsolete = Patch::default();
            self.purge_obsolete(&state, &mut obsolete);
            self.initial_patch = Some(obsolete.0).filter(|patch| !patch.is_empty());
        }
        self.log_messages.push(LogMessage::InProgress(reason));
        // The essence is built only if it is needed: by handlers, or by the storage.
        if (!selected.is_empty() || differs)
            && let Some(change) = self.change()
            && change.has_old()
            && !change.diff().is_empty()
        {
            self.log_messages.push(LogMessage::Diff(change));
        }
        let due = state.due(self.moment.now);
        self.handling = state.began(reason).map(|began| Handling { reason, began });
        self.state = Some(state);
        self.choose(due)
    }

    /// The progress of a completed handling, if it is still on the object.
    fn completed_handling(&self) -> Option<CompletedHandling> {
        if self.observed.first.is_some() {
            return None;
        }
        CompletedHandling::find(&self.object, &self.config.settings, &self.resource_handlers)
    }

    /// The handlers of this cause, with each function once per id.
    fn selected(&self) -> Vec<usize> {
        let matching =
            self.candidates.iter().filter(|one| one.full == FilterVerdict::Yes).map(|one| one.handler);
        let selected: Vec<usize> = matching.filter(|handler| self.is_selectable(*handler)).collect();
        // Usually there is at most one.
        if selected.len() < 2 {
            return selected;
        }
        self.config.registry.deduplicated(selected.into_iter())
    }

    /// The progress on the object. Unreadable records count as absent, and are overwritten.
    fn load(&mut self, selected: &[usize], reason: Reason) -> HandlingProgress {
        let mut state = HandlingProgress::default();
        for id in &self.resource_handlers.owned {
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
            if let Some(handler) = self.config.registry.handlers.get(index) {
                state.select(index, &handler.id, reason, self.moment.now);
            }
        }
        state
    }

    /// Recalls the essences that the handlers of a creation have observed: progress in the status survives the removal of the
    /// diff-base by another client.
    fn recall_observed(&mut self, state: &HandlingProgress, reason: Reason) {
        let persisted = state.entries.iter().filter_map(|entry| entry.persisted().cloned());
        let records: Vec<_> = persisted.filter(|record| record.is_for(Reason::Create)).collect();
        if reason == Reason::Create
            && self.observed == ObservedEssences::default()
            && keeps_pending_state(&*self.config.settings)
            && records.iter().any(|record| record.observed.is_some())
            && let Some(change) = self.change()
            && let Some(new) = change.new_()
        {
            self.observed = observed_by_some(&records, || new.clone());
        }
    }

    fn choose(&mut self, due: Vec<(usize, u64)>) -> Effect {
        // All handlers may be finished or delayed. A custom lifecycle is called even then, if any handlers match.
        let selected = self.state.as_ref().filter(|state| !state.selected.is_empty());
        if self.config.lifecycle == Lifecycle::Custom
            && let Some(state) = selected
        {
            let records = state.records().map(|(id, record)| (Arc::clone(id), record.clone())).collect();
            self.phase = Phase::Selecting;
            self.undecided = !due.is_empty();
            let commands = vec![Command::SelectHandlers { handlers: due, records }];
            let (change, handling) = (self.change(), self.handling);
            return Effect::Run(Activation { commands, change, handling, ..Activation::default() });
        }
        if due.is_empty() {
            return self.conclude();
        }
        let chosen = self.config.lifecycle.choose(&due, self.moment.entropy);
        self.call(&chosen)
    }

    /// Continues with the handlers that the custom lifecycle has selected; none if the results do not fit the command.
    pub(super) fn on_selected(&mut self, results: &[CommandResult]) -> Option<Effect> {
        let [CommandResult::Selected(picked)] = results else {
            return None;
        };
        // The lifecycle can select any handlers of this cause, and each of them once.
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

    /// Calls the selected handlers, one after another.
    fn call(&mut self, chosen: &[usize]) -> Effect {
        let attempts = chosen.iter().filter_map(|&handler| {
            let record = self.state.as_ref()?.record(handler)?;
            self.attempt(handler, record.started.unwrap_or(self.moment.now), record.retries)
        });
        let commands: Vec<Command> = attempts.map(|attempt| Command::CallChangeHandler { attempt }).collect();
        self.record_called(&commands);
        self.phase = Phase::Handling { commands: commands.len() };
        Effect::Run(Activation {
            commands,
            change: self.change(),
            handling: self.handling,
            initial_patch: self.initial_patch.take(),
            ..Activation::default()
        })
    }

    /// Continues with the outcomes of the calls.
    pub(super) fn handled(&mut self, results: &[CommandResult]) -> Effect {
        if let Some(state) = &mut self.state {
            for result in results {
                if let CommandResult::Attempted(outcome) = result {
                    state.record_outcome(outcome);
                    self.advanced |= outcome.final_ || !outcome.subrefs.is_empty();
                }
            }
        }
        self.conclude()
    }

    /// The ids of all records that this handling may have written.
    pub(super) fn record_ids(&self, state: &HandlingProgress) -> Vec<Arc<str>> {
        let mut ids: Vec<Arc<str>> = self.resource_handlers.owned.clone();
        for entry in &state.entries {
            ids.extend(entry.record.subrefs.iter().map(|id| Arc::from(id.as_str())));
        }
        ids
    }
}
