//! Discovery: the resources that the API server serves.
//!
//! Only the groups in the scope are requested, all in parallel. The two requests before them are sequential: the failed
//! attempts to reach a server are logged once each. The core decides which of the resources the operator serves
//! (`selection.rs`).
//!
//! Aggregated APIs (metrics-server, for example) come and go: the server lists their groups, and responds with 503 while
//! their pods are down. So a group that the engine does not need for itself never fails a scan: see [`scan_available`].

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{join_all, try_join, try_join_all};
use kopf_core::resource::{Resource, decode_version};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::error::RequestError;

/// The groups that the engine itself uses. The API server responds for them itself.
pub const OWN_GROUPS: [&str; 5] =
    ["", "apiextensions.k8s.io", "admissionregistration.k8s.io", "kopf.dev", "zalando.org"];

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

/// The result of a scan.
#[derive(Debug, Default)]
pub struct Discovered {
    /// The resources.
    pub resources: Vec<Arc<Resource>>,
    /// The group versions whose resources cannot be read now.
    pub unavailable: Vec<Unavailable>,
}

/// A group version that the server lists, but whose resources cannot be read.
#[derive(Debug)]
pub struct Unavailable {
    /// The group version.
    pub version: GroupVersion,
    /// The reason.
    pub error: RequestError,
}

/// A version of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupVersion {
    /// The group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// Whether it is the preferred one of the group.
    pub preferred: bool,
}

impl GroupVersion {
    fn is_own(&self) -> bool {
        OWN_GROUPS.contains(&self.group.as_str())
    }

    fn url(&self) -> String {
        let Self { group, version, .. } = self;
        if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
    }

    fn decode(&self, document: &Bytes) -> Result<Vec<Resource>, RequestError> {
        decode_version(document, &self.group, &self.version, self.preferred)
            .map_err(|error| malformed(&self.url(), &error))
    }
}

impl std::fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.group, self.version)
    }
}

#[derive(Deserialize)]
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
    versions: Vec<Version>,
    preferred_version: Option<Version>,
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

/// All resources of the groups in the scope.
///
/// # Errors
/// A document cannot be read, after the retries of the settings.
pub async fn scan(client: &Client, scope: &Scope) -> Result<Vec<Arc<Resource>>, RequestError> {
    let versions = served_versions(client, scope).await?;
    let found = try_join_all(versions.iter().map(|version| read_version(client, version))).await?;
    Ok(found.into_iter().flatten().map(Arc::new).collect())
}

/// The resources of the groups in the scope that can be read now.
///
/// Groups that the engine does not use itself are requested once. They count as unavailable if their request fails, or if
/// it takes longer than `timeout` after the responses for the engine's groups.
///
/// # Errors
/// The list of groups or one of the engine's groups cannot be read, after the retries of the settings; or there are no
/// credentials.
pub async fn scan_available(
    client: &Client,
    scope: &Scope,
    timeout: Duration,
) -> Result<Discovered, RequestError> {
    let versions = served_versions(client, scope).await?;
    let responded = CancellationToken::new();
    let own = async {
        let own = versions.iter().filter(|version| version.is_own());
        let found = try_join_all(own.map(|version| read_version(client, version))).await?;
        responded.cancel();
        Ok::<_, RequestError>(found)
    };
    let others = versions.iter().filter(|version| !version.is_own());
    let others = join_all(others.map(|version| try_version(client, version, (&responded, timeout))));
    let (own, others) = try_join(own, others.map(Ok)).await?;
    let (mut own, mut others) = (own.into_iter(), others.into_iter());
    let mut found = Discovered::default();
    // In the order of the server.
    for version in versions {
        let next = if version.is_own() { own.next().map(Ok) } else { others.next() };
        match next.unwrap_or_else(|| Ok(vec![])) {
            Ok(resources) => found.resources.extend(resources.into_iter().map(Arc::new)),
            Err(RequestError::Login(error)) => return Err(RequestError::Login(error)),
            Err(error) => found.unavailable.push(Unavailable { version, error }),
        }
    }
    Ok(found)
}

/// The versions of the groups in the scope, as the server lists them.
async fn served_versions(client: &Client, scope: &Scope) -> Result<Vec<GroupVersion>, RequestError> {
    let core = core_versions(client, scope).await?;
    let others = other_versions(client, scope).await?;
    Ok(core.into_iter().chain(others).collect())
}

async fn core_versions(client: &Client, scope: &Scope) -> Result<Vec<GroupVersion>, RequestError> {
    if !scope.has("") {
        return Ok(vec![]);
    }
    let found: Versions = read(client, "/api").await?.unwrap_or(Versions { versions: vec![] });
    let versions = found.versions.into_iter();
    Ok(versions.map(|version| GroupVersion { group: String::new(), version, preferred: true }).collect())
}

async fn other_versions(client: &Client, scope: &Scope) -> Result<Vec<GroupVersion>, RequestError> {
    if matches!(scope, Scope::Groups(groups) if groups.iter().all(String::is_empty)) {
        return Ok(vec![]);
    }
    let found: Groups = read(client, "/apis").await?.unwrap_or(Groups { groups: vec![] });
    let in_scope = found.groups.into_iter().filter(|group| scope.has(&group.name));
    let versions = in_scope.flat_map(|Group { name, versions, preferred_version }| {
        versions.into_iter().map(move |Version { version }| {
            let preferred = preferred_version.as_ref().is_some_and(|it| it.version == version);
            GroupVersion { group: name.clone(), version, preferred }
        })
    });
    Ok(versions.collect())
}

/// The resources of a version, with the retries of the settings.
async fn read_version(client: &Client, version: &GroupVersion) -> Result<Vec<Resource>, RequestError> {
    // A group may be deleted between the two requests.
    let Some(document) = fetch(client, &version.url()).await? else { return Ok(vec![]) };
    version.decode(&document)
}

/// The resources of a version, without retries, until some time after the token is cancelled.
async fn try_version(
    client: &Client,
    version: &GroupVersion,
    (responded, timeout): (&CancellationToken, Duration),
) -> Result<Vec<Resource>, RequestError> {
    let url = version.url();
    let late = async {
        responded.cancelled().await;
        sleep(timeout).await;
    };
    tokio::select! {
        document = client.get_once(&url) => version.decode(&document?),
        () = late => Err(RequestError::Timeout),
    }
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
