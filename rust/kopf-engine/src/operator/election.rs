//! The start of leader election in an operator.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{Config, OperatorContext, spawn_essential};
use crate::leadership::{Elector, Replica};
use crate::status::{HealthMonitor, Monitored};

/// The identity in peerings. All replicas of a lease are one peer: a new leader does not wait for the record of a crashed one.
pub(super) fn identity_among_peers(config: &Config) -> String {
    config.settings.leadership.as_ref().map_or_else(
        || config.identity.clone(),
        |election| format!("{}/{}", election.namespace.as_deref().unwrap_or_default(), election.name),
    )
}

/// Starts the tasks of leader election.
pub(super) fn start(
    tasks: &mut JoinSet<()>,
    shared: &Arc<OperatorContext>,
    (replica, elector): (Arc<Replica>, Elector),
    monitored: Monitored,
) {
    let monitor = HealthMonitor::new(monitored);
    let reporting = async move { monitor.run_for_election().await };
    spawn_essential(tasks, shared, "The health monitor of the leader election", reporting);
    let following = Arc::clone(&replica).follow_role(Arc::clone(&shared.base));
    spawn_essential(tasks, shared, "The observer of the leader election", following);
    spawn_essential(tasks, shared, "The leader election", replica.run_elector(elector));
}
