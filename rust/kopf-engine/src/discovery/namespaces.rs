//! The namespaces that an operator serves: the whole cluster, or the namespaces whose names match its patterns.
//!
//! The core matches globs. Other patterns can be matched only by the host; as names do not change, each name is matched
//! once.

use std::collections::{BTreeSet, HashMap};

use kopf_core::resource::{is_exact_namespace, match_namespace};
use tokio::sync::oneshot;

use crate::host::{Host, HostTask, MatchNamespacesTask};

/// The namespaces that the operator serves.
#[derive(Debug, Clone)]
pub enum NamespaceScope {
    /// The whole cluster.
    Cluster,
    /// The namespaces whose names match any of the patterns.
    Namespaces {
        /// The globs.
        patterns: Vec<String>,
        /// Whether there are other patterns, which the host matches.
        foreign: bool,
    },
}

impl NamespaceScope {
    /// Whether the name matches a glob, or may match a pattern of the host.
    pub fn may_have(&self, name: &str) -> bool {
        match self {
            Self::Cluster => true,
            Self::Namespaces { foreign, .. } => *foreign || self.has(name),
        }
    }

    /// Whether the name matches a glob.
    fn has(&self, name: &str) -> bool {
        match self {
            Self::Cluster => true,
            Self::Namespaces { patterns, .. } => patterns.iter().any(|glob| match_namespace(name, glob)),
        }
    }

    /// Whether all patterns are plain names.
    pub fn is_exact(&self) -> bool {
        match self {
            Self::Cluster => false,
            Self::Namespaces { patterns, foreign } => {
                !foreign && patterns.iter().all(|pattern| is_exact_namespace(pattern))
            }
        }
    }

    /// The names that are known without listing namespaces.
    pub fn exact(&self) -> BTreeSet<String> {
        match self {
            Self::Cluster => BTreeSet::new(),
            Self::Namespaces { patterns, .. } => {
                patterns.iter().filter(|pattern| is_exact_namespace(pattern)).cloned().collect()
            }
        }
    }
}

/// The cached results of the host's matching of namespace names.
#[derive(Debug, Default)]
pub struct NamespaceMatches(HashMap<String, bool>);

impl NamespaceMatches {
    /// The names that match; the host is called for the unknown ones.
    pub async fn served(
        &mut self,
        namespace_scope: &NamespaceScope,
        present: BTreeSet<String>,
        host: &dyn Host,
    ) -> BTreeSet<String> {
        let is_unknown = |name: &&String| !namespace_scope.has(name) && !self.0.contains_key(*name);
        let names: Vec<String> = present.iter().filter(is_unknown).cloned().collect();
        if !names.is_empty() {
            let (reply, receiver) = oneshot::channel();
            host.submit(HostTask::MatchNamespaces(MatchNamespacesTask { names: names.clone(), reply }));
            // There is no reply only when the operator is exiting.
            self.0.extend(names.into_iter().zip(receiver.await.unwrap_or_default()));
        }
        let fits = |name: &String| namespace_scope.has(name) || self.0.get(name).copied().unwrap_or_default();
        present.into_iter().filter(fits).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespaces(patterns: &[&str], foreign: bool) -> NamespaceScope {
        NamespaceScope::Namespaces { patterns: patterns.iter().map(ToString::to_string).collect(), foreign }
    }

    #[test]
    fn names_match_any_of_the_patterns() {
        let namespace_scope = namespaces(&["prod", "test-*, !test-old"], false);
        for (name, fits) in [("prod", true), ("test-1", true), ("test-old", false), ("other", false)] {
            assert_eq!(namespace_scope.may_have(name), fits, "{name}");
        }
        assert!(NamespaceScope::Cluster.may_have("other"));
        assert!(namespaces(&[], true).may_have("other"));
        assert_eq!(namespace_scope.exact(), BTreeSet::from(["prod".to_owned()]));
    }
}
