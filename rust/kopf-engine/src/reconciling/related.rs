//! Events of owned and watched objects: which primaries they trigger.

use std::sync::Arc;

use kopf_core::handler::filters::{self, FilterVerdict};
use kopf_core::object::Object;
use kopf_core::predicate::{Changed, Digests};
use kopf_core::relations::{Affected, Related};
use kopf_core::resource::Resource;
use kopf_core::schedule::Priority;
use kopf_core::time::Timestamp;

use super::Reconcilers;
use super::effects::{Effects, Inspect};
use super::event::{FeedId, FeedList, Listed, ObjectEvent, RelatedEvent, Trigger, described};
use super::state::{Reconciler, State};
use crate::host::reconcile::{Inspection, PrimaryRef};
use crate::object_key::key_of;

impl State {
    /// Whether objects of this namespace can be related.
    pub(super) fn counts_namespace(
        &self,
        (index, position): (usize, usize),
        namespace: Option<&str>,
    ) -> bool {
        let relation = self.reconcilers[index].relations.get(position);
        relation.is_some_and(|relation| relation.declared.namespaces.contains(namespace))
    }

    /// Takes an event of an owned or watched object.
    pub(super) fn on_related(
        &mut self,
        (index, position): (usize, usize),
        event: RelatedEvent,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let key = key_of(&event.object);
        let Reconciler { relations, handler, .. } = &mut self.reconcilers[index];
        let Some(relation) = relations.get_mut(position) else { return };
        relation.add_feed(event.feed);
        if let Some((_, pending)) = relation.inspected.get_mut(&key) {
            *pending = Some(event);
            return;
        }
        if filters::on_related(&relation.declared, &event.object) == FilterVerdict::No {
            let affected = relation.remove(&key, &event);
            return self.trigger_affected(index, affected, &event, None, now, effects);
        }
        if !relation.declared.has_functions() {
            let inspection = Inspection { matches: true, ..Inspection::default() };
            return self.settle_related((index, position), &key, &event, inspection, now, effects);
        }
        if !relation.changed.contains(&Changed::Function) {
            let storages = &self.rules.settings.persistence;
            let digest = Digests::of(&relation.changed, &event.object, storages, &[]).combined();
            let known = (event.feed, Arc::clone(&key));
            if digest.is_some_and(|digest| !relation.memory.is_change(&known, digest)) {
                return;
            }
        }
        effects.inspections.push(Inspect {
            reconciler: index,
            related: Some(position),
            handler: *handler,
            key: Arc::clone(&key),
            resource: Arc::clone(&event.resource),
            object: Arc::clone(&event.object),
        });
        relation.inspected.insert(key, (event, None));
    }

    /// Takes the results of the functions for an object. Without results, the previous relations stay.
    pub(super) fn on_related_inspected(
        &mut self,
        (index, position): (usize, usize),
        key: &Arc<str>,
        inspection: Option<Inspection>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let Some(relation) = self.reconcilers[index].relations.get_mut(position) else { return };
        let Some((event, pending)) = relation.inspected.remove(key) else { return };
        let inspection = inspection.unwrap_or(Inspection { matches: true, ..Inspection::default() });
        self.settle_related((index, position), key, &event, inspection, now, effects);
        if let Some(pending) = pending {
            self.on_related((index, position), pending, now, effects);
        }
    }

    fn settle_related(
        &mut self,
        (index, position): (usize, usize),
        key: &Arc<str>,
        event: &RelatedEvent,
        inspection: Inspection,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let Reconciler { relations, kinds, .. } = &mut self.reconcilers[index];
        let Some(relation) = relations.get_mut(position) else { return };
        let known = (event.feed, Arc::clone(key));
        let mut previous = None;
        let affected = if inspection.matches {
            let storages = &self.rules.settings.persistence;
            let digests = Digests::of(&relation.changed, &event.object, storages, &inspection.functions);
            // After a failed function, every event is a change.
            let digest = digests.combined().unwrap_or_else(|| fastrand::u64(..));
            let related = relation.related(&event.object, kinds, inspection.mapped);
            let is_related = !matches!(&related, Related::To(none) if none.is_empty());
            previous = relation.remember_version(key, is_related.then_some(&event.object));
            relation.set_present(event.feed, &event.object);
            relation.memory.observe(known, digest, related, event.listed == Listed::First)
        } else {
            relation.remove(key, event)
        };
        let counts_own_writes = relation.counts_own_writes();
        let changed = ObjectEvent {
            uid: Arc::clone(key),
            object: Arc::clone(&event.object),
            is_watched: event.listed == Listed::No,
            previous,
            counts_own_writes,
            resource: Arc::clone(&event.resource),
        };
        self.trigger_affected(index, affected, event, Some(&changed), now, effects);
    }

