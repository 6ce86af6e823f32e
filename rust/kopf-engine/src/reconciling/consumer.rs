//! The consumer of a feed: it passes the events of primaries and of secondary objects to the reconcilers.

use std::sync::Arc;

use kopf_core::cause::EventType;
use kopf_core::handler::registry::ResourceHandlers;
use kopf_core::object::Object;
use kopf_core::resource::Resource;
use kopf_core::time::Timestamp;

use super::Reconcilers;
use super::cycles::Cycles;
use super::effects::Effects;
use super::event::{FeedId, FeedList, Listed, PrimaryEvent, RelatedEvent, Trigger};
use super::relation::Relation;
use super::state::State;
use crate::daemons::ObjectOwner;
use crate::feed::Consumer;
use crate::object_key::key_of;
use crate::watch::WatchConsumer;

/// The consumer of one feed. When it is dropped, its objects are forgotten: the resource or the namespace is gone.
pub struct ReconcileConsumer {
    reconcilers: Arc<Reconcilers>,
    feed: FeedId,
    /// The name of the stream.
    name: Arc<str>,
    resource: Arc<Resource>,
    /// The positions of the reconcilers whose primaries are of the resource.
    primaries: Vec<usize>,
    /// The positions of reconcilers, and of those of their secondary kinds that are of the resource.
    related: Vec<(usize, usize)>,
    cycles: Option<Arc<Cycles>>,
    /// The current list.
    list: FeedList,
    /// Whether primaries name the objects.
    is_named: bool,
    /// It replaces a feed of the same resource, whose events after its end are missed.
    is_successor: bool,
    listing: Listed,
    /// The number of pauses and terms at the start of the stream.
    pauses: u64,
    /// That of the last complete list; of the creation if there is none.
    listed_pauses: u64,
}

impl ReconcileConsumer {
    /// The consumer of the feed of this resource. `owner` decides about the operator's finalizer, if the objects have handling
    /// cycles. With `is_successor`, the feed replaces another one of the resource, such as that of another version.
    pub fn new(
        reconcilers: &Arc<Reconcilers>,
        (name, namespace): (String, Option<String>),
        plan: &ResourceHandlers,
        owner: Option<Arc<dyn ObjectOwner>>,
        is_successor: bool,
    ) -> Self {
        let mut state = reconcilers.state();
        let position =
            |handler: usize| state.reconcilers.iter().position(|reconciler| reconciler.handler == handler);
        let primaries = plan.reconciling.iter().filter_map(|handler| position(*handler)).collect();
        let related =
            plan.related.iter().filter_map(|(handler, related)| Some((position(*handler)?, *related)));
        let related: Vec<(usize, usize)> = related.collect();
        let is_named = |&(index, position): &(usize, usize)| {
            state.reconcilers[index].relations.get(position).is_some_and(Relation::is_named)
        };
        let is_named = related.iter().any(is_named);
        let feed = state.next_number();
        drop(state);
        let config = &reconcilers.base.live_config;
        let cycles = owner.map(|owner| Arc::new(Cycles::new(owner, plan, config)));
        let pauses = reconcilers.pause.count();
        Self {
            reconcilers: Arc::clone(reconcilers),
            feed,
            name: name.into(),
            resource: Arc::clone(&plan.resource),
            primaries,
            related,
            cycles,
            list: FeedList::new(feed, namespace),
            is_named,
            is_successor,
            listing: Listed::First,
            pauses,
            listed_pauses: pauses,
        }
    }

    fn take(
        &self,
        kind: EventType,
        object: &Arc<Object>,
        state: &mut State,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let listed = if kind == EventType::Listed { self.listing } else { Listed::No };
        // The schedules of the primaries have ended with the previous feed, with their retries and requeues.
        let of_primary =
            if listed == Listed::First && self.is_successor { Listed::AfterPause } else { listed };
        for &index in &self.primaries {
            if kind == EventType::Deleted {
                state.remove_primary(index, self.feed, &key_of(object), now, effects);
                continue;
            }
            let event = PrimaryEvent {
                feed: self.feed,
                resource: Arc::clone(&self.resource),
                object: Arc::clone(object),
                listed: of_primary,
                cycles: self.cycles.clone(),
            };
            state.on_primary(index, event, now, effects);
        }
        let namespace = object.namespace();
        for &related in &self.related {
            if !state.counts_namespace(related, namespace) {
                continue;
            }
            let event = RelatedEvent {
                feed: self.feed,
                resource: Arc::clone(&self.resource),
                object: Arc::clone(object),
                listed,
            };
            if kind == EventType::Deleted {
                state.remove_related(related, &event, now, effects);
            } else {
                state.on_related(related, event, now, effects);
            }
        }
    }

    /// The positions of the reconcilers, possibly repeated.
    fn positions(&self) -> impl Iterator<Item = usize> {
        self.primaries.iter().copied().chain(self.related.iter().map(|(index, _)| *index))
    }

    /// Removes the objects of the feed that are not listed.
    fn retain(&self, list: &FeedList, state: &mut State, now: Timestamp, effects: &mut Effects) {
        for &index in &self.primaries {
            state.retain_primaries(index, self.feed, |key| list.contains(key), now, effects);
        }
        for &related in &self.related {
            state.retain_related(related, list, now, effects);
        }
    }
}

impl WatchConsumer for ReconcileConsumer {
    fn event(&mut self, kind: EventType, object: &Arc<Object>) {
        if kind == EventType::Listed {
            self.list.insert(object, self.is_named);
        }
        self.reconcilers.with_state(|state, now, effects| self.take(kind, object, state, now, effects));
    }

    fn rejected(&mut self, identity: &Arc<Object>, deleted: bool) {
        if deleted {
            self.event(EventType::Deleted, identity);
        } else {
            self.list.insert(identity, self.is_named);
        }
    }

    fn on_start(&mut self, pauses: u64) {
        self.pauses = pauses;
    }

    fn on_init(&mut self) {
        // Until a list after the pause is complete: those before it may have failed.
        self.listing = match (self.listed_pauses != self.pauses, self.list.is_first) {
            (true, _) => Listed::AfterPause,
            (false, true) => Listed::First,
            (false, false) => Listed::Again,
        };
        self.list.clear();
    }

    fn on_init_done(&mut self) {
        self.listed_pauses = self.pauses;
        self.reconcilers.with_state(|state, now, effects| {
            self.retain(&self.list, state, now, effects);
            for index in self.positions() {
                state.reconcilers[index].lists.insert(self.feed, &self.name, self.pauses);
            }
            if self.list.is_first {
                let is_open = |state: &State, index: usize| state.reconcilers[index].barrier.is_open();
                let late = self.related.iter().filter(|(index, _)| is_open(state, *index));
                let late: Vec<_> = late.map(|(index, _)| *index).collect();
                // The secondary kind, or its namespace, has appeared after the start.
                for index in late {
                    state.trigger_all(index, Trigger::of_list(), now, effects);
                }
                state.set_listed(&self.name);
            }
        });
        self.list.clear();
        self.list.is_first = false;
    }
}

impl Consumer for ReconcileConsumer {}

impl Drop for ReconcileConsumer {
    fn drop(&mut self) {
        // At the shutdown, running calls go on to their ends.
        if self.reconcilers.base.stopping.is_cancelled() {
            return;
        }
        self.list.clear();
        self.list.is_first = false;
        self.reconcilers.with_state(|state, now, effects| {
            self.retain(&self.list, state, now, effects);
            state.forget_absent(&self.related, self.feed);
            for index in self.positions() {
                state.reconcilers[index].lists.remove(self.feed);
            }
        });
    }
}
