//! Selection: the resources of the cluster that the operator serves.
//!
//! Pure: the scanned resources and the results of callable selectors are arguments.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::handler::{Handler, Kind};
use crate::resource::{Resource, Selector, distance, longest_distance};

/// The resources to serve, with warnings.
#[derive(Debug, Default)]
pub struct Selection {
    /// The resources to watch.
    pub served: Vec<Arc<Resource>>,
    /// The warnings for the author of the operator.
    pub complaints: Vec<String>,
    /// Whether some selector matches no resource.
    pub unresolved: bool,
}

/// The scanned resources that each handler's selector matches.
///
/// `callable(handler, resource)` is the result of a callable selector; it is not called for other selectors.
pub fn found(
    handler: &Handler,
    index: usize,
    scanned: &[Arc<Resource>],
    callable: &dyn Fn(usize, &Resource) -> bool,
) -> Vec<Arc<Resource>> {
    let Some(selector) = &handler.selector else { return vec![] };
    let mut found = selector.select(scanned);
    if selector.callable {
        found.retain(|resource| callable(index, resource));
    }
    found
}

/// The selectors of the secondary objects of a reconciler.
fn related(handler: &Handler) -> impl Iterator<Item = &Selector> {
    handler.selectors().skip(usize::from(handler.selector.is_some()))
}

/// Selects the resources to serve.
pub fn select(
    handlers: &[Handler],
    scanned: &[Arc<Resource>],
    callable: &dyn Fn(usize, &Resource) -> bool,
) -> Selection {
    let watching = || handlers.iter().enumerate().filter(|(_, handler)| is_watching(&handler.kind));
    let mut served: BTreeSet<Named> = BTreeSet::new();
    for (index, handler) in watching() {
        served.extend(found(handler, index, scanned, callable).into_iter().map(Named));
        served.extend(related(handler).flat_map(|selector| selector.select(scanned)).map(Named));
    }
    let mut selection = Selection::default();
    drop_ambiguous(&mut served, handlers, &mut selection, callable);
    note_unresolved(&served, handlers, &mut selection, callable);
    drop_unwatchable(&mut served, handlers, &mut selection, callable);
    selection.served = served.into_iter().map(|Named(resource)| resource).collect();
    selection
}

/// Drops the resources of a name that several resources have: the intended one is unknown.
fn drop_ambiguous(
    served: &mut BTreeSet<Named>,
    handlers: &[Handler],
    selection: &mut Selection,
    callable: &dyn Fn(usize, &Resource) -> bool,
) {
    let present = as_list(served);
    let mut ambiguous: BTreeSet<Named> = BTreeSet::new();
    let mut reported = BTreeSet::new();
    for (index, handler) in handlers.iter().enumerate().filter(|(_, handler)| is_watching(&handler.kind)) {
        let Some(selector) = handler.selector.as_ref().filter(|selector| selector.is_specific()) else {
            continue;
        };
        let matched = found(handler, index, &present, callable);
        if matched.len() > 1 {
            let names = braced(&matched);
            if reported.insert(selector.to_string()) {
                selection.complaints.push(format!(
                    "Ambiguous resources will not be served (try specifying API groups): {selector} => {names}"
                ));
            }
            ambiguous.extend(matched.into_iter().map(Named));
        }
    }
    served.retain(|one| !ambiguous.contains(one));
}

fn note_unresolved(
    served: &BTreeSet<Named>,
    handlers: &[Handler],
    selection: &mut Selection,
    callable: &dyn Fn(usize, &Resource) -> bool,
) {
    let present = as_list(served);
    let mut names = BTreeSet::new();
    for (index, handler) in handlers.iter().enumerate().filter(|(_, handler)| is_watching(&handler.kind)) {
        if let Some(selector) = &handler.selector
            && found(handler, index, &present, callable).is_empty()
        {
            names.insert(selector.to_string());
        }
        let missing = related(handler).filter(|selector| selector.select(&present).is_empty());
        names.extend(missing.map(ToString::to_string));
    }
    if !names.is_empty() {
        let names: Vec<_> = names.into_iter().collect();
        selection.unresolved = true;
        selection.complaints.push(format!(
            "Unresolved resources cannot be served (try creating their CRDs): {}",
            names.join(", ")
        ));
    }
}

