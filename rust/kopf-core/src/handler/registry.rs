//! All declared handlers, and the handlers of one resource.
//!
//! The handlers of a resource are selected once, so that its events cost nothing for handlers of other resources.

use crate::handler::reconciling::Reconciling;
use crate::handler::{Handler, Kind};
use crate::json::path::FieldPath;
use crate::resource::Resource;
use std::collections::HashSet;
use std::sync::Arc;

/// The handlers in the order of their declaration. The core identifies a handler by its index.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    /// All handlers, of all kinds.
    pub handlers: Vec<Handler>,
}

/// The handlers of one resource.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceHandlers {
    /// The resource.
    pub resource: Arc<Resource>,
    /// `on.event` handlers.
    pub watching: Vec<usize>,
    /// Change handlers.
    pub changing: Vec<usize>,
    /// Index functions.
    pub indexing: Vec<usize>,
    /// Daemons and timers.
    pub spawning: Vec<usize>,
    /// Reconcilers whose primaries are of the resource.
    pub reconciling: Vec<usize>,
    /// Reconcilers with the positions of those of their secondary kinds that are of the resource.
    pub related: Vec<(usize, usize)>,
    /// Caches of the resource.
    pub caching: Vec<usize>,
    /// The fields that are a part of the essence because handlers are for them.
    pub extra_fields: Vec<FieldPath>,
    /// The unique ids of the change handlers: the objects may have progress records of them.
    pub owned: Vec<Arc<str>>,
}

impl ResourceHandlers {
    /// No handlers of the resource.
    fn new(resource: &Arc<Resource>) -> Self {
        Self {
            resource: Arc::clone(resource),
            watching: Vec::new(),
            changing: Vec::new(),
            indexing: Vec::new(),
            spawning: Vec::new(),
            reconciling: Vec::new(),
            related: Vec::new(),
            caching: Vec::new(),
            extra_fields: Vec::new(),
            owned: Vec::new(),
        }
    }

    /// The same with only these caches and secondary kinds; and without other handlers unless they are served.
    #[must_use]
    pub fn restricted(&self, caching: Vec<usize>, related: Vec<(usize, usize)>, are_served: bool) -> Self {
        let others = if are_served { self.clone() } else { Self::new(&self.resource) };
        Self { related, caching, ..others }
    }

    /// Whether the objects of the served namespaces are needed, apart from caches and secondary kinds.
    pub fn has_primaries(&self) -> bool {
        self.has_cycles() || !self.reconciling.is_empty()
    }

    /// Whether the events of the resource cause handling cycles.
    pub fn has_cycles(&self) -> bool {
        let kinds = [&self.watching, &self.changing, &self.indexing, &self.spawning];
        kinds.into_iter().any(|handlers| !handlers.is_empty())
    }

    /// Whether anything but caches needs the events of the resource.
    pub fn has_handlers(&self) -> bool {
        self.has_cycles() || self.has_reconcilers()
    }

    /// Whether reconcilers need the events of the resource.
    pub fn has_reconcilers(&self) -> bool {
        !(self.reconciling.is_empty() && self.related.is_empty())
    }
}

impl Registry {
    /// The handlers of one resource. `callables` returns the result of a handler's callable selector.
    pub fn handlers_of(
        self: &Arc<Self>,
        resource: &Arc<Resource>,
        callables: &dyn Fn(usize) -> bool,
    ) -> ResourceHandlers {
        let mut resource_handlers = ResourceHandlers::new(resource);
        for (index, handler) in self.handlers.iter().enumerate() {
            let related = handler.reconciling().into_iter().flat_map(Reconciling::related).enumerate();
            let of_resource = related.filter(|(_, related)| related.selector.check(resource));
            resource_handlers.related.extend(of_resource.map(|(position, _)| (index, position)));
            if !selects(handler, resource, || callables(index)) {
                continue;
            }
            match handler.kind {
                Kind::Watching => resource_handlers.watching.push(index),
                Kind::Changing(_) => resource_handlers.changing.push(index),
                Kind::Indexing => resource_handlers.indexing.push(index),
                Kind::Daemon(_) | Kind::Timer(_) => resource_handlers.spawning.push(index),
                Kind::Reconciling(_) => {
                    resource_handlers.reconciling.push(index);
                    continue;
                }
                Kind::Caching(_) => {
                    resource_handlers.caching.push(index);
                    continue;
                }
                // Activities have no resource, and webhooks no watch.
                Kind::Activity { .. } | Kind::Webhook(_) => continue,
            }
            note_field(&mut resource_handlers.extra_fields, handler);
            note_id(&mut resource_handlers.owned, handler);
        }
        resource_handlers
    }

    /// Whether other handlers wait until the objects of the resource are listed: they are indexed, or a required cache has them.
    pub fn is_awaited(&self, handlers: &ResourceHandlers) -> bool {
        let is_required = |index: &usize| {
            let options = self.handlers.get(*index).and_then(Handler::caching);
            options.is_some_and(|options| !options.optional)
        };
        !handlers.indexing.is_empty() || handlers.caching.iter().any(is_required)
    }

