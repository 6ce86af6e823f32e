//! The laws, and the oracle that checks them.
//!
//! The oracle observes the API server, the calls of handlers, and the log. It must not depend on how the operator works.

use crate::cluster::{Cluster, Version, intent};
use crate::observed_states::ObservedStates;
use crate::worlds::World;
use kopf_core::activation::log::LogMessage;
use kopf_core::cause::Reason;
use kopf_core::handling::change::Change;
use kopf_core::persistence::progress::Record;
use kopf_core::time::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Oracle {
    /// The first violation of a law, as text.
    pub violation: Option<String>,
    /// The last finished change per handler, unless its progress was lost.
    finished: BTreeMap<Arc<str>, Finished>,
    /// Handlers that have finished since the last diff-base, with the old state of their change.
    called: BTreeMap<Arc<str>, Option<String>>,
    /// Old and new states of those calls.
    seen: BTreeSet<(Option<String>, String)>,
    /// Deletion handlers that have finished.
    deletions_finished: BTreeSet<Arc<str>>,
    /// The last diff-base that was stored.
    base: Option<String>,
    /// The position of that diff-base in the observed states.
    base_at: Option<usize>,
    /// Whether the operator has restarted and not yet started a cycle.
    is_new: bool,
    /// Whether another client has removed annotations.
    pub annotations_removed: bool,
    /// Whether the operator has logged that another client removes its annotations.
    warned: bool,
    /// Whether the operator has stored the diff-base since that log line.
    guarded: bool,
    /// The last version for which a patch function was left: it must be applied to that version or a later one.
    left: Option<u64>,
    /// Handlers whose results must be in the status.
    results: BTreeSet<Arc<str>>,
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
}

impl Oracle {
    pub fn report_violation(&mut self, violation: &str) {
        self.violation.get_or_insert_with(|| violation.to_owned());
    }

    /// Records and checks the call of a change handler.
    pub fn called(
        &mut self,
        world: &World,
        cluster: &Cluster,
        view: &Version,
        id: &Arc<str>,
        change: &Change,
        is_final: bool,
    ) {
        let (latest, reason) = (&cluster.latest, change.reason);
        let title = reason.title();
        let (old, at) = (change.old().map(intent), self.observed.position(view));
        let before = record(world, latest, id);
        let finished = Finished { reason, old, at, before, persisted: false };
        if self.finished.get(id).is_some_and(|it| (it.reason, &it.old) == (reason, &finished.old)) {
            self.report_violation(&format!("{id} is called again for the same {title}"));
        }
        if reason == Reason::Create && latest.base.is_some() {
            self.report_violation(&format!("{id} is called for an already handled creation"));
        }
        let is_reversal = finished.old.as_ref().is_some_and(|old| self.observed.is_reversal(id, old));
        if reason == Reason::Update && latest.base.as_ref() == Some(&view.essence) && !is_reversal {
            self.report_violation(&format!("{id} is called for an already handled change"));
        }
        // An author's change may have been handled by some handlers and then reverted.
        let is_same = || change.old().map(intent) == change.new_().map(intent);
        if reason == Reason::Update && self.base_at == Some(at) && is_same() {
            self.report_violation(&format!("{id} is called for a change made by handlers"));
        }
        if reason == Reason::Delete && !(cluster.exists && latest.is_blocked()) {
            self.report_violation(&format!("{id} is called for a released deletion"));
        }
        if format!("{:?}", change.diff()).contains("kopf.zalando.org") {
            self.report_violation(&format!("{id} is called with Kopf's annotations in the diff"));
        }
        if is_final {
            if world.returns(id) {
                self.results.insert(Arc::clone(id));
            }
            if reason == Reason::Create {
                self.observed.creation_finished(id, view);
            }
            // The other handlers do not match all states of the object.
            if reason == Reason::Update
                && let Err(violation) = self.observed.change_finished(id, change, view)
                && world.updaters.contains(id)
            {
                self.report_violation(&violation);
            }
            self.called.insert(Arc::clone(id), finished.old.clone());
            self.seen.insert((finished.old.clone(), view.essence.clone()));
            self.finished.insert(Arc::clone(id), finished);
            if reason == Reason::Delete {
                self.deletions_finished.insert(Arc::clone(id));
            }
        }
    }

