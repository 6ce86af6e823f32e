//! The end of a cycle: everything to persist, as one patch, and the time of the next cycle.

use super::comparison::EssenceComparison;
use super::{Cycle, Decision, Effect, Phase};
use crate::activation::log::LogMessage;
use crate::cause::Reason;
use crate::handling::progress::HandlingProgress;
use crate::json::merge_patch::Patch;
use crate::json::value::{Value, equal};
use crate::persistence::completed_handling;
use crate::persistence::diffbase::observed;
use crate::persistence::finalizer::Edit;
use crate::persistence::memory::HandlingStatus;
use crate::persistence::observed_essences::ObservedEssences;
use crate::persistence::own_annotations;
use crate::persistence::progress::Record;
use crate::persistence::stored_state;
use std::sync::Arc;

/// Seconds until a custom lifecycle is called again after it has selected none of the due handlers.
const UNDECIDED_DELAY: f64 = 1.0;

/// The minimum of seconds until postponed change handlers run without another watch event.
const POSTPONED_DELAY: f64 = 1.0;

/// Seconds without changes, after which Kopf restores its removed annotations.
const RESTORE_DELAY: f64 = 5.0;

impl Cycle {
    /// Finishes the cycle normally.
    pub(super) fn conclude(&mut self) -> Effect {
        let mut decision = Decision {
            patch: std::mem::take(&mut self.patch),
            finalizer: self.finalizer,
            deletion_handled: self.memory.deletion_handled,
            fns: self.fns,
            delay: None,
            fully_handled_once: self.memory.fully_handled_once,
            matched: self.cause.is_some(),
            ..Decision::default()
        };
        if let Some(state) = self.state.take() {
            self.remember(&state, &mut decision);
        } else if self.cause == Some(Reason::Noop) {
            self.restore_annotations(&mut decision);
            self.clean_up(&mut decision);
            // The object may have reverted to the diff-base after some handlers saw another essence. It is certain only when our
            // own write has arrived.
            if !self.moment.view_age.is_consistent() && self.observed != ObservedEssences::default() {
                decision.delay = earliest(decision.delay, Some(RESTORE_DELAY));
            }
        }
        decision.delay = earliest(decision.delay, self.daemon_phase.delay);
        self.release(&mut decision);
        self.finish(decision)
    }

    /// Finishes the cycle before the change handlers: they run at the next watch event.
    pub(super) fn postpone(&mut self) -> Effect {
        // The write of this cycle should cause that event. It does not if it changes nothing.
        // Nor if functions of an earlier cycle are awaited, but the host has none any more.
        let is_awaited = !self.patch.is_empty() || self.fns || self.memory.remaining_fns;
        let window = self.config.settings.persistence.consistency_timeout;
        let decision = Decision {
            patch: std::mem::take(&mut self.patch),
            fns: self.fns,
            delay: earliest(is_awaited.then_some(window.max(POSTPONED_DELAY)), self.daemon_phase.delay),
            fully_handled_once: self.memory.fully_handled_once,
            deletion_handled: self.memory.deletion_handled,
            ..Decision::default()
        };
        self.finish(decision)
    }

    /// Finishes the cycle with an error and discards its decision.
    pub(super) fn fail(&mut self, error: String) -> Effect {
        self.phase = Phase::Finished;
        Effect::Done(Box::new(Decision {
            fully_handled_once: self.memory.fully_handled_once,
            deletion_handled: self.memory.deletion_handled,
            error: Some(error),
            ..Decision::default()
        }))
    }

