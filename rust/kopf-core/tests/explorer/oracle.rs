//! The invariants, and the oracle that checks them.
//!
//! The oracle observes the API server, the calls of handlers, and the log. It must not depend on how the operator works.

use crate::cluster::{Cluster, Version, intent};
use crate::observed_states::ObservedStates;
use crate::scenarios::Scenario;
use kopf_core::activation::log::LogMessage;
use kopf_core::cause::{EventType, Reason};
use kopf_core::handling::change::Change;
use kopf_core::persistence::progress::Record;
use kopf_core::time::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The largest number of requests of one write, even after conflicts and failures.
const MOST_REQUESTS: usize = 30;

/// The last one of the error delays of all scenarios, in seconds.
const LONGEST_DELAY: f64 = 3.0;

#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Oracle {
    /// The first violation of an invariant, as text.
    pub violation: Option<String>,
    /// The last finished change per handler, unless its progress was lost.
    finished: BTreeMap<Arc<str>, Finished>,
    /// Handlers that have finished since the last diff-base, with the old state of their change.
    called: BTreeMap<Arc<str>, Option<String>>,
    /// Old and new states of those calls, with the position of the new one.
    seen: BTreeMap<(Option<String>, String), usize>,
    /// Deletion handlers that have finished.
    deletions_finished: BTreeSet<Arc<str>>,
    /// The last diff-base that was stored.
    base: Option<String>,
    /// The position of that diff-base in the observed states.
    base_at: Option<usize>,
    /// Whether the operator has restarted and not yet started a cycle.
    is_new: bool,
    /// Whether that is because of a pause.
    is_resuming: bool,
    /// Whether a cycle ran when the last pause ended. Its knowledge is not lost, but the diff-base may be.
    carries_over: bool,
    /// The last version written by the operator.
    written: u64,
    /// Whether another client has removed the operator's finalizer.
    is_unblocked: bool,
    /// Whether another client has removed annotations.
    annotations_removed: bool,
    /// Whether that happened since the last diff-base was stored.
    essences_removed: bool,
    /// Handlers with progress on the object, but without the essence that they observed: it was in the record of another handler,
    /// which another client removed. After a crash now, they count as called with the present essence.
    unknown: BTreeSet<Arc<str>>,
    /// Whether the operator has logged that another client removes its annotations.
    warned: bool,
    /// Whether the operator has stored the diff-base since that log line.
    guarded: bool,
    /// The last version for which a patch function was left: it must be applied to that version or a later one.
    left: Option<u64>,
    /// Handlers whose results must be in the status.
    results: BTreeSet<Arc<str>>,
    /// The essences in the progress at the last restart that a handler has observed, until they are handled. Only those are
    /// known then, and not which handlers have observed them: their other progress was not written, or another client removed it.
    /// So they are states to continue from.
    marks: BTreeSet<String>,
    /// All states of the object, and those observed by each handler.
    pub observed: ObservedStates,
    /// Number of consecutive rejected writes, and the time of the last one.
    failures: Option<(u32, Timestamp)>,
}

/// A finished change, identified by its reason and old state.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finished {
    reason: Reason,
    old: Option<String>,
    /// Position of the state with which the handler was called.
    at: usize,
    /// The record on the object at that time, which is of an earlier call.
    before: Option<Record>,
    /// Whether its progress is stored on the object.
    persisted: bool,
    /// Whether the author had reverted the change already: only changes by handlers were left.
    is_reverted: bool,
}

impl Oracle {
    pub fn report_violation(&mut self, violation: &str) {
        self.violation.get_or_insert_with(|| violation.to_owned());
    }

