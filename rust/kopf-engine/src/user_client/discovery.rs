//! The resources of the server, cached: all of them, or those of one group and version.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Method;
use kopf_core::resource::{DiscoveryError, Resource, decode_groups, decode_version};
use kopf_core::user_request::{Class, Failure, Idempotency, KindError, KindName};
use serde_json::Value;

use super::attempts::failed;
use super::{Api, CallError, CallOptions, Progress};
use crate::client::{ACCEPT_DISCOVERY, RequestHead};
use crate::discovery::scan::{Discovered, Scope, scan_available};

/// How long a scan waits for groups that do not respond.
const SCAN_TIMEOUT: Duration = Duration::from_secs(10);
const SUBJECT: &str = "discover the resources";

/// The cache of a api.
#[derive(Default)]
pub(super) struct Discovery {
    known: Mutex<Known>,
    /// By the groups and versions, and one for all of them: held while resources are loaded, so that concurrent calls share the
    /// requests. An API that does not respond delays only calls for its own resources.
    loading: Mutex<HashMap<Option<GroupVersion>, Loading>>,
}

/// A group and a version.
type GroupVersion = (String, String);
type Loading = Arc<tokio::sync::Mutex<()>>;

#[derive(Default)]
struct Known {
    /// The resources by the names that were used for them.
    names: HashMap<String, Arc<Resource>>,
    all: Option<Vec<Arc<Resource>>>,
}

impl Discovery {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_of(&self, group_version: Option<(&str, &str)>) -> Loading {
        let key = group_version.map(|(group, version)| (group.to_owned(), version.to_owned()));
        let mut loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(loading.entry(key).or_default())
    }

    fn named(&self, kind: &str) -> Option<Arc<Resource>> {
        self.known().names.get(kind).cloned()
    }

    /// Drops the resource from the cache if the server does not serve it any more.
    pub(super) fn on_failure(&self, resource: &Resource, failure: &Failure) {
        if !is_unserved(failure) {
            return;
        }
        let mut known = self.known();
        let is_same = |it: &Resource| it.group == resource.group && it.plural == resource.plural;
        known.names.retain(|_, it| !is_same(it));
        known.all = None;
    }

    /// The resource of a name. An unknown name is looked up once more.
    pub(super) async fn resolve(
        &self,
        api: &Api,
        kind: &str,
        options: &CallOptions,
    ) -> Result<Arc<Resource>, CallError> {
        if let Some(resource) = self.named(kind) {
            return Ok(resource);
        }
        let name = KindName::parse(kind);
        let loading = self.lock_of(name.group_version());
        let _loading = loading.lock().await;
        if let Some(resource) = self.named(kind) {
            return Ok(resource);
        }
        let cached = self.known().all.clone();
        let found = cached.and_then(|all| name.select(&all).ok());
        let found = match (found, name.group_version()) {
            (Some(found), _) => found,
            (None, Some((group, version))) => {
                name.select(&load_version(api, group, version, options).await?)?
            }
            (None, None) => {
                let loaded = load_all(api, options).await?;
                self.known().all = Some(loaded.resources.clone());
                name.select(&loaded.resources).map_err(|error| loaded.explained(error, &name))?
            }
        };
        self.known().names.insert(kind.to_owned(), Arc::clone(&found));
        Ok(found)
    }

    /// All resources, as they are now.
    pub(super) async fn load(
        &self,
        api: &Api,
        options: &CallOptions,
    ) -> Result<Vec<Arc<Resource>>, CallError> {
        let loading = self.lock_of(None);
        let _loading = loading.lock().await;
        let Loaded { resources, .. } = load_all(api, options).await?;
        self.known().all = Some(resources.clone());
        Ok(resources)
    }
}

/// The resources that the server serves, of all versions.
#[derive(Default)]
struct Loaded {
    resources: Vec<Arc<Resource>>,
    /// The groups that cannot be read now, completely or in part.
    unavailable: BTreeSet<String>,
}

impl Loaded {
    /// The error for a name: a resource that was not found may be in a group that is unavailable.
    fn explained(&self, error: KindError, name: &KindName) -> CallError {
        let may_have_it = |group: &&String| name.group.as_ref().is_none_or(|named| named == *group);
        let groups: Vec<_> = self.unavailable.iter().filter(may_have_it).map(String::as_str).collect();
        if groups.is_empty() || matches!(error, KindError::Ambiguous(_)) {
            return error.into();
        }
        let text = format!("{name} is unknown, but the API is unavailable now: {}", groups.join(", "));
        CallError::Failed(Box::new(Failure::unanswered(Class::ServerFailed, &text))).about(SUBJECT)
    }
}

/// Whether the server does not serve a resource. If only an object is missing, the details have its name.
pub(crate) fn is_unserved(failure: &Failure) -> bool {
    let name = failure.details.get("name").and_then(Value::as_str);
    failure.code == 404 && name.is_none_or(str::is_empty)
}

async fn load_all(api: &Api, options: &CallOptions) -> Result<Loaded, CallError> {
    let mut all = Loaded::default();
    for path in ["/api", "/apis"] {
        match decode_groups(&fetch(api, path, ACCEPT_DISCOVERY, options).await?) {
            Ok(found) => {
                for version in found {
                    if version.is_stale && version.resources.is_empty() {
                        all.unavailable.insert(version.group);
                    }
                    all.resources.extend(version.resources.into_iter().map(Arc::new));
                }
            }
            Err(DiscoveryError::NotAggregated) => {
                // An unavailable group does not affect the others, as in the aggregated document.
                let found = scan_available(&api.client, &Scope::Everything, SCAN_TIMEOUT).await;
                let Discovered { resources, unavailable } = found.map_err(|error| failed(&error))?;
                let unavailable = unavailable.into_iter().map(|it| it.version.group).collect();
                return Ok(Loaded { resources, unavailable });
            }
            Err(error) => return Err(CallError::Misuse(error.to_string())),
        }
    }
    Ok(all)
}

/// The resources of one group and version; none if it is not served.
async fn load_version(
    api: &Api,
    group: &str,
    version: &str,
    options: &CallOptions,
) -> Result<Vec<Arc<Resource>>, CallError> {
    let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let document = match fetch(api, &path, "application/json", options).await {
        Err(CallError::Failed(failure)) if failure.code == 404 => return Ok(vec![]),
        document => document?,
    };
    let found = decode_version(&document, group, version, true);
    let found = found.map_err(|error| CallError::Misuse(error.to_string()))?;
    Ok(found.into_iter().map(Arc::new).collect())
}

/// A document, with the api's own permissions: an impersonated user may not be allowed to discover.
async fn fetch(
    api: &Api,
    path: &str,
    accept: &str,
    options: &CallOptions,
) -> Result<bytes::Bytes, CallError> {
    let head = RequestHead {
        method: &Method::GET,
        url: path,
        accept,
        content_type: None,
        is_idempotent: true,
        may_end_with_slash: false,
    };
    let options = CallOptions { headers: http::HeaderMap::new(), ..options.clone() };
    let response = api
        .send_with_retries(head, b"", (Idempotency::Safe, SUBJECT), &options, &Progress::default())
        .await?;
    Ok(response.body)
}
