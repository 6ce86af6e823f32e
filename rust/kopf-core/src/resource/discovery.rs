//! Discovery documents: of all groups (aggregated), and of one group and version.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::Resource;

/// The document cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The server does not support aggregated discovery.
    #[error("the server does not support aggregated discovery")]
    NotAggregated,
    /// It is not a discovery document.
    #[error("a discovery document cannot be read: {0}")]
    Malformed(String),
}

/// One version of a group in an aggregated document.
#[derive(Debug, Default)]
pub struct VersionResources {
    /// The group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// Whether it is the preferred one of the group: the first one.
    pub preferred: bool,
    /// Whether the server cannot reach the aggregated API now. The resources are those of before, or none.
    pub is_stale: bool,
    /// The resources.
    pub resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct GroupList {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    versions: Vec<DiscoveredVersion>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
struct DiscoveredVersion {
    version: String,
    #[serde(default)]
    freshness: String,
    #[serde(default)]
    resources: Vec<DiscoveredResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DiscoveredResource {
    resource: String,
    response_kind: Option<ResponseKind>,
    #[serde(default)]
    scope: String,
    singular_resource: Option<String>,
    short_names: Option<BTreeSet<String>>,
    categories: Option<BTreeSet<String>>,
    #[serde(default)]
    verbs: BTreeSet<String>,
    #[serde(default)]
    subresources: Vec<Subresource>,
}

#[derive(Deserialize)]
struct ResponseKind {
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
struct Subresource {
    subresource: String,
}

impl DiscoveredVersion {
    fn of_group(self, group: &str, preferred: bool) -> VersionResources {
        let resource = |entry: DiscoveredResource| Resource {
            group: group.to_owned(),
            version: self.version.clone(),
            plural: entry.resource,
            singular: singular(entry.singular_resource, entry.response_kind.as_ref().map(|it| &*it.kind)),
            kind: entry.response_kind.map(|it| it.kind),
            shortcuts: entry.short_names.unwrap_or_default(),
            categories: entry.categories.unwrap_or_default(),
            subresources: entry.subresources.into_iter().map(|it| it.subresource).collect(),
            verbs: entry.verbs,
            namespaced: entry.scope == "Namespaced",
            preferred,
        };
        let resources = self.resources.into_iter().map(resource).collect();
        let is_stale = self.freshness == "Stale";
        VersionResources { group: group.to_owned(), version: self.version, preferred, is_stale, resources }
    }
}

/// The versions of an aggregated document, in its order.
///
/// # Errors
/// It is another document.
pub fn decode_groups(json: &[u8]) -> Result<Vec<VersionResources>, DiscoveryError> {
    let list: GroupList =
        serde_json::from_slice(json).map_err(|error| DiscoveryError::Malformed(error.to_string()))?;
    if list.kind != "APIGroupDiscoveryList" {
        return Err(DiscoveryError::NotAggregated);
    }
    let versions = list.items.into_iter().flat_map(|Group { metadata, versions }| {
        let of_group =
            move |(index, version): (usize, DiscoveredVersion)| version.of_group(&metadata.name, index == 0);
        versions.into_iter().enumerate().map(of_group)
    });
    Ok(versions.collect())
}

#[derive(Deserialize)]
struct ResourceList {
    #[serde(default)]
    resources: Vec<Listed>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    name: String,
    kind: Option<String>,
    singular_name: Option<String>,
    #[serde(default)]
    namespaced: bool,
    short_names: Option<BTreeSet<String>>,
    categories: Option<BTreeSet<String>>,
    verbs: Option<BTreeSet<String>>,
}

/// The resources of one group and version, which is the preferred one of its group or not.
///
/// # Errors
/// It is another document.
pub fn decode_version(
    json: &[u8],
    group: &str,
    version: &str,
    preferred: bool,
) -> Result<Vec<Resource>, DiscoveryError> {
    let list: ResourceList =
        serde_json::from_slice(json).map_err(|error| DiscoveryError::Malformed(error.to_string()))?;
    let mut subresources: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let (whole, parts): (Vec<_>, Vec<_>) = list.resources.into_iter().partition(|it| !it.name.contains('/'));
    for part in parts {
        if let Some((name, subresource)) = part.name.split_once('/') {
            subresources.entry(name.to_owned()).or_default().insert(subresource.to_owned());
        }
    }
    let resource = |listed: Listed| Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        subresources: subresources.get(&listed.name).cloned().unwrap_or_default(),
        plural: listed.name,
        singular: singular(listed.singular_name, listed.kind.as_deref()),
        kind: listed.kind,
        shortcuts: listed.short_names.unwrap_or_default(),
        categories: listed.categories.unwrap_or_default(),
        verbs: listed.verbs.unwrap_or_default(),
        namespaced: listed.namespaced,
        preferred,
    };
    Ok(whole.into_iter().map(resource).collect())
}

fn singular(name: Option<String>, kind: Option<&str>) -> Option<String> {
    name.filter(|name| !name.is_empty()).or_else(|| kind.map(str::to_lowercase))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn both_documents_describe_the_same_resource() {
        let aggregated = json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": "apps"}, "versions": [
            {"version": "v1", "resources": [{
                "resource": "deployments", "responseKind": {"kind": "Deployment"}, "scope": "Namespaced",
                "singularResource": "deployment", "shortNames": ["deploy"], "verbs": ["get"],
                "subresources": [{"subresource": "scale"}],
            }]},
            {"version": "v1beta1", "resources": [{"resource": "deployments"}]},
        ]}]});
        let versions = decode_groups(aggregated.to_string().as_bytes()).unwrap();
        let found: Vec<_> = versions.iter().flat_map(|version| &version.resources).collect();
        let of_version = json!({"kind": "APIResourceList", "resources": [
            {"name": "deployments", "kind": "Deployment", "singularName": "", "namespaced": true,
             "shortNames": ["deploy"], "verbs": ["get"]},
            {"name": "deployments/scale", "kind": "Scale"},
        ]});
        let alone = decode_version(of_version.to_string().as_bytes(), "apps", "v1", true).unwrap();
        let text = |resource: &Resource| serde_json::to_value(resource).unwrap();
        assert_eq!(text(found[0]), text(&alone[0]));
        assert_eq!(alone.len(), 1);
        assert!(found[0].preferred && !found[1].preferred);
    }

    #[test]
    fn stale_versions_are_marked_also_if_they_have_resources() {
        let version = |freshness: &str, resources: Value| json!([{"version": "v1", "freshness": freshness, "resources": resources}]);
        let aggregated = json!({"kind": "APIGroupDiscoveryList", "items": [
            {"metadata": {"name": "down.dev"}, "versions": version("Stale", json!([]))},
            {"metadata": {"name": "late.dev"}, "versions": version("Stale", json!([{"resource": "widgets"}]))},
            {"metadata": {"name": "empty.dev"}, "versions": version("Current", json!([]))},
        ]});
        let found = decode_groups(aggregated.to_string().as_bytes()).unwrap();
        let found: Vec<_> = found.iter().map(|it| (&*it.group, it.is_stale, it.resources.len())).collect();
        assert_eq!(found, [("down.dev", true, 0), ("late.dev", true, 1), ("empty.dev", false, 0)]);
    }

    #[test]
    fn other_documents_are_rejected() {
        assert!(matches!(decode_groups(br#"{"kind": "APIGroupList"}"#), Err(DiscoveryError::NotAggregated)));
        assert!(matches!(decode_groups(b"{}"), Err(DiscoveryError::NotAggregated)));
        assert!(matches!(decode_groups(b"<html>"), Err(DiscoveryError::Malformed(_))));
        assert!(matches!(decode_version(b"[", "", "v1", true), Err(DiscoveryError::Malformed(_))));
    }
}