/// Suggestions for names that no resource has, but that are similar to an existing one: they are probably misspelled.
pub fn suggestions(handlers: &[Handler], scanned: &[Arc<Resource>]) -> Vec<String> {
    let mut hints = BTreeSet::new();
    for handler in handlers.iter().filter(|handler| is_watching(&handler.kind)) {
        let Some(selector) = &handler.selector else { continue };
        let Some(name) =
            selector.name().filter(|_| !selector.callable && selector.select(scanned).is_empty())
        else {
            continue;
        };
        let longest = longest_distance(name);
        let nearest = scanned
            .iter()
            .flat_map(|resource| names(resource).map(move |known| (distance(name, known), known, resource)))
            .filter(|(distance, ..)| *distance <= longest)
            .min_by_key(|(distance, ..)| *distance);
        if let Some((distance, known, resource)) = nearest {
            let known = if distance > 0 { known.to_owned() } else { resource.to_string() };
            let id = &handler.id;
            hints.insert(format!("No resource '{name}' for the handler '{id}': did you mean '{known}'?"));
        }
    }
    hints.into_iter().collect()
}

/// The names that select a resource.
fn names(resource: &Resource) -> impl Iterator<Item = &str> {
    let others = [resource.singular.as_deref(), resource.kind.as_deref()];
    std::iter::once(resource.plural.as_str()).chain(others.into_iter().flatten())
}

fn drop_unwatchable(
    served: &mut BTreeSet<Named>,
    handlers: &[Handler],
    selection: &mut Selection,
    callable: &dyn Fn(usize, &Resource) -> bool,
) {
    let watchable = |one: &Named| one.0.verbs.contains("watch") && one.0.verbs.contains("list");
    let unwatchable: Vec<_> =
        served.iter().filter(|one| !watchable(one)).map(|one| Arc::clone(&one.0)).collect();
    if !unwatchable.is_empty() {
        selection
            .complaints
            .push(format!("Non-watchable resources will not be served: {}", braced(&unwatchable)));
        served.retain(watchable);
    }
    let readonly: Vec<_> =
        served.iter().filter(|one| !one.0.is_patchable()).map(|one| Arc::clone(&one.0)).collect();
    let patching = handlers.iter().enumerate().filter(|(_, handler)| is_patching(&handler.kind));
    let affected =
        patching.into_iter().any(|(index, handler)| !found(handler, index, &readonly, callable).is_empty());
    if affected {
        selection
            .complaints
            .push(format!("Non-patchable resources will not be served: {}", braced(&readonly)));
        served.retain(|one| one.0.is_patchable());
    }
}

/// Whether handlers of this kind need the resource's events.
fn is_watching(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::Watching
            | Kind::Changing { .. }
            | Kind::Indexing
            | Kind::Daemon { .. }
            | Kind::Timer { .. }
            | Kind::Reconciling(_)
            | Kind::Caching(_)
    )
}

/// Whether handlers of this kind patch the objects.
fn is_patching(kind: &Kind) -> bool {
    matches!(kind, Kind::Changing { .. } | Kind::Daemon { .. } | Kind::Timer { .. })
}

fn as_list(served: &BTreeSet<Named>) -> Vec<Arc<Resource>> {
    served.iter().map(|one| Arc::clone(&one.0)).collect()
}

fn braced(resources: &[Arc<Resource>]) -> String {
    let mut names: Vec<_> = resources.iter().map(ToString::to_string).collect();
    names.sort();
    names.dedup();
    format!("{{{}}}", names.join(", "))
}

/// A resource, ordered by its identity.
#[derive(Clone)]
struct Named(Arc<Resource>);

