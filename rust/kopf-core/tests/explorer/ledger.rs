//! The ledger of changes: every state that the author has made, and how far each handler has got, by what it was shown.
//!
//! Each call shows a way from an old state to a new one. The ways must join: the old state of a call is one that the handler
//! has reached before, or others of a sequence that was broken off; and its last new state is the last of all. Must not know: how the operator works.

use crate::cluster::{Version, intent};
use kopf_core::handling::change::Change;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// The author's states, each with the version in which it came.
    states: Vec<(u64, String)>,
    /// How far each handler has got.
    reached: BTreeMap<Arc<str>, Reached>,
}

/// Positions of states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Reached {
    /// The last one that was shown.
    now: usize,
    /// The one before.
    before: usize,
    /// The last one of which the object tells, if it ever did: the next operator knows of no other.
    told: Option<usize>,
}

impl Reached {
    fn at(position: usize) -> Self {
        Self { now: position, before: position, told: None }
    }
}

impl Ledger {
    /// The object looks so now.
    pub fn note(&mut self, latest: &Version) {
        if self.states.last().is_none_or(|(_, essence)| *essence != latest.essence) {
            self.states.push((latest.number, latest.essence.clone()));
        }
    }

    /// The creation is handled, in this state: from here on, these handlers are to be shown all.
    pub fn created(&mut self, ids: &[Arc<str>], base: &str) {
        let position = self.states.iter().rposition(|(_, essence)| essence == base).unwrap_or_default();
        for id in ids {
            // Some may have been shown the next change already, before this one could be written.
            self.reached
                .entry(Arc::clone(id))
                .or_insert(Reached { told: Some(position), ..Reached::at(position) });
        }
    }

    /// Whether that state was shown to the handler, as the last or the one before.
    fn is_reached(&self, id: &Arc<str>, essence: &str) -> bool {
        let is = |position: usize| self.states.get(position).is_some_and(|(_, it)| it == essence);
        self.reached.get(id).is_some_and(|it| is(it.now) || is(it.before))
    }

    /// Whether that state was shown to anybody, likewise, and then taken back.
    pub fn is_turned(&self, shown: &str, back_to: &str) -> bool {
        let is =
            |position: usize, essence: &str| self.states.get(position).is_some_and(|(_, it)| it == essence);
        let positions = self.reached.values().flat_map(|it| [it.now, it.before]);
        let mut shown = positions.filter(|position| is(*position, shown));
        shown.any(|position| self.states.iter().skip(position).any(|(_, essence)| essence == back_to))
    }

    /// Whether that state was shown to this handler last, or to another one of the sequence that is broken off since the
    /// author has taken the change back: then the way back is shown to all.
    pub fn is_way_back(&self, id: &Arc<str>, old: &str) -> bool {
        let is = |position: usize| self.states.get(position).is_some_and(|(_, essence)| essence == old);
        self.reached.get(id).is_some_and(|it| is(it.now))
            || self.reached.keys().any(|other| other != id && self.is_reached(other, old))
    }

    /// The last of the states that were the same.
    pub fn last_position(&self, essence: &str) -> Option<usize> {
        self.states.iter().rposition(|(_, it)| it == essence)
    }

    /// Which of the states it is.
    pub fn position(&self, view: &Version) -> usize {
        self.states.partition_point(|(number, _)| *number <= view.number).saturating_sub(1)
    }

    /// A handler is done with the creation, as it has seen it.
    pub fn begun(&mut self, id: &Arc<str>, view: &Version) {
        let new = self.position(view);
        let before = self.reached.get(id).copied().unwrap_or(Reached::at(new));
        self.reached.insert(Arc::clone(id), Reached { now: new, before: before.now, ..before });
    }

    /// A handler is done with a change.
    pub fn shown(&mut self, id: &Arc<str>, change: &Change, view: &Version) -> Result<(), String> {
        let old = change.old().map(intent).unwrap_or_default();
        let new = self.position(view);
        // The first change begins where the creation has ended.
        let Some(reached) = self.reached.get(id).copied() else {
            self.reached.insert(Arc::clone(id), Reached::at(new));
            return Ok(());
        };
        let is_joined = self.states.iter().take(reached.now + 1).any(|(_, essence)| *essence == old)
            || self.is_way_back(id, &old);
        self.reached
            .insert(Arc::clone(id), Reached { now: reached.now.max(new), before: reached.now, ..reached });
        if is_joined {
            return Ok(());
        }
        Err(format!("{id} is shown a change from a state that it has not reached"))
    }

    /// The object tells what these handlers were shown last.
    pub fn told(&mut self, is_told: impl Fn(&str) -> bool) {
        for (_, it) in self.reached.iter_mut().filter(|(id, _)| is_told(id)) {
            it.told = Some(it.now);
        }
    }

    /// What the object does not tell is not known any more.
    pub fn recall(&mut self) {
        self.reached.retain(|_, it| {
            it.told.is_some_and(|told| {
                it.now = told;
                true
            })
        });
    }

    /// What was handled is not known any more: the object begins anew.
    pub fn anew(&mut self) {
        self.reached.clear();
    }

    /// Whether these have seen the last state, or one that was the same.
    pub fn judge(&self, ids: &[Arc<str>]) -> Result<(), String> {
        let Some((_, last)) = self.states.last() else { return Ok(()) };
        for (id, it) in self.reached.iter().filter(|(id, _)| ids.contains(*id)) {
            if self.states.get(it.now).is_none_or(|(_, essence)| essence != last) {
                return Err(format!("{id} has not seen the last change"));
            }
        }
        Ok(())
    }
}

impl Hash for Ledger {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Versions count by their order only.
        for (_, essence) in &self.states {
            essence.hash(state);
        }
        self.reached.hash(state);
    }
}