    /// Puts the progress and the diff-base into the patch, with precedence over the handlers' patch.
    fn remember(&mut self, state: &HandlingProgress, decision: &mut Decision) {
        let Some(reason) = self.cause else {
            return;
        };
        let called = !state.selected.is_empty();
        let done = state.is_done();
        if done && called {
            let counts = state.counts(reason);
            let (succeeded, failed) = (counts.succeeded, counts.failed);
            self.log_messages.push(LogMessage::Processed { reason, succeeded, failed });
        }
        if done {
            if self.clears_progress_on_release(reason) {
                self.store_diffbase(&mut decision.patch);
                // If the operator is restarted before the finalizer is removed, it must not call these handlers again. But the
                // last progress alone is not worth a request: the finalizer is removed next. After a crash in between, the next
                // run calls the last handlers again, as after a crash before their progress is written.
                if decision.is_written() || self.daemon_phase.delay.is_some() {
                    self.keep_progress(state, &mut decision.patch, &ObservedEssences::default());
                }
            } else {
                self.forget_progress(state, &mut decision.patch);
                self.store_diffbase(&mut decision.patch);
                let later = self.store_observed(state, &mut decision.patch);
                self.store_final_progress(state, later.as_ref(), decision);
            }
            decision.handling_status = HandlingStatus::Over(std::mem::take(&mut self.observed));
            decision.fully_handled_once = true;
            // Kopf 1.45 calls deletion handlers repeatedly while daemons are still stopping.
            let is_repeated = self.config.settings.compat && self.daemon_phase.delay.is_some();
            decision.deletion_handled = reason == Reason::Delete && !is_repeated;
            return;
        }
        let is_new = self.record_observed(reason);
        let predicted = self.predicted(&decision.patch);
        // Known essences are already in some record.
        let is_stored = !is_new
            && predicted == self.observed
            && state.entries.iter().any(|entry| !entry.obsolete && entry.record.observed.is_some());
        let observed = if is_stored { ObservedEssences::default() } else { predicted };
        self.keep_progress(state, &mut decision.patch, &observed);
        decision.handling_status = HandlingStatus::Ongoing(std::mem::take(&mut self.observed));
        decision.delay = state.delay(self.moment.now).map(|delay| self.min_retry_delay(delay));
    }

    /// Whether the progress stays on the object until the finalizer is removed, and is removed by the same request.
    fn clears_progress_on_release(&self, reason: Reason) -> bool {
        reason == Reason::Delete && !self.config.settings.compat && self.custom_storage.is_none()
    }

    /// Writes the changed records, and removes the records of superseded causes. The observed essences are written into these
    /// records too: after a crash, the remaining handlers have not seen them.
    fn keep_progress(&mut self, state: &HandlingProgress, patch: &mut Patch, observed: &ObservedEssences) {
        self.purge_obsolete(state, patch);
        let staying: Vec<_> = state.entries.iter().filter(|entry| !entry.obsolete).collect();
        if *observed == ObservedEssences::default() {
            for entry in staying.into_iter().filter(|entry| entry.is_changed()) {
                self.store_record(patch, &entry.id, &entry.record);
            }
            return;
        }
        let required: Vec<String> = observed
            .first
            .iter()
            .chain(&observed.later)
            .map(|essence| observed::encode(&self.object, essence))
            .collect();
        let is_required = |text: &String| required.contains(text);
        let mut stored: Vec<Option<String>> =
            staying.iter().map(|entry| entry.record.observed.clone().filter(is_required)).collect();
        for text in &required {
            // Preferably in a record that is written anyway.
            let is_written = |position: usize| {
                staying[position].is_changed() || staying[position].record.observed.is_some()
            };
            if !stored.iter().flatten().any(|it| it == text)
                && let Some((position, _)) = stored
                    .iter()
                    .enumerate()
                    .filter(|(_, observed)| observed.is_none())
                    .max_by_key(|(position, _)| (is_written(*position), staying[*position].is_finished()))
            {
                stored[position] = Some(text.clone());
            }
        }
        for (entry, observed) in staying.into_iter().zip(stored) {
            if entry.is_changed() || observed != entry.record.observed {
                self.store_record(patch, &entry.id, &Record { observed, ..entry.record.clone() });
            }
        }
    }

    /// Removes the records of superseded causes.
    pub(super) fn purge_obsolete(&mut self, state: &HandlingProgress, patch: &mut Patch) {
        for entry in state.entries.iter().filter(|entry| entry.obsolete) {
            self.purge_record(patch, &entry.id);
            for id in &entry.record.subrefs {
                self.purge_record(patch, &Arc::from(id.as_str()));
            }
        }
    }

