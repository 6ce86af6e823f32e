//! All states of the object, and the last ones observed by each handler.
//!
//! Each call has an old and a new state. The calls of a handler must join: its old state is one that the handler observed
//! before, or that another handler observed in a handling that was interrupted. The last new state must be the last state of
//! all. The module must not depend on how the operator works.

use crate::cluster::{Version, intent};
use kopf_core::handling::change::Change;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub struct ObservedStates {
    /// Essences, each with the number of its first version.
    states: Vec<(u64, String)>,
    /// The positions of all states that any handler has observed.
    observed: BTreeSet<usize>,
    /// The states observed by each handler.
    reached: BTreeMap<Arc<str>, Reached>,
}

/// Positions in the list of states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Reached {
    /// The last observed state.
    now: usize,
    /// The state observed before that.
    before: usize,
    /// The last state whose progress is stored on the object, if any: the only one known after a restart.
    persisted: Option<usize>,
}

impl Reached {
    fn at(position: usize) -> Self {
        Self { now: position, before: position, persisted: None }
    }
}

impl ObservedStates {
    /// Adds the state if its essence is new.
    pub fn record(&mut self, latest: &Version) {
        if self.states.last().is_none_or(|(_, essence)| *essence != latest.essence) {
            self.states.push((latest.number, latest.essence.clone()));
        }
    }

    /// The creation is handled in this state: from here on, these handlers must observe all changes.
    pub fn created(&mut self, ids: &[Arc<str>], base: &str) {
        let position = self.states.iter().rposition(|(_, essence)| essence == base).unwrap_or_default();
        for id in ids {
            // Some handlers may have observed the next change before this state was written.
            self.reached
                .entry(Arc::clone(id))
                .or_insert(Reached { persisted: Some(position), ..Reached::at(position) });
        }
    }

    /// Whether the state is the last or last but one observed by the handler.
    fn is_reached(&self, id: &Arc<str>, essence: &str) -> bool {
        let is = |position: usize| self.states.get(position).is_some_and(|(_, it)| it == essence);
        self.reached.get(id).is_some_and(|it| is(it.now) || is(it.before))
    }

    /// Whether a handler observed the state recently and the author then reverted it.
    pub fn is_reverted(&self, shown: &str, back_to: &str) -> bool {
        let is =
            |position: usize, essence: &str| self.states.get(position).is_some_and(|(_, it)| it == essence);
        let positions = self.reached.values().flat_map(|it| [it.now, it.before]);
        let mut shown = positions.filter(|position| is(*position, shown));
        shown.any(|position| self.states.iter().skip(position).any(|(_, essence)| essence == back_to))
    }

    /// Whether a call from this old state is a reversal: the state was observed last by this handler, or by another handler of
    /// a handling that the author interrupted by reverting the change. All handlers are called for a reversal.
    pub fn is_reversal(&self, id: &Arc<str>, old: &str) -> bool {
        let is = |position: usize| self.states.get(position).is_some_and(|(_, essence)| essence == old);
        self.reached.get(id).is_some_and(|it| is(it.now))
            || self.reached.keys().any(|other| other != id && self.is_reached(other, old))
    }

    /// Whether any handler has ever observed this essence.
    pub fn was_observed(&self, essence: &str) -> bool {
        self.observed.iter().any(|position| self.states.get(*position).is_some_and(|(_, it)| it == essence))
    }

    /// Whether the state at this position has one of these essences.
    pub fn is_one_of(&self, position: usize, essences: &BTreeSet<String>) -> bool {
        self.states.get(position).is_some_and(|(_, essence)| essences.contains(essence))
    }

    /// Position of the last state with this essence.
    pub fn last_position(&self, essence: &str) -> Option<usize> {
        self.states.iter().rposition(|(_, it)| it == essence)
    }

    /// Position of the state of this version.
    pub fn position(&self, view: &Version) -> usize {
        self.states.partition_point(|(number, _)| *number <= view.number).saturating_sub(1)
    }

