//! The changes of a cache for one consumer (K8).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use super::key::CacheKey;
use crate::object::Object;

/// The number of waiting changes from which on the changes of each object are merged.
const MAX_SEPARATE: usize = 1000;

/// A change of an object in a cache.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheChange {
    /// The kind of the change.
    pub kind: CacheChangeKind,
    /// The object; of a deleted one, its last state.
    pub object: Arc<Object>,
    /// The state that was taken before.
    pub old: Option<Arc<Object>>,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheChangeKind {
    /// The object was there when the consumer started.
    Present,
    /// The object has appeared.
    Added,
    /// The object has changed.
    Modified,
    /// The object has disappeared.
    Deleted,
}

/// The changes that a consumer has not taken yet.
///
/// A consumer that is far behind gets merged states: its number of changes is then limited by the number of objects.
#[derive(Clone, Debug, Default)]
pub struct ChangeQueue {
    /// The states that the consumer has taken last.
    taken: BTreeMap<Arc<CacheKey>, Arc<Object>>,
    waiting: VecDeque<(Arc<CacheKey>, Option<Arc<Object>>)>,
    /// The position of the newest waiting state of each object, counted from the first change of the queue.
    newest: HashMap<Arc<CacheKey>, usize>,
    /// The number of changes that were taken.
    offset: usize,
    /// The number of objects that were present at the start, and are taken first.
    initial: usize,
}

impl ChangeQueue {
    /// A queue that starts with the present objects. With `is_silent`, these count as taken.
    pub fn starting_with<'o>(
        present: impl Iterator<Item = (&'o Arc<CacheKey>, &'o Arc<Object>)>,
        is_silent: bool,
    ) -> Self {
        let mut queue = Self::default();
        for (key, object) in present {
            if is_silent {
                queue.taken.insert(Arc::clone(key), Arc::clone(object));
            } else {
                queue.put(key, Some(object));
            }
        }
        queue.initial = queue.waiting.len();
        queue
    }

    /// Adds the newest state of an object; none if it is gone.
    pub fn put(&mut self, key: &Arc<CacheKey>, object: Option<&Arc<Object>>) {
        let position = self.newest.get(key).and_then(|position| position.checked_sub(self.offset));
        if self.waiting.len() >= MAX_SEPARATE
            && let Some((_, state)) = position.and_then(|position| self.waiting.get_mut(position))
        {
            *state = object.cloned();
            return;
        }
        self.newest.insert(Arc::clone(key), self.offset + self.waiting.len());
        self.waiting.push_back((Arc::clone(key), object.cloned()));
    }

    /// Whether nothing is waiting.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes the changes, at most so many states.
    pub fn take(&mut self, most: usize) -> Vec<CacheChange> {
        let mut changes = Vec::new();
        for _ in 0..most {
            let Some((key, state)) = self.waiting.pop_front() else { break };
            if self.newest.get(&key) == Some(&self.offset) {
                self.newest.remove(&key);
            }
            self.offset += 1;
            let is_initial = self.initial > 0;
            self.initial = self.initial.saturating_sub(1);
            self.emit(key, state, is_initial, &mut changes);
        }
        changes
    }

    fn emit(
        &mut self,
        key: Arc<CacheKey>,
        state: Option<Arc<Object>>,
        is_initial: bool,
        changes: &mut Vec<CacheChange>,
    ) {
        let old = self.taken.remove(&key);
        let Some(object) = state else {
            changes.extend(old.map(deleted));
            return;
        };
        let is_same = |old: &Arc<Object>| old.uid() == object.uid();
        let (kind, old) = match old {
            Some(old) if is_same(&old) && old.resource_version() == object.resource_version() => {
                self.taken.insert(key, object);
                return;
            }
            Some(old) if is_same(&old) => (CacheChangeKind::Modified, Some(old)),
            Some(old) => {
                changes.push(deleted(old));
                (CacheChangeKind::Added, None)
            }
            None if is_initial => (CacheChangeKind::Present, None),
            None => (CacheChangeKind::Added, None),
        };
        self.taken.insert(key, Arc::clone(&object));
        changes.push(CacheChange { kind, object, old });
    }
}

fn deleted(old: Arc<Object>) -> CacheChange {
    CacheChange { kind: CacheChangeKind::Deleted, object: Arc::clone(&old), old: Some(old) }
}

#[cfg(test)]
mod tests {
    use super::CacheChangeKind::{Added, Deleted, Modified, Present};
    use super::*;

    fn key(name: &str) -> Arc<CacheKey> {
        Arc::new(CacheKey::new(None, name))
    }

    fn object(uid: &str, version: usize) -> Arc<Object> {
        let json = format!(r#"{{"metadata":{{"uid":"{uid}","resourceVersion":"{version}"}}}}"#);
        Arc::new(Object::decode(&json).unwrap())
    }

    fn kinds(changes: &[CacheChange]) -> Vec<CacheChangeKind> {
        changes.iter().map(|change| change.kind).collect()
    }

    #[test]
    fn k8_changes_follow_the_present_objects() {
        let (a, b) = (key("a"), key("b"));
        let first = object("1", 1);
        let mut queue = ChangeQueue::starting_with([(&a, &first)].into_iter(), false);
        queue.put(&a, Some(&object("1", 2)));
        queue.put(&a, Some(&object("2", 3)));
        queue.put(&b, Some(&object("3", 4)));
        queue.put(&a, None);
        queue.put(&b, Some(&object("3", 4)));
        let changes = queue.take(usize::MAX);
        assert_eq!(kinds(&changes), [Present, Modified, Deleted, Added, Added, Deleted]);
        assert_eq!(changes[1].old.as_ref(), Some(&first));
        assert!(queue.is_empty() && queue.newest.is_empty());
    }

    #[test]
    fn k8_silent_consumers_start_without_the_present_objects() {
        let (a, first) = (key("a"), object("1", 1));
        let mut queue = ChangeQueue::starting_with([(&a, &first)].into_iter(), true);
        assert!(queue.is_empty());
        queue.put(&a, Some(&object("1", 2)));
        let changes = queue.take(10);
        assert_eq!((kinds(&changes), changes[0].old.clone()), (vec![CacheChangeKind::Modified], Some(first)));
    }

    #[test]
    fn k8_a_consumer_that_is_far_behind_gets_merged_states_without_gaps() {
        let keys: Vec<_> = (0..10).map(|name| key(&name.to_string())).collect();
        let mut queue = ChangeQueue::default();
        for version in 0..50_000 {
            queue.put(&keys[version % 10], Some(&object("u", version)));
            if version % 20_000 == 19_999 {
                let some = queue.take(500);
                assert_eq!(some.len(), 500);
            }
        }
        let rest = queue.take(usize::MAX);
        assert!(rest.len() <= MAX_SEPARATE + 10);
        let mut last: HashMap<_, usize> = HashMap::new();
        for change in &rest {
            let version: usize = change.object.resource_version().unwrap().parse().unwrap();
            if let Some(before) = last.insert(version % 10, version) {
                assert!(before < version);
                assert_eq!(change.old.as_ref().unwrap().resource_version(), Some(&*before.to_string()));
            }
        }
        assert_eq!(last, (0..10).map(|name| (name, 49_990 + name)).collect());
    }
}