    /// Removes all progress of a completed handling: of its handlers, of those that do not match any more, and of superseded
    /// causes. It removes nothing if the object has no records and no handler was called.
    fn forget_progress(&mut self, state: &HandlingProgress, patch: &mut Patch) {
        if state.entries.is_empty() && !state.damaged {
            return;
        }
        for id in self.record_ids(state) {
            self.purge_record(patch, &id);
        }
    }

    /// The observed essences, as they are after the patch is written.
    pub(super) fn predicted(&self, patch: &Patch) -> ObservedEssences {
        let predict = |patch: &Patch| {
            let persistence = &self.config.settings.persistence;
            self.observed.predicted(&self.object, patch, persistence, &self.resource_handlers)
        };
        if self.missing_patch.is_empty() {
            return predict(patch);
        }
        // What is missing on the object is written by the same request.
        let mut whole = Patch(self.missing_patch.clone());
        whole.merge(patch.0.clone());
        predict(&whole)
    }

    /// Records the essence that the handlers finished in this cycle were called with. Returns true if it is a new one.
    fn record_observed(&mut self, reason: Reason) -> bool {
        let is_followed = matches!(reason, Reason::Create | Reason::Update)
            && !self.config.settings.compat
            && self.custom_storage.is_none();
        if !is_followed {
            self.observed = ObservedEssences::default();
            return true;
        }
        let before = self.observed.clone();
        if self.advanced
            && let Some(change) = self.change()
            && let Some(new) = change.shared_new()
        {
            let ObservedEssences { first, later } = &self.observed;
            let new = self.with_reversals(new, first.as_ref(), later.as_ref());
            self.observed.add(&new);
        }
        before != self.observed
    }

    /// Restores a removed or damaged diff-base, when there were no changes for a while: two controllers that undo each other's
    /// writes would never stop.
    fn restore_annotations(&mut self, decision: &mut Decision) {
        if !self.comparison.as_ref().is_some_and(EssenceComparison::is_lost) {
            return;
        }
        // Our own write may not have arrived yet.
        if self.moment.view_age.is_consistent() {
            self.warn_annotations_removed();
        }
        if self.event.requeued && self.moment.view_age.is_consistent() {
            self.store_essence(&mut decision.patch);
        } else {
            decision.delay = earliest(decision.delay, Some(RESTORE_DELAY));
        }
    }

    /// Removes the progress of a completed handling, if the operator crashed before it did.
    fn clean_up(&self, decision: &mut Decision) {
        if completed_handling::is_kept_apart(&self.config.settings, &self.resource_handlers)
            && self.moment.view_age.is_consistent()
            && self.observed == ObservedEssences::default()
        {
            let persistence = &self.config.settings.persistence;
            decision
                .patch
                .merge(stored_state::stale_progress(&self.object, persistence, &self.resource_handlers).0);
        }
    }

    /// Stores the current essence as the diff-base, if it differs. If some handlers were called with an earlier essence, that one
    /// is stored: the other handlers must still be called for the difference. See also [`Cycle::with_reversals`].
    fn store_diffbase(&mut self, patch: &mut Patch) {
        let mut observed = std::mem::take(&mut self.observed);
        let unconfirmed_essence = self.unconfirmed_essence();
        if let Some(first) = observed.first.take()
            && let Some(change) = self.change()
            && let Some(is_same) = change.new_equals(&first)
        {
            let is_changed = !is_same;
            let present = change.shared_new();
            let base = if is_changed {
                self.with_reversals(&first, present, observed.later.as_ref())
            } else {
                first
            };
            if is_changed && self.advanced {
                observed.later = present.cloned();
            }
            if is_changed || observed.later.is_some() {
                let storage = &self.config.settings.persistence.diffbase_storage;
                let missing_patch = Patch(self.missing_patch.clone());
                let known = ObservedEssences { first: Some(base), later: None };
                let known = known.predicted(
                    &self.object,
                    &missing_patch,
                    &self.config.settings.persistence,
                    &self.resource_handlers,
                );
                if let Some(base) = known.first {
                    storage.store(&self.object, patch, &base);
                }
                self.observed = observed;
                return;
            }
        }
        if let Some(essence) = unconfirmed_essence {
            self.config.settings.persistence.diffbase_storage.store(&self.object, patch, &essence);
            return;
        }
        if !self.comparison().differs() {
            return;
        }
        self.store_essence(patch);
    }

