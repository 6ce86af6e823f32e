//! The laws, and what an omniscient witness must remember to judge by them.
//!
//! The witness sees the server, the calls of handlers, and what is logged. It knows nothing of how the operator works.

use crate::cluster::{Cluster, Version, intent};
use crate::ledger::Ledger;
use crate::worlds::World;
use kopf_core::activation::log::LogMessage;
use kopf_core::cause::Reason;
use kopf_core::handling::change::Change;
use kopf_core::time::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub struct Ghost {
    /// The first law that was broken, in words.
    pub wrong: Option<String>,
    /// For which change each handler has finished, unless that was lost.
    finished: BTreeMap<Arc<str>, Finished>,
    /// Who has finished since the last handled state, and from which one on.
    called: BTreeMap<Arc<str>, Option<String>>,
    /// The states that they have seen, likewise.
    seen: BTreeSet<(Option<String>, String)>,
    /// Who has said farewell to the object.
    farewell: BTreeSet<Arc<str>>,
    /// The last handled state,
    base: Option<String>,
    /// and which of the author's states it was.
    base_at: Option<usize>,
    /// The operator is a new one, and has not looked at the object yet.
    is_new: bool,
    /// Others have removed annotations.
    pub annotations_removed: bool,
    /// It has said that somebody removes what it keeps on the object;
    warned: bool,
    /// and has written the last handled state since then, which it knows for good.
    guarded: bool,
    /// The last state for which a function was left: it is to be applied to that one or to a later one.
    left: Option<u64>,
    /// All changes, and who was shown which.
    pub ledger: Ledger,
    /// Refused writes in a row, and when the last of them was.
    failures: Option<(u32, Timestamp)>,
}

/// A change is the same, whatever the object has become meanwhile, if it is from the same state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Finished {
    reason: Reason,
    old: Option<String>,
    /// Which of the author's states it has seen.
    at: usize,
    /// The object says so.
    told: bool,
}

impl Ghost {
    pub fn accuse(&mut self, wrong: &str) {
        self.wrong.get_or_insert_with(|| wrong.to_owned());
    }