    /// Whether the handler leaves a patch function.
    pub fn leaves_function(&mut self, world: &World, view: &Version, id: &str) -> bool {
        let leaves = world.leaves_function == Some(id);
        self.left = leaves.then_some(view.number).or(self.left);
        leaves
    }

    /// A pause of the operator is over: others may have handled the object, so only the state stored on it counts.
    pub fn resumed(&mut self) {
        self.results.clear();
        self.is_new = true;
    }

    /// A cycle starts without a watch event.
    pub fn requeued(&mut self, is_paused: bool) {
        if is_paused {
            self.report_violation("the object is handled again during a pause");
        }
    }

    /// The operator crashes. The next run resumes objects that this run had resumed.
    pub fn crashed(&mut self) {
        self.left = None;
        // Rejected parts of patches are kept in memory only.
        self.results.clear();
        self.failures = None;
        self.is_new = true;
    }

    /// A cycle starts. After a restart, the operator knows only the state stored on the object.
    pub fn cycle_started(&mut self, world: &World, view: &Version) {
        // A reverted change may be made again: that is another change.
        let is_taken_back =
            |it: &Finished| it.reason == Reason::Update && it.old.as_ref() == Some(&view.essence);
        let at = self.observed.position(view);
        self.finished.retain(|_, it| at <= it.at || !is_taken_back(it));
        if !std::mem::take(&mut self.is_new) {
            return;
        }
        (self.warned, self.guarded) = (false, false);
        self.finished.retain(|id, it| it.persisted && is_recorded(world, view, id));
        self.observed.forget_unpersisted();
        let handled = self.base.clone();
        if view.base.is_none() {
            self.forget_base();
        }
        let all = world.creators.iter().chain(&world.updaters);
        let recorded = all.filter(|id| is_recorded(world, view, id));
        self.called = recorded.map(|id| (Arc::clone(id), self.base.clone())).collect();
        // Progress in the status survives the removal of the diff-base, and identifies the handlers that observed it.
        if !self.called.is_empty() && self.base.is_none() {
            self.seen.extend(handled.map(|handled| (None, handled)));
        }
    }

    /// The operator logs a message.
    pub fn logged(&mut self, message: &LogMessage, view: &Version) {
        match message {
            // The handling is superseded, and its progress removed.
            LogMessage::Superseded { new, .. } => self.finished.retain(|_, it| it.reason == *new),
            LogMessage::Stripped(_) => {
                if !self.annotations_removed {
                    self.report_violation("other clients are blamed for our changes");
                }
                self.warned = true;
            }
            LogMessage::InProgress(Reason::Create) if self.base.is_some() => {
                let is_known = self.guarded || self.base.as_ref() == Some(&view.essence);
                let is_update = |it: &Finished| it.reason == Reason::Update && it.old == self.base;
                let is_going_on = self.finished.values().any(is_update);
                if is_known || is_going_on {
                    self.report_violation("a handled object is taken for a new one");
                }
                self.forget_base();
            }
            _ => {}
        }
    }

    /// Forgets everything that depends on the diff-base, which is lost.
    fn forget_base(&mut self) {
        if self.base.take().is_some() {
            self.finished.clear();
            self.called.clear();
            self.observed.reset();
        }
    }

