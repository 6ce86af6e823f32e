//! Observation of what there is to serve: custom resources that come and go, namespaces that come and go.
//!
//! Both are ordinary streams whose events become messages to the orchestrator. What follows from them is decided there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use kopf_core::cause::EventType;
use kopf_core::json::path::FieldPath;
use kopf_core::json::value::Value;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::resource::Resource;
use tokio::sync::Notify;

use crate::discovery::namespaces::NamespaceScope;
use crate::error::{ApiError, RequestError};
use crate::host::{Host, LogRecord};
use crate::watch::EventHandler;

const LOGGER: &str = "kopf._core.reactor.observation";

/// An event of discovery for the orchestrator.
#[derive(Debug)]
pub enum DiscoveryEvent {
    /// A group was looked at; this is what it has now.
    Scanned(Scanned),
    /// The resources of this group may have changed; if one is named, it should be served now or in a moment.
    Group(String, Option<String>),
    /// They changed a while ago: the server tells of its definitions before it serves them as they are.
    Look(String),
    /// All namespaces that are there now, and whose names may matter.
    Namespaces(BTreeSet<String>),
    /// The stream of this observer is refused for good; it goes on without.
    Refused(Source),
}

/// What a look at a group has found.
#[derive(Debug)]
pub struct Scanned {
    /// The group.
    pub group: String,
    /// Which look it was.
    pub look: u64,
    /// Its resources.
    pub found: Result<Vec<Arc<Resource>>, RequestError>,
}

/// The queue of discovery events. A newer event replaces an older one, so its length is bounded by the groups and namespaces.
#[derive(Debug, Default)]
pub struct DiscoveryQueue {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

/// All news that wait.
#[derive(Debug, Default)]
pub struct Waiting {
    /// The groups that may have changed, with the resources that should be there.
    pub groups: BTreeMap<String, BTreeSet<String>>,
    /// The groups to look at once more.
    pub looks: BTreeSet<String>,
    /// The results of the last looks, by groups.
    pub scanned: BTreeMap<String, Scanned>,
    /// All namespaces that are there now.
    pub namespaces: Option<BTreeSet<String>>,
    /// The observers that are refused.
    pub refused: Vec<Source>,
    is_any: bool,
}

impl DiscoveryQueue {
    /// Adds news, without waiting.
    pub fn send(&self, news: DiscoveryEvent) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.is_any = true;
        match news {
            DiscoveryEvent::Group(group, plural) => waiting.groups.entry(group).or_default().extend(plural),
            DiscoveryEvent::Look(group) => drop(waiting.looks.insert(group)),
            DiscoveryEvent::Scanned(scanned) => drop(waiting.scanned.insert(scanned.group.clone(), scanned)),
            DiscoveryEvent::Namespaces(present) => waiting.namespaces = Some(present),
            DiscoveryEvent::Refused(observed) => waiting.refused.push(observed),
        }
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Waits for news, and takes all there are.
    pub async fn take(&self) -> Waiting {
        loop {
            let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            if waiting.is_any {
                return waiting;
            }
            self.arrived.notified().await;
        }
    }
}

/// The observer that an event comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Of custom resource definitions.
    Definitions,
    /// Of namespaces.
    Namespaces,
}

/// Turns the events of custom resource definitions into news of their groups.
pub struct DefinitionsSink {
    /// The orchestrator.
    pub news: Arc<DiscoveryQueue>,
    /// Whether the first listing is over: what it has was just scanned, unless it was made in between.
    pub settled: bool,
    /// The groups and plurals that were there when the cluster was scanned.
    pub scanned: BTreeSet<(String, String)>,
}

impl EventHandler for DefinitionsSink {
    fn event(&mut self, kind: EventType, object: Object) {
        // The name is enough, and so a schema may be as long and as deep as it likes.
        let Some((plural, group)) = object.name().and_then(|name| name.split_once('.')) else { return };
        let known = (group.to_owned(), plural.to_owned());
        if kind == EventType::Listed && !self.settled && self.scanned.contains(&known) {
            return;
        }
        let (group, plural) = known;
        let stays = kind != EventType::Deleted && object.deletion_timestamp().is_none();
        self.news.send(DiscoveryEvent::Group(group, stays.then_some(plural)));
    }

    fn rejected(&mut self, identity: Object, deleted: bool) {
        self.event(if deleted { EventType::Deleted } else { EventType::Modified }, identity);
    }

    fn on_init(&mut self) {}

    fn on_init_done(&mut self) {
        self.settled = true;
        self.scanned.clear();
    }

    async fn ready(&self) {}

    fn retries_on(&self, refusal: &ApiError) -> bool {
        refusal.status != 403
    }
}

/// Turns the events of namespaces into the set of those that are there.
pub struct NamespacesSink {
    /// The orchestrator.
    pub news: Arc<DiscoveryQueue>,
    /// Which names may matter.
    pub namespace_scope: NamespaceScope,
    /// Which of them are there.
    pub served: BTreeSet<String>,
    /// Which were in the listing that goes on, if one does.
    pub listed: Option<BTreeSet<String>>,
    /// For the log.
    pub host: Arc<dyn Host>,
}

impl NamespacesSink {
    fn tell(&self) {
        if self.listed.is_none() {
            self.news.send(DiscoveryEvent::Namespaces(self.served.clone()));
        }
    }

    /// A namespace that is being deleted is served as long as something of it is left to be cleaned up.
    fn is_over(&self, kind: EventType, object: &Object) -> bool {
        if kind == EventType::Deleted {
            return true;
        }
        if object.deletion_timestamp().is_none() {
            return false;
        }
        let Some(Value::Array(conditions)) = object.field(&FieldPath::parse("status.conditions")) else {
            return false;
        };
        let blockers: Vec<_> = conditions
            .iter()
            .filter(|one| one.get("status").and_then(Value::as_str) == Some("True"))
            .collect();
        for gate_guard in &blockers {
            let text = |key| gate_guard.get(key).and_then(Value::as_str).unwrap_or_default();
            let name = object.name().unwrap_or_default();
            let line =
                format!("Namespace {name:?} termination pending: {}: {}", text("reason"), text("message"));
            if self.host.enabled(Level::Debug) {
                self.host.log(LogRecord::general(Level::Debug, LOGGER, line));
            }
        }
        blockers.is_empty() && !conditions.is_empty()
    }
}

impl EventHandler for NamespacesSink {
    fn event(&mut self, kind: EventType, object: Object) {
        let Some(name) = object.name() else { return };
        if !self.namespace_scope.may_have(name) {
            return;
        }
        if self.is_over(kind, &object) {
            self.served.remove(name);
        } else {
            self.served.insert(name.to_owned());
            if let Some(listed) = &mut self.listed {
                listed.insert(name.to_owned());
            }
        }
        self.tell();
    }

    fn rejected(&mut self, identity: Object, deleted: bool) {
        self.event(if deleted { EventType::Deleted } else { EventType::Modified }, identity);
    }

    fn on_init(&mut self) {
        self.listed = Some(BTreeSet::new());
    }

    fn on_init_done(&mut self) {
        if let Some(listed) = self.listed.take() {
            self.served.retain(|name| listed.contains(name));
        }
        self.tell();
    }

    async fn ready(&self) {}

    fn retries_on(&self, refusal: &ApiError) -> bool {
        refusal.status != 403
    }
}
