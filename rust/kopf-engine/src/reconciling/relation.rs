//! An owned or watched kind of one reconciler, with its memory of relations.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use kopf_core::handler::reconciling::{Related as Declared, RelationKind};
use kopf_core::object::Object;
use kopf_core::persistence::Persistence;
use kopf_core::predicate::{Changed, Digests};
use kopf_core::relations::{
    Affected, ObjectName, OwnerKind, ReferencePath, References, Related, RelationMemory, owners,
};
use kopf_core::resource::Resource;
use kopf_core::selectors::ListPath;

use super::event::{FeedId, FeedList, Listed, RelatedEvent, name_of};
use crate::host::reconcile::{Mapped, PrimaryRef};

/// An owned or watched kind of one reconciler.
pub(super) struct Relation {
    pub(super) declared: Declared,
    pub(super) changed: Vec<Changed>,
    pub(super) memory: RelationMemory<(FeedId, Arc<str>), PrimaryRef>,
    /// The feeds that have delivered objects.
    feeds: BTreeSet<FeedId>,
    /// If own writes are no triggers: the resource versions of the related objects at their last events.
    versions: HashMap<Arc<str>, Box<str>>,
    /// The objects that primaries name.
    references: References<Arc<str>>,
    path: Option<ReferencePath>,
    /// The named objects that are known to be absent, with their feeds: they have not been listed, are gone, or do not match.
    absent: BTreeSet<(FeedId, ObjectName)>,
    /// Whether the named kind is namespaced.
    is_namespaced: bool,
    /// The objects whose functions are being called by the host, with the newest event since then.
    pub(super) inspected: HashMap<Arc<str>, (RelatedEvent, Option<RelatedEvent>)>,
}

impl Relation {
    pub(super) fn new(declared: &Declared) -> Self {
        let path = match &declared.relation {
            RelationKind::Named { name, namespace } => {
                ListPath::parse(name).map(|name| ReferencePath { name, namespace: namespace.clone() })
            }
            RelationKind::Owned { .. } | RelationKind::Mapped => None,
        };
        Self {
            changed: declared.changed.iter().filter_map(|part| Changed::try_from(part).ok()).collect(),
            declared: declared.clone(),
            memory: RelationMemory::default(),
            feeds: BTreeSet::new(),
            versions: HashMap::new(),
            references: References::default(),
            path,
            absent: BTreeSet::new(),
            is_namespaced: true,
            inspected: HashMap::new(),
        }
    }

    /// Whether the kind is selected by this declaration.
    pub(super) fn selects(&self, resource: &Resource) -> bool {
        self.declared.selector.check(resource)
    }

    /// Whether the memory identifies the newest versions of the children: their digests are those of the versions.
    pub(super) fn knows_versions(&self) -> bool {
        matches!(self.declared.relation, RelationKind::Owned { .. }) && self.changed == [Changed::Any]
    }

    /// Records a feed that delivers objects.
    pub(super) fn add_feed(&mut self, feed: FeedId) {
        self.feeds.insert(feed);
    }

    /// Forgets which objects a feed does not have.
    pub(super) fn forget_absent(&mut self, feed: FeedId) {
        self.absent.retain(|(of, _)| *of != feed);
    }

    /// Forgets a feed of which no object is remembered.
    pub(super) fn retain_feed(&mut self, feed: FeedId) {
        if !self.memory.objects().any(|(of, _)| *of == feed) {
            self.feeds.remove(&feed);
        }
    }

    /// Whether this is the state of a child at its last event.
    pub(super) fn is_newest(&self, key: &Arc<str>, state: &Object, storages: &Persistence) -> bool {
        let digest = Digests::of(&self.changed, state, storages, &[]).combined();
        let is_known = |feed: &FeedId, digest| !self.memory.is_change(&(*feed, Arc::clone(key)), digest);
        digest.is_some_and(|digest| self.feeds.iter().any(|feed| is_known(feed, digest)))
    }

    /// Whether events of own writes are triggers.
    pub(super) fn counts_own_writes(&self) -> bool {
        !matches!(self.declared.relation, RelationKind::Owned { own_writes: false, .. })
    }

    /// Remembers the version of a related object, if it is needed. Returns the previous one.
    pub(super) fn remember_version(&mut self, key: &Arc<str>, object: Option<&Object>) -> Option<Box<str>> {
        if self.counts_own_writes() {
            return None;
        }
        match object.and_then(Object::resource_version) {
            Some(version) => self.versions.insert(Arc::clone(key), version.into()),
            None => self.versions.remove(key),
        }
    }

