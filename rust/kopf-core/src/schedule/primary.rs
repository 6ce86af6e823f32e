//! The schedule of one (reconciler, primary object): its schedule entry, and its finalizer.

use crate::persistence::finalizer::Edit;
use crate::schedule::Priority;
use crate::schedule::entry::{Conclusion, Position, ReconcileResult, ScheduleEntry, Start};
use crate::schedule::finalization::{Action, Call, Finalization, PrimaryState};
use crate::schedule::policy::SchedulePolicy;
use crate::time::Timestamp;

/// The state of one (reconciler, primary), by the uid of the primary.
///
/// Each method reports one event; after it, the caller executes [`PrimarySchedule::next`]. Triggers that arrive while the
/// finalizer is being added are kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrimarySchedule {
    entry: ScheduleEntry,
    finalization: Finalization,
    /// The newest observed state; none before the first one.
    state: Option<PrimaryState>,
    running: Option<Call>,
    /// No ordinary call may go on: the primary is marked for deletion, or is gone.
    is_stopped: bool,
    /// Deletion handlers of the primary need the operator's finalizer, which no response has shown yet.
    awaits_finalizer: bool,
}

/// The state that the caller must establish after an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// The position in the work queue; with none, the entry must be removed from it.
    pub position: Option<Position>,
    /// The edit of the finalizer, if the reconciler has a separate one; a wish if it shares the operator's (F5).
    pub edit: Option<Edit>,
    /// The running call must be notified through `stopped`, and must end within the exit timeout (1.8).
    pub stop: bool,
    /// Nothing is left to remember: the primary is gone, and no call is running.
    pub is_over: bool,
}

impl PrimarySchedule {
    /// Records the newest state of the primary, from an event or from the response to a write.
    ///
    /// `trigger` is that of the event itself: `initial` for a list, `changed` for a difference that counts. That the object
    /// begins to match, or is marked for deletion, is recognised here (1.2).
    pub fn observe(
        &mut self,
        state: PrimaryState,
        trigger: Option<Priority>,
        has_deletion: bool,
        policy: &SchedulePolicy,
        now: Timestamp,
    ) {
        let before = self.state.replace(state);
        if !state.matches || (state.is_deleting && !has_deletion) {
            self.is_stopped |= self.running == Some(Call::Ordinary) && state.is_deleting;
            self.entry.forget();
            return;
        }
        let begins = before.is_some_and(|before| !before.matches);
        let is_marked = state.is_deleting && before.is_some_and(|before| !before.is_deleting);
        let is_unfinished = before.is_none() && state.is_deleting && state.has_finalizer;
        if is_marked {
            self.entry.restart_series();
            self.is_stopped |= self.running == Some(Call::Ordinary);
        }
        let own = (begins || is_marked).then_some(Priority::Changed);
        let left = is_unfinished.then_some(Priority::Initial);
        if let Some(priority) = trigger.max(own).max(left) {
            self.entry.trigger(priority, policy, now);
        }
    }

    /// Records a trigger by another object or by the operator. Ignored if the primary does not match.
    pub fn trigger(
        &mut self,
        priority: Priority,
        has_deletion: bool,
        policy: &SchedulePolicy,
        now: Timestamp,
    ) {
        if self.accepts_triggers(has_deletion) {
            self.entry.trigger(priority, policy, now);
        }
    }

    /// Records a trigger of a hot loop, which has to wait for `delay` seconds (1.7).
    pub fn trigger_after(&mut self, delay: f64, has_deletion: bool, now: Timestamp) {
        if self.accepts_triggers(has_deletion) {
            self.entry.trigger_after(delay, now);
        }
    }

    /// Pauses the primary or ends its pause by the pause annotation. The end of a pause is a trigger.
    pub fn set_paused(
        &mut self,
        is_paused: bool,
        has_deletion: bool,
        policy: &SchedulePolicy,
        now: Timestamp,
    ) {
        let ends = self.entry.is_paused() && !is_paused;
        self.entry.set_paused(is_paused);
        if ends {
            self.trigger(Priority::Changed, has_deletion, policy, now);
        }
    }

