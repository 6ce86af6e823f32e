//! The peering of an operator that is to pause the leader of a leader election: it must exist.

use kopf_core::resource::Resource;

use super::Orchestrator;
use crate::error::Failure;
use crate::peering::{self, GROUPS};

impl Orchestrator {
    /// Checks, before the first watches start, that there is a peering object by which the operator can pause the leader.
    ///
    /// # Errors
    /// There is none.
    pub(super) async fn require_peering(&mut self) -> Result<(), Failure> {
        let settings = &self.shared.base.startup_config.settings.peering;
        if !settings.required || !self.is_located || self.has_required_peering {
            return Ok(());
        }
        let name = &settings.name;
        let mut absent = vec![];
        for (resource, namespace) in self.peerings.keys() {
            let url = resource.url(namespace.as_deref(), Some(name), None);
            match self.shared.base.client.get_once(&url).await {
                Err(error) if error.status() == Some(404) => {
                    absent.push(described(resource, namespace.as_deref(), name));
                }
                // Without an answer, it may exist.
                Ok(_) | Err(_) => {
                    self.has_required_peering = true;
                    return Ok(());
                }
            }
        }
        absent.sort();
        let what = if absent.is_empty() {
            let plural = peering::plural(settings.clusterwide);
            format!("Install the CRD {plural}.{}, and create the object {name:?}", GROUPS[0])
        } else {
            format!("Create the {}", absent.join(", or the "))
        };
        Err(Failure::other(format!(
            "There is no peering by which this operator could pause the leader: with --dev, it takes no part in the leader \
             election. {what}; or set --leader-elect."
        )))
    }
}

fn described(resource: &Resource, namespace: Option<&str>, name: &str) -> String {
    let kind = resource.kind.as_deref().unwrap_or(&resource.plural);
    let place = namespace.map(|namespace| format!(" in the namespace {namespace:?}")).unwrap_or_default();
    format!("{kind} {name:?}{place}")
}
