//! The feeds of the watched kinds, with their consumers.

use std::collections::BTreeSet;
use std::sync::Arc;

use kopf_core::caches::stream_selectors;
use kopf_core::handler::Handler;
use kopf_core::handler::caching::Caching;
use kopf_core::handler::label_selector::of_related;
use kopf_core::handler::namespaces::DeclaredNamespaces;
use kopf_core::handler::reconciling::Related;
use kopf_core::handler::registry::ResourceHandlers;
use kopf_core::resource::Resource;

use super::{Orchestrator, StreamKey};
use crate::apply::ChildrenDeletion;
use crate::caches::{CacheConsumer, CacheStream};
use crate::daemons::ObjectOwner;
use crate::feed::{DispatchConsumer, Feed};
use crate::objects::dispatcher::Dispatcher;
use crate::reconciling::{ReconcileConsumer, RequiredStream};
use crate::watch::{self, Stream};

impl Orchestrator {
    /// The deletion of the marked children of objects of the resource, after the handlers and reconcilers have released them.
    fn children_deletion(
        &self,
        handlers: &ResourceHandlers,
        namespace: Option<String>,
        is_selective: bool,
    ) -> ChildrenDeletion {
        let config = &self.shared.base.startup_config;
        let of_reconciler = |index: &usize| {
            let options = config.registry.handlers.get(*index)?.reconciling()?;
            options.finalizer.clone()
        };
        let mut finalizers: Vec<_> = handlers.reconciling.iter().filter_map(of_reconciler).collect();
        finalizers.push(config.settings.persistence.finalizer.clone());
        let pause = Arc::clone(&self.shared.dispatch.pause);
        // A selective watch does not distinguish deleted objects from those that have stopped matching.
        let deleted_owners = (Arc::clone(&self.shared.deleted_owners), !is_selective);
        let watched = (Arc::clone(&handlers.resource), namespace);
        ChildrenDeletion::new(self.api.clone(), deleted_owners, watched, finalizers, pause)
    }

    /// The feed of a stream, with the consumers that need its events. With `is_successor`, it replaces the feed of another version of
    /// the resource.
    pub(super) fn feed(&self, stream: Stream, dispatcher: &Arc<Dispatcher>, is_successor: bool) -> Feed {
        let plan = &dispatcher.resource_handlers;
        let name = stream.name();
        let namespace = stream.namespace.clone();
        let is_selective = stream.is_selective();
        let mut feed = Feed::new(stream);
        // First: handlers that are called for an event read its object in the caches.
        if let Some(caches) = self.shared.caches.as_ref().filter(|_| !plan.caching.is_empty()) {
            let stream = (name.clone(), namespace.as_deref());
            feed = feed.with(CacheConsumer::new(caches, stream, &plan.resource, &plan.caching));
        }
        if !plan.has_handlers() {
            return feed;
        }
        let feed = feed.with(self.children_deletion(plan, namespace.clone(), is_selective));
        let Some(reconcilers) = self.shared.reconcilers.as_ref().filter(|_| plan.has_reconcilers()) else {
            return feed.with(DispatchConsumer::new(Arc::clone(dispatcher)));
        };
        let owner = plan.has_cycles().then(|| Arc::<Dispatcher>::clone(dispatcher) as Arc<dyn ObjectOwner>);
        // First: the handling cycle of an event depends on whether reconcilers hold the object.
        let stream = (name, namespace);
        let feed = feed.with(ReconcileConsumer::new(reconcilers, stream, plan, owner, is_successor));
        if plan.has_cycles() { feed.with(DispatchConsumer::new(Arc::clone(dispatcher))) } else { feed }
    }

    fn caching(&self, index: usize) -> Option<&Caching> {
        self.handlers().get(index).and_then(Handler::caching)
    }

    fn related(&self, (reconciler, position): (usize, usize)) -> Option<&Related> {
        self.handlers().get(reconciler)?.reconciling()?.related().nth(position)
    }