    /// Takes the deletion of an owned or watched object.
    pub(super) fn remove_related(
        &mut self,
        (index, position): (usize, usize),
        event: &RelatedEvent,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let key = key_of(&event.object);
        let Some(relation) = self.reconcilers[index].relations.get_mut(position) else { return };
        relation.inspected.remove(&key);
        let affected = relation.remove(&key, event);
        self.trigger_affected(index, affected, event, None, now, effects);
    }

    /// Takes the end of a list, or of the feed: the objects of the feed that are not listed have disappeared.
    pub(super) fn retain_related(
        &mut self,
        (index, position): (usize, usize),
        list: &FeedList,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let feed = list.feed;
        let Some(relation) = self.reconcilers[index].relations.get_mut(position) else { return };
        relation.inspected.retain(|key, (event, _)| event.feed != feed || list.contains(key));
        let memory = &mut relation.memory;
        let affected = memory.finish_relist(|(other, key)| *other != feed || list.contains(key));
        let affected = affected.with(relation.finish_list(list));
        relation.retain_versions();
        relation.retain_feed(feed);
        let cause = self.is_debug.then_some("a related object that is gone");
        self.trigger_these(index, affected, cause, None, now, effects);
    }

    /// Forgets which objects the feed does not have: it has ended.
    pub(super) fn forget_absent(&mut self, related: &[(usize, usize)], feed: FeedId) {
        for &(index, position) in related {
            if let Some(relation) = self.reconcilers[index].relations.get_mut(position) {
                relation.forget_absent(feed);
            }
        }
    }

    fn trigger_affected(
        &mut self,
        index: usize,
        affected: Affected<PrimaryRef>,
        event: &RelatedEvent,
        changed: Option<&ObjectEvent>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        if matches!(&affected, Affected::These(none) if none.is_empty()) {
            return;
        }
        let cause = self.is_debug.then(|| described(&event.resource, &event.object));
        self.trigger_these(index, affected, cause.as_deref(), changed, now, effects);
    }

    fn trigger_these(
        &mut self,
        index: usize,
        affected: Affected<PrimaryRef>,
        cause: Option<&str>,
        event: Option<&ObjectEvent>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let trigger = Trigger { priority: Priority::Changed, source: "related", cause, event };
        let primaries = match affected {
            Affected::Everything => return self.trigger_all(index, trigger, now, effects),
            Affected::These(primaries) => primaries,
        };
        for primary in primaries {
            let keys = match primary {
                PrimaryRef::Uid(uid) => vec![uid],
                PrimaryRef::Name(name) => self.reconcilers[index].named(&name),
            };
            for key in keys {
                self.trigger(index, &key, trigger, now, effects);
            }
        }
    }
}

impl Reconcilers {
    /// Whether the versions of children of this kind are known, although there is no cache of them.
    pub fn knows_versions(&self, resource: &Resource) -> bool {
        let state = self.state();
        let mut relations = state.reconcilers.iter().flat_map(|reconciler| &reconciler.relations);
        relations.any(|relation| relation.knows_versions() && relation.selects(resource))
    }

    /// Whether this is the state of a child at its last watch event.
    pub fn is_newest_child(&self, child: &Object) -> bool {
        let key = key_of(child);
        let state = self.state();
        let storages = &state.rules.settings.persistence;
        let mut relations = state.reconcilers.iter().flat_map(|reconciler| &reconciler.relations);
        relations.any(|relation| relation.knows_versions() && relation.is_newest(&key, child, storages))
    }
}
