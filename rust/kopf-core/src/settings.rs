//! The operator's settings, with their defaults.
//!
//! Python passes them as one dictionary; missing keys have their defaults. Sequences of delays are lists: Python expands
//! numbers and iterables, and draws values from iterables without a length (see [`ErrorBackoffs`]). Executors and servers
//! stay in Python.

mod error_backoffs;

pub use error_backoffs::{Backoffs, ErrorBackoffs};

use crate::health::HealthLimits;
use crate::lease::LeaderElection;
use crate::persistence::{Persistence, PersistenceConfig};
use crate::resource::{Resource, Selector};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Strings by resource selectors, such as label selectors of watches.
pub type SelectorMapping = Vec<(Selector, String)>;

/// All settings of the operator.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Posting of Kubernetes events about objects.
    pub posting: Posting,
    /// Peering with other operators.
    pub peering: Peering,
    /// List and watch requests.
    pub watching: Watching,
    /// Workers of objects.
    pub queueing: Queueing,
    /// Discovery of resources and namespaces.
    pub scanning: Scanning,
    /// Admission webhooks.
    pub admission: Admission,
    /// Handlers.
    pub execution: Execution,
    /// Daemons and timers.
    pub background: Background,
    /// Requests to the API.
    pub networking: Networking,
    /// The API client of users' code.
    pub client: ClientSettings,
    /// Kopf's state on objects.
    pub persistence: Persistence,
    /// The checks of the operator's health.
    pub health: HealthLimits,
    /// Leader election; none if it is disabled.
    pub leadership: Option<LeaderElection>,
    /// Whether to behave exactly as Kopf 1.45, also where kopf-rs otherwise improves on it.
    pub compat: bool,
}

impl Settings {
    /// Whether patches depend on the resource version of the object that they were decided for.
    pub fn has_preconditions(&self) -> bool {
        self.leadership.as_ref().is_some_and(|leadership| leadership.preconditions)
    }
}

/// Posting of Kubernetes events about objects.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct Posting {
    /// The maximum number of objects whose events are posted concurrently.
    pub worker_limit: Option<usize>,
    /// The reporting component of the events.
    pub reporting_component: String,
    /// The reporting instance of the events.
    pub reporting_instance: String,
    /// The prefix of their generated names.
    pub event_name_prefix: String,
}

/// Peering with other operators.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "the names and types are the users'")]
pub struct Peering {
    /// The name of the peering object.
    pub name: String,
    /// Whether keep-alives are not logged.
    pub stealth: bool,
    /// The priority: operators with a lower one pause.
    pub priority: i64,
    /// Seconds without keep-alives after which a peer's record expires.
    pub lifetime: i64,
    /// Whether the operator pauses when there is no peering object.
    pub mandatory: bool,
    /// Whether the operator does not start without a peering object: it is to pause the leader of a leader election.
    pub required: bool,
    /// Whether peering is disabled.
    pub standalone: bool,
    /// Whether the cluster-wide peering resource is used instead of the namespaced one.
    pub clusterwide: bool,
}

/// List and watch requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct Watching {
    /// The timeout of a watch that is requested from the API server, in seconds.
    pub server_timeout: Option<f64>,
    /// The timeout of a watch on the client side, in seconds.
    pub client_timeout: Option<f64>,
    /// Seconds for connecting.
    pub connect_timeout: Option<f64>,
    /// Seconds between two watch requests.
    pub reconnect_backoff: f64,
    /// Seconds without data after which the watch is reconnected. Servers send a bookmark about every 60 seconds, so the
    /// default is longer.
    pub inactivity_timeout: Option<f64>,
    /// The number of objects in one page of a list.
    pub chunk_size: Option<u64>,
    /// Whether the initial list is streamed by the watch request.
    pub initial_streaming: bool,
    /// Whether label selectors for watches are derived from the label filters of handlers.
    pub derived_selectors: bool,
    /// Label selectors of resources.
    pub label_selectors: SelectorMapping,
    /// Field selectors of resources.
    pub field_selectors: SelectorMapping,
    /// Shard selectors of resources.
    pub shard_selectors: SelectorMapping,
}

impl Watching {
    /// The selectors of a resource: names and values of query parameters. A watch with any of them reports an object that stops
    /// matching as deleted.
    pub fn selectors_of(&self, resource: &Resource) -> Vec<(&'static str, String)> {
        let fitting = |mapping: &SelectorMapping| -> BTreeSet<String> {
            let fits = mapping.iter().filter(|(selector, _)| selector.check(resource));
            fits.map(|(_, value)| value.clone()).collect()
        };
        let joined = |values: BTreeSet<String>| values.into_iter().collect::<Vec<_>>().join(",");
        let shard = self.shard_selectors.iter().find(|(selector, _)| selector.check(resource));
        let selectors = [
            ("labelSelector", joined(fitting(&self.label_selectors))),
            ("fieldSelector", joined(fitting(&self.field_selectors))),
            ("shardSelector", shard.map(|(_, value)| value.clone()).unwrap_or_default()),
        ];
        selectors.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }
}