    /// Records and checks the call of a change handler.
    pub fn called(
        &mut self,
        scenario: &Scenario,
        cluster: &Cluster,
        view: &Version,
        id: &Arc<str>,
        change: &Change,
        is_final: bool,
    ) {
        let (latest, reason) = (&cluster.latest, change.reason);
        let title = reason.title();
        let (old, at) = (change.old().map(intent), self.observed.position(view));
        let before = record(scenario, latest, id);
        let is_reverted = old.as_ref() == Some(&view.essence);
        let finished = Finished { reason, old, at, before, persisted: false, is_reverted };
        self.begin_reversal(scenario, id, &finished);
        if self.finished.get(id).is_some_and(|it| (it.reason, &it.old) == (reason, &finished.old)) {
            self.report_violation(&format!("{id} is called again for the same {title}"));
        }
        if reason == Reason::Create && latest.base.is_some() {
            self.report_violation(&format!("{id} is called for an already handled creation"));
        }
        let is_reversal = finished
            .old
            .as_ref()
            .is_some_and(|old| self.observed.is_reversal(id, old) || self.marks.contains(old));
        if reason == Reason::Update && latest.base.as_ref() == Some(&view.essence) && !is_reversal {
            self.report_violation(&format!("{id} is called for an already handled change"));
        }
        // An author's change may have been handled by some handlers and then reverted.
        let is_same = || change.old().map(intent) == change.new_().map(intent);
        if reason == Reason::Update && self.base_at == Some(at) && is_same() {
            self.report_violation(&format!("{id} is called for a change made by handlers"));
        }
        if reason == Reason::Delete && !(cluster.exists && latest.is_blocked()) && !self.is_unblocked {
            self.report_violation(&format!("{id} is called for a released deletion"));
        }
        if format!("{:?}", change.diff()).contains("kopf.zalando.org") {
            self.report_violation(&format!("{id} is called with Kopf's annotations in the diff"));
        }
        if is_final {
            if scenario.returns(id) {
                self.results.insert(Arc::clone(id));
            }
            if reason == Reason::Create {
                self.observed.creation_finished(id, view);
            }
            // The other handlers do not match all states of the object.
            if reason == Reason::Update
                && let Err(violation) = self.observed.change_finished(id, change, view)
                && scenario.updaters.contains(id)
                && !finished.old.as_ref().is_some_and(|old| self.marks.contains(old))
            {
                self.report_violation(&violation);
            }
            self.called.insert(Arc::clone(id), finished.old.clone());
            self.seen.insert((finished.old.clone(), view.essence.clone()), at);
            self.finished.insert(Arc::clone(id), finished);
            if reason == Reason::Delete {
                self.deletions_finished.insert(Arc::clone(id));
            }
        }
    }

    /// A handling can be completed by a write that is rejected, and a handler can have observed in between that the author had
    /// reverted the change: then the change from that state to the present one is another one, although it starts from the
    /// same state. The diff-bases of both are written by the same request.
    fn begin_reversal(&mut self, scenario: &Scenario, id: &Arc<str>, call: &Finished) {
        let Some(old) = call.old.as_ref().filter(|_| call.reason == Reason::Update) else { return };
        let is_called = |id: &Arc<str>| self.called.get(id).is_some_and(|of| of.as_ref() == Some(old));
        if !scenario.updaters.is_empty()
            && scenario.updaters.iter().all(is_called)
            && self.observed.is_observed_after(self.base_at, old, |other| other != id)
        {
            self.finished.retain(|_, it| it.reason != Reason::Update);
            self.called.clear();
        }
    }

    /// Whether the handler leaves a patch function.
    pub fn leaves_function(&mut self, scenario: &Scenario, view: &Version, id: &str) -> bool {
        let leaves = scenario.leaves_function == Some(id);
        self.left = leaves.then_some(view.number).or(self.left);
        leaves
    }

    /// A pause of the operator is over: others may have handled the object, so only the state stored on it counts.
    /// A cycle that still runs goes on to write what it knows.
    pub fn resumed(&mut self, in_cycle: bool) {
        self.results.clear();
        self.carries_over = in_cycle && (!self.is_new || self.carries_over);
        (self.is_new, self.is_resuming) = (true, true);
    }

    /// Whether the operator has continued after a pause and not yet started a cycle with the stored state.
    pub fn is_resuming(&self) -> bool {
        self.is_resuming
    }

    /// The first version that shows what is stored, if the operator has not yet started a cycle since its restart or pause.
    pub fn awaited(&self) -> Option<u64> {
        self.is_new.then_some(self.written)
    }

    /// A cycle starts for an event that has waited. A deletion is final, and nothing is written then.
    pub fn started_waiting(&mut self, kind: EventType, is_paused: bool) {
        self.handled(is_paused && kind != EventType::Deleted);
    }

    /// The operator works on the object without a new event.
    pub fn handled(&mut self, is_paused: bool) {
        if is_paused {
            self.report_violation("the object is handled during a pause");
        }
    }

    /// Another client removes all annotations. If the operator crashes before it has restored them, only the diff-base is known.
    pub fn stripped(&mut self, scenario: &Scenario, latest: &Version) {
        (self.annotations_removed, self.essences_removed) = (true, true);
        // The listing at the restart may be older.
        if !self.is_new {
            self.observed.lose_progress(self.base_at, |id| !is_recorded(scenario, latest, id));
        }
    }