    /// A handler has finished the creation in this version.
    pub fn creation_finished(&mut self, id: &Arc<str>, view: &Version) {
        let new = self.position(view);
        self.observed.insert(new);
        let before = self.reached.get(id).copied().unwrap_or(Reached::at(new));
        self.reached.insert(Arc::clone(id), Reached { now: new, before: before.now, ..before });
    }

    /// A handler has finished a change. Fails if the change does not join the observed states.
    pub fn change_finished(&mut self, id: &Arc<str>, change: &Change, view: &Version) -> Result<(), String> {
        let old = change.old().map(intent).unwrap_or_default();
        let new = self.position(view);
        self.observed.insert(new);
        // The first change starts from the state of the creation.
        let Some(reached) = self.reached.get(id).copied() else {
            self.reached.insert(Arc::clone(id), Reached::at(new));
            return Ok(());
        };
        let is_joined = self.states.iter().take(reached.now + 1).any(|(_, essence)| *essence == old)
            || self.is_reversal(id, &old);
        // A call that is repeated after a crash changes nothing.
        let before = if reached.now == new { reached.before } else { reached.now };
        self.reached.insert(Arc::clone(id), Reached { now: reached.now.max(new), before, ..reached });
        if is_joined {
            return Ok(());
        }
        Err(format!("{id} is called for a change from a state that it has not observed"))
    }

    /// Marks the last observed states of these handlers as stored on the object.
    pub fn mark_persisted(&mut self, is_persisted: impl Fn(&str) -> bool) {
        for (_, it) in self.reached.iter_mut().filter(|(id, _)| is_persisted(id)) {
            it.persisted = Some(it.now);
        }
    }

    /// The progress of these handlers is removed from the object: stored are only states up to the diff-base.
    pub fn lose_progress(&mut self, base: Option<usize>, is_lost: impl Fn(&str) -> bool) {
        for (_, it) in self.reached.iter_mut().filter(|(id, _)| is_lost(id)) {
            it.persisted = it.persisted.min(base);
        }
    }

    /// Forgets states that are not stored on the object, as after a crash.
    pub fn forget_unpersisted(&mut self) {
        self.reached.retain(|_, it| {
            it.persisted.is_some_and(|persisted| {
                it.now = persisted;
                true
            })
        });
    }

    /// It is unknown which state the handler observed last: it counts as this one.
    pub fn assume(&mut self, id: &Arc<str>, position: usize) {
        if let Some(it) = self.reached.get_mut(id) {
            *it = Reached { persisted: Some(position), ..Reached::at(position) };
        }
    }

    /// Forgets the observed states, except for those of some handlers: the object is handled as a new one.
    pub fn reset(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.reached.retain(|id, _| is_kept(id));
    }

    /// Whether one of these handlers has observed this essence last, in a state after the one of the diff-base.
    pub fn is_observed_after(
        &self,
        base: Option<usize>,
        essence: &str,
        is_meant: impl Fn(&Arc<str>) -> bool,
    ) -> bool {
        self.reached.iter().filter(|(id, _)| is_meant(id)).any(|(_, it)| {
            base.is_some_and(|base| it.now > base)
                && self.states.get(it.now).is_some_and(|(_, known)| known == essence)
        })
    }

    /// Fails unless these handlers have observed the last essence.
    pub fn check(&self, ids: &[Arc<str>]) -> Result<(), String> {
        let Some((_, last)) = self.states.last() else { return Ok(()) };
        for (id, it) in self.reached.iter().filter(|(id, _)| ids.contains(*id)) {
            if self.states.get(it.now).is_none_or(|(_, essence)| essence != last) {
                return Err(format!("{id} has not observed the last change"));
            }
        }
        Ok(())
    }
}

impl Hash for ObservedStates {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Version numbers matter only by their order.
        for (_, essence) in &self.states {
            essence.hash(state);
        }
        self.observed.hash(state);
        self.reached.hash(state);
    }
}