    /// The handlers without repetitions: a function is called once per id, with the options of its first declaration.
    pub fn deduplicated(&self, handlers: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut seen = HashSet::new();
        handlers
            .filter(|index| {
                self.handlers.get(*index).is_some_and(|handler| seen.insert((handler.key, &handler.id)))
            })
            .collect()
    }
}

fn selects(handler: &Handler, resource: &Resource, callable: impl FnOnce() -> bool) -> bool {
    // Sub-handlers have no selector: they match the resources of their parent.
    let Some(selector) = &handler.selector else {
        return true;
    };
    selector.check(resource) && (!selector.callable || callable())
}

/// Index functions and admission handlers get whole objects. The fields of other handlers become a part of the essence.
fn note_field(fields: &mut Vec<FieldPath>, handler: &Handler) {
    if matches!(handler.kind, Kind::Indexing | Kind::Webhook(_)) {
        return;
    }
    if let Some(field) = &handler.field
        && !field.is_empty()
        && !fields.contains(field)
    {
        fields.push(field.clone());
    }
}

fn note_id(ids: &mut Vec<Arc<str>>, handler: &Handler) {
    if matches!(handler.kind, Kind::Changing(_)) && !ids.contains(&handler.id) {
        ids.push(Arc::clone(&handler.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resource(plural: &str) -> Arc<Resource> {
        Arc::new(
            serde_json::from_value(json!({
                "group": "kopf.dev", "version": "v1", "plural": plural, "kind": "K", "singular": "k",
                "shortcuts": [], "categories": [], "subresources": [], "verbs": [],
                "namespaced": true, "preferred": true,
            }))
            .unwrap(),
        )
    }

    fn registry(handlers: serde_json::Value) -> Arc<Registry> {
        Arc::new(Registry { handlers: serde_json::from_value(handlers).unwrap() })
    }

    // contract: engine 6.1
    #[test]
    fn handlers_are_sorted_by_kind_and_resource() {
        let registry = registry(json!([
            {"id": "a", "kind": "changing", "selector": {"plural": "ks"}, "field": ["spec", "x"]},
            {"id": "b", "kind": "watching", "selector": {"plural": "ks"}, "field": ["spec", "x"]},
            {"id": "c", "kind": "changing", "selector": {"plural": "others"}, "field": ["spec", "y"]},
            {"id": "d", "kind": "daemon", "field": ["spec", "z"]},
            {"id": "e", "kind": "indexing", "field": ["spec", "i"]},
            {"id": "f", "kind": "activity", "activity": "startup"},
            {"id": "a", "kind": "changing", "selector": {"plural": "ks"}},
        ]));
        let resource_handlers = registry.handlers_of(&resource("ks"), &|_| true);
        assert_eq!(
            (&resource_handlers.changing[..], &resource_handlers.watching[..]),
            (&[0, 6][..], &[1][..])
        );
        assert_eq!((&resource_handlers.spawning[..], &resource_handlers.indexing[..]), (&[3][..], &[4][..]));
        assert_eq!(resource_handlers.extra_fields, [FieldPath::parse("spec.x"), FieldPath::parse("spec.z")]);
        assert_eq!(resource_handlers.owned, [Arc::from("a")]);
    }

    #[test]
    fn callable_selectors_are_called() {
        let registry = registry(json!([{"id": "a", "kind": "watching", "selector": {"callable": true}}]));
        assert_eq!(registry.handlers_of(&resource("ks"), &|_| true).watching, [0]);
        assert!(registry.handlers_of(&resource("ks"), &|_| false).watching.is_empty());
    }

    // contract: engine 6.3
    #[test]
    fn one_function_and_id_is_kept_once() {
        let registry = registry(json!([
            {"id": "a", "key": 1, "kind": "watching"}, {"id": "a", "key": 1, "kind": "watching"},
            {"id": "a", "key": 2, "kind": "watching"}, {"id": "b", "key": 1, "kind": "watching"},
        ]));
        assert_eq!(registry.deduplicated(0..4), [0, 2, 3]);
    }

    #[test]
    fn reconcilers_are_handlers_of_their_primaries_and_of_related_kinds_without_cycles() {
        let registry = registry(json!([
            {"id": "r", "kind": "reconciling", "selector": {"plural": "ks"}, "field": ["spec", "x"],
             "owns": [{"selector": {"plural": "others"}, "relation": {"owned": {"controller": false, "own_writes": true}}}]},
        ]));
        let [primaries, secondary, unrelated] =
            ["ks", "others", "thirds"].map(|plural| registry.handlers_of(&resource(plural), &|_| true));
        assert_eq!((&*primaries.reconciling, &*primaries.related), (&[0][..], &[][..]));
        assert_eq!((&*secondary.reconciling, &*secondary.related), (&[][..], &[(0, 0)][..]));
        assert!(primaries.has_reconcilers() && secondary.has_reconcilers() && !unrelated.has_reconcilers());
        assert!(![primaries.has_cycles(), secondary.has_cycles()].contains(&true));
        // Neither the essence nor the records of progress of objects depend on reconcilers.
        assert!(primaries.extra_fields.is_empty() && primaries.owned.is_empty());
    }
}
