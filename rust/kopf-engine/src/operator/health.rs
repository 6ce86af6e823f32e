//! The connection of an operator to its status server.

use std::sync::Arc;

use crate::admission::AdmissionRouter;
use crate::error::Failure;
use crate::operator::OperatorContext;
use crate::status::{Awaited, Connected, HealthMonitor, Heartbeats, Monitored, OperatorStatus, StatusServer};

/// The monitored parts of the operator.
pub(super) fn monitored(
    shared: &OperatorContext,
    admission: &Arc<AdmissionRouter>,
    heartbeats: &Arc<Heartbeats>,
) -> Monitored {
    let awaited = Awaited {
        reconcilers: shared.reconcilers.clone(),
        caches: shared.caches.clone(),
        index_gate: shared.dispatch.index_gate.clone(),
    };
    Monitored {
        dispatch: Arc::clone(&shared.dispatch),
        health: Arc::clone(&shared.health),
        awaited,
        admission: Arc::clone(admission),
        heartbeats: Arc::clone(heartbeats),
        replica: shared.replica.clone(),
    }
}

/// Connects the operator to its status server; returns the monitor of its health, which Kopf 1.45 does not have.
pub(super) async fn connect(
    shared: &OperatorContext,
    status: &StatusServer,
    monitored: Monitored,
    has_probes: bool,
) -> Result<Option<Arc<HealthMonitor>>, Failure> {
    status.listening().await?;
    let is_compatible = shared.base.startup_config.settings.compat;
    let (health, awaited) = (Arc::clone(&monitored.health), monitored.awaited.clone());
    let monitor = (!is_compatible).then(|| Arc::new(HealthMonitor::new(monitored)));
    status.connect(Connected {
        host: Arc::clone(&shared.base.host),
        failing: Arc::clone(&shared.base.failing),
        has_probes,
        status: monitor.clone().map(|monitor| OperatorStatus { health, awaited, monitor }),
    });
    Ok(monitor)
}
