//! The probes, whose results the host collects.
//!
//! Requests share one collection at a time, and its results are kept for a while. A failure is not kept.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::Shared;
use crate::host::{HostTask, ProbeTask};

/// How long the results are kept.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// The maximum number of requests that wait for the same results; further ones wait until there is space in the queue.
pub(super) const MAX_WAITING: usize = 64;
/// The timeout of the check `probes`.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// A request that waits for the results; none if a probe has failed.
pub(super) type Waiter = oneshot::Sender<Option<Bytes>>;

/// Waits for the results; none if a probe has failed.
pub(super) async fn ask(askers: &Sender<Waiter>) -> Option<Bytes> {
    let (asker, results) = oneshot::channel();
    let _ = askers.send(asker).await;
    results.await.ok().flatten()
}

/// The failure of the check of the probes, if it fails.
pub(super) async fn check(askers: &Sender<Waiter>) -> Option<String> {
    match timeout(CHECK_TIMEOUT, ask(askers)).await {
        Ok(Some(_)) => None,
        Ok(None) => Some("a probe has failed".to_owned()),
        Err(_) => Some(format!("no results within {} s", CHECK_TIMEOUT.as_secs())),
    }
}

/// Collects the results for waiting requests, one collection at a time. Abandoned requests cause no collection.
pub(super) async fn collect(shared: Arc<Shared>, mut askers: Receiver<Waiter>) {
    let mut kept: Option<(Instant, Bytes)> = None;
    while let Some(asker) = askers.recv().await {
        let Some(connected) = shared.connected.get().filter(|_| !asker.is_closed()) else { continue };
        if kept.as_ref().is_none_or(|(since, _)| since.elapsed() >= KEPT_FOR) {
            let (reply, results) = oneshot::channel();
            connected.host.submit(HostTask::Probe(ProbeTask { reply }));
            kept = results.await.ok().flatten().map(|results| (Instant::now(), Bytes::from(results)));
        }
        let _gone = asker.send(kept.as_ref().map(|(_, results)| results.clone()));
    }
}
