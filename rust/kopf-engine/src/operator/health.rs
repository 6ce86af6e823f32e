//! The connection of an operator to its status server.

use std::sync::{Arc, OnceLock, Weak};

use crate::admission::AdmissionRouter;
use crate::error::Failure;
use crate::operator::OperatorContext;
use crate::status::{Awaited, Connected, HealthMonitor, Heartbeats, Monitored, OperatorStatus, StatusServer};
use crate::watch_health::StreamSample;

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

/// The streams whose first listing is awaited, see [`Operator::awaited_streams`](super::Operator::awaited_streams).
pub(super) fn awaited_streams(context: &OnceLock<Weak<OperatorContext>>) -> Vec<String> {
    let Some(context) = context.get() else { return vec!["the start of the engine".to_owned()] };
    let Some(context) = context.upgrade().filter(|context| !context.dispatch.pause.is_on()) else {
        return vec![];
    };
    let Some(samples) = context.health.samples() else { return vec!["the scan of the cluster".to_owned()] };
    let is_awaited = |it: &StreamSample| !it.is_listed && !it.is_rejected && it.failure.is_none();
    samples.into_iter().filter(is_awaited).map(|it| format!("{} {}", it.name, it.problem)).collect()
}
