//! The end: what is to be remembered, as one patch, and when to look again.

use super::comparison::EssenceComparison;
use super::{Cycle, Decision, Effect, Phase};
use crate::activation::log::LogMessage;
use crate::cause::Reason;
use crate::handling::progress::HandlingProgress;
use crate::json::merge_patch::{self, Patch};
use crate::json::value::{Value, equal};
use crate::persistence::diffbase::observed;
use crate::persistence::finalizer::Edit;
use crate::persistence::memory::HandlingStatus;
use crate::persistence::own_annotations;
use crate::persistence::pending_state::{self, ObservedEssences};
use crate::persistence::progress::Record;
use std::sync::Arc;

/// Seconds until a user's lifecycle is asked again that has chosen nobody although there was somebody to choose.
const UNDECIDED_PAUSE: f64 = 1.0;

/// Seconds, at least, until change handlers are tried again whose event may never come.
const POSTPONED_PAUSE: f64 = 1.0;

/// Seconds without any changes, after which it is written again what somebody has removed.
const QUIET_PAUSE: f64 = 5.0;

impl Cycle {
    /// Ends the cycle in the usual way.
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
            // What some have seen may have been taken back; but as long as an own write is awaited, nobody knows.
            if !self.moment.consistent && self.seen != ObservedEssences::default() {
                decision.delay = earliest(decision.delay, Some(QUIET_PAUSE));
            }
        }
        decision.delay = earliest(decision.delay, self.daemon_phase.delay);
        self.release(&mut decision);
        self.finish(decision)
    }

    /// Ends the cycle before the change handlers: they wait for another event.
    pub(super) fn postpone(&mut self) -> Effect {
        // What is written now should bring that event, but it will not if it changes nothing.
        let is_written = !self.patch.is_empty() || self.fns;
        let window = self.rules.settings.persistence.consistency_timeout;
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

    /// Ends the cycle with an error: nothing of it counts.
    pub(super) fn fail(&mut self, error: String) -> Effect {
        self.phase = Phase::Over;
        Effect::Done(Box::new(Decision {
            fully_handled_once: self.memory.fully_handled_once,
            deletion_handled: self.memory.deletion_handled,
            error: Some(error),
            ..Decision::default()
        }))
    }

    /// Puts the progress and the essence into the patch, over whatever handlers have put there.
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
                // Whoever takes over before the object is let go, must not call them again. What is not written anyway is
                // the last outcome: it is as if the death had come a moment earlier.
                if decision.is_written() || self.daemon_phase.delay.is_some() {
                    self.keep_progress(state, &mut decision.patch, &ObservedEssences::default());
                }
            } else {
                if pending_state::is_kept_apart(&self.rules.settings, &self.plan) {
                    for entry in state.entries.iter().filter(|entry| !entry.obsolete && entry.is_changed()) {
                        self.store_record(&mut decision.outcomes, &entry.id, &entry.record);
                    }
                }
                self.forget_progress(state, &mut decision.patch);
                self.store_diffbase(&mut decision.patch);
                self.store_observed(state, &mut decision.patch);
            }
            decision.handling_status = HandlingStatus::Over(std::mem::take(&mut self.seen));
            decision.fully_handled_once = true;
            // The reference calls deletion handlers again and again while daemons are still stopping.
            let is_repeated = self.rules.settings.compat && self.daemon_phase.delay.is_some();
            decision.deletion_handled = reason == Reason::Delete && !is_repeated;
            return;
        }
        let is_news = self.record_observed(reason);
        let foreseen = self.foreseen(&decision.patch);
        // What is known already, is borne by some record.
        let is_borne = !is_news
            && foreseen == self.seen
            && state.entries.iter().any(|entry| !entry.obsolete && entry.record.seen.is_some());
        let seen = if is_borne { ObservedEssences::default() } else { foreseen };
        self.keep_progress(state, &mut decision.patch, &seen);
        decision.handling_status = HandlingStatus::Ongoing(std::mem::take(&mut self.seen));
        decision.delay = state.delay(self.moment.now).map(|delay| self.min_retry_delay(delay));
    }

    /// Whether the progress stays on the object until it is let go, and goes in the same request.
    fn clears_progress_on_release(&self, reason: Reason) -> bool {
        reason == Reason::Delete && !self.rules.settings.compat && self.custom_storage.is_none()
    }

    /// Only what has changed is written. Records of superseded causes go. Records are to bear what was seen of the object by
    /// those who have finished, if none does: the operator may die before the others have seen it.
    fn keep_progress(&mut self, state: &HandlingProgress, patch: &mut Patch, seen: &ObservedEssences) {
        self.purge_obsolete(state, patch);
        let staying: Vec<_> = state.entries.iter().filter(|entry| !entry.obsolete).collect();
        if *seen == ObservedEssences::default() {
            for entry in staying.into_iter().filter(|entry| entry.is_changed()) {
                self.store_record(patch, &entry.id, &entry.record);
            }
            return;
        }
        let wanted: Vec<String> = seen
            .first
            .iter()
            .chain(&seen.later)
            .map(|essence| observed::seen(&self.object, essence))
            .collect();
        let is_wanted = |text: &String| wanted.contains(text);
        let mut borne: Vec<Option<String>> =
            staying.iter().map(|entry| entry.record.seen.clone().filter(is_wanted)).collect();
        for text in &wanted {
            let is_free = |(position, _): &(usize, &Option<String>)| {
                staying[*position].is_changed() || staying[*position].record.seen.is_some()
            };
            if !borne.iter().flatten().any(|it| it == text)
                && let Some((position, _)) = borne
                    .iter()
                    .enumerate()
                    .filter(|(_, seen)| seen.is_none())
                    .filter(is_free)
                    .max_by_key(|(position, _)| staying[*position].is_finished())
            {
                borne[position] = Some(text.clone());
            }
        }
        for (entry, seen) in staying.into_iter().zip(borne) {
            if entry.is_changed() || seen != entry.record.seen {
                self.store_record(patch, &entry.id, &Record { seen, ..entry.record.clone() });
            }
        }
    }

    /// What the last have seen is borne by a record of nothing else, until others have seen more.
    fn store_observed(&mut self, state: &HandlingProgress, patch: &mut Patch) {
        let later = self.foreseen(patch).later.as_deref().map(|later| observed::seen(&self.object, later));
        if let (Some(later), Some(entry)) = (later, state.entries.iter().find(|entry| entry.is_finished())) {
            self.store_record(patch, &entry.id, &Record { seen: Some(later), ..Record::default() });
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

    /// A completed handling leaves no progress behind: neither its own, nor of those who have left it, nor of what it
    /// superseded. With nothing on the object and nobody called, there is nothing to look for.
    fn forget_progress(&mut self, state: &HandlingProgress, patch: &mut Patch) {
        if state.entries.is_empty() && !state.damaged {
            return;
        }
        for id in self.record_ids(state) {
            self.purge_record(patch, &id);
        }
    }

    /// What handlers have seen, as it will be known when the patch is written.
    fn foreseen(&self, patch: &Patch) -> ObservedEssences {
        self.seen.foreseen(&self.object, patch, &self.rules.settings.persistence, &self.plan)
    }

    /// Notes what those have seen of the object who have finished now: the others may see it otherwise. Whether it is news.
    fn record_observed(&mut self, reason: Reason) -> bool {
        let is_followed = matches!(reason, Reason::Create | Reason::Update)
            && !self.rules.settings.compat
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

    /// What was handled last was removed from the object, or spoilt. It is written again when that has not happened for a
    /// while: two that write against each other do not come to an end.
    fn restore_annotations(&mut self, decision: &mut Decision) {
        if !self.comparison.as_ref().is_some_and(EssenceComparison::is_lost) {
            return;
        }
        // As long as an own write is awaited, it may only be not there yet.
        if self.moment.consistent {
            self.warn_annotations_removed();
        }
        if self.requeued && self.moment.consistent {
            self.store_essence(&mut decision.patch);
        } else {
            decision.delay = earliest(decision.delay, Some(QUIET_PAUSE));
        }
    }

    /// The progress of a handling that is over: the operator has died before it was removed.
    fn clean_up(&self, decision: &mut Decision) {
        if pending_state::is_kept_apart(&self.rules.settings, &self.plan)
            && self.moment.consistent
            && self.seen == ObservedEssences::default()
        {
            let persistence = &self.rules.settings.persistence;
            decision.patch.merge(pending_state::stale_progress(&self.object, persistence, &self.plan).0);
        }
    }

    fn warn_annotations_removed(&mut self) {
        if !std::mem::replace(&mut self.memory.annotations_removed, true) {
            self.log_messages.push(LogMessage::Stripped(pending_state::last_manager(&self.object)));
        }
    }

    /// The essence of now is the last handled one, if it is not already; or the one that the first of the handlers have
    /// seen, if others have seen another one: they are yet to be told.
    fn store_diffbase(&mut self, patch: &mut Patch) {
        let mut seen = std::mem::take(&mut self.seen);
        let missing_patch = self.owed_essence();
        if let Some(first) = seen.first.take()
            && let Some(change) = self.change()
            && let Some(new) = change.new_()
        {
            let is_changed = !equal(&first, new);
            if is_changed && self.advanced {
                seen.later = Some(Arc::new(new.clone()));
            }
            if is_changed || seen.later.is_some() {
                let storage = &self.rules.settings.persistence.diffbase_storage;
                let missing_patch = Patch(self.missing_patch.clone());
                let known = ObservedEssences { first: Some(first), later: None };
                let known = known.foreseen(
                    &self.object,
                    &missing_patch,
                    &self.rules.settings.persistence,
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
            self.rules.settings.persistence.diffbase_storage.store(&self.object, patch, &missing_patch);
            return;
        }
        if !self.comparison().differs() {
            return;
        }
        self.store_essence(patch);
    }

    /// The essence with what handlers before have put into their patches, if that could not be written yet. It goes in the
    /// same request, and is no change for anybody.
    fn owed_essence(&mut self) -> Option<Value> {
        if !self.urgent || self.missing_patch.is_empty() {
            return None;
        }
        let (missing_patch, object) = (Patch(self.missing_patch.clone()), Arc::clone(&self.object));
        let change = self.change()?;
        let present = ObservedEssences { first: Some(Arc::new(change.new_()?.clone())), later: None };
        let persistence = &self.rules.settings.persistence;
        let missing_patch = present.foreseen(&object, &missing_patch, persistence, &self.plan).first?;
        (!equal(&missing_patch, change.new_()?)).then(|| Arc::unwrap_or_clone(missing_patch))
    }

    /// A user's lifecycle that chooses nobody would be asked again and again at once.
    fn min_retry_delay(&self, delay: f64) -> f64 {
        if self.undecided { delay.max(UNDECIDED_PAUSE) } else { delay }
    }

    /// A deletion that was held is let go when nothing is left to do.
    fn release(&mut self, decision: &mut Decision) {
        // There is nothing to let go.
        if self.is_gone() || !self.is_deleting() || !self.is_blocked() {
            return;
        }
        // It is already being let go, or somebody still needs it.
        if decision.finalizer.is_some() || decision.delay.is_some() {
            return;
        }
        self.log_messages.push(LogMessage::FinalizerReleased);
        decision.finalizer = Some(Edit::Allow);
    }

    fn finish(&mut self, mut decision: Decision) -> Effect {
        self.phase = Phase::Over;
        // Nothing can be written to what is no more.
        if self.is_gone() {
            decision.patch = Patch::default();
            decision.fns = false;
            return Effect::Done(Box::new(decision));
        }
        self.write_missing(&mut decision);
        self.send_pending(&mut decision);
        decision.annotations_removed = self.memory.annotations_removed;
        self.finish_keeping(decision)
    }
}

/// What is owed to the object goes with what is written anyway; or alone, if it is urgent, or has waited for long enough.
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
                own_annotations::removed_records(&self.missing_patch, &self.rules.settings.persistence);
            decision.patch = Patch(std::mem::take(&mut self.missing_patch));
            decision.patch.merge(handlers.0);
            // What was to be removed as a whole is merged with, if there is a new record in its place.
            for record in removed {
                let seen = record.child("seen");
                let is_replaced = decision.patch.get(record.keys()).is_some_and(Value::is_object);
                if is_replaced && decision.patch.get(seen.keys()).is_none() {
                    decision.patch.set(seen.keys(), Value::Null);
                }
            }
            // What the first have seen is the last handled state from now on, even if nobody is called yet.
            if self.is_restarted && decision.handling_status == HandlingStatus::Before {
                decision.handling_status = HandlingStatus::Ongoing(std::mem::take(&mut self.seen));
            }
        } else {
            decision.delay = earliest(decision.delay, Some(QUIET_PAUSE));
        }
    }
}

/// What the server has rejected before goes apart from the rest: when the pause is over, or when anything else is written.
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