    /// Another client removes the operator's finalizer.
    pub fn unblocked(&mut self) {
        self.is_unblocked = true;
    }

    /// The operator crashes. The next run resumes objects that this run had resumed.
    pub fn crashed(&mut self) {
        self.left = None;
        // Rejected parts of patches are kept in memory only.
        self.results.clear();
        self.failures = None;
        (self.is_new, self.is_resuming, self.carries_over) = (true, false, false);
    }

    /// A cycle starts. After a restart, the operator knows only the state stored on the object.
    pub fn cycle_started(&mut self, scenario: &Scenario, view: &Version) {
        // A reverted change may be made again: that is another change.
        let is_taken_back = |it: &Finished| {
            it.reason == Reason::Update && (it.is_reverted || it.old.as_ref() == Some(&view.essence))
        };
        let at = self.observed.position(view);
        self.finished.retain(|_, it| at <= it.at || !is_taken_back(it));
        // The listing after a pause may be older than the write of a cycle that ran on: it is not the stored state then.
        if view.number < self.written {
            return;
        }
        self.is_resuming = false;
        let is_new = std::mem::take(&mut self.is_new);
        if is_new {
            (self.warned, self.guarded) = (false, false);
            self.finished.retain(|id, it| it.persisted && is_recorded(scenario, view, id));
        }
        if self.carries_over {
            self.carries_over = view.base.is_none();
            return;
        }
        if !is_new {
            return;
        }
        self.marks = self.marks(scenario, view);
        self.observed.forget_unpersisted();
        for id in std::mem::take(&mut self.unknown).iter().filter(|id| is_recorded(scenario, view, id)) {
            self.observed.assume(id, at);
        }
        if view.base.is_none() {
            // The handlers of the change are not called again, since the object is taken for a new one.
            self.left = None;
            self.forget_base(scenario, view);
        }
        self.called = self.recorded(scenario, view);
    }

    /// The essences in the progress on the object that handlers have really observed.
    fn marks(&self, scenario: &Scenario, view: &Version) -> BTreeSet<String> {
        let all = scenario.config.registry.handlers.iter();
        let marks = all.filter_map(|handler| record(scenario, view, &handler.id)?.observed);
        let essences = marks.filter_map(|text| Some(intent(&serde_json::from_str(&text).ok()?)));
        essences.filter(|essence| self.observed.was_observed(essence)).collect()
    }

    /// The handlers with progress on the object.
    fn recorded(&self, scenario: &Scenario, view: &Version) -> BTreeMap<Arc<str>, Option<String>> {
        let all = scenario.creators.iter().chain(&scenario.updaters);
        let recorded = all.filter(|id| is_recorded(scenario, view, id));
        recorded.map(|id| (Arc::clone(id), self.base.clone())).collect()
    }

    /// The operator logs a message.
    pub fn logged(&mut self, scenario: &Scenario, message: &LogMessage, view: &Version) {
        match message {
            // The handling is superseded, and its progress removed.
            LogMessage::Superseded { new, .. } => self.finished.retain(|_, it| it.reason == *new),
            LogMessage::Stripped(_) => {
                if !self.annotations_removed {
                    self.report_violation("other clients are blamed for our changes");
                }
                self.warned = true;
            }
            LogMessage::AnotherOperator(_) if scenario.defect.is_none() => {
                self.report_violation("our own write is taken for that of another operator");
            }
            LogMessage::InProgress(Reason::Create) if self.base.is_some() => {
                let is_known = self.guarded || self.base.as_ref() == Some(&view.essence);
                let is_update = |it: &Finished| it.reason == Reason::Update && it.old == self.base;
                let is_going_on = self.finished.values().any(is_update);
                if (is_known || is_going_on) && !self.carries_over {
                    self.report_violation("a handled object is taken for a new one");
                }
                self.forget_base(scenario, view);
            }
            _ => {}
        }
    }

    /// Forgets everything that depends on the diff-base, which is lost.
    fn forget_base(&mut self, scenario: &Scenario, view: &Version) {
        let Some(handled) = self.base.take() else { return };
        self.finished.clear();
        // Progress in the status survives the removal of the diff-base, and identifies the handlers that observed it. Only that of a
        // creation counts: the progress of a change is superseded.
        self.observed.reset(|id| {
            record(scenario, view, id).is_some_and(|it| it.purpose.as_deref() == Some("create"))
                && is_recorded(scenario, view, id)
        });
        self.called = self.recorded(scenario, view);
        if !self.called.is_empty() {
            self.seen.insert((None, handled), self.base_at.unwrap_or_default());
        }
    }

