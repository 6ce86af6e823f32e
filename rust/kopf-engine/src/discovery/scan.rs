//! Discovery: the resources that the API server serves.
//!
//! Only the groups in the scope are requested, all in parallel. The two requests before them are sequential: the failed
//! attempts to reach a server are logged once each. The core decides which of the resources the operator serves
//! (`selection.rs`).

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::try_join_all;
use kopf_core::resource::{Resource, decode_version};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::client::Client;
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

#[derive(Default, Deserialize)]
struct Versions {
    #[serde(default)]
    versions: Vec<String>,
}

#[derive(Default, Deserialize)]
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

/// All resources of the groups in the scope.
pub async fn scan(client: &Client, scope: &Scope) -> Result<Vec<Arc<Resource>>, RequestError> {
    let core = read_core(client, scope).await?;
    let groups = read_groups(client, scope).await?;
    let (core, others) =
        futures::future::try_join(scan_core(client, &core), scan_groups(client, scope, &groups)).await?;
    Ok(core.into_iter().chain(others).map(Arc::new).collect())
}

/// The versions of the core group, if it is in the scope.
async fn read_core(client: &Client, scope: &Scope) -> Result<Versions, RequestError> {
    let found = if scope.has("") { read(client, "/api").await? } else { None };
    Ok(found.unwrap_or_default())
}

/// The other groups, if any is in the scope.
async fn read_groups(client: &Client, scope: &Scope) -> Result<Groups, RequestError> {
    let is_core_only = matches!(scope, Scope::Groups(groups) if groups.iter().all(String::is_empty));
    let found = if is_core_only { None } else { read(client, "/apis").await? };
    Ok(found.unwrap_or_default())
}

async fn scan_core(client: &Client, versions: &Versions) -> Result<Vec<Resource>, RequestError> {
    let found = versions.versions.iter().map(|version| scan_version(client, "", version, true));
    Ok(try_join_all(found).await?.into_iter().flatten().collect())
}

async fn scan_groups(client: &Client, scope: &Scope, groups: &Groups) -> Result<Vec<Resource>, RequestError> {
    let in_scope = groups.groups.iter().filter(|group| scope.has(&group.name));
    let found = in_scope.flat_map(|group| {
        let preferred = group.preferred_version.as_ref().map(|preferred| preferred.version.as_str());
        group
            .versions
            .iter()
            .map(move |one| scan_version(client, &group.name, &one.version, preferred == Some(&one.version)))
    });
    Ok(try_join_all(found).await?.into_iter().flatten().collect())
}

async fn scan_version(
    client: &Client,
    group: &str,
    version: &str,
    preferred: bool,
) -> Result<Vec<Resource>, RequestError> {
    let url = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    // A group may be deleted between the two requests.
    let Some(document) = fetch(client, &url).await? else { return Ok(vec![]) };
    decode_version(&document, group, version, preferred).map_err(|error| malformed(&url, &error))
}

/// A discovery document; none if it does not exist.
async fn fetch(client: &Client, url: &str) -> Result<Option<Bytes>, RequestError> {
    match client.get(url).await {
        Ok(body) => Ok(Some(body)),
        Err(error) if error.status() == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn read<T: DeserializeOwned>(client: &Client, url: &str) -> Result<Option<T>, RequestError> {
    let Some(body) = fetch(client, url).await? else { return Ok(None) };
    serde_json::from_slice(&body).map(Some).map_err(|error| malformed(url, &error))
}

fn malformed(url: &str, error: &dyn Error) -> RequestError {
    RequestError::Malformed(format!("the discovery document {url} cannot be read: {error}"))
}
