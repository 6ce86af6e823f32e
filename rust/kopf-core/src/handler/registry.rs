//! All declared handlers, and the handlers of one resource.
//!
//! The plan of a resource is made once, so that its events cost nothing for handlers of other resources.

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
#[derive(Clone, Debug)]
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
    /// The fields that are a part of the essence because handlers are for them.
    pub extra_fields: Vec<FieldPath>,
    /// The unique ids of the change handlers: the objects may have progress records of them.
    pub owned: Vec<Arc<str>>,
}

impl Registry {
    /// The handlers of one resource. `callables` returns the result of a handler's callable selector.
    pub fn plan(
        self: &Arc<Self>,
        resource: &Arc<Resource>,
        callables: &dyn Fn(usize) -> bool,
    ) -> ResourceHandlers {
        let mut plan = ResourceHandlers {
            resource: Arc::clone(resource),
            watching: Vec::new(),
            changing: Vec::new(),
            indexing: Vec::new(),
            spawning: Vec::new(),
            extra_fields: Vec::new(),
            owned: Vec::new(),
        };
        for (index, handler) in self.handlers.iter().enumerate() {
            if !selects(handler, resource, || callables(index)) {
                continue;
            }
            match handler.kind {
                Kind::Watching => plan.watching.push(index),
                Kind::Changing(_) => plan.changing.push(index),
                Kind::Indexing => plan.indexing.push(index),
                Kind::Daemon(_) | Kind::Timer(_) => plan.spawning.push(index),
                // Activities have no resource, and webhooks no watch.
                Kind::Activity { .. } | Kind::Webhook(_) => continue,
            }
            note_field(&mut plan.extra_fields, handler);
            note_id(&mut plan.owned, handler);
        }
        plan
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
        let plan = registry.plan(&resource("ks"), &|_| true);
        assert_eq!((&plan.changing[..], &plan.watching[..]), (&[0, 6][..], &[1][..]));
        assert_eq!((&plan.spawning[..], &plan.indexing[..]), (&[3][..], &[4][..]));
        assert_eq!(plan.extra_fields, [FieldPath::parse("spec.x"), FieldPath::parse("spec.z")]);
        assert_eq!(plan.owned, [Arc::from("a")]);
    }

    #[test]
    fn callable_selectors_are_called() {
        let registry = registry(json!([{"id": "a", "kind": "watching", "selector": {"callable": true}}]));
        assert_eq!(registry.plan(&resource("ks"), &|_| true).watching, [0]);
        assert!(registry.plan(&resource("ks"), &|_| false).watching.is_empty());
    }

    #[test]
    fn one_function_and_id_is_kept_once() {
        let registry = registry(json!([
            {"id": "a", "key": 1, "kind": "watching"}, {"id": "a", "key": 1, "kind": "watching"},
            {"id": "a", "key": 2, "kind": "watching"}, {"id": "b", "key": 1, "kind": "watching"},
        ]));
        assert_eq!(registry.deduplicated(0..4), [0, 2, 3]);
    }
}
