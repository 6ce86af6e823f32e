//! Observation of what there is to serve: custom resources that come and go, namespaces that come and go.
//!
//! Both are ordinary streams whose events become messages to the orchestrator. What follows from them is decided there.

use std::collections::BTreeSet;
use std::sync::Arc;

use kopf_core::cause::EventType;
use kopf_core::notes::Level;
use kopf_core::object::Object;
use kopf_core::path::FieldPath;
use kopf_core::value::Value;
use tokio::sync::mpsc::UnboundedSender;

use crate::error::ApiError;
use crate::invoke::{Entry, Invoker};
use crate::territory::Territory;
use crate::watch::Sink;

const LOGGER: &str = "kopf._core.reactor.observation";

/// News for the orchestrator.
#[derive(Debug)]
pub enum News {
    /// The resources of this group may have changed; if one is named, it should be served now or in a moment.
    Group(String, Option<String>),
    /// They changed a while ago: the server tells of its definitions before it serves them as they are.
    Look(String),
    /// All namespaces that are there now, and whose names may matter.
    Namespaces(BTreeSet<String>),
    /// The stream of this observer is refused for good; it goes on without.
    Refused(Observed),
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
    pub news: UnboundedSender<News>,
    /// Whether the first listing is over: what it has was just scanned, unless it was made in between.
    pub settled: bool,
    /// The groups and plurals that were there when the cluster was scanned.
    pub scanned: BTreeSet<(String, String)>,
}

impl Sink for DefinitionsSink {
    fn event(&mut self, kind: EventType, object: Object) {
        let text = |path| match object.field(&FieldPath::parse(path)) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let (Some(group), Some(plural)) = (text("spec.group"), text("spec.names.plural")) else { return };
        let known = (group, plural);
        if kind == EventType::Listed && !self.settled && self.scanned.contains(&known) {
            return;
        }
        let (group, plural) = known;
        let stays = kind != EventType::Deleted && object.deletion_timestamp().is_none();
        let _ = self.news.send(News::Group(group, stays.then_some(plural)));
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
    pub news: UnboundedSender<News>,
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
            let _ = self.news.send(News::Namespaces(self.served.clone()));
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