    /// The essence with the unconfirmed patches of earlier handlers. They are written by the same request, so they count as no
    /// change.
    fn unconfirmed_essence(&mut self) -> Option<Value> {
        if !self.urgent || self.missing_patch.is_empty() {
            return None;
        }
        let (missing_patch, object) = (Patch(self.missing_patch.clone()), Arc::clone(&self.object));
        let change = self.change()?;
        let present = ObservedEssences { first: change.shared_new().cloned(), later: None };
        let persistence = &self.config.settings.persistence;
        let predicted_essence =
            present.predicted(&object, &missing_patch, persistence, &self.resource_handlers).first?;
        (!equal(&predicted_essence, change.new_()?)).then(|| Arc::unwrap_or_clone(predicted_essence))
    }

    /// The delay, with a minimum if a custom lifecycle has selected no handler: it would be called again at once.
    fn min_retry_delay(&self, delay: f64) -> f64 {
        if self.undecided { delay.max(UNDECIDED_DELAY) } else { delay }
    }

    /// Removes the finalizer of an object being deleted, when no handler is pending.
    fn release(&mut self, decision: &mut Decision) {
        // There is no finalizer to remove.
        if self.is_gone() || !self.is_deleting() || !self.is_blocked() {
            return;
        }
        // The finalizer is removed already, or a handler or daemon still needs it.
        if decision.finalizer.is_some() || decision.delay.is_some() {
            return;
        }
        self.log_messages.push(LogMessage::FinalizerReleased);
        decision.finalizer = Some(Edit::Allow);
    }

    fn finish(&mut self, mut decision: Decision) -> Effect {
        self.phase = Phase::Finished;
        // Nothing can be written to a deleted object.
        if self.is_gone() {
            decision.patch = Patch::default();
            decision.fns = false;
            return Effect::Done(Box::new(decision));
        }
        self.write_missing(&mut decision);
        self.send_rejected(&mut decision);
        decision.annotations_removed = self.memory.annotations_removed;
        self.finish_storing(decision)
    }
}

/// The part of the patch that is missing on the object. It is written together with other changes; or alone, if it is urgent or
/// the delay is over.
impl Cycle {
    fn write_missing(&mut self, decision: &mut Decision) {
        if self.missing_patch.is_empty() {
            return;
        }
        if self.removed && self.moment.view_age.is_consistent() {
            self.warn_annotations_removed();
        }
        if self.urgent || self.event.requeued || decision.is_written() {
            let handlers = std::mem::take(&mut decision.patch);
            let removed =
                own_annotations::removed_records(&self.missing_patch, &self.config.settings.persistence);
            decision.patch = Patch(std::mem::take(&mut self.missing_patch));
            decision.patch.merge(handlers.0);
            let final_progress = std::mem::take(&mut decision.final_progress);
            decision.final_progress = Patch(std::mem::take(&mut self.missing_final_progress));
            decision.final_progress.merge(final_progress.0);
            // A record to be removed as a whole is merged instead, if the patch has a new record in its place.
            for record in removed {
                let essence = record.child("seen");
                let is_replaced = decision.patch.get(record.keys()).is_some_and(Value::is_object);
                if is_replaced && decision.patch.get(essence.keys()).is_none() {
                    decision.patch.set(essence.keys(), Value::Null);
                }
            }
            // The essence of the first handlers is the diff-base from now on, even if no handler is called in this cycle.
            if self.is_restarted && decision.handling_status == HandlingStatus::Before {
                decision.handling_status = HandlingStatus::Ongoing(std::mem::take(&mut self.observed));
            }
        } else {
            decision.delay = earliest(decision.delay, Some(RESTORE_DELAY));
        }
    }
}

pub(super) fn earliest(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).min_by(f64::total_cmp)
}
