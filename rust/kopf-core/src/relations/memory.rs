//! The memory of relations: both ends of a relation count, before a change and after it.

use std::collections::{BTreeMap, BTreeSet};

/// The primaries to which a secondary object is related, in one of its states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Related<P> {
    /// These primaries.
    To(BTreeSet<P>),
    /// All primaries of the reconciler: `kopf.EVERYTHING`.
    Everything,
    /// The mapping function has failed. The relations are unknown: the function is called again at the next event.
    Unknown,
}

/// The primaries that a change affects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Affected<P> {
    /// These primaries; none for an event that is no change.
    These(BTreeSet<P>),
    /// All primaries of the reconciler.
    Everything,
}

impl<P> Default for Affected<P> {
    fn default() -> Self {
        Self::These(BTreeSet::new())
    }
}

impl<P: Ord + Clone> Affected<P> {
    /// Adds other affected primaries.
    #[must_use]
    pub fn with(self, mut others: BTreeSet<P>) -> Self {
        match self {
            Self::Everything => Self::Everything,
            Self::These(mut primaries) => {
                primaries.append(&mut others);
                Self::These(primaries)
            }
        }
    }

    fn of(related: impl IntoIterator<Item = Related<P>>) -> Self {
        let mut all = BTreeSet::new();
        for related in related {
            match related {
                Related::Everything => return Self::Everything,
                Related::To(mut primaries) => all.append(&mut primaries),
                Related::Unknown => {}
            }
        }
        Self::These(all)
    }
}

/// The digest and the relations of each secondary object of one kind, at its last event.
///
/// Nothing is kept of objects that are related to no primary.
#[derive(Clone, Debug)]
pub struct RelationMemory<S, P> {
    known: BTreeMap<S, Known<P>>,
}

#[derive(Clone, Debug)]
struct Known<P> {
    /// None if the state was not mapped successfully.
    digest: Option<u64>,
    related: Related<P>,
}

impl<S, P> Default for RelationMemory<S, P> {
    fn default() -> Self {
        Self { known: BTreeMap::new() }
    }
}

impl<S: Ord + Clone, P: Ord + Clone> RelationMemory<S, P> {
    /// Whether an event with this digest may be a change, so that its relations must be determined: a mapping function is
    /// called only then.
    pub fn is_change(&self, object: &S, digest: u64) -> bool {
        self.known.get(object).is_none_or(|known| known.digest != Some(digest))
    }

    /// Records a state of an object. Returns the primaries to which it was related before or is related now, if it has changed.
    ///
    /// A difference of the relations is a change, too. `is_initial` is whether the event belongs to the initial list: all
    /// primaries are reconciled anyway.
    pub fn observe(&mut self, object: S, digest: u64, related: Related<P>, is_initial: bool) -> Affected<P> {
        let before = self.known.remove(&object);
        let is_same = before.as_ref().is_some_and(|known| {
            known.digest == Some(digest) && (known.related == related || related == Related::Unknown)
        });
        let previous = before.map(|known| known.related);
        match &related {
            // The relations stay those that are known, and the function is called again.
            Related::Unknown => {
                if let Some(related) = previous.clone() {
                    self.known.insert(object, Known { digest: None, related });
                }
            }
            Related::To(primaries) if primaries.is_empty() => {}
            related => {
                let known = Known { digest: Some(digest), related: related.clone() };
                self.known.insert(object, known);
            }
        }
        if is_same || is_initial {
            return Affected::default();
        }
        Affected::of(previous.into_iter().chain([related]))
    }

    /// Records that an object is gone: deleted, lost by the selector, or missing in a relist. Returns its last primaries.
    pub fn remove(&mut self, object: &S) -> Affected<P> {
        Affected::of(self.known.remove(object).map(|known| known.related))
    }

    /// Records the end of a relist: the objects that are not in it have disappeared. Returns their last primaries.
    pub fn finish_relist(&mut self, is_listed: impl Fn(&S) -> bool) -> Affected<P> {
        let mut gone = Vec::new();
        self.known.retain(|object, known| {
            let stays = is_listed(object);
            if !stays {
                gone.push(known.related.clone());
            }
            stays
        });
        Affected::of(gone)
    }

    /// The remembered objects.
    pub fn objects(&self) -> impl Iterator<Item = &S> {
        self.known.keys()
    }

    /// The number of remembered objects.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether no object is remembered.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    type Memory = RelationMemory<&'static str, u8>;