    /// Holds back ordinary calls while deletion handlers of the primary wait for the operator's finalizer (F10): these handlers can
    /// clean up all that a call makes. Triggers are kept.
    pub fn await_finalizer(&mut self, is_awaited: bool) {
        self.awaits_finalizer = is_awaited;
    }

    /// Records that the object is gone. A running call may go on to its end (F9); an ordinary one is notified.
    pub fn remove(&mut self) {
        self.state = None;
        self.is_stopped |= self.running == Some(Call::Ordinary);
        self.entry.forget();
    }

    /// Records that the writes of the last reconciliation are visible (A9).
    pub fn confirm_writes(&mut self) {
        self.entry.confirm_writes();
    }

    /// Starts a reconciliation. None if there is nothing to do, as when the primary is gone meanwhile (A10): then the permit
    /// must be given back.
    pub fn start(&mut self, has_deletion: bool, now: Timestamp) -> Option<(Call, Start)> {
        let Action::Call(call) = self.action(has_deletion) else { return None };
        if self.entry.is_paused() {
            return None;
        }
        let start = self.entry.start(now)?;
        self.finalization.start(call);
        self.running = Some(call);
        Some((call, start))
    }

    /// Ends the running reconciliation, after its writes; see [`ScheduleEntry::finish`].
    pub fn finish(
        &mut self,
        result: ReconcileResult,
        writes_deadline: Option<Timestamp>,
        policy: &SchedulePolicy,
        now: Timestamp,
        chance: f64,
    ) -> Conclusion {
        let conclusion = self.entry.finish(result, writes_deadline, policy, now, chance);
        let Some(call) = self.running.take() else { return conclusion };
        self.is_stopped = false;
        if self.finalization.finish(call, conclusion) {
            // F3: triggers that have arrived meanwhile do not matter.
            self.entry.forget();
        } else if call == Call::Ordinary && self.state.is_some_and(|state| state.is_deleting) {
            // The failures of ordinary calls do not count towards the limits of the deletion.
            self.entry.restart_series();
        }
        conclusion
    }

    /// The state that the caller must establish now.
    pub fn next(&self, has_deletion: bool, policy: &SchedulePolicy) -> Next {
        let action = self.action(has_deletion);
        let position = match action {
            Action::Call(_) => self.entry.position(policy),
            Action::Wait | Action::Edit(_) => None,
        };
        let edit = if let Action::Edit(edit) = action { Some(edit) } else { None };
        let is_over = self.state.is_none() && self.running.is_none();
        Next { position, edit, stop: self.is_stopped, is_over }
    }

    /// Whether the reconciler needs the operator's finalizer on the primary (F5, F8).
    pub fn needs_finalizer(&self, has_deletion: bool) -> bool {
        let is_running = self.running.is_some();
        self.state.is_some_and(|state| self.finalization.needs_finalizer(has_deletion, state, is_running))
    }

    /// Whether the newest observed state matches; none before the first one, and after the object is gone.
    pub fn matches(&self) -> Option<bool> {
        self.state.map(|state| state.matches)
    }

    /// The schedule entry.
    pub fn entry(&self) -> &ScheduleEntry {
        &self.entry
    }

    /// The running call.
    pub fn running(&self) -> Option<Call> {
        self.running
    }

    fn accepts_triggers(&self, has_deletion: bool) -> bool {
        self.state.is_some_and(|state| state.matches && (has_deletion || !state.is_deleting))
            && !self.finalization.is_released()
    }

    fn action(&self, has_deletion: bool) -> Action {
        let is_running = self.running.is_some();
        match self.state.map(|state| self.finalization.action(has_deletion, state, is_running)) {
            None => Action::Wait,
            Some(Action::Call(Call::Ordinary)) if self.awaits_finalizer => Action::Wait,
            Some(action) => action,
        }
    }
}

#[cfg(test)]
mod tests;