    /// Checks that a merge patch of the operator removes no progress before the diff-base of its handling is stored: a crash
    /// now would repeat the handling. The repetition itself is no violation, as progress that is not on the object is lost in
    /// a crash.
    fn check_removed(&mut self, scenario: &Scenario, latest: &Version, before: &Version) {
        let is_removed = |(id, it): &(&Arc<str>, &Finished)| {
            matches!(it.reason, Reason::Create | Reason::Update)
                && it.persisted
                && is_recorded(scenario, before, id)
                && record(scenario, latest, id).is_none()
        };
        if latest.base == before.base
            && !latest.is_deleting()
            && let Some((id, _)) = self.finished.iter().find(is_removed)
        {
            let violation = format!("the progress of {id} is removed before its change is stored as handled");
            self.report_violation(&violation);
        }
    }

    /// Checks the state after a merge patch of the operator.
    pub fn wrote(&mut self, scenario: &Scenario, cluster: &Cluster, before: &Version) {
        let latest = &cluster.latest;
        self.written = latest.number;
        self.check_removed(scenario, latest, before);
        for (id, finished) in &mut self.finished {
            // With another observed essence, the record of an earlier call is still the record of that call.
            let attempt = |record: Option<Record>| record.map(|record| Record { observed: None, ..record });
            finished.persisted = is_recorded(scenario, latest, id)
                && attempt(record(scenario, latest, id)) != attempt(finished.before.clone());
        }
        let is_moved = latest.base.is_some() && latest.base != self.base;
        let marks = self.marks(scenario, latest);
        let is_unknown = |it: &Finished| self.essences_removed && !self.observed.is_one_of(it.at, &marks);
        let unknown = self.finished.iter().filter(|(_, it)| it.persisted && is_unknown(it));
        self.unknown = unknown.map(|(id, _)| Arc::clone(id)).collect();
        let is_persisted = |id: &str| {
            is_recorded(scenario, latest, id) && self.finished.get(id).is_none_or(|it| it.persisted)
        };
        // Some handlers may have been called for the next change before this diff-base was written.
        let is_handled = |id: &str| is_moved && self.finished.get(id).is_none_or(|it| it.old != latest.base);
        self.observed.mark_persisted(|id| is_handled(id) || is_persisted(id));
        if !is_moved {
            return;
        }
        self.essences_removed = false;
        self.unknown.clear();
        let expected = if self.base.is_none() { &scenario.creators } else { &scenario.updaters };
        // The author has reverted a change that some handlers observed: it counts as handled, and the reversal remains to be
        // handled.
        let is_reverted = |base: &str| {
            self.base.as_ref().is_some_and(|before| {
                self.observed.is_reverted(base, before)
                    || (self.marks.contains(base) && latest.essence == *before)
            })
        };
        if let Some(base) = &latest.base
            && !latest.is_deleting()
            && !expected.is_empty()
            && !is_reverted(base)
        {
            if let Some(id) = expected.iter().find(|id| !self.called.contains_key(*id)) {
                self.report_violation(&format!("a change is stored as handled without a call of {id}"));
            } else if !scenario.filtered
                && !self.seen.keys().any(|(_, seen)| seen == base)
                && !self.marks.contains(base)
            {
                self.report_violation("a state is stored as handled that no handler has observed");
            }
        }
        if self.base.is_none()
            && let Some(base) = &latest.base
        {
            self.observed.created(&scenario.updaters, base);
        }
        // The author may have restored this state before it was written: that is another change.
        let is_this =
            |(old, seen): &(Option<String>, String)| *old == self.base && Some(seen) == latest.base.as_ref();
        let calls = self.seen.iter().filter(|(states, _)| is_this(states));
        let last_call = calls.map(|(_, at)| *at).max();
        self.base_at = last_call.or(latest.base.as_ref().and_then(|base| self.observed.last_position(base)));
        // A mark that becomes the diff-base is where the handlers continue from: not all of them are called in the cycle that writes it.
        let is_handled = |mark: &String| {
            self.base.as_ref() == Some(mark)
                || (latest.base.as_ref() == Some(mark) && latest.essence == *mark)
        };
        let handled: Vec<_> = self.marks.iter().filter(|mark| is_handled(mark)).cloned().collect();
        self.marks.retain(|mark| !handled.contains(mark));
        self.base.clone_from(&latest.base);
        self.guarded |= self.warned;
        // Some handlers may have been called for the next change before this diff-base was written.
        self.called.retain(|_, old| *old == latest.base);
        self.seen.retain(|(old, _), _| *old == latest.base);
        self.finished
            .retain(|_, it| matches!(it.reason, Reason::Delete | Reason::Resume) || it.old == latest.base);
    }

