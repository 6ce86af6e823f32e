//! The changes that a watch of users' code delivers: each one once, also those missed between two connections.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cause::EventType;
use crate::object::Object;

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The object is new, or new to this watch.
    Added,
    /// The object has changed.
    Modified,
    /// The object was deleted, or does not match the selectors any more.
    Deleted,
}

impl ChangeKind {
    /// The type as Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// A change of an object.
#[derive(Clone, Debug)]
pub struct Change {
    /// The kind.
    pub kind: ChangeKind,
    /// The object; of deletions, its last known state.
    pub object: Arc<Object>,
    /// The previous known state.
    pub old: Option<Arc<Object>>,
}

/// The objects that a watch has delivered, by their uids.
#[derive(Debug, Default)]
pub struct KnownObjects {
    objects: BTreeMap<String, Known>,
    /// The number of the current listing.
    listing: u64,
}

#[derive(Debug)]
struct Known {
    object: Arc<Object>,
    listing: u64,
}

impl KnownObjects {
    /// Starts a listing: objects that it does not contain are gone at its end.
    pub fn begin_listing(&mut self) {
        self.listing += 1;
    }

    /// Ends a listing; returns the deletions that were missed.
    pub fn end_listing(&mut self) -> Vec<Change> {
        let current = self.listing;
        let gone = self.objects.extract_if(.., |_, known| known.listing != current);
        let deleted = |known: Known| Change {
            kind: ChangeKind::Deleted,
            object: Arc::clone(&known.object),
            old: Some(known.object),
        };
        gone.map(|(_, known)| deleted(known)).collect()
    }

    /// Adds a state of an object; returns the change, unless it is known already.
    pub fn observe(&mut self, event: EventType, object: Arc<Object>) -> Option<Change> {
        let key = object.uid().or(object.name()).unwrap_or_default().to_owned();
        if event == EventType::Deleted {
            let old = self.objects.remove(&key).map(|known| known.object);
            return Some(Change { kind: ChangeKind::Deleted, object, old });
        }
        let listing = self.listing;
        let Some(known) = self.objects.get_mut(&key) else {
            self.objects.insert(key, Known { object: Arc::clone(&object), listing });
            return Some(Change { kind: ChangeKind::Added, object, old: None });
        };
        known.listing = listing;
        // A list of a server that lags behind may contain an earlier state.
        if !is_newer(&object, &known.object) {
            return None;
        }
        let old = std::mem::replace(&mut known.object, Arc::clone(&object));
        Some(Change { kind: ChangeKind::Modified, object, old: Some(old) })
    }
}

/// Whether the resource version is later. Versions that are not numbers are only compared for equality.
fn is_newer(new: &Object, old: &Object) -> bool {
    let number = |object: &Object| object.resource_version().and_then(|version| version.parse::<u64>().ok());
    match (number(new), number(old)) {
        (Some(new), Some(old)) => new > old,
        _ => new.resource_version() != old.resource_version(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(uid: &str, version: &str) -> Object {
        let body = json!({"metadata": {"uid": uid, "name": "n", "resourceVersion": version}});
        Object::decode(&body.to_string()).unwrap()
    }

    fn shown(change: Option<Change>) -> Option<(&'static str, String, Option<String>)> {
        let version = |object: &Object| object.resource_version().unwrap_or_default().to_owned();
        change.map(|it| (it.kind.as_str(), version(&it.object), it.old.map(|old| version(&old))))
    }

    #[test]
    fn each_state_is_delivered_once_with_the_previous_one() {
        let mut known = KnownObjects::default();
        known.begin_listing();
        assert_eq!(
            shown(known.observe(EventType::Listed, Arc::new(object("a", "1")))),
            Some(("ADDED", "1".into(), None))
        );
        assert!(known.end_listing().is_empty());
        assert_eq!(shown(known.observe(EventType::Modified, Arc::new(object("a", "1")))), None);
        let changed = shown(known.observe(EventType::Modified, Arc::new(object("a", "3"))));
        assert_eq!(changed, Some(("MODIFIED", "3".into(), Some("1".into()))));
        let deleted = shown(known.observe(EventType::Deleted, Arc::new(object("a", "4"))));
        assert_eq!(deleted, Some(("DELETED", "4".into(), Some("3".into()))));
    }

    #[test]
    fn a_later_listing_delivers_what_was_missed() {
        let mut known = KnownObjects::default();
        known.begin_listing();
        known.observe(EventType::Listed, Arc::new(object("a", "1")));
        known.observe(EventType::Listed, Arc::new(object("b", "2")));
        known.end_listing();
        known.begin_listing();
        assert_eq!(shown(known.observe(EventType::Listed, Arc::new(object("b", "2")))), None);
        assert_eq!(
            shown(known.observe(EventType::Listed, Arc::new(object("c", "9")))),
            Some(("ADDED", "9".into(), None))
        );
        let gone: Vec<_> = known.end_listing().into_iter().map(|it| shown(Some(it)).unwrap()).collect();
        assert_eq!(gone, [("DELETED", "1".to_owned(), Some("1".to_owned()))]);
    }

    #[test]
    fn versions_never_go_back() {
        let mut known = KnownObjects::default();
        known.begin_listing();
        known.observe(EventType::Listed, Arc::new(object("a", "10")));
        known.end_listing();
        known.begin_listing();
        assert_eq!(shown(known.observe(EventType::Listed, Arc::new(object("a", "9")))), None);
        assert!(known.end_listing().is_empty(), "it is still listed");
    }
}
