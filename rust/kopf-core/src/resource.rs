//! Resources and their selectors.
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
/// A resource.
#[derive(Serialize, Deserialize, Clone, Debug)]
#[expect(missing_docs, reason = "the API's own words")]
pub struct Resource {
    pub group: String,
    pub version: String,
    pub plural: String,
    #[serde(default)]
    pub kind: Option<String>,
    #[serde(default)]
    pub singular: Option<String>,
    #[serde(default)]
    pub shortcuts: BTreeSet<String>,
    #[serde(default)]
    pub categories: BTreeSet<String>,
    #[serde(default)]
    pub subresources: BTreeSet<String>,
    #[serde(default)]
    pub verbs: BTreeSet<String>,
    #[serde(default)]
    pub namespaced: bool,
    #[serde(default)]
    pub preferred: bool,
}
impl PartialEq for Resource {
    fn eq(&self, o: &Self) -> bool {
        (&self.group, &self.version, &self.plural) == (&o.group, &o.version, &o.plural)
    }
}
impl Eq for Resource {}
impl Hash for Resource {
    fn hash<H: Hasher>(&self, h: &mut H) {
        (&self.group, &self.version, &self.plural).hash(h);
    }
}
impl fmt::Display for Resource {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}
impl Resource {
    /// The path of its URL.
    pub fn url(&self, _namespace: Option<&str>, _name: Option<&str>, _subresource: Option<&str>) -> String {
        todo!()
    }
    /// Has it.
    pub fn has_subresource(&self, name: &str) -> bool {
        self.subresources.contains(name)
    }
}
/// A name.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(untagged)]
pub enum AnyName {
    /// One.
    Name(String),
    /// All.
    Everything {
        /// Always true.
        everything: bool,
    },
}
/// A selector.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default)]
#[expect(missing_docs, reason = "the API's own words")]
pub struct Selector {
    pub group: Option<String>,
    pub version: Option<String>,
    pub kind: Option<String>,
    pub plural: Option<String>,
    pub singular: Option<String>,
    pub shortcut: Option<String>,
    pub category: Option<String>,
    pub any_name: Option<AnyName>,
    pub callable: bool,
}
impl fmt::Display for Selector {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}
impl Selector {
    /// Matches.
    pub fn check(&self, _resource: &Resource) -> bool {
        todo!()
    }
    /// Names one.
    pub fn is_specific(&self) -> bool {
        todo!()
    }
    /// Selects.
    pub fn select(&self, _resources: &[Arc<Resource>]) -> Vec<Arc<Resource>> {
        todo!()
    }
}
/// Namespace patterns.
pub fn match_namespace(_name: &str, _pattern: &str) -> bool {
    todo!()
}
/// Exact.
pub fn is_exact_namespace(_pattern: &str) -> bool {
    todo!()
}
