//! Leader election in an operator: its start, and what follows the changes of the role.

use std::sync::Arc;

use futures::future::pending;
use tokio::task::JoinSet;

use super::{Config, OperatorContext, spawn_essential};
use crate::leadership::{Elector, Replica, Role};
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
    let following = follow_role(Arc::clone(shared), Arc::clone(&replica));
    spawn_essential(tasks, shared, "The observer of the leader election", following);
    spawn_essential(tasks, shared, "The leader election", replica.run_elector(elector));
}

/// Lets the operator work while it leads, and ends this work when the lease is lost.
async fn follow_role(context: Arc<OperatorContext>, replica: Arc<Replica>) {
    let Some(mut roles) = replica.roles() else { return };
    loop {
        let role = *roles.borrow_and_update();
        match role {
            Role::Leader(_) => {
                context.base.term.begin();
                replica.lead();
            }
            Role::Draining(_) if replica.on_end() => lose(&context, &replica).await,
            Role::Draining(_) | Role::Standby => {}
        }
        if roles.changed().await.is_err() {
            pending::<()>().await;
        }
    }
}

/// The lease is lost: the operator ends, or the replica stands by when nothing of the term runs any more.
async fn lose(context: &OperatorContext, replica: &Replica) {
    if replica.ends_on_loss() || context.base.stopping.is_cancelled() {
        return replica.end(&context.base);
    }
    // In this order: nothing starts any more, and then what runs is cancelled.
    context.dispatch.daemons.halt();
    replica.stand_by();
    context.base.term.end();
    tokio::select! {
        () = end_term(context) => replica.report_drained(&context.base),
        () = context.base.clock.sleep(replica.loss_grace()) => replica.end_overdue(&context.base),
    }
}

/// Waits until the cancelled calls of a lost term have ended.
async fn end_term(context: &OperatorContext) {
    let reconcilers = async {
        if let Some(reconcilers) = &context.reconcilers {
            reconcilers.end_term().await;
        }
    };
    let cycles = async {
        context.dispatch.detached.end_term().await;
        context.base.term.left().await;
    };
    tokio::join!(cycles, context.dispatch.daemons.end_term(), reconcilers);
}