impl Named {
    fn key(&self) -> (&str, &str, &str) {
        (&self.0.group, &self.0.plural, &self.0.version)
    }
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Named {}

impl PartialOrd for Named {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Named {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scanned() -> Vec<Arc<Resource>> {
        [("hotel.example.com", "guests", "Guest"), ("", "pods", "Pod"), ("", "nodes", "Node")]
            .map(|(group, plural, kind)| {
                let singular = kind.to_lowercase();
                let fields = json!({
                    "group": group, "version": "v1", "plural": plural, "kind": kind, "singular": singular
                });
                Arc::new(serde_json::from_value(fields).unwrap())
            })
            .into()
    }

    fn hints(selector: &serde_json::Value) -> Vec<String> {
        let fields = json!({"id": "greet", "kind": "watching", "selector": selector});
        suggestions(&[serde_json::from_value(fields).unwrap()], &scanned())
    }

    #[test]
    fn misspelled_names_get_a_suggestion() {
        let hint = |name: &str, known: &str| {
            vec![format!("No resource '{name}' for the handler 'greet': did you mean '{known}'?")]
        };
        assert_eq!(hints(&json!({"any_name": "gests"})), hint("gests", "guests"));
        assert_eq!(hints(&json!({"plural": "guestss"})), hint("guestss", "guests"));
        assert_eq!(hints(&json!({"kind": "Gust"})), hint("Gust", "Guest"));
        let elsewhere = json!({"group": "example.com", "any_name": "guests"});
        assert_eq!(hints(&elsewhere), hint("guests", "guests.v1.hotel.example.com"));
    }

    #[test]
    fn other_names_get_no_suggestion() {
        for selector in [
            json!({"any_name": "guests"}),
            json!({"any_name": "rooms"}),
            json!({"category": "gests"}),
            json!({"any_name": "pds", "callable": true}),
        ] {
            assert_eq!(hints(&selector), Vec::<String>::new(), "{selector}");
        }
    }

    #[test]
    fn the_kinds_of_secondary_objects_are_served_and_reported_if_they_are_missing() {
        let related = |plural: &str| json!({"selector": {"plural": plural}, "relation": "mapped"});
        let fields = json!({
            "id": "sync", "kind": "reconciling", "selector": {"plural": "guests"},
            "watches": [related("nodes"), related("rooms")],
        });
        let mut resources = scanned();
        for resource in &mut resources {
            let verbs = ["list", "watch"].map(str::to_owned);
            *resource =
                Arc::new(Resource { preferred: true, verbs: verbs.into(), ..Resource::clone(resource) });
        }
        let handlers = [serde_json::from_value(fields).unwrap()];
        let selection = select(&handlers, &resources, &|_, _| true);
        let served: Vec<_> = selection.served.iter().map(|resource| resource.plural.as_str()).collect();
        // Reconcilers may serve resources that cannot be patched.
        assert_eq!(served, ["nodes", "guests"]);
        assert!(selection.unresolved && selection.complaints.len() == 1, "{:?}", selection.complaints);
        assert!(selection.complaints[0].contains("rooms"));
    }

    #[test]
    fn resources_of_terminating_crds_are_served() {
        let fields =
            json!({"id": "greet", "kind": "changing", "reason": "create", "selector": {"plural": "guests"}});
        let handlers = [serde_json::from_value(fields).unwrap()];
        let served = |verbs: &[&str]| {
            let mut guests = Resource::clone(&scanned()[0]);
            guests.preferred = true;
            guests.verbs = verbs.iter().map(|&verb| verb.to_owned()).collect();
            !select(&handlers, &[Arc::new(guests)], &|_, _| true).served.is_empty()
        };
        assert!(served(&["create", "get", "list", "patch", "watch"]));
        assert!(!served(&["create", "get", "list", "update", "watch"]));
        assert!(!served(&["get", "list", "watch"]));
        // The finalizers of their objects have to be removed.
        assert!(served(&["delete", "deletecollection", "get", "list", "watch"]));
    }

    #[test]
    fn distances_are_counted_in_letters() {
        for (one, other, expected) in
            [("", "", 0), ("a", "", 1), ("", "abc", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)]
        {
            assert_eq!(distance(one, other), expected, "{one} {other}");
            assert_eq!(distance(other, one), expected, "{other} {one}");
        }
    }
}
