//! Discovery: the resources that the API server serves.
//!
//! Only the groups in the scope are requested, all in parallel. The core decides which of the resources the operator
//! serves (`selection.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::try_join_all;
use kopf_core::resource::Resource;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::client::Api;
use crate::error::RequestError;

/// The groups to be scanned: some or all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All groups: a handler has a selector without a group.
    Everything,
    /// Each selector names its group.
    Groups(BTreeSet<String>),
}

impl Scope {
    /// Whether the group is in the scope.
    pub fn has(&self, group: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Groups(groups) => groups.contains(group),
        }
    }
}

#[derive(Deserialize)]
struct Versions {
    #[serde(default)]
    versions: Vec<String>,
}

#[derive(Deserialize)]
struct Groups {
    #[serde(default)]
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    name: String,
    #[serde(default)]
    versions: Vec<GroupVersion>,
    preferred_version: Option<GroupVersion>,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
}

#[derive(Deserialize)]
struct Entries {
    #[serde(default)]
    resources: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    name: String,
    kind: Option<String>,
    singular_name: Option<String>,
    #[serde(default)]
    namespaced: bool,
    short_names: Option<BTreeSet<String>>,
    categories: Option<BTreeSet<String>>,
    verbs: Option<BTreeSet<String>>,
}

/// All resources of the groups in the scope.
pub async fn scan(api: &Api, scope: &Scope) -> Result<Vec<Arc<Resource>>, RequestError> {
    let (core, others) = futures::future::try_join(scan_core(api, scope), scan_groups(api, scope)).await?;
    Ok(core.into_iter().chain(others).map(Arc::new).collect())
}

async fn scan_core(api: &Api, scope: &Scope) -> Result<Vec<Resource>, RequestError> {
    if !scope.has("") {
        return Ok(vec![]);
    }
    let versions: Versions = read(api, "/api").await?.unwrap_or(Versions { versions: vec![] });
    let found = versions.versions.iter().map(|version| scan_version(api, "", version, true));
    Ok(try_join_all(found).await?.into_iter().flatten().collect())
}

async fn scan_groups(api: &Api, scope: &Scope) -> Result<Vec<Resource>, RequestError> {
    if matches!(scope, Scope::Groups(groups) if groups.iter().all(String::is_empty)) {
        return Ok(vec![]);
    }
    let groups: Groups = read(api, "/apis").await?.unwrap_or(Groups { groups: vec![] });
    let in_scope = groups.groups.iter().filter(|group| scope.has(&group.name));
    let found = in_scope.flat_map(|group| {
        let preferred = group.preferred_version.as_ref().map(|preferred| preferred.version.as_str());
        group
            .versions
            .iter()
            .map(move |one| scan_version(api, &group.name, &one.version, preferred == Some(&one.version)))
    });
    Ok(try_join_all(found).await?.into_iter().flatten().collect())
}

async fn scan_version(
    api: &Api,
    group: &str,
    version: &str,
    preferred: bool,
) -> Result<Vec<Resource>, RequestError> {
    let url = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    // A group may be deleted between the two requests.
    let entries: Entries = read(api, &url).await?.unwrap_or(Entries { resources: vec![] });
    let mut subresources: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (name, subresource) in entries.resources.iter().filter_map(|entry| entry.name.split_once('/')) {
        subresources.entry(name).or_default().insert(subresource.to_owned());
    }
    let whole = entries.resources.iter().filter(|entry| !entry.name.contains('/'));
    Ok(whole
        .map(|entry| resource(entry, group, version, preferred, subresources.remove(entry.name.as_str())))
        .collect())
}

fn resource(
    entry: &Entry,
    group: &str,
    version: &str,
    preferred: bool,
    subresources: Option<BTreeSet<String>>,
) -> Resource {
    let lowered = entry.kind.as_ref().map(|kind| kind.to_lowercase());
    Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: entry.name.clone(),
        kind: entry.kind.clone(),
        singular: entry.singular_name.clone().filter(|name| !name.is_empty()).or(lowered),
        shortcuts: entry.short_names.clone().unwrap_or_default(),
        categories: entry.categories.clone().unwrap_or_default(),
        subresources: subresources.unwrap_or_default(),
        namespaced: entry.namespaced,
        preferred,
        verbs: entry.verbs.clone().unwrap_or_default(),
    }
}

/// A discovery document; none if it does not exist.
async fn read<T: DeserializeOwned>(api: &Api, url: &str) -> Result<Option<T>, RequestError> {
    match api.get(url).await {
        Ok(body) => serde_json::from_slice(&body).map(Some).map_err(|error| {
            RequestError::Malformed(format!("the discovery document {url} cannot be read: {error}"))
        }),
        Err(error) if error.status() == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}
