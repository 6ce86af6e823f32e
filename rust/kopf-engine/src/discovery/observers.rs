//! Observation of custom resources and namespaces: their creation, changes, and deletion.
//!
//! Both are ordinary watches, whose events become messages to the orchestrator. The orchestrator decides on the
//! reaction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use kopf_core::cause::EventType;
use kopf_core::json::path::FieldPath;
use kopf_core::json::value::Value;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::resource::unmatched_namespaces;
use tokio::sync::Notify;

use crate::discovery::namespaces::NamespaceScope;
use crate::discovery::scan::Discovered;
use crate::error::RequestError;
use crate::feed::Consumer;
use crate::host::{Host, LogRecord, Logger};
use crate::watch::WatchConsumer;

const LOGGER: Logger = Logger::Observation;

/// An event of discovery for the orchestrator.
#[derive(Debug)]
pub enum DiscoveryEvent {
    /// A group was scanned; these are its resources.
    Scanned(Scanned),
    /// The resources of this group may have changed. If a resource is named, it is served now or will be soon.
    Group(String, Option<String>),
    /// They changed some time ago, and are scanned again: the API server sends events of CRDs before it serves the changed
    /// resources.
    Rescan(String),
    /// All existing namespaces that may match the operator's patterns.
    Namespaces(BTreeSet<String>),
    /// The watch of this observer is forbidden; the operator continues without it.
    Forbidden(Source),
}

/// The result of a scan of a group.
#[derive(Debug)]
pub struct Scanned {
    /// The group.
    pub group: String,
    /// The number of the scan.
    pub number: u64,
    /// The resources of the group, and those of its versions that cannot be read.
    pub found: Result<Discovered, RequestError>,
}

/// The queue of discovery events. A newer event replaces an older one, so its length is bounded by the numbers of
/// groups and namespaces.
#[derive(Debug, Default)]
pub struct DiscoveryQueue {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

/// All queued events.
#[derive(Debug, Default)]
pub struct Waiting {
    /// The groups that may have changed, with the resources that should exist.
    pub groups: BTreeMap<String, BTreeSet<String>>,
    /// The groups to be scanned once more.
    pub rescans: BTreeSet<String>,
    /// The results of the last scans, by groups.
    pub scanned: BTreeMap<String, Scanned>,
    /// All existing namespaces.
    pub namespaces: Option<BTreeSet<String>>,
    /// The observers whose watches are forbidden.
    pub forbidden: Vec<Source>,
    is_any: bool,
}

impl DiscoveryQueue {
    /// Adds an event, without waiting.
    pub fn send(&self, event: DiscoveryEvent) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.is_any = true;
        match event {
            DiscoveryEvent::Group(group, plural) => waiting.groups.entry(group).or_default().extend(plural),
            DiscoveryEvent::Rescan(group) => drop(waiting.rescans.insert(group)),
            DiscoveryEvent::Scanned(scanned) => drop(waiting.scanned.insert(scanned.group.clone(), scanned)),
            DiscoveryEvent::Namespaces(present) => waiting.namespaces = Some(present),
            DiscoveryEvent::Forbidden(observed) => waiting.forbidden.push(observed),
        }
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Waits for events, and takes all of them.
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

/// The observer to which an event belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The observer of CRDs.
    Crds,
    /// The observer of namespaces.
    Namespaces,
}

/// Turns the events of CRDs into discovery events of their groups.
#[derive(Debug, Default)]
pub struct CrdConsumer {
    /// The queue of the orchestrator.
    pub events: Arc<DiscoveryQueue>,
    /// Whether the initial listing is complete. Its CRDs were just scanned, except for those created in between.
    pub settled: bool,
    /// Whether the watch was started before.
    pub is_started: bool,
    /// The groups and plurals that existed when the cluster was scanned.
    pub scanned: BTreeSet<(String, String)>,
    /// The groups and plurals of the existing CRDs, with their versions.
    pub known: BTreeMap<(String, String), Option<String>>,
    /// Those of the current listing, while it is in progress.
    pub listed: Option<BTreeSet<(String, String)>>,
}

impl Consumer for CrdConsumer {}

impl WatchConsumer for CrdConsumer {
    fn event(&mut self, kind: EventType, object: &Arc<Object>) {
        // Only the name is needed, so that schemas of any size and depth are accepted.
        let Some((plural, group)) = object.name().and_then(|name| name.split_once('.')) else { return };
        let crd = (group.to_owned(), plural.to_owned());
        let mut is_known = false;
        if kind == EventType::Deleted {
            self.known.remove(&crd);
        } else {
            let version = object.resource_version().map(str::to_owned);
            is_known = version.is_some() && self.known.get(&crd) == Some(&version);
            self.known.insert(crd.clone(), version);
            if let Some(listed) = &mut self.listed {
                listed.insert(crd.clone());
            }
        }
        // A new listing has all CRDs, most of them unchanged: their groups are not to be scanned.
        let is_scanned = is_known || (!self.settled && self.scanned.contains(&crd));
        if kind == EventType::Listed && is_scanned {
            return;
        }
        let (group, plural) = crd;
        let stays = kind != EventType::Deleted && object.deletion_timestamp().is_none();
        self.events.send(DiscoveryEvent::Group(group, stays.then_some(plural)));
    }

    fn rejected(&mut self, identity: &Arc<Object>, deleted: bool) {
        self.event(if deleted { EventType::Deleted } else { EventType::Modified }, identity);
    }

