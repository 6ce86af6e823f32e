//! What the orchestrator knows of the cluster: which resources and namespaces there are, and how it comes to know of
//! changes.
//!
//! Must not know: what follows from it for the streams. Rules: contract/engine 1.4, 1.6.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kopf_core::notes::Level;
use kopf_core::resource::Resource;
use kopf_core::selection;
use tokio::sync::mpsc::UnboundedSender;

use super::Orchestrator;
use crate::discovery::{Scope, scan};
use crate::error::{Failure, RequestError};
use crate::observation::{DefinitionsSink, NamespacesSink, News, Observed};
use crate::peering;
use crate::territory::Territory;

/// A new definition is served a moment after it is announced: how often, and how soon, we look again.
const LOOKS: u32 = 10;
const LOOK_AGAIN: Duration = Duration::from_millis(300);

/// How long after each other we look once more after a change, even if nothing is missed.
const LOOKS_LATER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// Groups that the engine itself uses.
const OWN_GROUPS: [&str; 5] =
    ["", "apiextensions.k8s.io", "admissionregistration.k8s.io", "kopf.dev", "zalando.org"];

impl Orchestrator {
    /// Where the resources may be that anybody wants.
    pub(super) fn scope(&self) -> Scope {
        let mut groups: BTreeSet<String> = OWN_GROUPS.iter().map(|&group| group.to_owned()).collect();
        for selector in self.handlers().iter().filter_map(|handler| handler.selector.as_ref()) {
            match &selector.group {
                Some(group) => groups.insert(group.clone()),
                None => return Scope::Everything,
            };
        }
        Scope::Groups(groups)
    }

    /// Starts the observers of definitions and of namespaces.
    pub(super) fn observe(&mut self) {
        let disabled = self.shared.rules.settings.scanning.disabled;
        if !disabled && let Some(resource) = self.own("apiextensions.k8s.io", "customresourcedefinitions") {
            let mut sink = DefinitionsSink {
                news: self.sender.clone(),
                settled: false,
                scanned: self.scanned.iter().map(|one| (one.group.clone(), one.plural.clone())).collect(),
            };
            let stream = self.stream(&resource, None);
            let news = self.sender.clone();
            self.tasks.spawn(async move {
                let ended = stream.follow(&mut sink).await.map(|never| match never {});
                refused(ended, &news, Observed::Definitions)
            });
        }
        if matches!(self.territory, Territory::Cluster) {
            return;
        }
        let resource = self.own("", "namespaces").filter(|_| !disabled);
        let Some(resource) = resource else {
            self.namespaces = self.territory.exact();
            self.is_located = true;
            return;
        };
        let mut sink = NamespacesSink {
            news: self.sender.clone(),
            territory: self.territory.clone(),
            served: BTreeSet::new(),
            listed: None,
            invoker: Arc::clone(&self.shared.invoker),
        };
        let stream = self.stream(&resource, None);
        let news = self.sender.clone();
        self.tasks.spawn(async move {
            let ended = stream.follow(&mut sink).await.map(|never| match never {});
            refused(ended, &news, Observed::Namespaces)
        });
    }

    /// Takes in the news, and whatever other news are there already.
    pub(super) async fn learn(&mut self, news: News) -> Result<(), Failure> {
        let scope = self.scope();
        let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut next = Some(news);
        while let Some(news) = next {
            match news {
                News::Group(group, plural) if scope.has(&group) => {
                    self.look_later(&group);
                    groups.entry(group).or_default().extend(plural);
                }
                News::Group(..) => {}
                News::Look(group) => drop(groups.entry(group).or_default()),
                News::Namespaces(present) => {
                    let invoker = &*self.shared.invoker;
                    self.namespaces = self.answers.served(&self.territory, present, invoker).await;
                    self.is_located = true;
                }
                News::Refused(observed) => self.go_without(observed),
            }
            next = self.receiver.try_recv().ok();
        }
        for (group, plurals) in groups {
            self.rescan(&group, &plurals).await?;
        }
        Ok(())
    }

