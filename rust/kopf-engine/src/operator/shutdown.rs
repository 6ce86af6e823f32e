//! The shutdown of an operator, in stages.

use std::future::pending;

use kopf_core::log_level::Level;
use tokio::time::timeout;

use super::OperatorContext;
use super::orchestrator::Orchestrator;
use crate::host::{LogRecord, Logger};
use crate::time::duration::seconds;

/// Stops the watches, lets the workers finish, and cancels those that do not; meanwhile, daemons and timers are stopped. A replica
/// that leads releases the lease at the end. Returns whether the lease is released.
pub(super) async fn shutdown(orchestrator: &mut Orchestrator, context: &OperatorContext) -> bool {
    let shared = &context.dispatch;
    orchestrator.stop().await;
    shared.workers.close();
    let reconcilers = async {
        if let Some(reconcilers) = &context.reconcilers {
            reconcilers.close().await;
        }
    };
    let finishing = async {
        tokio::join!(finish_workers(orchestrator, context), shared.daemons.close_daemons(), reconcilers);
    };
    let is_finished = tokio::select! {
        () = finishing => true,
        () = lost(context) => false,
    };
    if !is_finished {
        let text =
            "Handlers are still running after the loss of the lease; the operator does not wait for them.";
        shared.base.host.log(LogRecord::general(Level::Error, Logger::Leadership, text));
    }
    // Only now: other operators may start handling as soon as our record is removed.
    orchestrator.leave().await;
    match context.replica.as_ref().filter(|_| is_finished) {
        Some(replica) => replica.release().await,
        None => false,
    }
}

async fn finish_workers(orchestrator: &Orchestrator, context: &OperatorContext) {
    let shared = &context.dispatch;
    let grace = seconds(shared.base.startup_config.settings.queueing.exit_timeout);
    let is_finished = tokio::select! {
        finished = timeout(grace, shared.workers.wait()) => finished.is_ok(),
        () = losing(context) => false,
    };
    if !is_finished {
        let left = orchestrator.busy().join(", ");
        let text = format!("Unprocessed streams left for [{left}].");
        shared.base.host.log(LogRecord::general(Level::Warning, Logger::Queueing, text));
        shared.force_stopping.cancel();
        shared.detached.give_up();
        shared.workers.wait().await;
    }
}

/// Waits until the lease is lost: nothing that the workers do is written any more.
async fn losing(context: &OperatorContext) {
    match &context.replica {
        Some(replica) => replica.losing().await,
        None => pending().await,
    }
}

/// Waits until the lease was lost for so long that cancelled calls have ended.
async fn lost(context: &OperatorContext) {
    match &context.replica {
        Some(replica) => replica.lost().await,
        None => pending().await,
    }
}
