//! The options of reconcilers and of caches, as data. The rules that use them are in `schedule`, `relations` and `caches`.

use serde::Deserialize;

use super::MetaFilter;
use crate::handler::namespaces::DeclaredNamespaces;
use crate::json::path::FieldPath;
use crate::resource::Selector;

/// The options of a reconciler: `on.reconcile`. All times are in seconds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Reconciling {
    /// The owned kinds.
    pub owns: Vec<Related>,
    /// The watched kinds.
    pub watches: Vec<Related>,
    /// The parts of primaries whose changes are triggers.
    pub changed: Vec<ChangedPart>,
    /// The primaries of the initial list that are reconciled.
    pub initial: InitialTriggers,
    /// Whether the reconciler is also called for primaries that are being deleted.
    pub deletion: bool,
    /// The name of its finalizer; none for the operator's finalizer.
    pub finalizer: Option<String>,
    /// The window in which triggers by changes are merged; zero disables it.
    pub debounce: f64,
    /// The longest time from the first trigger to the start.
    pub debounce_limit: Option<f64>,
    /// The smallest time between two starts.
    pub min_interval: f64,
    /// The time from a success to the next reconciliation.
    pub resync: Option<f64>,
    /// The maximum number of concurrent reconciliations.
    pub concurrency: usize,
    /// The longest time of one call.
    pub reconcile_timeout: Option<f64>,
    /// The delays after failures.
    pub delays: DeclaredDelays,
    /// The time that a stopped call has to end.
    pub exit_timeout: f64,
    /// The annotation that pauses a primary.
    pub pause_annotation: String,
    /// The interval of warnings about missing streams.
    pub warn_after: f64,
    /// The number of reconciliations in a row, triggered by own writes, that are a hot loop.
    pub hot_loop: usize,
}

/// The primaries of the initial list that are reconciled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InitialTriggers {
    /// All of them.
    #[default]
    All,
    /// Those whose `status.observedGeneration` is missing or outdated.
    Unobserved,
    /// None.
    None,
}

/// A part of an object whose changes are triggers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangedPart {
    /// A word, or a path with dots.
    Word(String),
    /// A path.
    Path(FieldPath),
    /// A function in Python.
    Function,
}

/// The delays after failures.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeclaredDelays {
    /// `kopf.Backoff`.
    Growing {
        /// The first delay.
        first: f64,
        /// The growth from one delay to the next one.
        factor: f64,
        /// The longest delay.
        most: f64,
        /// The share by which random numbers make a delay longer.
        jitter: f64,
    },
    /// The same delay each time.
    Constant(f64),
    /// A function in Python: each failure comes with its delay.
    Computed,
}

impl Default for DeclaredDelays {
    fn default() -> Self {
        Self::Growing { first: 1.0, factor: 2.0, most: 300.0, jitter: 0.2 }
    }
}

/// A kind of owned or watched objects.
#[derive(Clone, Debug, Deserialize)]
pub struct Related {
    /// The selector of the kind.
    pub selector: Selector,
    /// The filters for labels.
    #[serde(default)]
    pub labels: Vec<(String, MetaFilter)>,
    /// The filters for annotations.
    #[serde(default)]
    pub annotations: Vec<(String, MetaFilter)>,
    /// Whether it has a `when=` callback.
    #[serde(default)]
    pub when: bool,
    /// The parts of the objects whose changes are triggers.
    #[serde(default)]
    pub changed: Vec<ChangedPart>,
    /// The relation to primaries.
    pub relation: RelationKind,
    /// The namespaces of the objects.
    #[serde(default)]
    pub namespaces: DeclaredNamespaces,
    /// Whether the reconciler needs only the metadata of the objects.
    #[serde(default)]
    pub metadata_only: bool,
}

/// The relation of a secondary object to primaries.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelationKind {
    /// By owner references.
    Owned {
        /// Only the reference of the controller counts.
        controller: bool,
        /// Whether events of own writes are triggers.
        own_writes: bool,
    },
    /// A mapping function in Python.
    Mapped,
    /// Primaries name the object.
    Named {
        /// The field with the names, in which `[*]` stands for all items of a list.
        name: String,
        /// The field with the namespace; by default, it is that of the primary.
        namespace: Option<FieldPath>,
    },
}

impl Reconciling {
    /// The kinds of secondary objects: first the owned, then the watched ones.
    pub fn related(&self) -> impl Iterator<Item = &Related> {
        self.owns.iter().chain(&self.watches)
    }
}

impl Related {
    /// Whether Python is called for each event: a filter, a mapping, or a part of `changed` is a function.
    pub fn has_functions(&self) -> bool {
        let is_callable = |(_, filter): &(String, MetaFilter)| *filter == MetaFilter::Callable;
        self.when
            || self.relation == RelationKind::Mapped
            || self.changed.contains(&ChangedPart::Function)
            || self.labels.iter().chain(&self.annotations).any(is_callable)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::handler::Handler;

    #[test]
    fn a_reconciler_is_one_flat_dictionary() {
        let handler: Handler = serde_json::from_value(json!({
            "id": "sync", "kind": "reconciling", "selector": {"plural": "shops"}, "retries": 3,
            "owns": [{"selector": {"plural": "pods"}, "changed": [{"word": "any"}],
                      "relation": {"owned": {"controller": true, "own_writes": false}}}],
            "watches": [
                {"selector": {"plural": "secrets"}, "changed": ["function"], "relation": "mapped"},
                {"selector": {"plural": "secrets"}, "changed": [{"path": ["data"]}],
                 "relation": {"named": {"name": "spec.secret", "namespace": null}}},
            ],
            "changed": [{"word": "essence"}], "initial": "unobserved", "deletion": true, "concurrency": 2,
            "delays": {"constant": 5}, "exit_timeout": 20, "pause_annotation": "a/b", "warn_after": 30,
        }))
        .unwrap();
        assert_eq!((handler.title(), handler.retries), ("Reconciler", Some(3)));
        let options = handler.reconciling().unwrap();
        assert_eq!(
            (options.initial, options.delays),
            (InitialTriggers::Unobserved, DeclaredDelays::Constant(5.0))
        );
        let functions: Vec<_> = options.related().map(Related::has_functions).collect();
        assert_eq!(functions, [false, true, false]);
        assert_eq!(options.owns[0].relation, RelationKind::Owned { controller: true, own_writes: false });
        let names: Vec<_> = handler.selectors().filter_map(Selector::name).collect();
        assert_eq!(names, ["shops", "pods", "secrets", "secrets"]);
    }
}