    /// The streams of a resource, each with the handlers, secondary kinds and caches that need it.
    ///
    /// Other namespaces than those of the operator have separate streams, unless another stream has all objects.
    pub(super) fn plans_of(
        &self,
        resource: &Arc<Resource>,
        selected: &dyn Fn(usize, &Resource) -> bool,
    ) -> Vec<(StreamKey, ResourceHandlers)> {
        let callables = |handler: usize| selected(handler, resource);
        let plan = self.shared.base.startup_config.registry.handlers_of(resource, &callables);
        let caching =
            plan.caching.iter().filter_map(|index| Some((*index, &self.caching(*index)?.namespaces)));
        let related = plan.related.iter().filter_map(|key| Some((*key, &self.related(*key)?.namespaces)));
        let (caching, related): (Vec<_>, Vec<_>) = (caching.collect(), related.collect());
        let served: BTreeSet<Option<String>> =
            self.stream_keys(resource).into_iter().map(|(_, namespace)| namespace).collect();
        let declared = || caching.iter().map(|(_, it)| *it).chain(related.iter().map(|(_, it)| *it));
        let needs_served = plan.has_primaries() || declared().any(|it| *it == DeclaredNamespaces::Served);
        let has_everything = (needs_served && served.contains(&None))
            || !resource.namespaced
            || declared().any(|it| *it == DeclaredNamespaces::All);
        let names_of = |declared: &DeclaredNamespaces| match declared {
            DeclaredNamespaces::Named(names) if !has_everything => Some(names.clone()),
            _ => None,
        };
        let mut scopes: BTreeSet<Option<String>> =
            declared().filter_map(names_of).flatten().map(Some).collect();
        if declared().any(|it| *it != DeclaredNamespaces::Served && names_of(it).is_none()) {
            scopes.insert(None);
        }
        if needs_served {
            scopes.extend(served.iter().cloned());
        }
        let plans = scopes.into_iter().map(|scope| {
            let is_served = served.contains(&scope);
            let needs = |declared: &DeclaredNamespaces| match declared {
                DeclaredNamespaces::Served => is_served,
                DeclaredNamespaces::Named(names) if !has_everything => {
                    scope.as_ref().is_some_and(|scope| names.contains(scope))
                }
                _ => scope.is_none(),
            };
            let caching = caching.iter().filter(|(_, declared)| needs(declared)).map(|(index, _)| *index);
            let related = related.iter().filter(|(_, declared)| needs(declared)).map(|(key, _)| *key);
            let plan = plan.restricted(caching.collect(), related.collect(), is_served);
            (((**resource).clone(), scope), plan)
        });
        plans.collect()
    }

    /// Sets the streams of the caches.
    pub(super) fn require_caches(&self, plans: &[(StreamKey, ResourceHandlers)]) {
        let Some(caches) = &self.shared.caches else { return };
        let streams = plans.iter().map(|((resource, namespace), plan)| CacheStream {
            name: watch::name_of(resource, namespace.as_deref()),
            namespace: namespace.clone(),
            resource: Arc::clone(&plan.resource),
            caches: plan.caching.clone(),
        });
        caches.require(&streams.collect::<Vec<_>>(), self.is_located);
    }

    /// Adds the selectors of a stream that only caches and relations need: the server sends no other objects.
    pub(super) fn select_on_server(&self, stream: &mut Stream, plan: &ResourceHandlers) {
        if plan.has_primaries() {
            return;
        }
        let caches: Vec<&Caching> = plan.caching.iter().filter_map(|index| self.caching(*index)).collect();
        let related = plan.related.iter().filter_map(|key| self.related(*key));
        let related: Vec<String> = related.map(of_related).collect();
        for (name, requirement) in stream_selectors(&caches, &related) {
            match stream.selectors.iter_mut().find(|(known, _)| *known == name) {
                Some((_, present)) => *present = format!("{present},{requirement}"),
                None => stream.selectors.push((name, requirement)),
            }
        }
        stream.announce();
    }

    /// Sets the streams that the reconcilers wait for.
    pub(super) fn require_streams(&self, served: &[Arc<Resource>], plans: &[(StreamKey, ResourceHandlers)]) {
        let Some(reconcilers) = &self.shared.reconcilers else { return };
        let streams = plans.iter().map(|((resource, namespace), plan)| RequiredStream {
            name: watch::name_of(resource, namespace.as_deref()),
            reconcilers: plan
                .reconciling
                .iter()
                .copied()
                .chain(plan.related.iter().map(|(index, _)| *index))
                .collect(),
        });
        reconcilers.require(served, &streams.collect::<Vec<_>>(), self.is_located);
    }
}
