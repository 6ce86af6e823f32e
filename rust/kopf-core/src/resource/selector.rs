//! Selectors: the resources that a handler is declared for by the arguments of its decorator.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use super::Resource;
use crate::json::value::{Value, write_repr_string};

/// A resource name of any sort: kind, plural, singular or short name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnyName {
    /// One name.
    Name(String),
    /// All resources, except for Kubernetes events.
    Everything,
}

impl Serialize for AnyName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Name(name) => serializer.serialize_str(name),
            Self::Everything => json!({"everything": true}).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for AnyName {
    /// From a string, or from `{"everything": true}`.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(name) => Ok(Self::Name(name)),
            Value::Object(map) if map.get("everything") == Some(&Value::Bool(true)) => Ok(Self::Everything),
            _ => Err(serde::de::Error::custom("a name is either a string or {\"everything\": true}")),
        }
    }
}

/// The criteria of a resource selector; unspecified fields accept any value.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default)]
pub struct Selector {
    /// The API group.
    pub group: Option<String>,
    /// The version; unspecified means the preferred one.
    pub version: Option<String>,
    /// The kind.
    pub kind: Option<String>,
    /// The plural name.
    pub plural: Option<String>,
    /// The singular name.
    pub singular: Option<String>,
    /// One of the short names.
    pub shortcut: Option<String>,
    /// One of the categories.
    pub category: Option<String>,
    /// A resource name of any sort.
    pub any_name: Option<AnyName>,
    /// Whether a Python function decides additionally.
    pub callable: bool,
}

impl Selector {
    /// The name by which resources are selected, if there is one.
    pub fn name(&self) -> Option<&str> {
        let any = match &self.any_name {
            Some(AnyName::Name(name)) => Some(name.as_str()),
            _ => None,
        };
        any.or(self.plural.as_deref()).or(self.singular.as_deref()).or(self.kind.as_deref())
    }

    /// Whether the resource matches, apart from the callable, which is called in Python.
    pub fn check(&self, resource: &Resource) -> bool {
        let same = |expected: &Option<String>, actual: &str| expected.as_ref().is_none_or(|w| w == actual);
        let named =
            |expected: &Option<String>, actual: &Option<String>| expected.is_none() || expected == actual;
        let version = match &self.version {
            Some(version) => *version == resource.version,
            None => resource.preferred || self.callable,
        };
        version
            && same(&self.group, &resource.group)
            && named(&self.kind, &resource.kind)
            && same(&self.plural, &resource.plural)
            && named(&self.singular, &resource.singular)
            && self.shortcut.as_ref().is_none_or(|name| resource.shortcuts.contains(name))
            && self.category.as_ref().is_none_or(|name| resource.categories.contains(name))
            && self.any_name.as_ref().is_none_or(|name| is_named(resource, name))
            && !(self.callable && is_events(resource))
    }

    /// Whether it names a specific resource, not a class of resources.
    pub fn is_specific(&self) -> bool {
        self.kind.is_some()
            || self.plural.is_some()
            || self.singular.is_some()
            || self.shortcut.is_some()
            || matches!(self.any_name, Some(AnyName::Name(_)))
    }

    /// The selected resources. If a specific name matches a core resource, only core resources are selected.
    pub fn select(&self, resources: &[Arc<Resource>]) -> Vec<Arc<Resource>> {
        let mut selected: Vec<_> =
            resources.iter().filter(|resource| self.check(resource)).cloned().collect();
        if self.is_specific() && selected.iter().any(|resource| resource.group.is_empty()) {
            selected.retain(|resource| resource.group.is_empty());
        }
        selected
    }
}

fn is_named(resource: &Resource, name: &AnyName) -> bool {
    match name {
        AnyName::Everything => !is_events(resource),
        AnyName::Name(name) => {
            *name == resource.plural
                || resource.kind.as_ref() == Some(name)
                || resource.singular.as_ref() == Some(name)
                || resource.shortcuts.contains(name)
        }
    }
}