    /// Forgets the versions of objects that are related to no primary.
    pub(super) fn retain_versions(&mut self) {
        let Self { versions, memory, .. } = self;
        if !versions.is_empty() {
            let known: HashSet<&Arc<str>> = memory.objects().map(|(_, key)| key).collect();
            versions.retain(|key, _| known.contains(key));
        }
    }

    /// The remembered version of a related object.
    pub(super) fn version_of(&self, key: &str) -> Option<Box<str>> {
        self.versions.get(key).cloned()
    }

    /// Records the names in the newest state of a primary; none if it is gone or does not match.
    pub(super) fn observe_primary(&mut self, key: &Arc<str>, object: Option<&Arc<Object>>) {
        let Some(path) = &self.path else { return };
        match object {
            Some(object) => {
                let named = path.references(object, self.is_namespaced);
                self.references.observe(Arc::clone(key), named);
            }
            None => self.references.remove(Arc::clone(key)),
        }
    }

    /// Sets whether the named kind is namespaced. Returns whether the names in primaries must be recorded again.
    pub(super) fn set_namespaced(&mut self, is_namespaced: bool) -> bool {
        std::mem::replace(&mut self.is_namespaced, is_namespaced) != is_namespaced && self.path.is_some()
    }

    /// The primaries that name the object now.
    fn naming(&self, name: &ObjectName) -> BTreeSet<PrimaryRef> {
        self.references.primaries(name).map(|key| PrimaryRef::Uid(Arc::clone(key))).collect()
    }

    /// Records that a feed has an object that matches.
    pub(super) fn set_present(&mut self, feed: FeedId, object: &Object) {
        if !self.absent.is_empty() {
            self.absent.remove(&(feed, name_of(object)));
        }
    }

    /// Records that an object is gone, or does not match. Returns the primaries that this affects.
    pub(super) fn remove(&mut self, key: &Arc<str>, event: &RelatedEvent) -> Affected<PrimaryRef> {
        self.remember_version(key, None);
        let affected = self.memory.remove(&(event.feed, Arc::clone(key)));
        let naming = self.set_absent(event.feed, name_of(&event.object));
        // All primaries are reconciled anyway.
        if event.listed == Listed::First { affected } else { affected.with(naming) }
    }

    /// Records that a feed does not have an object that matches. Returns the primaries that name it, unless its absence was known.
    ///
    /// The memory of relations is not enough: an object can be older than its names in primaries.
    fn set_absent(&mut self, feed: FeedId, name: ObjectName) -> BTreeSet<PrimaryRef> {
        let mut naming = self.naming(&name);
        if !naming.is_empty() && !self.absent.insert((feed, name)) {
            naming.clear();
        }
        naming
    }

    /// Records the end of a list: the named objects that are not in it are absent. Returns the primaries that this affects.
    pub(super) fn finish_list(&mut self, list: &FeedList) -> BTreeSet<PrimaryRef> {
        let Self { absent, references, declared, .. } = self;
        absent.retain(|(_, name)| references.primaries(name).next().is_some());
        let is_missing =
            |name: &&ObjectName| declared.namespaces.contains(name.0.as_deref()) && list.lacks(name);
        let missing: Vec<_> = references.objects().filter(is_missing).cloned().collect();
        let naming: BTreeSet<_> =
            missing.into_iter().flat_map(|name| self.set_absent(list.feed, name)).collect();
        if list.is_first { BTreeSet::new() } else { naming }
    }

    /// Whether primaries name the objects.
    pub(super) fn is_named(&self) -> bool {
        self.path.is_some()
    }

    /// The primaries to which the object is related.
    pub(super) fn related(
        &self,
        object: &Object,
        kinds: &[Arc<Resource>],
        mapped: Option<Mapped>,
    ) -> Related<PrimaryRef> {
        match &self.declared.relation {
            RelationKind::Owned { controller, .. } => {
                let uids = kinds.iter().flat_map(|resource| {
                    let kind = resource.kind.as_deref().unwrap_or_default();
                    owners(object, OwnerKind { group: &resource.group, kind, is_controller: *controller })
                });
                Related::To(uids.map(|uid| PrimaryRef::Uid(Arc::from(uid))).collect())
            }
            RelationKind::Named { .. } => Related::To(self.naming(&name_of(object))),
            RelationKind::Mapped => match mapped {
                None => Related::Unknown,
                Some(Mapped::Everything) => Related::Everything,
                Some(Mapped::To(primaries)) => Related::To(primaries.into_iter().collect()),
            },
        }
    }
}
