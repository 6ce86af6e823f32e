//! Discovery for the orchestrator: the served resources and namespaces, and their changes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kopf_core::handler::{Handler, selection};
use kopf_core::resource::{Resource, Selector};
use tokio::task::AbortHandle;

use super::Orchestrator;
use super::unavailable::group_name;
use crate::discovery::observers::{DiscoveryEvent, Scanned, Waiting};
use crate::discovery::scan::{OWN_GROUPS, Scope, scan_available};
use crate::error::{Failure, RequestError};
use crate::peering;
use crate::supervision::supervised;
use crate::time::virtual_time::Busy;
use crate::watch::MissingHook;

/// A new CRD is served a moment after its watch event: the number of rescans until its resources are found.
const MAX_RESCANS: u32 = 10;
const RESCAN_DELAY: Duration = Duration::from_millis(300);

/// The delays of further rescans after a change, even if nothing is missing.
const LATER_RESCANS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// How long a scan of a group waits for its versions.
const SCAN_TIMEOUT: Duration = Duration::from_secs(10);

/// A running scan of a group.
pub(super) struct Scan {
    task: AbortHandle,
    /// The number of this scan.
    number: u64,
    /// Number of scans without all expected resources.
    attempts: u32,
    /// The plural names of the expected resources.
    plurals: BTreeSet<String>,
    /// Keeps virtual time from advancing: the requests take real time.
    _busy: Option<Busy>,
}

impl Orchestrator {
    /// The groups in which handlers may select resources.
    pub(super) fn scope(&self) -> Scope {
        let mut groups: BTreeSet<String> = OWN_GROUPS.iter().map(|&group| group.to_owned()).collect();
        for selector in self.handlers().iter().flat_map(Handler::selectors) {
            match &selector.group {
                Some(group) => groups.insert(group.clone()),
                None => return Scope::Everything,
            };
        }
        Scope::Groups(groups)
    }

    /// Processes the results of discovery.
    pub(super) async fn on_discovery(&mut self, changes: Waiting) -> Result<(), Failure> {
        let scope = self.scope();
        for observed in changes.forbidden {
            self.on_forbidden(observed);
        }
        if let Some(present) = changes.namespaces {
            let host = &*self.shared.base.host;
            self.namespaces = self.answers.served(&self.namespace_scope, present, host).await;
            self.is_located = true;
        }
        for (_, scanned) in changes.scanned {
            self.scanned(scanned).await?;
        }
        for group in changes.rescans {
            self.cancel_retry(&group);
            self.rescan(&group, BTreeSet::new());
        }
        for (group, plurals) in changes.groups {
            if scope.has(&group) {
                self.schedule_rescan(&group);
                self.rescan(&group, plurals);
            }
        }
        Ok(())
    }

    /// Requests a scan of the group of a resource that is not served any more: there may be no event of its CRD.
    pub(super) fn rescan_hook(&self, resource: &Resource) -> MissingHook {
        let (discovery, group) = (Arc::clone(&self.discovery), resource.group.clone());
        Arc::new(move || discovery.send(DiscoveryEvent::Rescan(group.clone())))
    }

    /// Schedules later rescans: the discovery documents may still be as before the change.
    fn schedule_rescan(&mut self, group: &str) {
        let (discovery, name) = (Arc::clone(&self.discovery), group.to_owned());
        let task =
            self.tasks.spawn(supervised(format!("The later scan of the group {group:?}"), async move {
                for delay in LATER_RESCANS {
                    tokio::time::sleep(delay).await;
                    discovery.send(DiscoveryEvent::Rescan(name.clone()));
                }
                Ok(())
            }));
        if let Some(earlier) = self.rescans.insert(group.to_owned(), task) {
            earlier.abort();
        }
    }

    /// Scans one group, in a task: meanwhile, watches continue to be started and stopped.
    fn rescan(&mut self, group: &str, plurals: BTreeSet<String>) {
        let mut plurals = plurals;
        if let Some(earlier) = self.scans.remove(group) {
            // Its results may be from before the change.
            earlier.task.abort();
            plurals.extend(earlier.plurals);
        }
        self.start_scan(group, plurals, 0, None);
    }

    fn start_scan(&mut self, group: &str, plurals: BTreeSet<String>, attempts: u32, delay: Option<Duration>) {
        let number = self.shared.base.next_id();
        let (client, discovery, name) =
            (self.shared.base.client.clone(), Arc::clone(&self.discovery), group.to_owned());
        let task = self.tasks.spawn(supervised(format!("The scan of the group {group:?}"), async move {
            if let Some(delay) = delay {
                tokio::time::sleep(delay).await;
            }
            let scope = Scope::Groups(BTreeSet::from([name.clone()]));
            let found = scan_available(&client, &scope, SCAN_TIMEOUT).await;
            discovery.send(DiscoveryEvent::Scanned(Scanned { group: name, number, found }));
            Ok(())
        }));
        let busy = self.shared.base.clock.busy(|| format!("the discovery of the group {group:?}"));
        self.scans.insert(group.to_owned(), Scan { task, number, attempts, plurals, _busy: busy });
    }

    /// Processes the scan of a group. A new CRD is scanned again, as the server needs a moment to serve it.
    async fn scanned(&mut self, scanned: Scanned) -> Result<(), Failure> {
        let Scanned { group, number, found } = scanned;
        let Some(Scan { attempts, plurals, .. }) = self
            .scans
            .get(&group)
            .is_some_and(|scan| scan.number == number)
            .then(|| self.scans.remove(&group))
            .flatten()
        else {
            return Ok(());
        };
        match found {
            Ok(found) => self.replace_group(&group, found),
            Err(RequestError::Login(error)) => return Err(RequestError::Login(error).into()),
            Err(error) => self.on_scan_failure(&group, &[(group_name(&group), &error)]),
        }
        let is_retried = attempts + 1 < MAX_RESCANS && !self.is_unavailable(&group);
        if is_retried && self.misses(&group, &plurals).await? {
            self.start_scan(&group, plurals, attempts + 1, Some(RESCAN_DELAY));
        }
        Ok(())
    }

    /// Whether peering or a handler may select a resource of the group that is announced but not served yet.
    async fn misses(&self, group: &str, plurals: &BTreeSet<String>) -> Result<bool, Failure> {
        let is_served =
            |plural: &String| self.scanned.iter().any(|one| one.group == group && one.plural == *plural);
        if plurals.iter().all(is_served) {
            return Ok(false);
        }
        let ours = peering::plural(self.shared.base.startup_config.settings.peering.clusterwide);
        if peering::GROUPS.contains(&group)
            && plurals.iter().any(|plural| plural == ours && !is_served(plural))
        {
            return Ok(true);
        }
        let verdicts = self.ask_selectors().await?;
        let selected =
            |handler: usize, resource: &Resource| verdicts.contains(&(handler, resource.to_string()));
        let of_group = |one: &String| one == group;
        let is_missing = |selector: &Selector| {
            selector.group.as_ref().is_none_or(of_group) && selector.select(&self.scanned).is_empty()
        };
        let mut reconcilers = self.handlers().iter().filter(|handler| handler.reconciling().is_some());
        if reconcilers.any(|handler| handler.selectors().any(is_missing)) {
            return Ok(true);
        }
        Ok(self.handlers().iter().enumerate().any(|(index, handler)| {
            handler.selector.as_ref().is_some_and(|selector| selector.group.as_ref().is_none_or(of_group))
                && selection::found(handler, index, &self.scanned, &selected).is_empty()
        }))
    }
}
