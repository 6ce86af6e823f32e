//! The API groups that are unavailable: the operator works without their resources, and scans them again.
//!
//! An aggregated API is unavailable while its pods are down: `metrics.k8s.io`, for example. This must not affect the handlers
//! of other groups. If handlers name the group, they wait for it, as for a CRD that does not exist yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kopf_core::backoff::{Backoff, Retries};
use kopf_core::log_level::Level;
use tokio::task::AbortHandle;

use super::Orchestrator;
use crate::discovery::observers::DiscoveryEvent;
use crate::discovery::scan::{Discovered, Unavailable, scan_available};
use crate::error::RequestError;
use crate::supervision::supervised;
use crate::time::duration::seconds;

/// How long the first scan waits for a group after the groups of the engine have responded.
const FIRST_SCAN_TIMEOUT: Duration = Duration::from_secs(3);
/// The delays between the scans of an unavailable group, in seconds.
const RETRIES: Backoff = Backoff::endless(&[1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0]).with_jitter(0.2);
/// How often in a row 404 is no reason for a warning: the server lists a removed version for some seconds.
const MOST_NOT_FOUND: u32 = 3;

/// A group of which a version could not be read by the last scan.
pub(super) struct UnavailableGroup {
    retries: Retries<'static>,
    is_logged: bool,
    /// The delayed scan, until it begins.
    retry: Option<AbortHandle>,
}

impl Default for UnavailableGroup {
    fn default() -> Self {
        Self { retries: RETRIES.retries(), is_logged: false, retry: None }
    }
}

impl Orchestrator {
    /// Scans all groups in the scope for the first time.
    pub(super) async fn scan_all(&mut self) -> Result<(), RequestError> {
        let found = scan_available(&self.shared.base.client, &self.scope(), FIRST_SCAN_TIMEOUT).await?;
        self.scanned = found.resources;
        let mut groups: BTreeMap<String, Vec<Unavailable>> = BTreeMap::new();
        for one in found.unavailable {
            groups.entry(one.version.group.clone()).or_default().push(one);
        }
        for (group, versions) in groups {
            self.on_scan_failure(&group, &reasons(&versions));
        }
        Ok(())
    }

    /// Replaces the resources of a group. The known resources of versions that cannot be read now stay.
    pub(super) fn replace_group(&mut self, group: &str, found: Discovered) {
        let Discovered { resources, unavailable } = found;
        self.scanned.retain_mut(|known| {
            if known.group != group {
                return true;
            }
            let mut kept = unavailable.iter().filter(|one| one.error.status() != Some(404));
            let Some(kept) = kept.find(|one| one.version.version == known.version) else { return false };
            if known.preferred != kept.version.preferred {
                Arc::make_mut(known).preferred = kept.version.preferred;
            }
            true
        });
        self.scanned.extend(resources);
        if unavailable.is_empty() {
            self.on_scan_success(group);
        } else {
            self.on_scan_failure(group, &reasons(&unavailable));
        }
    }

    /// Whether the group is known to be unavailable.
    pub(super) fn is_unavailable(&self, group: &str) -> bool {
        self.unavailable.get(group).is_some_and(|one| one.is_logged)
    }

    /// Logs the first failure of a group, and schedules its next scan. `failures` are names, and the reasons.
    pub(super) fn on_scan_failure(&mut self, group: &str, failures: &[(String, &RequestError)]) {
        let mut state = self.unavailable.remove(group).unwrap_or_default();
        let is_not_found = failures.iter().all(|(_, error)| error.status() == Some(404));
        let may_be_removed = is_not_found && state.retries.failures() < MOST_NOT_FOUND;
        if !may_be_removed && !std::mem::replace(&mut state.is_logged, true) {
            self.log(Level::Warning, warning(failures));
        }
        if state.retry.is_none() {
            let wishes = failures.iter().filter_map(|(_, error)| retry_after(error));
            let delay = state.retries.next(wishes.reduce(f64::max), fastrand::f64());
            state.retry = delay.map(|delay| self.scan_later(group, seconds(delay.seconds)));
        }
        self.unavailable.insert(group.to_owned(), state);
    }

    fn scan_later(&mut self, group: &str, delay: Duration) -> AbortHandle {
        let (discovery, clock) = (Arc::clone(&self.discovery), self.shared.base.clock.clone());
        let (title, group) = (format!("The next scan of the group {group:?}"), group.to_owned());
        self.tasks.spawn(supervised(title, async move {
            clock.sleep(delay).await;
            discovery.send(DiscoveryEvent::Rescan(group));
            Ok(())
        }))
    }

    /// Cancels the delayed scan of a group that is scanned now.
    pub(super) fn cancel_retry(&mut self, group: &str) {
        if let Some(retry) = self.unavailable.get_mut(group).and_then(|state| state.retry.take()) {
            retry.abort();
        }
    }

    /// Ends the retries of a group.
    fn on_scan_success(&mut self, group: &str) {
        self.cancel_retry(group);
        if self.unavailable.remove(group).is_some_and(|state| state.is_logged) {
            let is_served = self.scanned.iter().any(|resource| resource.group == group);
            let state = if is_served { "available" } else { "not served any more" };
            self.log(Level::Info, format!("The API group {} is {state}.", group_name(group)));
        }
    }
}

/// The name of a group in log lines.
pub(super) fn group_name(group: &str) -> String {
    if group.is_empty() { "the core group".to_owned() } else { group.to_owned() }
}

fn reasons(unavailable: &[Unavailable]) -> Vec<(String, &RequestError)> {
    unavailable.iter().map(|one| (one.version.to_string(), &one.error)).collect()
}

fn warning(failures: &[(String, &RequestError)]) -> String {
    let reasons: Vec<_> = failures.iter().map(|(name, error)| format!("{name}: {}", reason(error))).collect();
    format!(
        "Cannot read the resources of {}. Kopf serves the other groups, and scans this one again until it is available.",
        reasons.join("; ")
    )
}

/// The reason in a log line: the status and the message of the server, or the error.
fn reason(error: &RequestError) -> String {
    match error {
        RequestError::Api(error) => {
            format!("{} {}", error.status, error.message.trim()).trim_end().to_owned()
        }
        RequestError::Timeout => "no response in time".to_owned(),
        error => error.to_string(),
    }
}

fn retry_after(error: &RequestError) -> Option<f64> {
    match error {
        RequestError::Api(error) => error.retry_after,
        _ => None,
    }
}
