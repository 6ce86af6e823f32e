//! The end of a cycle: everything to persist, as one patch, and the time of the next cycle.

use super::comparison::EssenceComparison;
use super::{Cycle, Decision, Effect, Phase};
use crate::activation::log::LogMessage;
use crate::cause::Reason;
use crate::handling::progress::HandlingProgress;
use crate::json::merge_patch::{self, Patch};
use crate::json::value::{Value, equal};
use crate::persistence::completed_handling;
use crate::persistence::diffbase::observed;
use crate::persistence::finalizer::Edit;
use crate::persistence::memory::HandlingStatus;
use crate::persistence::own_annotations;
use crate::persistence::pending_state::{self, ObservedEssences};
use crate::persistence::progress::Record;
use std::sync::Arc;

/// Seconds until a custom lifecycle is called again after it has selected none of the due handlers.
const UNDECIDED_PAUSE: f64 = 1.0;

/// The minimum of seconds until postponed change handlers run without another watch event.
const POSTPONED_PAUSE: f64 = 1.0;

/// Seconds without changes, after which Kopf restores its removed annotations.
const QUIET_PAUSE: f64 = 5.0;

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
            if !self.moment.consistent && self.seen != ObservedEssences::default() {
                decision.delay = earliest(decision.delay, Some(QUIET_PAUSE));
            }
        }
        decision.delay = earliest(decision.delay, self.daemon_phase.delay);
        self.release(&mut decision);
        self.finish(decision)
    }

    /// Finishes the cycle before the change handlers: they run at the next watch event.
    pub(super) fn postpone(&mut self) -> Effect {
        // The write of this cycle should cause that event. It does not if it changes nothing.
        let is_written = !self.patch.is_empty() || self.fns;
        let window = self.config.settings.persistence.consistency_timeout;
        let decision = Decision {
            patch: std::mem::take(&mut self.patch),
            fns: self.fns,
            delay: earliest(is_written.then_some(window.max(POSTPONED_PAUSE)), self.daemon_phase.delay),
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
                // If the operator is restarted before the finalizer is removed, it must not call these handlers again. If nothing
                // else is written, the last outcome is not either: a crash then equals a crash before that outcome.
                if decision.is_written() || self.daemon_phase.delay.is_some() {
                    self.keep_progress(state, &mut decision.patch, &ObservedEssences::default());
                }
            } else {
                self.forget_progress(state, &mut decision.patch);
                self.store_diffbase(&mut decision.patch);
                let later = self.store_observed(state, &mut decision.patch);
                self.store_outcomes(state, later.as_ref(), decision);
            }
            decision.handling_status = HandlingStatus::Over(std::mem::take(&mut self.seen));
            decision.fully_handled_once = true;
            // Kopf 1.45 calls deletion handlers repeatedly while daemons are still stopping.
            let is_repeated = self.config.settings.compat && self.daemon_phase.delay.is_some();
            decision.deletion_handled = reason == Reason::Delete && !is_repeated;
            return;
        }
        let is_new = self.record_observed(reason);
        let foreseen = self.foreseen(&decision.patch);
        // Known essences are already in some record.
        let is_stored = !is_new
            && foreseen == self.seen
            && state.entries.iter().any(|entry| !entry.obsolete && entry.record.seen.is_some());
        let seen = if is_stored { ObservedEssences::default() } else { foreseen };
        self.keep_progress(state, &mut decision.patch, &seen);
        decision.handling_status = HandlingStatus::Ongoing(std::mem::take(&mut self.seen));
        decision.delay = state.delay(self.moment.now).map(|delay| self.min_retry_delay(delay));
    }

    /// Whether the progress stays on the object until the finalizer is removed, and is removed by the same request.
    fn clears_progress_on_release(&self, reason: Reason) -> bool {
        reason == Reason::Delete && !self.config.settings.compat && self.custom_storage.is_none()
    }

    /// Writes the changed records, and removes the records of superseded causes. The observed essences are written into these
    /// records too: after a crash, the remaining handlers have not seen them.
    fn keep_progress(&mut self, state: &HandlingProgress, patch: &mut Patch, seen: &ObservedEssences) {
        self.purge_obsolete(state, patch);
        let staying: Vec<_> = state.entries.iter().filter(|entry| !entry.obsolete).collect();
        if *seen == ObservedEssences::default() {
            for entry in staying.into_iter().filter(|entry| entry.is_changed()) {
                self.store_record(patch, &entry.id, &entry.record);
            }
            return;
        }
        let required: Vec<String> = seen
            .first
            .iter()
            .chain(&seen.later)
            .map(|essence| observed::seen(&self.object, essence))
            .collect();
        let is_required = |text: &String| required.contains(text);
        let mut stored: Vec<Option<String>> =
            staying.iter().map(|entry| entry.record.seen.clone().filter(is_required)).collect();
        for text in &required {
            let is_free = |(position, _): &(usize, &Option<String>)| {
                staying[*position].is_changed() || staying[*position].record.seen.is_some()
            };
            if !stored.iter().flatten().any(|it| it == text)
                && let Some((position, _)) = stored
                    .iter()
                    .enumerate()
                    .filter(|(_, seen)| seen.is_none())
                    .filter(is_free)
                    .max_by_key(|(position, _)| staying[*position].is_finished())
            {
                stored[position] = Some(text.clone());
            }
        }
        for (entry, seen) in staying.into_iter().zip(stored) {
            if entry.is_changed() || seen != entry.record.seen {
                self.store_record(patch, &entry.id, &Record { seen, ..entry.record.clone() });
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
    pub(super) fn foreseen(&self, patch: &Patch) -> ObservedEssences {
        self.seen.foreseen(&self.object, patch, &self.config.settings.persistence, &self.plan)
    }

    /// Records the essence that the handlers finished in this cycle were called with. Returns true if it is a new one.
    fn record_observed(&mut self, reason: Reason) -> bool {
        let is_followed = matches!(reason, Reason::Create | Reason::Update)
            && !self.config.settings.compat
            && self.custom_storage.is_none();
        if !is_followed {
            self.seen = ObservedEssences::default();
            return true;
        }
        let before = self.seen.clone();
        if self.advanced
            && let Some(change) = self.change()
            && let Some(new) = change.new_()
        {
            self.seen.add(new);
        }
        before != self.seen
    }

    /// Restores a removed or damaged diff-base, when there were no changes for a while: two controllers that undo each other's
    /// writes would never stop.
    fn restore_annotations(&mut self, decision: &mut Decision) {
        if !self.comparison.as_ref().is_some_and(EssenceComparison::is_lost) {
            return;
        }
        // Our own write may not have arrived yet.
        if self.moment.consistent {
            self.warn_annotations_removed();
        }
        if self.requeued && self.moment.consistent {
            self.store_essence(&mut decision.patch);
        } else {
            decision.delay = earliest(decision.delay, Some(QUIET_PAUSE));
        }
    }

    /// Removes the progress of a completed handling, if the operator crashed before it did.
    fn clean_up(&self, decision: &mut Decision) {
        if completed_handling::is_kept_apart(&self.config.settings, &self.plan)
            && self.moment.consistent
            && self.seen == ObservedEssences::default()
        {
            let persistence = &self.config.settings.persistence;
            decision.patch.merge(pending_state::stale_progress(&self.object, persistence, &self.plan).0);
        }
    }

    fn warn_annotations_removed(&mut self) {
        if !std::mem::replace(&mut self.memory.annotations_removed, true) {
            self.log_messages.push(LogMessage::Stripped(pending_state::last_manager(&self.object)));
        }
    }

    /// Stores the current essence as the diff-base, if it differs. If some handlers were called with an earlier essence, that one
    /// is stored: the other handlers must still be called for the difference.
    fn store_diffbase(&mut self, patch: &mut Patch) {
        let mut seen = std::mem::take(&mut self.seen);
        let missing_patch = self.unconfirmed_essence();
        if let Some(first) = seen.first.take()
            && let Some(change) = self.change()
            && let Some(new) = change.new_()
        {
            let is_changed = !equal(&first, new);
            if is_changed && self.advanced {
                seen.later = Some(Arc::new(new.clone()));
            }
            if is_changed || seen.later.is_some() {
                let storage = &self.config.settings.persistence.diffbase_storage;
                let missing_patch = Patch(self.missing_patch.clone());
                let known = ObservedEssences { first: Some(first), later: None };
                let known = known.foreseen(
                    &self.object,
                    &missing_patch,
                    &self.config.settings.persistence,
                    &self.plan,
                );
                if let Some(first) = known.first {
                    storage.store(&self.object, patch, &first);
                }
                self.seen = seen;
                return;
            }
        }
        if let Some(missing_patch) = missing_patch {
            self.config.settings.persistence.diffbase_storage.store(&self.object, patch, &missing_patch);
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
        let present = ObservedEssences { first: Some(Arc::new(change.new_()?.clone())), later: None };
        let persistence = &self.config.settings.persistence;
        let missing_patch = present.foreseen(&object, &missing_patch, persistence, &self.plan).first?;
        (!equal(&missing_patch, change.new_()?)).then(|| Arc::unwrap_or_clone(missing_patch))
    }

    /// The delay, with a minimum if a custom lifecycle has selected no handler: it would be called again at once.
    fn min_retry_delay(&self, delay: f64) -> f64 {
        if self.undecided { delay.max(UNDECIDED_PAUSE) } else { delay }
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
        self.send_pending(&mut decision);
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
        if self.removed && self.moment.consistent {
            self.warn_annotations_removed();
        }
        if self.urgent || self.requeued || decision.is_written() {
            let handlers = std::mem::take(&mut decision.patch);
            let removed =
                own_annotations::removed_records(&self.missing_patch, &self.config.settings.persistence);
            decision.patch = Patch(std::mem::take(&mut self.missing_patch));
            decision.patch.merge(handlers.0);
            // A record to be removed as a whole is merged instead, if the patch has a new record in its place.
            for record in removed {
                let seen = record.child("seen");
                let is_replaced = decision.patch.get(record.keys()).is_some_and(Value::is_object);
                if is_replaced && decision.patch.get(seen.keys()).is_none() {
                    decision.patch.set(seen.keys(), Value::Null);
                }
            }
            // The essence of the first handlers is the diff-base from now on, even if no handler is called in this cycle.
            if self.is_restarted && decision.handling_status == HandlingStatus::Before {
                decision.handling_status = HandlingStatus::Ongoing(std::mem::take(&mut self.seen));
            }
        } else {
            decision.delay = earliest(decision.delay, Some(QUIET_PAUSE));
        }
    }
}

/// The patch that the API server rejected before. It is sent in a separate request: when its delay is over, or when something
/// else is written.
impl Cycle {
    fn send_pending(&mut self, decision: &mut Decision) {
        let Some((pending, due)) = self.pending.take().map(|pending| *pending) else { return };
        let left = due.seconds_since(self.moment.now);
        if left > 0.0 && !decision.is_written() {
            decision.delay = earliest(decision.delay, Some(left));
        } else {
            let pending = Patch(merge_patch::subtract(pending.0, &decision.patch.0));
            decision.pending = (!pending.is_empty()).then(|| Box::new(pending));
        }
    }
}

fn earliest(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).min_by(f64::total_cmp)
}