/// Whether the resource is Kubernetes events. `EVERYTHING` excludes them, because operators create them by handling
/// objects.
fn is_events(resource: &Resource) -> bool {
    let core = resource.group.is_empty() && resource.version == "v1";
    let modern = resource.group == "events.k8s.io" && resource.preferred;
    (core || modern) && is_named(resource, &AnyName::Name("events".to_owned()))
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |text: &String| {
            let mut out = String::new();
            write_repr_string(&mut out, text);
            out
        };
        let any_name = self.any_name.as_ref().map(|name| match name {
            AnyName::Name(name) => quoted(name),
            AnyName::Everything => "<Marker.EVERYTHING: 1>".to_owned(),
        });
        let fields = [
            ("group", self.group.as_ref().map(quoted)),
            ("version", self.version.as_ref().map(quoted)),
            ("kind", self.kind.as_ref().map(quoted)),
            ("plural", self.plural.as_ref().map(quoted)),
            ("singular", self.singular.as_ref().map(quoted)),
            ("shortcut", self.shortcut.as_ref().map(quoted)),
            ("category", self.category.as_ref().map(quoted)),
            ("fn", self.callable.then(|| "<function>".to_owned())),
            ("any_name", any_name),
        ];
        let shown: Vec<_> =
            fields.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?))).collect();
        write!(f, "Selector({})", shown.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(value: Value) -> Arc<Resource> {
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn selector(value: Value) -> Selector {
        serde_json::from_value(value).unwrap()
    }

    fn pods(group: &str, version: &str, preferred: bool) -> Arc<Resource> {
        resource(json!({
            "group": group, "version": version, "plural": "pods", "kind": "Pod", "singular": "pod",
            "shortcuts": ["po"], "categories": ["all"], "preferred": preferred,
        }))
    }

    #[test]
    fn any_name_matches_each_of_the_names() {
        let pods = pods("", "v1", true);
        for name in ["pods", "Pod", "pod", "po"] {
            assert!(selector(json!({"any_name": name})).check(&pods), "{name}");
        }
        for wrong in
            [json!({"any_name": "all"}), json!({"kind": "pod"}), json!({"group": "x", "any_name": "po"})]
        {
            assert!(!selector(wrong.clone()).check(&pods), "{wrong}");
        }
        assert!(selector(json!({"category": "all"})).check(&pods));
    }

    // contract: engine 1.5
    #[test]
    fn only_preferred_versions_match_unless_one_is_specified() {
        let old = pods("x", "v1beta1", false);
        assert!(!selector(json!({"any_name": "pods"})).check(&old));
        assert!(selector(json!({"any_name": "pods", "version": "v1beta1"})).check(&old));
        assert!(selector(json!({"callable": true})).check(&old));
    }

    #[test]
    fn everything_excludes_kubernetes_events() {
        let events = |group: &str, version: &str, preferred: bool| {
            resource(json!({"group": group, "version": version, "plural": "events", "kind": "Event",
                "categories": ["all"], "preferred": preferred}))
        };
        let everything = selector(json!({"any_name": {"everything": true}}));
        assert!(!everything.check(&events("", "v1", true)));
        assert!(!everything.check(&events("events.k8s.io", "v1", true)));
        assert!(everything.check(&pods("", "v1", true)));
        let old = selector(json!({"any_name": {"everything": true}, "version": "v1beta1"}));
        assert!(old.check(&events("events.k8s.io", "v1beta1", false)));
        assert!(!selector(json!({"callable": true})).check(&events("", "v1", true)));
        assert!(selector(json!({"category": "all"})).check(&events("", "v1", true)));
        assert!(selector(json!({"any_name": "events"})).check(&events("", "v1", true)));
    }

    // contract: engine 1.2
    #[test]
    fn a_specific_name_prefers_core_resources() {
        let all = [pods("", "v1", true), pods("metrics.k8s.io", "v1", true)];
        assert_eq!(selector(json!({"any_name": "pods"})).select(&all).len(), 1);
        assert_eq!(selector(json!({"category": "all"})).select(&all).len(), 2);
        assert_eq!(selector(json!({"any_name": "pods", "group": "metrics.k8s.io"})).select(&all).len(), 1);
    }

    #[test]
    fn the_text_contains_specified_fields_only() {
        let text = |value: Value| selector(value).to_string();
        assert_eq!(
            text(json!({"group": "kopf.dev", "any_name": "kopfexamples"})),
            "Selector(group='kopf.dev', any_name='kopfexamples')"
        );
        assert_eq!(
            text(json!({"any_name": {"everything": true}})),
            "Selector(any_name=<Marker.EVERYTHING: 1>)"
        );
        assert_eq!(text(json!({"group": "a", "category": "all"})), "Selector(group='a', category='all')");
        assert!(serde_json::from_value::<AnyName>(json!({"everything": false})).is_err());
        assert_eq!(serde_json::to_value(AnyName::Everything).unwrap(), json!({"everything": true}));
    }
}