    /// What is served now may still be as it was before the change.
    fn look_later(&mut self, group: &str) {
        let (news, name) = (self.sender.clone(), group.to_owned());
        let task = self.tasks.spawn(async move {
            for pause in LOOKS_LATER {
                tokio::time::sleep(pause).await;
                let _ = news.send(News::Look(name.clone()));
            }
            Ok(())
        });
        if let Some(earlier) = self.looking.insert(group.to_owned(), task) {
            earlier.abort();
        }
    }

    /// Scans one group anew. A fresh definition is looked for again, as the server needs a moment to serve it.
    async fn rescan(&mut self, group: &str, plurals: &BTreeSet<String>) -> Result<(), Failure> {
        let _busy = self.shared.clock.busy();
        let scope = Scope::Groups(BTreeSet::from([group.to_owned()]));
        for look in 0..LOOKS {
            match scan(&self.shared.api, &scope).await {
                Ok(found) => {
                    self.scanned.retain(|resource| resource.group != group);
                    self.scanned.extend(found);
                }
                Err(RequestError::Login(error)) => return Err(RequestError::Login(error).into()),
                Err(error) => {
                    let text = format!(
                        "Cannot look for the resources of the group {group:?}: {error}. Will look again."
                    );
                    self.say(Level::Warning, text);
                }
            }
            if look + 1 == LOOKS || !self.misses(group, plurals).await? {
                break;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// Whether peering or a handler may want something of the group that is announced but not there yet.
    async fn misses(&self, group: &str, plurals: &BTreeSet<String>) -> Result<bool, Failure> {
        let is_served =
            |plural: &String| self.scanned.iter().any(|one| one.group == group && one.plural == *plural);
        if plurals.iter().all(is_served) {
            return Ok(false);
        }
        let ours = peering::plural(self.shared.rules.settings.peering.clusterwide);
        if peering::GROUPS.contains(&group)
            && plurals.iter().any(|plural| plural == ours && !is_served(plural))
        {
            return Ok(true);
        }
        let verdicts = self.ask_selectors().await?;
        let wanted =
            |handler: usize, resource: &Resource| verdicts.contains(&(handler, resource.to_string()));
        Ok(self.handlers().iter().enumerate().any(|(index, handler)| {
            let of_group = |one: &String| one == group;
            handler.selector.as_ref().is_some_and(|selector| selector.group.as_ref().is_none_or(of_group))
                && selection::found(handler, index, &self.scanned, &wanted).is_empty()
        }))
    }

    fn go_without(&mut self, observed: Observed) {
        self.is_located |= observed == Observed::Namespaces;
        match observed {
            Observed::Definitions => self.say(
                Level::Warning,
                "Not enough permissions to watch for resources: changes (creation/deletion/updates) will not be noticed; \
                 the resources are only refreshed on operator restarts."
                    .to_owned(),
            ),
            Observed::Namespaces if self.namespaces.is_empty() => {
                self.namespaces = self.territory.exact();
                let names: Vec<_> = self.namespaces.iter().map(|name| format!("'{name}'")).collect();
                self.say(
                    Level::Warning,
                    format!(
                        "Not enough permissions to list namespaces. Falling back to a list of namespaces which are assumed \
                         to exist: {{{}}}",
                        names.join(", ")
                    ),
                );
            }
            Observed::Namespaces => self.say(
                Level::Warning,
                "Not enough permissions to watch for namespaces: changes (deletion/creation) will not be noticed; the \
                 namespaces are only refreshed on operator restarts."
                    .to_owned(),
            ),
        }
    }
}

/// An observer that is refused is gone without; other failures are fatal.
fn refused(
    ended: Result<(), RequestError>,
    news: &UnboundedSender<News>,
    observed: Observed,
) -> Result<(), RequestError> {
    match ended {
        Err(RequestError::Api(_)) => {
            let _ = news.send(News::Refused(observed));
            Ok(())
        }
        other => other,
    }
}
