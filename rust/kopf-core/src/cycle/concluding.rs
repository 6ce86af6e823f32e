//! The end: what is to be remembered, as one patch, and when to look again.

use super::facts::Facts;
use super::{Conclusion, Cycle, Next, Phase, Sequel};
use crate::cause::Reason;
use crate::diffbase::seen;
use crate::finalizer::Edit;
use crate::ledger::{self, Seen};
use crate::notes::Note;
use crate::patch::Patch;
use crate::progress::Record;
use crate::state::State;
use crate::value::{Value, equal};
use std::sync::Arc;

/// Seconds until a user's lifecycle is asked again that has chosen nobody although there was somebody to choose.
const UNDECIDED_PAUSE: f64 = 1.0;

/// Seconds, at least, until change handlers are tried again whose event may never come.
const POSTPONED_PAUSE: f64 = 1.0;

/// Seconds without any changes, after which it is written again what somebody has removed.
const QUIET_PAUSE: f64 = 5.0;

impl Cycle {
    /// Ends the cycle in the usual way.
    pub(super) fn conclude(&mut self) -> Next {
        let mut conclusion = Conclusion {
            patch: std::mem::take(&mut self.patch),
            finalizer: self.finalizer,
            parted: self.memory.parted,
            fns: self.fns,
            delay: None,
            fully_handled_once: self.memory.fully_handled_once,
            matched: self.cause.is_some(),
            ..Conclusion::default()
        };
        if let Some(state) = self.state.take() {
            self.remember(&state, &mut conclusion);
        } else if self.cause == Some(Reason::Noop) {
            self.heal(&mut conclusion);
            self.clean_up(&mut conclusion);
            // What some have seen may have been taken back; but as long as an own write is awaited, nobody knows.
            if !self.moment.consistent && self.seen != Seen::default() {
                conclusion.delay = earliest(conclusion.delay, Some(QUIET_PAUSE));
            }
        }
        conclusion.delay = earliest(conclusion.delay, self.background.delay);
        self.release(&mut conclusion);
        self.finish(conclusion)
    }

    /// Ends the cycle before the change handlers: they wait for another event.
    pub(super) fn postpone(&mut self) -> Next {
        // What is written now should bring that event, but it will not if it changes nothing.
        let is_written = !self.patch.is_empty() || self.fns;
        let window = self.rules.settings.persistence.consistency_timeout;
        let conclusion = Conclusion {
            patch: std::mem::take(&mut self.patch),
            fns: self.fns,
            delay: earliest(is_written.then_some(window.max(POSTPONED_PAUSE)), self.background.delay),
            fully_handled_once: self.memory.fully_handled_once,
            parted: self.memory.parted,
            ..Conclusion::default()
        };
        self.finish(conclusion)
    }

    /// Ends the cycle with an error: nothing of it counts.
    pub(super) fn fail(&mut self, error: String) -> Next {
        self.phase = Phase::Over;
        Next::Done(Box::new(Conclusion {
            fully_handled_once: self.memory.fully_handled_once,
            parted: self.memory.parted,
            error: Some(error),
            ..Conclusion::default()
        }))
    }

    /// Puts the progress and the essence into the patch, over whatever handlers have put there.
    fn remember(&mut self, state: &State, conclusion: &mut Conclusion) {
        let Some(reason) = self.cause else {
            return;
        };
        let called = !state.selected.is_empty();
        let done = state.is_done();
        if done && called {
            let counts = state.counts(reason);
            let (succeeded, failed) = (counts.succeeded, counts.failed);
            self.notes.push(Note::Processed { reason, succeeded, failed });
        }
        if done {
            if self.is_parting(reason) {
                self.keep_essence(&mut conclusion.patch);
                // Whoever takes over before the object is let go, must not call them again. What is not written anyway is
                // the last outcome: it is as if the death had come a moment earlier.
                if conclusion.is_written() || self.background.delay.is_some() {
                    self.keep_progress(state, &mut conclusion.patch, &Seen::default());
                }
            } else {
                if ledger::is_kept_apart(&self.rules.settings, &self.plan) {
                    for entry in state.entries.iter().filter(|entry| !entry.obsolete && entry.is_changed()) {
                        self.store_record(&mut conclusion.outcomes, &entry.id, &entry.record);
                    }
                }
                self.forget_progress(state, &mut conclusion.patch);
                self.keep_essence(&mut conclusion.patch);
                self.keep_later(state, &mut conclusion.patch);
            }
            conclusion.sequel = Sequel::Over(std::mem::take(&mut self.seen));
            conclusion.fully_handled_once = true;
            // The reference calls deletion handlers again and again while daemons are still stopping.
            let is_repeated = self.rules.settings.compat && self.background.delay.is_some();
            conclusion.parted = reason == Reason::Delete && !is_repeated;
            return;
        }
        let is_news = self.see(reason);
        let foreseen = self.foreseen(&conclusion.patch);
        // What is known already, is borne by some record.
        let is_borne = !is_news
            && foreseen == self.seen
            && state.entries.iter().any(|entry| !entry.obsolete && entry.record.seen.is_some());
        let seen = if is_borne { Seen::default() } else { foreseen };
        self.keep_progress(state, &mut conclusion.patch, &seen);
        conclusion.sequel = Sequel::Ongoing(std::mem::take(&mut self.seen));
        conclusion.delay = state.delay(self.moment.now).map(|delay| self.unhurried(delay));
    }

