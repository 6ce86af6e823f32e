//! Events of primaries and of secondary objects, as the feeds pass them on.

use std::collections::HashSet;
use std::sync::Arc;

use kopf_core::object::Object;
use kopf_core::relations::ObjectName;
use kopf_core::resource::Resource;
use kopf_core::schedule::Priority;

use super::cycles::Cycles;
use crate::object_key::key_of;

/// The number of a feed, unique in the operator.
pub(super) type FeedId = u64;

/// An event of a primary.
#[derive(Clone)]
pub(super) struct PrimaryEvent {
    pub(super) feed: FeedId,
    pub(super) resource: Arc<Resource>,
    pub(super) object: Arc<Object>,
    pub(super) listed: Listed,
    /// The handling cycles of the object, if it has any.
    pub(super) cycles: Option<Arc<Cycles>>,
}

/// Whether an event belongs to a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    /// It is a watch event.
    No,
    /// The first list of the feed.
    First,
    /// The list after a pause of the operator; for primaries, also the first list of a feed that replaces another one.
    AfterPause,
    /// Another list: events may have been missed.
    Again,
}

/// The objects of a list of a feed.
pub(super) struct FeedList {
    pub(super) feed: FeedId,
    /// Whether it is the first list of the feed.
    pub(super) is_first: bool,
    /// The namespace of the feed; none for all of them.
    namespace: Option<String>,
    keys: HashSet<Arc<str>>,
    /// The names, if they are needed.
    names: HashSet<ObjectName>,
}

impl FeedList {
    /// The empty first list.
    pub(super) fn new(feed: FeedId, namespace: Option<String>) -> Self {
        Self { feed, is_first: true, namespace, keys: HashSet::new(), names: HashSet::new() }
    }

    pub(super) fn insert(&mut self, object: &Object, needs_name: bool) {
        self.keys.insert(key_of(object));
        if needs_name {
            self.names.insert(name_of(object));
        }
    }

    pub(super) fn clear(&mut self) {
        (self.keys, self.names) = (HashSet::new(), HashSet::new());
    }

    pub(super) fn contains(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    /// Whether an object of this name would be listed, but is not.
    pub(super) fn lacks(&self, name: &ObjectName) -> bool {
        let is_covered = self.namespace.is_none() || self.namespace.as_deref() == name.0.as_deref();
        is_covered && !self.names.contains(name)
    }
}

/// An event of an object that can be related to primaries.
#[derive(Clone)]
pub(super) struct RelatedEvent {
    pub(super) feed: FeedId,
    pub(super) resource: Arc<Resource>,
    pub(super) object: Arc<Object>,
    pub(super) listed: Listed,
}

/// An event of an object that can be caused by an own write.
#[derive(Clone, Debug)]
pub(super) struct ObjectEvent {
    pub(super) uid: Arc<str>,
    pub(super) object: Arc<Object>,
    /// It arrived by a watch, not by a list.
    pub(super) is_watched: bool,
    /// The resource version that was known before it, if versions are remembered.
    pub(super) previous: Option<Box<str>>,
    /// Whether events of own writes are triggers.
    pub(super) counts_own_writes: bool,
    pub(super) resource: Arc<Resource>,
}

/// A trigger of a primary, other than its own events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trigger<'a> {
    /// The event of an object that is the trigger; none for others, and for deletions.
    pub(super) event: Option<&'a ObjectEvent>,
    pub(super) priority: Priority,
    /// For the metrics.
    pub(super) source: &'static str,
    /// For the debug log.
    pub(super) cause: Option<&'a str>,
}

impl Trigger<'_> {
    /// The trigger of a list that counts for all primaries.
    pub(super) fn of_list() -> Self {
        Self { event: None, priority: Priority::Initial, source: "list", cause: None }
    }
}

/// The name of an object, with its namespace if it has one.
pub(super) fn name_of(object: &Object) -> ObjectName {
    (object.namespace().map(Box::from), object.name().unwrap_or_default().into())
}

/// The object as in log lines: `deployments/web in shop`.
pub(super) fn described(resource: &Resource, object: &Object) -> String {
    let name = object.name().unwrap_or_default();
    match object.namespace() {
        Some(namespace) => format!("{}/{name} in {namespace}", resource.plural),
        None => format!("{}/{name}", resource.plural),
    }
}