    fn to<const N: usize>(primaries: [u8; N]) -> Related<u8> {
        Related::To(primaries.into())
    }

    fn these<const N: usize>(primaries: [u8; N]) -> Affected<u8> {
        Affected::These(primaries.into())
    }

    #[test]
    fn s1_14_9_and_11_both_ends_of_a_relation_count() {
        let mut memory = Memory::default();
        assert_eq!(memory.observe("x", 1, to([1]), false), these([1]), "it appears");
        assert_eq!(memory.observe("x", 1, to([1]), false), these([]), "the same state again");
        assert_eq!(memory.observe("x", 2, to([1]), false), these([1]), "it changes");
        assert_eq!(memory.observe("x", 3, to([2]), false), these([1, 2]), "its owner changes");
        assert_eq!(memory.observe("x", 3, to([2, 3]), false), these([2, 3]), "only its relations change");
        assert_eq!(memory.remove(&"x"), these([2, 3]), "it is deleted");
        assert_eq!(memory.remove(&"x"), these([]));
    }

    #[test]
    fn objects_without_relations_take_no_memory() {
        let mut memory = Memory::default();
        memory.observe("x", 1, to([]), false);
        assert!(memory.is_empty() && memory.is_change(&"x", 1));
        memory.observe("x", 1, to([1]), false);
        assert_eq!((memory.len(), memory.is_change(&"x", 1)), (1, false));
        assert_eq!(memory.observe("x", 2, to([]), false), these([1]));
        assert!(memory.is_empty());
    }

    #[test]
    fn the_initial_list_triggers_nothing_by_itself() {
        let mut memory = Memory::default();
        assert_eq!(memory.observe("x", 1, to([1]), true), these([]));
        assert_eq!(memory.observe("x", 2, to([2]), false), these([1, 2]));
    }

    #[test]
    fn a_disappearance_during_a_gap_is_a_deletion() {
        let mut memory = Memory::default();
        for (object, primary) in [("x", 1), ("y", 2), ("z", 3)] {
            memory.observe(object, 1, to([primary]), true);
        }
        assert_eq!(memory.finish_relist(|object| *object == "y"), these([1, 3]));
        assert_eq!(memory.len(), 1);
    }

    #[test]
    fn s1_14_13_a_failed_mapping_triggers_the_previous_primaries_and_is_repeated() {
        let mut memory = Memory::default();
        memory.observe("x", 1, to([1]), false);
        assert_eq!(memory.observe("x", 2, Related::Unknown, false), these([1]));
        assert!(memory.is_change(&"x", 2), "the function is called again");
        assert_eq!(memory.observe("x", 2, to([2]), false), these([1, 2]));
        assert_eq!(memory.observe("y", 1, Related::Unknown, false), these([]));
        assert!(memory.is_change(&"y", 1));
    }

    #[test]
    fn everything_affects_all_primaries_also_when_it_ends() {
        let mut memory = Memory::default();
        assert_eq!(memory.observe("x", 1, Related::Everything, false), Affected::Everything);
        assert_eq!(memory.observe("x", 2, to([1]), false), Affected::Everything);
        assert_eq!(memory.observe("x", 3, to([1]), false), these([1]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Each primary that a change affects is triggered: those of the state before and those of the state after.
        #[test]
        fn no_end_of_a_relation_is_lost(
            states in vec((0_u8..3, proptest::option::of((0_u64..3, btree_set(0_u8..4, 0..3)))), 1..40),
        ) {
            let mut memory = RelationMemory::default();
            let mut latest: BTreeMap<u8, (u64, BTreeSet<u8>)> = BTreeMap::new();
            for (object, state) in states {
                let before = latest.remove(&object);
                let ends = |state: &Option<(u64, BTreeSet<u8>)>| {
                    state.as_ref().map(|(_, primaries)| primaries.clone()).unwrap_or_default()
                };
                let expected: BTreeSet<u8> = ends(&before).union(&ends(&state)).copied().collect();
                let affected = match state.clone() {
                    None => memory.remove(&object),
                    Some((digest, primaries)) => memory.observe(object, digest, Related::To(primaries), false),
                };
                let expected = if before == state { BTreeSet::new() } else { expected };
                prop_assert_eq!(affected, Affected::These(expected));
                latest.extend(state.map(|state| (object, state)));
                let related = latest.values().filter(|(_, primaries)| !primaries.is_empty()).count();
                prop_assert_eq!(memory.len(), related);
            }
        }
    }
}
