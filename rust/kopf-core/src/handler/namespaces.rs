//! The namespaces of a cache or of a watched kind, as data.

use serde::Deserialize;

/// The declared namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeclaredNamespaces {
    /// Those of the operator.
    #[default]
    Served,
    /// All of them.
    All,
    /// The named ones.
    Named(Vec<String>),
}

impl DeclaredNamespaces {
    /// Whether objects of this namespace count, or cluster-scoped ones. Which objects are served is left to the streams.
    pub fn contains(&self, namespace: Option<&str>) -> bool {
        match (self, namespace) {
            (Self::Named(names), Some(namespace)) => names.iter().any(|name| name == namespace),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_restrict_namespaced_objects_only() {
        let named = DeclaredNamespaces::Named(vec!["a".to_owned()]);
        assert!(named.contains(Some("a")) && !named.contains(Some("b")) && named.contains(None));
        assert!(
            DeclaredNamespaces::All.contains(Some("b")) && DeclaredNamespaces::Served.contains(Some("b"))
        );
    }
}
