//! Discovery: the resources that the API server serves.
//!
//! If all groups are in the scope, two aggregated documents have all their resources; otherwise, and from servers before
//! Kubernetes 1.26, the versions of the groups in the scope are requested, all in parallel. The two requests before them are
//! sequential: the failed attempts to reach a server are logged once each. The core decides which of the resources the operator
//! serves (`selection.rs`).
//!
//! Aggregated APIs (metrics-server, for example) come and go: the server lists their groups, and responds with 503 while
//! their pods are down; an aggregated document calls their versions stale. So a group that the engine does not need for itself never fails a scan: see [`scan_available`].

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{join_all, try_join, try_join_all};
use http::Method;
use kopf_core::resource::{DiscoveryError, Resource, VersionResources, decode_groups, decode_version};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::client::{Client, RequestBody};
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

/// A version that the server lists.
struct Listed {
    version: GroupVersion,
    /// The resources, if the list has them.
    resources: Option<Vec<Resource>>,
}

impl Listed {
    fn without_resources(version: GroupVersion) -> Self {
        Self { version, resources: None }
    }
}

impl From<VersionResources> for Listed {
    fn from(found: VersionResources) -> Self {
        let VersionResources { group, version, preferred, is_stale, resources } = found;
        // The request for a stale version returns the reason, or its current resources.
        Self {
            version: GroupVersion { group, version, preferred },
            resources: (!is_stale).then_some(resources),
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
    let listed = served_versions(client, scope).await?;
    let found = try_join_all(listed.into_iter().map(|Listed { version, resources }| async move {
        match resources {
            Some(resources) => Ok(resources),
            None => read_version(client, &version).await,
        }
    }));
    Ok(found.await?.into_iter().flatten().map(Arc::new).collect())
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
    let listed = served_versions(client, scope).await?;
    let responded = CancellationToken::new();
    let missing = || listed.iter().filter(|it| it.resources.is_none()).map(|it| &it.version);
    let own = async {
        let own = missing().filter(|version| version.is_own());
        let found = try_join_all(own.map(|version| read_version(client, version))).await?;
        responded.cancel();
        Ok::<_, RequestError>(found)
    };
    let others = missing().filter(|version| !version.is_own());
    let others = join_all(others.map(|version| try_version(client, version, (&responded, timeout))));
    let (own, others) = try_join(own, others.map(Ok)).await?;
    let (mut own, mut others) = (own.into_iter(), others.into_iter());
    let mut found = Discovered::default();
    // In the order of the server.
    for Listed { version, resources } in listed {
        let next = match resources {
            Some(resources) => Some(Ok(resources)),
            None if version.is_own() => own.next().map(Ok),
            None => others.next(),
        };
        match next.unwrap_or_else(|| Ok(vec![])) {
            Ok(resources) => found.resources.extend(resources.into_iter().map(Arc::new)),
            Err(RequestError::Login(error)) => return Err(RequestError::Login(error)),
            Err(error) => found.unavailable.push(Unavailable { version, error }),
        }
    }
    Ok(found)
}

/// The versions of the groups in the scope, as the server lists them.
async fn served_versions(client: &Client, scope: &Scope) -> Result<Vec<Listed>, RequestError> {
    let mut listed = core_versions(client, scope).await?;
    listed.extend(other_versions(client, scope).await?);
    Ok(listed)
}

async fn core_versions(client: &Client, scope: &Scope) -> Result<Vec<Listed>, RequestError> {
    if !scope.has("") {
        return Ok(vec![]);
    }
    list(client, "/api", scope, |Versions { versions }| {
        let of_version = |version| GroupVersion { group: String::new(), version, preferred: true };
        versions.into_iter().map(of_version).collect()
    })
    .await
}

async fn other_versions(client: &Client, scope: &Scope) -> Result<Vec<Listed>, RequestError> {
    if matches!(scope, Scope::Groups(groups) if groups.iter().all(String::is_empty)) {
        return Ok(vec![]);
    }
    list(client, "/apis", scope, |Groups { groups }| {
        let in_scope = groups.into_iter().filter(|group| scope.has(&group.name));
        let versions = in_scope.flat_map(|Group { name, versions, preferred_version }| {
            versions.into_iter().map(move |Version { version }| {
                let preferred = preferred_version.as_ref().is_some_and(|it| it.version == version);
                GroupVersion { group: name.clone(), version, preferred }
            })
        });
        versions.collect()
    })
    .await
}

/// The versions of a list of groups, with their resources if all are in the scope: an aggregated document of a few groups would
/// have those of all groups as well.
async fn list<T: Default + DeserializeOwned>(
    client: &Client,
    url: &str,
    scope: &Scope,
    versions_of: impl FnOnce(T) -> Vec<GroupVersion>,
) -> Result<Vec<Listed>, RequestError> {
    let accepted = if *scope == Scope::Everything { RequestBody::Discovery } else { RequestBody::None };
    let Some(document) = fetch(client, url, accepted).await? else { return Ok(vec![]) };
    match decode_groups(&document) {
        Ok(found) => Ok(found.into_iter().map(Listed::from).collect()),
        Err(DiscoveryError::NotAggregated) => {
            let found = serde_json::from_slice(&document).map_err(|error| malformed(url, &error))?;
            Ok(versions_of(found).into_iter().map(Listed::without_resources).collect())
        }
        Err(error) => Err(malformed(url, &error)),
    }
}

/// The resources of a version, with the retries of the settings.
async fn read_version(client: &Client, version: &GroupVersion) -> Result<Vec<Resource>, RequestError> {
    // A group may be deleted between the two requests.
    let Some(document) = fetch(client, &version.url(), RequestBody::None).await? else { return Ok(vec![]) };
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
async fn fetch(client: &Client, url: &str, accepted: RequestBody<'_>) -> Result<Option<Bytes>, RequestError> {
    match client.request(&Method::GET, url, accepted).await {
        Ok(body) => Ok(Some(body)),
        Err(error) if error.status() == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}

fn malformed(url: &str, error: &dyn Error) -> RequestError {
    RequestError::Malformed(format!("the discovery document {url} cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{Fixture, Got};

    /// The names of the resources and of the unavailable versions, and the paths of the requests.
    async fn found(
        scope: &Scope,
        respond: impl Fn(&Got) -> (u16, Option<Value>) + Send + Sync + Clone + 'static,
    ) -> (Vec<String>, Vec<String>, Vec<String>) {
        let fixture = Fixture::new(&json!({}), respond);
        let found = scan_available(&fixture.shared.base.client, scope, Duration::from_secs(1)).await.unwrap();
        let resources = found.resources.iter().map(|it| format!("{}/{}/{}", it.group, it.version, it.plural));
        let unavailable = found.unavailable.iter().map(|it| it.version.to_string());
        let paths = fixture.requests().into_iter().map(|it| it.path);
        (resources.collect(), unavailable.collect(), paths.collect())
    }

    fn aggregated(groups: &Value) -> Value {
        json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": groups})
    }

    fn version(name: &str, freshness: &str, plurals: &[&str]) -> Value {
        let resources: Vec<_> = plurals.iter().map(|plural| json!({"resource": plural})).collect();
        json!({"version": name, "freshness": freshness, "resources": resources})
    }

    #[tokio::test(start_paused = true)]
    async fn all_groups_are_read_with_two_requests_and_one_for_each_stale_version() {
        let respond = |got: &Got| {
            let document = match &*got.path {
                "/api" => aggregated(&json!([{"versions": [version("v1", "Current", &["pods"])]}])),
                "/apis" => aggregated(&json!([
                    {"metadata": {"name": "a.dev"}, "versions": [version("v1", "Stale", &["as"])]},
                    {"metadata": {"name": "b.dev"}, "versions": [
                        version("v2", "Stale", &[]), version("v1", "Current", &["bs"]),
                    ]},
                ])),
                "/apis/b.dev/v2" => json!({"kind": "APIResourceList", "resources": [{"name": "bs"}]}),
                _ => return (503, Some(json!({"message": "its pods are down"}))),
            };
            (200, Some(document))
        };
        let (resources, unavailable, paths) = found(&Scope::Everything, respond).await;
        assert_eq!(resources, ["/v1/pods", "b.dev/v2/bs", "b.dev/v1/bs"]);
        assert_eq!(unavailable, ["a.dev/v1"], "the request for a stale version returns the reason");
        assert_eq!(paths, ["/api", "/apis", "/apis/a.dev/v1", "/apis/b.dev/v2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn each_version_is_read_from_servers_without_aggregated_documents_and_in_smaller_scopes() {
        let respond = |got: &Got| {
            let document = match &*got.path {
                "/api" => json!({"kind": "APIVersions", "versions": ["v1"]}),
                "/apis" => json!({"kind": "APIGroupList", "groups": [
                    {"name": "a.dev", "versions": [{"version": "v1"}], "preferredVersion": {"version": "v1"}},
                ]}),
                "/api/v1" => json!({"resources": [{"name": "pods"}, {"name": "pods/status"}]}),
                "/apis/a.dev/v1" => json!({"resources": [{"name": "as"}]}),
                path => panic!("{path}"),
            };
            (200, Some(document))
        };
        let (resources, unavailable, paths) = found(&Scope::Everything, respond).await;
        assert_eq!((resources, unavailable), (vec!["/v1/pods".to_owned(), "a.dev/v1/as".to_owned()], vec![]));
        assert_eq!(paths.len(), 4);
        let scope = Scope::Groups(["a.dev".to_owned()].into());
        assert_eq!(found(&scope, respond).await.0, ["a.dev/v1/as"]);
    }
}
