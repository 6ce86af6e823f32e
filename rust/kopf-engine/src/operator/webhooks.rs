//! The webhook configurations that the operator keeps in the cluster.

use std::future::pending;
use std::sync::Arc;

use super::OperatorContext;
use crate::admission::AdmissionRouter;
use crate::admission::managed::{Managed, REPETITION};
use crate::error::Failure;
use crate::task_context::TaskContext;

/// The manager of webhook configurations, if the settings enable it.
pub(super) fn managed(shared: &TaskContext, admission: &AdmissionRouter) -> Option<Managed> {
    let settings = &shared.startup_config.settings;
    let name = settings.admission.managed.clone()?;
    let repetition = (!settings.compat).then_some(REPETITION);
    let (client, host) = (shared.client.clone(), Arc::clone(&shared.host));
    let registry = Arc::clone(&shared.startup_config.registry);
    Some(Managed::new(client, host, registry, admission.subscribe(), name, repetition))
}

/// Keeps the configurations up to date while the operator leads, until it fails.
pub(super) async fn keep(managed: &mut Option<Managed>, shared: &OperatorContext) -> Failure {
    match managed {
        Some(managed) => loop {
            shared.dispatch.pause.leading().await;
            tokio::select! {
                failure = managed.run() => return failure,
                // The next leader writes its own configurations, and cleans them up.
                () = shared.dispatch.pause.standing_by() => managed.forget_written(),
            }
        },
        None => pending().await,
    }
}

/// Removes the webhooks before the shutdown; not if this replica releases the lease afterwards, since the next leader needs them.
pub(super) async fn clean_up(managed: &mut Option<Managed>, shared: &OperatorContext) {
    let releases = shared.replica.as_ref().is_some_and(|replica| replica.releases());
    if let Some(managed) = managed.as_mut().filter(|_| !releases) {
        managed.clean_up().await;
    }
}

/// After the release of the lease: leaves the webhooks to the next leader, or removes them if there is none.
pub(super) async fn clean_up_as_last(managed: &mut Option<Managed>, shared: &OperatorContext) {
    if let (Some(managed), Some(replica)) = (managed, &shared.replica)
        && managed.has_removable()
    {
        replica.finish_as_last(&shared.base, managed.clean_up()).await;
    }
}
