//! The warnings about other operators that handle the same objects: see `kopf_core::persistence::foreign_write`.
//!
//! There is one per resource. There is none while a peering coordinates the operators, and none for resources that this operator
//! serves in several versions: the other operator would be itself.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kopf_core::resource::Resource;

/// The resources that other operators may handle, too, and those for which this was logged.
#[derive(Debug, Default)]
pub struct OtherOperators(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The peerings whose objects exist, or were not looked up yet.
    peerings: BTreeSet<String>,
    resources: HashMap<String, Served>,
}

#[derive(Debug, Default)]
struct Served {
    versions: BTreeSet<String>,
    is_reported: bool,
}

impl OtherOperators {
    /// Records whether the peering with this name can coordinate the operators.
    pub fn set_peering(&self, name: &str, is_active: bool) {
        let mut state = self.lock();
        if is_active {
            state.peerings.insert(name.to_owned());
        } else {
            state.peerings.remove(name);
        }
    }

    /// Records that this operator handles the resource.
    pub fn serve(&self, resource: &Resource) {
        let mut state = self.lock();
        let served = state.resources.entry(key_of(resource)).or_default();
        served.versions.insert(resource.version.clone());
    }

    /// Whether a warning about another operator of this resource is due; true only once.
    pub fn report(&self, resource: &Resource) -> bool {
        let mut state = self.lock();
        if !state.peerings.is_empty() {
            return false;
        }
        let served = state.resources.entry(key_of(resource)).or_default();
        served.versions.len() <= 1 && !std::mem::replace(&mut served.is_reported, true)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key_of(resource: &Resource) -> String {
    format!("{}.{}", resource.plural, resource.group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::resource;

    #[test]
    fn there_is_one_warning_per_resource() {
        let others = OtherOperators::default();
        let [things, widgets] = ["things", "widgets"].map(|plural| resource("example.com", plural, true));
        others.serve(&things);
        assert_eq!(
            [&things, &things, &widgets, &things].map(|it| others.report(it)),
            [true, false, true, false]
        );
    }

    #[test]
    fn there_is_none_while_a_peering_is_active() {
        let (others, things) = (OtherOperators::default(), resource("example.com", "things", true));
        others.set_peering("a", true);
        others.set_peering("b", true);
        others.set_peering("a", false);
        assert!(!others.report(&things));
        others.set_peering("b", false);
        assert!(others.report(&things));
    }

    #[test]
    fn there_is_none_for_a_resource_that_is_served_in_two_versions() {
        let (others, things) = (OtherOperators::default(), resource("example.com", "things", true));
        let older = Resource { version: "v0".to_owned(), ..Resource::clone(&things) };
        others.serve(&things);
        others.serve(&things);
        others.serve(&older);
        assert!(!others.report(&things) && !others.report(&older));
    }
}
