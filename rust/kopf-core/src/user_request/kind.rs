//! Kinds by their names.

use std::fmt;
use std::sync::Arc;

use crate::resource::{AnyName, Resource, Selector};

/// The name of a kind: of any sort, with or without its group and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindName {
    /// The group; empty for the core group.
    pub group: Option<String>,
    /// The version; unspecified means the preferred one.
    pub version: Option<String>,
    /// The plural or singular name, the short name, or the kind.
    pub name: String,
}

/// The reason why a name does not mean one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KindError {
    /// There is no such resource.
    Unknown(String),
    /// There are several.
    Ambiguous(String),
}

impl KindName {
    /// Parses `apps/v1/deployments`, `v1/pods`, `deployments.v1.apps`, `deployments.apps`, `pods.v1`, or a name alone.
    pub fn parse(text: &str) -> Self {
        let owned = |text: &str| Some(text.to_owned());
        let slashes: Vec<&str> = text.split('/').collect();
        match slashes.as_slice() {
            [group, version, name] => {
                return Self { group: owned(group), version: owned(version), name: (*name).to_owned() };
            }
            [version, name] if is_version(version) => {
                return Self {
                    group: Some(String::new()),
                    version: owned(version),
                    name: (*name).to_owned(),
                };
            }
            _ => {}
        }
        let Some((name, rest)) = text.split_once('.') else {
            return Self { group: None, version: None, name: text.to_owned() };
        };
        let (group, version) = match rest.split_once('.') {
            Some((version, group)) if is_version(version) => (owned(group), owned(version)),
            None if is_version(rest) => (Some(String::new()), owned(rest)),
            _ => (owned(rest), None),
        };
        Self { group, version, name: name.to_owned() }
    }

    /// The group and the version, if both are specified: then they are the only ones to be discovered.
    pub fn group_version(&self) -> Option<(&str, &str)> {
        Some((self.group.as_deref()?, self.version.as_deref()?))
    }

    /// The resource of this name. The core group takes precedence.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub fn select(&self, resources: &[Arc<Resource>]) -> Result<Arc<Resource>, KindError> {
        let selector = Selector {
            group: self.group.clone(),
            version: self.version.clone(),
            any_name: Some(AnyName::Name(self.name.clone())),
            ..Selector::default()
        };
        let found = selector.select(resources);
        match found.as_slice() {
            [] => Err(KindError::Unknown(format!("The API server serves no resource named {self}."))),
            [one] => Ok(Arc::clone(one)),
            several => {
                let mut names: Vec<_> =
                    several.iter().map(|one| format!("{}.{}", one.plural, one.group)).collect();
                names.sort();
                let names = names.join(", ");
                Err(KindError::Ambiguous(format!("The name {self} is ambiguous: it means one of {names}.")))
            }
        }
    }
}

impl fmt::Display for KindName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.group, &self.version) {
            (Some(group), Some(version)) if group.is_empty() => write!(f, "{version}/{}", self.name),
            (Some(group), Some(version)) => write!(f, "{group}/{version}/{}", self.name),
            (Some(group), None) => write!(f, "{}.{group}", self.name),
            _ => f.write_str(&self.name),
        }
    }
}

/// Whether it is an API version such as `v1` or `v1beta1`, as in selectors.
fn is_version(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('v') else { return false };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let stages = ["alpha", "beta"];
    digits(rest)
        || stages
            .iter()
            .any(|stage| rest.split_once(stage).is_some_and(|(major, minor)| digits(major) && digits(minor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, version: &str, plural: &str, kind: &str, short: &str) -> Arc<Resource> {
        let fields = serde_json::json!({
            "group": group, "version": version, "plural": plural, "kind": kind, "shortcuts": [short],
            "singular": kind.to_lowercase(), "namespaced": true, "preferred": !version.contains("beta"),
        });
        Arc::new(serde_json::from_value(fields).unwrap())
    }

    fn select(text: &str) -> Result<String, KindError> {
        let all = [
            resource("", "v1", "pods", "Pod", "po"),
            resource("apps", "v1", "deployments", "Deployment", "deploy"),
            resource("apps", "v1beta1", "deployments", "Deployment", "deploy"),
            resource("metrics.k8s.io", "v1", "pods", "PodMetrics", "-"),
            resource("a.dev", "v1", "widgets", "Widget", "-"),
            resource("b.dev", "v1", "widgets", "Widget", "-"),
        ];
        KindName::parse(text).select(&all).map(|found| found.to_string())
    }

    #[test]
    fn any_name_with_or_without_group_and_version_selects_the_resource() {
        let names = [
            "deploy",
            "Deployment",
            "deployment",
            "deployments",
            "deployments.apps",
            "deployments.v1.apps",
            "apps/v1/deployments",
            "apps/v1/Deployment",
        ];
        for name in names {
            assert_eq!(select(name), Ok("deployments.v1.apps".to_owned()), "{name}");
        }
        assert_eq!(select("deployments.v1beta1.apps"), Ok("deployments.v1beta1.apps".to_owned()));
        for name in ["pods", "po", "pods.v1", "v1/pods", "/v1/pods"] {
            assert_eq!(select(name), Ok("pods.v1".to_owned()), "{name}");
        }
        assert_eq!(select("pods.metrics.k8s.io"), Ok("pods.v1.metrics.k8s.io".to_owned()));
        assert_eq!(select("widgets.a.dev"), Ok("widgets.v1.a.dev".to_owned()));
    }

    #[test]
    fn unknown_and_ambiguous_names_are_errors_that_list_the_candidates() {
        assert!(matches!(select("nothing"), Err(KindError::Unknown(text)) if text.contains("nothing")));
        assert!(matches!(select("deployments.a.dev"), Err(KindError::Unknown(_))));
        let Err(KindError::Ambiguous(text)) = select("widget") else { panic!("it is ambiguous") };
        assert!(text.contains("widgets.a.dev, widgets.b.dev"), "{text}");
    }
}