/// Workers of objects.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct Queueing {
    /// The maximum number of objects that are handled concurrently.
    pub worker_limit: Option<usize>,
    /// Seconds for workers to finish at the exit.
    pub exit_timeout: f64,
    /// Seconds for which an object is not handled after unexpected errors.
    pub error_delays: Backoffs,
    /// The maximum number of pending events of one object for handlers that receive each event; the oldest ones are
    /// dropped.
    pub max_pending_events: usize,
}

/// Discovery of resources and namespaces.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Scanning {
    /// Whether discovery runs only once.
    pub disabled: bool,
}

/// The API client of users' code. Most of its settings stay in Python.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClientSettings {
    /// The headers of all requests, also of the engine's own ones.
    pub headers: BTreeMap<String, String>,
}

/// Admission webhooks. The webhook server stays in Python.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Admission {
    /// The name of the managed webhook configurations.
    pub managed: Option<String>,
}

/// Handlers. The executor stays in Python.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct Execution {
    /// Seconds between attempts after arbitrary exceptions.
    pub default_backoff: f64,
}

/// Daemons and timers.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct Background {
    /// Seconds between checks whether a cancelled daemon has exited.
    pub cancellation_polling: f64,
}

/// Requests to the API.
#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub struct Networking {
    /// Seconds for a request.
    pub request_timeout: Option<f64>,
    /// Seconds for connecting.
    pub connect_timeout: Option<f64>,
    /// Seconds between attempts.
    pub error_backoffs: ErrorBackoffs,
    /// The maximum number of concurrent requests, without watches.
    pub request_limit: Option<usize>,
    /// Seconds for which the API server may reject all credentials after it accepted some before.
    pub login_timeout: f64,
    /// Whether `Retry-After` of the API server applies even if it is shorter than the delay.
    pub enforce_retry_after: bool,
    /// Whether proxies and credentials are taken from the environment.
    pub trust_env: bool,
    /// Whether responses may be compressed.
    pub compression: bool,
}

impl<'a> From<&'a Settings> for PersistenceConfig<'a> {
    fn from(settings: &'a Settings) -> Self {
        Self { persistence: &settings.persistence, compat: settings.compat }
    }
}

impl<'a> From<&'a Arc<Settings>> for PersistenceConfig<'a> {
    fn from(settings: &'a Arc<Settings>) -> Self {
        Self::from(&**settings)
    }
}

/// Delays that grow as Fibonacci numbers.
fn growing(count: usize) -> Backoffs {
    [1., 1., 2., 3., 5., 8., 13., 21., 34., 55., 89., 144., 233., 377., 610.]
        .into_iter()
        .take(count)
        .collect()
}

impl Default for Posting {
    fn default() -> Self {
        Self {
            worker_limit: None,
            reporting_component: "kopf".to_owned(),
            reporting_instance: "dev".to_owned(),
            event_name_prefix: "kopf-event-".to_owned(),
        }
    }
}

impl Default for Peering {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            stealth: false,
            priority: 0,
            lifetime: 60,
            mandatory: false,
            required: false,
            standalone: false,
            clusterwide: false,
        }
    }
}

impl Default for Watching {
    fn default() -> Self {
        Self {
            server_timeout: None,
            client_timeout: None,
            connect_timeout: None,
            reconnect_backoff: 0.1,
            inactivity_timeout: Some(70.0),
            chunk_size: None,
            initial_streaming: false,
            derived_selectors: false,
            label_selectors: Vec::new(),
            field_selectors: Vec::new(),
            shard_selectors: Vec::new(),
        }
    }
}

impl Default for Queueing {
    fn default() -> Self {
        Self { worker_limit: None, exit_timeout: 2.0, error_delays: growing(15), max_pending_events: 100 }
    }
}

impl Default for Execution {
    fn default() -> Self {
        Self { default_backoff: 60.0 }
    }
}

impl Default for Background {
    fn default() -> Self {
        Self { cancellation_polling: 60.0 }
    }
}

impl Default for Networking {
    fn default() -> Self {
        Self {
            request_timeout: Some(300.0),
            connect_timeout: None,
            error_backoffs: growing(8).into(),
            request_limit: Some(50),
            login_timeout: 60.0,
            enforce_retry_after: false,
            trust_env: false,
            compression: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // contract: engine 15
    #[test]
    fn an_empty_dictionary_gives_the_defaults() {
        let settings: Settings = serde_json::from_str("{}").unwrap();
        assert_eq!(settings.execution.default_backoff.to_string(), "60");
        assert_eq!(settings.queueing.error_delays.last(), Some(&610.0));
        assert_eq!(settings.networking.error_backoffs, growing(8).into());
        assert_eq!(settings.persistence.finalizer, "kopf.zalando.org/KopfFinalizerMarker");
    }

    // contract: api 4
    #[test]
    fn specified_settings_replace_only_themselves() {
        let text = r#"{"execution": {"default_backoff": 5}, "process": {"unknown": null},
                       "posting": {"unknown": 1, "worker_limit": 30}}"#;
        let settings: Settings = serde_json::from_str(text).unwrap();
        assert_eq!(settings.execution.default_backoff.to_string(), "5");
        assert_eq!(settings.posting.worker_limit, Some(30));
        assert_eq!(settings.posting.reporting_component, "kopf");
    }
}