    /// A handler is called.
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
        let (old, at) = (change.old().map(intent), self.ledger.position(view));
        let finished = Finished { reason, old, at, told: false };
        if self.finished.get(id).is_some_and(|it| (it.reason, &it.old) == (reason, &finished.old)) {
            self.accuse(&format!("{id} is called again for the same {title}"));
        }
        if reason == Reason::Create && latest.base.is_some() {
            self.accuse(&format!("{id} is called for a creation that is handled"));
        }
        let is_way_back = finished.old.as_ref().is_some_and(|old| self.ledger.is_way_back(id, old));
        if reason == Reason::Update && latest.base.as_ref() == Some(&view.essence) && !is_way_back {
            self.accuse(&format!("{id} is called for a change that is handled"));
        }
        // In between, the author may have made a change that some have seen, and taken it back.
        let is_same = || change.old().map(intent) == change.new_().map(intent);
        if reason == Reason::Update && self.base_at == Some(at) && is_same() {
            self.accuse(&format!("{id} is called for what handlers have written"));
        }
        if reason == Reason::Delete && !(cluster.exists && latest.is_blocked()) {
            self.accuse(&format!("{id} is called for a deletion that is let go"));
        }
        if format!("{:?}", change.diff()).contains("kopf.zalando.org") {
            self.accuse(&format!("{id} is told of our own annotations"));
        }
        if is_final {
            if reason == Reason::Create {
                self.ledger.begun(id, view);
            }
            // Others are not for all states of the object.
            if reason == Reason::Update
                && let Err(wrong) = self.ledger.shown(id, change, view)
                && world.updaters.contains(id)
            {
                self.accuse(&wrong);
            }
            self.called.insert(Arc::clone(id), finished.old.clone());
            self.seen.insert((finished.old.clone(), view.essence.clone()));
            self.finished.insert(Arc::clone(id), finished);
            if reason == Reason::Delete {
                self.farewell.insert(Arc::clone(id));
            }
        }
    }

    /// Whether the handler leaves a function to be applied with the patch.
    pub fn leaves_function(&mut self, world: &World, view: &Version, id: &str) -> bool {
        let leaves = world.leaves_function == Some(id);
        self.left = leaves.then_some(view.number).or(self.left);
        leaves
    }

    /// The operator dies. The next one resumes what this one has resumed.
    pub fn crashed(&mut self) {
        self.left = None;
        self.failures = None;
        self.is_new = true;
    }

    /// The operator looks at the object. A new one knows what is kept there, and nothing else.
    pub fn looked(&mut self, world: &World, view: &Version) {
        // What the author has taken back meanwhile, may be made again: that is another change.
        let is_taken_back =
            |it: &Finished| it.reason == Reason::Update && it.old.as_ref() == Some(&view.essence);
        let at = self.ledger.position(view);
        self.finished.retain(|_, it| at <= it.at || !is_taken_back(it));
        if !std::mem::take(&mut self.is_new) {
            return;
        }
        (self.warned, self.guarded) = (false, false);
        self.finished.retain(|id, it| it.told && is_recorded(world, view, id));
        self.ledger.recall();
        let handled = self.base.clone();
        if view.base.is_none() {
            self.begin_anew();
        }
        let all = world.creators.iter().chain(&world.updaters);
        let recorded = all.filter(|id| is_recorded(world, view, id));
        self.called = recorded.map(|id| (Arc::clone(id), self.base.clone())).collect();
        // Progress in the status outlives the last handled state: it names the handlers that have seen that.
        if !self.called.is_empty() && self.base.is_none() {
            self.seen.extend(handled.map(|handled| (None, handled)));
        }
    }

    /// The operator says something.
    pub fn heard(&mut self, note: &LogMessage, view: &Version) {
        match note {
            // The handling gives way to another one, and its progress goes.
            LogMessage::Superseded { new, .. } => self.finished.retain(|_, it| it.reason == *new),
            LogMessage::Stripped(_) => {
                if !self.annotations_removed {
                    self.accuse("others are blamed for what we have done");
                }
                self.warned = true;
            }
            LogMessage::InProgress(Reason::Create) if self.base.is_some() => {
                let is_known = self.guarded || self.base.as_ref() == Some(&view.essence);
                let is_update = |it: &Finished| it.reason == Reason::Update && it.old == self.base;
                let is_going_on = self.finished.values().any(is_update);
                if is_known || is_going_on {
                    self.accuse("what was handled is taken for new");
                }
                self.begin_anew();
            }
            _ => {}
        }
    }

    /// The last handled state is not known any more.
    fn begin_anew(&mut self) {
        if self.base.take().is_some() {
            self.finished.clear();
            self.called.clear();
            self.ledger.anew();
        }
    }

    /// The operator has written something.
    pub fn wrote(&mut self, world: &World, cluster: &Cluster) {
        let latest = &cluster.latest;
        for (id, finished) in &mut self.finished {
            finished.told = is_recorded(world, latest, id);
        }
        let is_moved = latest.base.is_some() && latest.base != self.base;
        self.ledger.told(|id| is_moved || is_recorded(world, latest, id));
        if !is_moved {
            return;
        }
        let expected = if self.base.is_none() { &world.creators } else { &world.updaters };
        // The author has taken a change back that some have seen: it counts as handled, and the way back is yet to go.
        let is_turned =
            |base: &str| self.base.as_ref().is_some_and(|before| self.ledger.is_turned(base, before));
        if let Some(base) = &latest.base
            && !latest.is_deleting()
            && !expected.is_empty()
            && !is_turned(base)
        {
            if let Some(id) = expected.iter().find(|id| !self.called.contains_key(*id)) {
                self.accuse(&format!("a change is taken for handled that {id} was not called for"));
            } else if !world.filtered && !self.seen.iter().any(|(_, seen)| seen == base) {
                self.accuse("a state is taken for handled that no handler has seen");
            }
        }
        if self.base.is_none()
            && let Some(base) = &latest.base
        {
            self.ledger.created(&world.updaters, base);
        }
        self.base.clone_from(&latest.base);
        self.base_at = latest.base.as_ref().and_then(|base| self.ledger.last_position(base));
        self.guarded |= self.warned;
        // Some may have been called for the next change already, before this one could be written.
        self.called.retain(|_, old| *old == latest.base);
        self.seen.retain(|(old, _)| *old == latest.base);
        self.finished
            .retain(|_, it| matches!(it.reason, Reason::Delete | Reason::Resume) || it.old == latest.base);
    }

    /// The operator has changed what only the object's freshest state may decide.
    pub fn edited(&mut self, world: &World, cluster: &Cluster, before: &Version, running: bool) {
        let latest = &cluster.latest;
        if latest.has_theirs() != before.has_theirs() {
            self.accuse("a finalizer of somebody else has come or gone");
        }
        if latest.is_deleting() && !latest.is_blocked() && before.is_blocked() {
            let wants = |id: &&Arc<str>| world.holds_deletion(id, before) && !self.farewell.contains(*id);
            if let Some(id) = world.farewells.iter().find(wants) {
                self.accuse(&format!("a deletion is let go before {id} is done"));
            }
            if running {
                self.accuse("a deletion is let go while a daemon runs");
            }
        }
    }

    /// A write is refused.
    pub fn failed(&mut self, now: Timestamp) {
        let count = match self.failures {
            Some((count, last)) if now.seconds_since(last) < f64::from(count) => {
                self.accuse("refused writes are repeated without growing pauses");
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

    /// All is told, and nobody has anything to do.
    pub fn rested(&mut self, world: &World, cluster: &Cluster, known: bool) {
        let latest = &cluster.latest;
        if !cluster.exists {
            if known {
                self.accuse("an object that is no more is remembered");
            }
            return;
        }
        if latest.is_deleting() {
            if latest.is_blocked() {
                self.accuse("a deletion is held for ever");
            }
            return;
        }
        if latest.base.as_ref() != Some(&latest.essence) {
            self.accuse("a change is lost");
        }
        if let Err(wrong) = self.ledger.judge(&world.updaters) {
            self.accuse(&wrong);
        }
        if world.farewells.iter().any(|id| world.holds_deletion(id, latest)) && !latest.is_blocked() {
            self.accuse("a deletion would not be held");
        }
        let done = latest.body.pointer("/status/done").and_then(Value::as_u64);
        if self.left.is_some_and(|left| done.is_none_or(|done| done < left)) {
            self.accuse("a function is lost");
        }
    }
}

/// Whether the object says that the handler is done with what goes on.
fn is_recorded(world: &World, version: &Version, id: &str) -> bool {
    let storage = &world.rules.settings.persistence.progress_storage;
    let record = storage.fetch(&version.object, id).ok().flatten();
    record.is_some_and(|record| record.success || record.failure)
}

impl Hash for Ghost {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.finished.hash(state);
        self.called.hash(state);
        self.seen.hash(state);
        self.farewell.hash(state);
        self.ledger.hash(state);
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