    /// Checks the state after a merge patch of the operator.
    pub fn wrote(&mut self, world: &World, cluster: &Cluster) {
        let latest = &cluster.latest;
        for (id, finished) in &mut self.finished {
            finished.persisted =
                is_recorded(world, latest, id) && record(world, latest, id) != finished.before;
        }
        let is_moved = latest.base.is_some() && latest.base != self.base;
        let is_persisted =
            |id: &str| is_recorded(world, latest, id) && self.finished.get(id).is_none_or(|it| it.persisted);
        // Some handlers may have been called for the next change before this diff-base was written.
        let is_handled = |id: &str| is_moved && self.finished.get(id).is_none_or(|it| it.old != latest.base);
        self.observed.mark_persisted(|id| is_handled(id) || is_persisted(id));
        if !is_moved {
            return;
        }
        let expected = if self.base.is_none() { &world.creators } else { &world.updaters };
        // The author has reverted a change that some handlers observed: it counts as handled, and the reversal remains to be
        // handled.
        let is_reverted =
            |base: &str| self.base.as_ref().is_some_and(|before| self.observed.is_reverted(base, before));
        if let Some(base) = &latest.base
            && !latest.is_deleting()
            && !expected.is_empty()
            && !is_reverted(base)
        {
            if let Some(id) = expected.iter().find(|id| !self.called.contains_key(*id)) {
                self.report_violation(&format!("a change is stored as handled without a call of {id}"));
            } else if !world.filtered && !self.seen.iter().any(|(_, seen)| seen == base) {
                self.report_violation("a state is stored as handled that no handler has observed");
            }
        }
        if self.base.is_none()
            && let Some(base) = &latest.base
        {
            self.observed.created(&world.updaters, base);
        }
        self.base.clone_from(&latest.base);
        self.base_at = latest.base.as_ref().and_then(|base| self.observed.last_position(base));
        self.guarded |= self.warned;
        // Some handlers may have been called for the next change before this diff-base was written.
        self.called.retain(|_, old| *old == latest.base);
        self.seen.retain(|(old, _)| *old == latest.base);
        self.finished
            .retain(|_, it| matches!(it.reason, Reason::Delete | Reason::Resume) || it.old == latest.base);
    }

    /// Checks the state after a JSON patch of the operator, which depends on the latest version.
    pub fn edited(&mut self, world: &World, cluster: &Cluster, before: &Version, running: bool) {
        let latest = &cluster.latest;
        if latest.has_theirs() != before.has_theirs() {
            self.report_violation("a finalizer of another controller was added or removed");
        }
        if latest.is_deleting() && !latest.is_blocked() && before.is_blocked() {
            let wants =
                |id: &&Arc<str>| world.holds_deletion(id, before) && !self.deletions_finished.contains(*id);
            if let Some(id) = world.deleters.iter().find(wants) {
                self.report_violation(&format!("a deletion is released before {id} has finished"));
            }
            if running {
                self.report_violation("a deletion is released while a daemon runs");
            }
        }
    }

    /// Records a rejected write.
    pub fn failed(&mut self, now: Timestamp) {
        let count = match self.failures {
            Some((count, last)) if now.seconds_since(last) < f64::from(count) => {
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
    pub fn became_idle(&mut self, world: &World, cluster: &Cluster, known: bool) {
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
        if let Err(violation) = self.observed.check(&world.updaters) {
            self.report_violation(&violation);
        }
        if world.deleters.iter().any(|id| world.holds_deletion(id, latest)) && !latest.is_blocked() {
            self.report_violation("a deletion would not be blocked");
        }
        if world
            .all_children()
            .any(|id| world.progress_storage().fetch(&latest.object, &id).unwrap().is_some())
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
fn is_recorded(world: &World, version: &Version, id: &str) -> bool {
    record(world, version, id).is_some_and(|record| record.success || record.failure)
}

fn record(world: &World, version: &Version, id: &str) -> Option<Record> {
    world.progress_storage().fetch(&version.object, id).ok().flatten()
}

impl Hash for Oracle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for (id, Finished { reason, old, at, before, persisted }) in &self.finished {
            (id, reason, old, at, before.as_ref().map(|record| record.to_json(true)), persisted).hash(state);
        }
        self.called.hash(state);
        self.seen.hash(state);
        self.deletions_finished.hash(state);
        self.observed.hash(state);
        self.results.hash(state);
        (
            (&self.base, self.base_at),
            self.is_new,
            self.warned,
            self.annotations_removed,
            self.guarded,
            self.left,
            self.failures.map(|(count, _)| count),
        )
            .hash(state);
    }
}