    /// Whether the progress stays on the object until it is let go, and goes in the same request.
    fn is_parting(&self, reason: Reason) -> bool {
        reason == Reason::Delete && !self.rules.settings.compat && self.foreign.is_none()
    }

    /// Only what has changed is written. Records of superseded causes go. Records are to bear what was seen of the object by
    /// those who have finished, if none does: the operator may die before the others have seen it.
    fn keep_progress(&mut self, state: &State, patch: &mut Patch, seen: &Seen) {
        self.purge_obsolete(state, patch);
        let staying: Vec<_> = state.entries.iter().filter(|entry| !entry.obsolete).collect();
        if *seen == Seen::default() {
            for entry in staying.into_iter().filter(|entry| entry.is_changed()) {
                self.store_record(patch, &entry.id, &entry.record);
            }
            return;
        }
        let wanted: Vec<String> =
            seen.first.iter().chain(&seen.later).map(|essence| seen::seen(&self.object, essence)).collect();
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
    fn keep_later(&mut self, state: &State, patch: &mut Patch) {
        let later = self.foreseen(patch).later.as_deref().map(|later| seen::seen(&self.object, later));
        if let (Some(later), Some(entry)) = (later, state.entries.iter().find(|entry| entry.is_finished())) {
            self.store_record(patch, &entry.id, &Record { seen: Some(later), ..Record::default() });
        }
    }

    /// Removes the records of superseded causes.
    pub(super) fn purge_obsolete(&mut self, state: &State, patch: &mut Patch) {
        for entry in state.entries.iter().filter(|entry| entry.obsolete) {
            self.purge_record(patch, &entry.id);
            for id in &entry.record.subrefs {
                self.purge_record(patch, &Arc::from(id.as_str()));
            }
        }
    }

    /// A completed handling leaves no progress behind: neither its own, nor of those who have left it, nor of what it
    /// superseded. With nothing on the object and nobody called, there is nothing to look for.
    fn forget_progress(&mut self, state: &State, patch: &mut Patch) {
        if state.entries.is_empty() && !state.damaged {
            return;
        }
        for id in self.remembered(state) {
            self.purge_record(patch, &id);
        }
    }

    /// What handlers have seen, as it will be known when the patch is written.
    fn foreseen(&self, patch: &Patch) -> Seen {
        self.seen.foreseen(&self.object, patch, &self.rules.settings.persistence, &self.plan)
    }

    /// Notes what those have seen of the object who have finished now: the others may see it otherwise. Whether it is news.
    fn see(&mut self, reason: Reason) -> bool {
        let is_followed = matches!(reason, Reason::Create | Reason::Update)
            && !self.rules.settings.compat
            && self.foreign.is_none();
        if !is_followed {
            self.seen = Seen::default();
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
    fn heal(&mut self, conclusion: &mut Conclusion) {
        if !self.facts.as_ref().is_some_and(Facts::is_lost) {
            return;
        }
        // As long as an own write is awaited, it may only be not there yet.
        if self.moment.consistent {
            self.tell_of_stripping();
        }
        if self.woken && self.moment.consistent {
            self.store_essence(&mut conclusion.patch);
        } else {
            conclusion.delay = earliest(conclusion.delay, Some(QUIET_PAUSE));
        }
    }

    /// The progress of a handling that is over: the operator has died before it was removed.
    fn clean_up(&self, conclusion: &mut Conclusion) {
        if ledger::is_kept_apart(&self.rules.settings, &self.plan)
            && self.moment.consistent
            && self.seen == Seen::default()
        {
            let persistence = &self.rules.settings.persistence;
            conclusion.patch.merge(ledger::leftovers(&self.object, persistence, &self.plan).0);
        }
    }

    fn tell_of_stripping(&mut self) {
        if !std::mem::replace(&mut self.memory.stripped, true) {
            self.notes.push(Note::Stripped(ledger::culprit(&self.object)));
        }
    }

    /// The essence of now is the last handled one, if it is not already; or the one that the first of the handlers have
    /// seen, if others have seen another one: they are yet to be told.
    fn keep_essence(&mut self, patch: &mut Patch) {
        let mut seen = std::mem::take(&mut self.seen);
        let owed = self.owed_essence();
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
                let owed = Patch(self.owed.clone());
                let known = Seen { first: Some(first), later: None };
                let known = known.foreseen(&self.object, &owed, &self.rules.settings.persistence, &self.plan);
                if let Some(first) = known.first {
                    storage.store(&self.object, patch, &first);
                }
                self.seen = seen;
                return;
            }
        }
        if let Some(owed) = owed {
            self.rules.settings.persistence.diffbase_storage.store(&self.object, patch, &owed);
            return;
        }
        if !self.facts().differs() {
            return;
        }
        self.store_essence(patch);
    }

    /// The essence with what handlers before have put into their patches, if that could not be written yet. It goes in the
    /// same request, and is no change for anybody.
    fn owed_essence(&mut self) -> Option<Value> {
        if !self.urgent || self.owed.is_empty() {
            return None;
        }
        let (owed, object) = (Patch(self.owed.clone()), Arc::clone(&self.object));
        let change = self.change()?;
        let present = Seen { first: Some(Arc::new(change.new_()?.clone())), later: None };
        let persistence = &self.rules.settings.persistence;
        let owed = present.foreseen(&object, &owed, persistence, &self.plan).first?;
        (!equal(&owed, change.new_()?)).then(|| Arc::unwrap_or_clone(owed))
    }

    /// A user's lifecycle that chooses nobody would be asked again and again at once.
    fn unhurried(&self, delay: f64) -> f64 {
        if self.undecided { delay.max(UNDECIDED_PAUSE) } else { delay }
    }

    /// A deletion that was held is let go when nothing is left to do.
    fn release(&mut self, conclusion: &mut Conclusion) {
        // There is nothing to let go.
        if self.is_gone() || !self.is_deleting() || !self.is_blocked() {
            return;
        }
        // It is already being let go, or somebody still needs it.
        if conclusion.finalizer.is_some() || conclusion.delay.is_some() {
            return;
        }
        self.notes.push(Note::FinalizerReleased);
        conclusion.finalizer = Some(Edit::Allow);
    }

    fn finish(&mut self, mut conclusion: Conclusion) -> Next {
        self.phase = Phase::Over;
        // Nothing can be written to what is no more.
        if self.is_gone() {
            conclusion.patch = Patch::default();
            conclusion.fns = false;
            return Next::Done(Box::new(conclusion));
        }
        self.settle_debts(&mut conclusion);
        self.send_pending(&mut conclusion);
        conclusion.stripped = self.memory.stripped;
        self.finish_keeping(conclusion)
    }
}

/// What is owed to the object goes with what is written anyway; or alone, if it is urgent, or has waited for long enough.
impl Cycle {
    fn settle_debts(&mut self, conclusion: &mut Conclusion) {
        if self.owed.is_empty() {
            return;
        }
        if self.removed && self.moment.consistent {
            self.tell_of_stripping();
        }
        if self.urgent || self.woken || conclusion.is_written() {
            let handlers = std::mem::take(&mut conclusion.patch);
            let removed = ledger::removed_records(&self.owed, &self.rules.settings.persistence);
            conclusion.patch = Patch(std::mem::take(&mut self.owed));
            conclusion.patch.merge(handlers.0);
            // What was to be removed as a whole is merged with, if there is a new record in its place.
            for record in removed {
                let seen = record.child("seen");
                let is_replaced = conclusion.patch.get(record.keys()).is_some_and(Value::is_object);
                if is_replaced && conclusion.patch.get(seen.keys()).is_none() {
                    conclusion.patch.set(seen.keys(), Value::Null);
                }
            }
            // What the first have seen is the last handled state from now on, even if nobody is called yet.
            if self.anew && conclusion.sequel == Sequel::Before {
                conclusion.sequel = Sequel::Ongoing(std::mem::take(&mut self.seen));
            }
        } else {
            conclusion.delay = earliest(conclusion.delay, Some(QUIET_PAUSE));
        }
    }
}

/// What the server has rejected before goes apart from the rest: when the pause is over, or when anything else is written.
impl Cycle {
    fn send_pending(&mut self, conclusion: &mut Conclusion) {
        let Some((pending, due)) = self.pending.take().map(|pending| *pending) else { return };
        let left = due.seconds_since(self.moment.now);
        if left > 0.0 && !conclusion.is_written() {
            conclusion.delay = earliest(conclusion.delay, Some(left));
        } else {
            let pending = Patch(ledger::without(pending.0, &conclusion.patch.0));
            conclusion.pending = (!pending.is_empty()).then(|| Box::new(pending));
        }
    }
}

fn earliest(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).min_by(f64::total_cmp)
}
