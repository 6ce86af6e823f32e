//! Observation of what there is to serve: custom resources that come and go, namespaces that come and go.
//!
//! Both are ordinary streams whose events become messages to the orchestrator. What follows from them is decided there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use kopf_core::cause::EventType;
use kopf_core::notes::Level;
use kopf_core::object::Object;
use kopf_core::path::FieldPath;
use kopf_core::resource::Resource;
use kopf_core::value::Value;
use tokio::sync::Notify;

use crate::error::{ApiError, RequestError};
use crate::invoke::{Entry, Invoker};
use crate::territory::Territory;
use crate::watch::Sink;

const LOGGER: &str = "kopf._core.reactor.observation";

/// News for the orchestrator.
#[derive(Debug)]
pub enum News {
    /// A group was looked at; this is what it has now.
    Scanned(Scanned),
    /// The resources of this group may have changed; if one is named, it should be served now or in a moment.
    Group(String, Option<String>),
    /// They changed a while ago: the server tells of its definitions before it serves them as they are.
    Look(String),
    /// All namespaces that are there now, and whose names may matter.
    Namespaces(BTreeSet<String>),
    /// The stream of this observer is refused for good; it goes on without.
    Refused(Observed),
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

/// The news that the orchestrator has not taken yet. What is newer replaces what is older, and so they take no more memory
/// than there are groups and namespaces.
#[derive(Debug, Default)]
pub struct NewsQueue {
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
    pub refused: Vec<Observed>,
    is_any: bool,
}

impl NewsQueue {
    /// Adds news, without waiting.
    pub fn send(&self, news: News) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.is_any = true;
        match news {
            News::Group(group, plural) => waiting.groups.entry(group).or_default().extend(plural),
            News::Look(group) => drop(waiting.looks.insert(group)),
            News::Scanned(scanned) => drop(waiting.scanned.insert(scanned.group.clone(), scanned)),
            News::Namespaces(present) => waiting.namespaces = Some(present),
            News::Refused(observed) => waiting.refused.push(observed),
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

/// Which observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observed {
    /// Of custom resource definitions.
    Definitions,
    /// Of namespaces.
    Namespaces,
}

/// Turns the events of custom resource definitions into news of their groups.
pub struct DefinitionsSink {
    /// The orchestrator.
    pub news: Arc<NewsQueue>,
    /// Whether the first listing is over: what it has was just scanned, unless it was made in between.
    pub settled: bool,
    /// The groups and plurals that were there when the cluster was scanned.
    pub scanned: BTreeSet<(String, String)>,
}

impl Sink for DefinitionsSink {
    fn event(&mut self, kind: EventType, object: Object) {
        // The name is enough, and so a schema may be as long and as deep as it likes.
        let Some((plural, group)) = object.name().and_then(|name| name.split_once('.')) else { return };
        let known = (group.to_owned(), plural.to_owned());
        if kind == EventType::Listed && !self.settled && self.scanned.contains(&known) {
            return;
        }
        let (group, plural) = known;
        let stays = kind != EventType::Deleted && object.deletion_timestamp().is_none();
        self.news.send(News::Group(group, stays.then_some(plural)));
    }

    fn rejected(&mut self, identity: Object, deleted: bool) {
        self.event(if deleted { EventType::Deleted } else { EventType::Modified }, identity);
    }

    fn listing(&mut self) {}

    fn listed(&mut self) {
        self.settled = true;
        self.scanned.clear();
    }

    async fn room(&self) {}

    fn insists(&self, refusal: &ApiError) -> bool {
        refusal.status != 403
    }
}

/// Turns the events of namespaces into the set of those that are there.
pub struct NamespacesSink {
    /// The orchestrator.
    pub news: Arc<NewsQueue>,
    /// Which names may matter.
    pub territory: Territory,
    /// Which of them are there.
    pub served: BTreeSet<String>,
    /// Which were in the listing that goes on, if one does.
    pub listed: Option<BTreeSet<String>>,
    /// For the log.
    pub invoker: Arc<dyn Invoker>,
}

impl NamespacesSink {
    fn tell(&self) {
        if self.listed.is_none() {
            self.news.send(News::Namespaces(self.served.clone()));
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
        for blocker in &blockers {
            let text = |key| blocker.get(key).and_then(Value::as_str).unwrap_or_default();
            let name = object.name().unwrap_or_default();
            let line =
                format!("Namespace {name:?} termination pending: {}: {}", text("reason"), text("message"));
            if self.invoker.enabled(Level::Debug) {
                self.invoker.log(Entry::general(Level::Debug, LOGGER, line));
            }
        }
        blockers.is_empty() && !conditions.is_empty()
    }
}

impl Sink for NamespacesSink {
    fn event(&mut self, kind: EventType, object: Object) {
        let Some(name) = object.name() else { return };
        if !self.territory.may_have(name) {
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

    fn listing(&mut self) {
        self.listed = Some(BTreeSet::new());
    }

    fn listed(&mut self) {
        if let Some(listed) = self.listed.take() {
            self.served.retain(|name| listed.contains(name));
        }
        self.tell();
    }

    async fn room(&self) {}

    fn insists(&self, refusal: &ApiError) -> bool {
        refusal.status != 403
    }
}