    /// Checks the state after a JSON patch of the operator, which depends on the latest version.
    pub fn edited(&mut self, scenario: &Scenario, cluster: &Cluster, before: &Version, running: bool) {
        let latest = &cluster.latest;
        self.written = latest.number;
        if latest.has_theirs() != before.has_theirs() {
            self.report_violation("a finalizer of another controller was added or removed");
        }
        // Patch functions of the model change only the status.
        if latest.essence != before.essence {
            self.report_violation("a change of another client is undone");
        }
        if latest.is_deleting() && !latest.is_blocked() && before.is_blocked() {
            let wants = |id: &&Arc<str>| {
                scenario.holds_deletion(id, before) && !self.deletions_finished.contains(*id)
            };
            if let Some(id) = scenario.deleters.iter().find(wants) {
                self.report_violation(&format!("a deletion is released before {id} has finished"));
            }
            if running {
                self.report_violation("a deletion is released while a daemon runs");
            }
        }
    }

    /// Checks the number of requests of a write.
    pub fn requested(&mut self, requests: usize) {
        if requests > MOST_REQUESTS {
            self.report_violation("a write sends requests without end");
        }
    }

    /// Records a rejected write.
    pub fn failed(&mut self, now: Timestamp) {
        let count = match self.failures {
            // The last delay of the settings is repeated.
            Some((count, last)) if now.seconds_since(last) < f64::from(count).min(LONGEST_DELAY) => {
                self.report_violation("rejected writes are retried without growing delays");
                count
            }
            Some((count, _)) => count + 1,
            None => 1,
        };
        self.failures = Some((count, now));
    }

    pub fn succeeded(&mut self) {
        self.failures = None;
    }

    /// Checks an idle state: all watch events are delivered, and the operator has nothing to do.
    pub fn became_idle(&mut self, scenario: &Scenario, cluster: &Cluster, known: bool) {
        let latest = &cluster.latest;
        if !cluster.exists {
            if known {
                self.report_violation("a deleted object is kept in memory");
            }
            return;
        }
        if latest.is_deleting() {
            if latest.is_blocked() {
                self.report_violation("a deletion is blocked forever");
            }
            return;
        }
        if latest.base.as_ref() != Some(&latest.essence) {
            self.report_violation("a change is lost");
        }
        if let Err(violation) = self.observed.check(&scenario.updaters) {
            self.report_violation(&violation);
        }
        if scenario.deleters.iter().any(|id| scenario.holds_deletion(id, latest)) && !latest.is_blocked() {
            self.report_violation("a deletion would not be blocked");
        }
        if scenario
            .all_children()
            .any(|id| scenario.progress_storage().fetch(&latest.object, &id).unwrap().is_some())
        {
            self.report_violation("progress is left on a handled object");
        }
        let is_lost = |id: &Arc<str>| latest.body.pointer(&format!("/status/{id}")).is_none();
        if self.results.iter().any(is_lost) {
            self.report_violation("a result is lost");
        }
        let done = latest.body.pointer("/status/done").and_then(Value::as_u64);
        if self.left.is_some_and(|left| done.is_none_or(|done| done < left)) {
            self.report_violation("a patch function is lost");
        }
    }
}

/// Whether the object has progress of a finished handler.
fn is_recorded(scenario: &Scenario, version: &Version, id: &str) -> bool {
    record(scenario, version, id).is_some_and(|record| record.success || record.failure)
}

fn record(scenario: &Scenario, version: &Version, id: &str) -> Option<Record> {
    scenario.progress_storage().fetch(&version.object, id).ok().flatten()
}

impl Hash for Oracle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for (id, Finished { reason, old, at, before, persisted, is_reverted }) in &self.finished {
            let before = before.as_ref().map(|record| record.to_json(true));
            (id, reason, old, at, before, persisted, is_reverted).hash(state);
        }
        self.called.hash(state);
        self.seen.hash(state);
        self.deletions_finished.hash(state);
        self.observed.hash(state);
        self.results.hash(state);
        (&self.marks, &self.unknown).hash(state);
        (
            (&self.base, self.base_at),
            (self.is_new, self.carries_over),
            self.warned,
            (self.annotations_removed, self.essences_removed, self.is_unblocked),
            self.guarded,
            self.left,
            self.failures.map(|(count, _)| count),
        )
            .hash(state);
    }
}
