//! An owned or watched kind of one reconciler, with its memory of relations.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use kopf_core::handler::reconciling::{Related as Declared, RelationKind};
use kopf_core::object::Object;
use kopf_core::persistence::Persistence;
use kopf_core::predicate::{Changed, Digests};
use kopf_core::relations::{
    ObjectName, OwnerKind, ReferencePath, References, Related, RelationMemory, owners,
};
use kopf_core::resource::Resource;
use kopf_core::selectors::ListPath;

use super::event::{FeedId, RelatedEvent};
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
    /// Whether the named kind is namespaced.
    pub(super) is_namespaced: bool,
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

    /// The primaries that name the object now.
    pub(super) fn naming(&self, object: &Object) -> BTreeSet<PrimaryRef> {
        self.references.primaries(&name_of(object)).map(|key| PrimaryRef::Uid(Arc::clone(key))).collect()
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
            RelationKind::Named { .. } => Related::To(self.naming(object)),
            RelationKind::Mapped => match mapped {
                None => Related::Unknown,
                Some(Mapped::Everything) => Related::Everything,
                Some(Mapped::To(primaries)) => Related::To(primaries.into_iter().collect()),
            },
        }
    }
}

/// The name of an object, with its namespace if it has one.
pub(super) fn name_of(object: &Object) -> ObjectName {
    (object.namespace().map(Box::from), object.name().unwrap_or_default().into())
}