    fn on_start(&mut self, _pauses: u64) {
        if std::mem::replace(&mut self.is_started, true) {
            // The scan was before the first attempt: they may have changed since then.
            self.scanned.clear();
        }
    }

    fn on_init(&mut self) {
        self.listed = Some(BTreeSet::new());
    }

    fn on_init_done(&mut self) {
        if let Some(listed) = self.listed.take() {
            // These were deleted while there was no watch.
            let events = &self.events;
            self.known.retain(|crd, _| {
                let exists = listed.contains(crd);
                if !exists {
                    events.send(DiscoveryEvent::Group(crd.0.clone(), None));
                }
                exists
            });
        }
        self.settled = true;
        self.scanned.clear();
    }
}

/// Turns the events of namespaces into the set of existing ones.
pub struct NamespacesConsumer {
    /// The queue of the orchestrator.
    pub events: Arc<DiscoveryQueue>,
    /// The names that may match.
    pub namespace_scope: NamespaceScope,
    /// The existing namespaces with such names.
    pub served: BTreeSet<String>,
    /// The namespaces of the current listing, while it is in progress.
    pub listed: Option<BTreeSet<String>>,
    /// All namespaces, until the first listing is complete: then the patterns are logged that none of them matches. None if they
    /// are not logged.
    pub all: Option<BTreeSet<String>>,
    /// The host, for the log.
    pub host: Arc<dyn Host>,
}

impl NamespacesConsumer {
    fn log_unmatched(&mut self) {
        let Some(all) = self.all.take() else { return };
        let NamespaceScope::Namespaces { patterns, .. } = &self.namespace_scope else { return };
        for text in unmatched_namespaces(patterns, &all) {
            self.host.log(LogRecord::general(Level::Warning, LOGGER, text));
        }
    }

    fn send_names(&self) {
        if self.listed.is_none() {
            self.events.send(DiscoveryEvent::Namespaces(self.served.clone()));
        }
    }

    /// A namespace that is being deleted is served until its content is cleaned up.
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

impl Consumer for NamespacesConsumer {}

impl WatchConsumer for NamespacesConsumer {
    fn event(&mut self, kind: EventType, object: &Arc<Object>) {
        let Some(name) = object.name() else { return };
        if let Some(all) = &mut self.all {
            all.insert(name.to_owned());
        }
        if !self.namespace_scope.may_have(name) {
            return;
        }
        if self.is_over(kind, object) {
            self.served.remove(name);
        } else {
            self.served.insert(name.to_owned());
            if let Some(listed) = &mut self.listed {
                listed.insert(name.to_owned());
            }
        }
        self.send_names();
    }

    fn rejected(&mut self, identity: &Arc<Object>, deleted: bool) {
        self.event(if deleted { EventType::Deleted } else { EventType::Modified }, identity);
    }

    fn on_init(&mut self) {
        self.listed = Some(BTreeSet::new());
    }

    fn on_init_done(&mut self) {
        if let Some(listed) = self.listed.take() {
            self.served.retain(|name| listed.contains(name));
        }
        self.log_unmatched();
        self.send_names();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// Lists these CRDs with their versions; returns the groups that are to be scanned afterwards.
    fn listed(consumer: &mut CrdConsumer, crds: &[(&str, u64)]) -> Vec<String> {
        consumer.on_init();
        for (name, version) in crds {
            let text = format!(r#"{{"metadata": {{"name": "{name}", "resourceVersion": "{version}"}}}}"#);
            consumer.event(EventType::Listed, &Arc::new(Object::decode(&text).unwrap()));
        }
        consumer.on_init_done();
        let waiting = consumer.events.take().now_or_never();
        waiting.map(|waiting| waiting.groups.into_keys().collect()).unwrap_or_default()
    }

    #[test]
    fn the_group_of_a_crd_that_a_new_listing_does_not_have_is_scanned() {
        let scanned = [("first", "things"), ("second", "things")];
        let scanned = scanned.map(|(group, plural)| (group.to_owned(), plural.to_owned()));
        let mut consumer = CrdConsumer { scanned: BTreeSet::from(scanned), ..CrdConsumer::default() };
        assert!(listed(&mut consumer, &[("things.first", 1), ("things.second", 2)]).is_empty());
        assert_eq!(listed(&mut consumer, &[("things.second", 2)]), ["first"]);
        assert!(listed(&mut consumer, &[("things.second", 2)]).is_empty(), "it is gone for long");
    }

    #[test]
    fn a_new_listing_leads_to_scans_of_changed_crds_only() {
        let scanned = BTreeSet::from([("first".to_owned(), "things".to_owned())]);
        let mut consumer = CrdConsumer { scanned, ..CrdConsumer::default() };
        assert_eq!(listed(&mut consumer, &[("things.first", 1), ("things.second", 2)]), ["second"]);
        let changed = [("things.first", 3), ("things.second", 2), ("things.third", 4)];
        assert_eq!(listed(&mut consumer, &changed), ["first", "third"]);
        assert!(listed(&mut consumer, &changed).is_empty());
    }

    #[test]
    fn the_groups_of_crds_are_scanned_if_their_first_listing_failed() {
        let scanned = BTreeSet::from([("first".to_owned(), "things".to_owned())]);
        let mut consumer = CrdConsumer { scanned, ..CrdConsumer::default() };
        consumer.on_start(0);
        consumer.on_start(0);
        assert_eq!(listed(&mut consumer, &[("things.first", 1)]), ["first"]);
    }
}
