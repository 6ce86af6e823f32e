//! The index gate: it holds handlers back until all indices and required caches are filled.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use kopf_core::log_level::Level;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::host::{Host, LogRecord, Logger};
use crate::time::duration::seconds;
use crate::watch_health::WatchHealth;

const LOGGER: Logger = Logger::Orchestration;
/// Seconds until the log line that handlers wait for the indices; the last delay repeats.
const LOG_DELAYS: [f64; 2] = [30.0, 120.0];
const LAST_LOG_DELAY: f64 = 600.0;

/// A gate that opens when its last guard is dropped, and then stays open.
#[derive(Debug, Default)]
pub struct IndexGate {
    /// Number of guards by the name of the resource that they wait for.
    blockers: Mutex<BTreeMap<Arc<str>, usize>>,
    opened: CancellationToken,
}

/// Keeps the gate closed until it is dropped.
#[derive(Debug)]
pub struct IndexGateGuard {
    index_gate: Arc<IndexGate>,
    pub(crate) what: Arc<str>,
}

impl IndexGate {
    /// A guard for the resource of this name; none if the gate is open already.
    pub fn block(self: &Arc<Self>, what: impl Into<Arc<str>>) -> Option<IndexGateGuard> {
        let mut blockers = self.blockers.lock().unwrap_or_else(PoisonError::into_inner);
        if self.opened.is_cancelled() {
            return None;
        }
        let what = what.into();
        *blockers.entry(Arc::clone(&what)).or_default() += 1;
        Some(IndexGateGuard { index_gate: Arc::clone(self), what })
    }

    /// The names of the resources that the gate waits for.
    fn blockers(&self) -> Vec<Arc<str>> {
        self.blockers.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// Logs, at increasing intervals, which resources the gate waits for.
    pub async fn log_waiting(&self, health: &WatchHealth, host: &dyn Host) {
        for delay in LOG_DELAYS.iter().copied().chain(std::iter::repeat(LAST_LOG_DELAY)) {
            tokio::select! {
                () = self.opened() => return,
                () = sleep(seconds(delay)) => {}
            }
            let whats = self.blockers().into_iter().map(|what| {
                let error = health.error_of(&what).map(|error| format!(" ({error})"));
                format!("{what}{}", error.unwrap_or_default())
            });
            let whats = whats.collect::<Vec<_>>().join("; ");
            let text = format!(
                "No handlers are called yet: the indices and caches are not filled. They wait for the objects of: {whats}."
            );
            host.log(LogRecord::general(Level::Warning, LOGGER, text));
        }
    }

    /// Whether the gate is open.
    pub fn is_open(&self) -> bool {
        self.opened.is_cancelled()
    }

    /// Waits until the gate is open.
    pub async fn opened(&self) {
        self.opened.cancelled().await;
    }
}

impl Drop for IndexGateGuard {
    fn drop(&mut self) {
        let mut blockers = self.index_gate.blockers.lock().unwrap_or_else(PoisonError::into_inner);
        let left = blockers.get_mut(&self.what).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if left == 0 {
            blockers.remove(&self.what);
        }
        if blockers.is_empty() {
            self.index_gate.opened.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // contract: engine 10
    #[test]
    fn the_gate_opens_with_its_last_guard_and_stays_open() {
        let index_gate = Arc::new(IndexGate::default());
        let (first, second) = (index_gate.block("a"), index_gate.block("b"));
        assert!(first.is_some() && second.is_some());
        assert_eq!(index_gate.blockers(), [Arc::from("a"), Arc::from("b")]);
        drop(first);
        assert!(!index_gate.opened.is_cancelled());
        drop(second);
        assert!(index_gate.opened.is_cancelled());
        assert!(index_gate.block("a").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_reason_of_a_closed_gate_is_logged_rarely() {
        let host = crate::testing::FakeHost::default();
        let health = WatchHealth::new(crate::time::clock::Clock::start());
        health.record_failure(
            "things cluster-wide",
            crate::watch_health::StreamFailure::Rejected,
            Some("403".to_owned()),
        );
        let index_gate = Arc::new(IndexGate::default());
        let gate_guard = index_gate.block("things cluster-wide");
        let logging = index_gate.log_waiting(&health, &host);
        let waiting = async {
            sleep(seconds(29.0)).await;
            assert_eq!(host.lines("").len(), 0);
            sleep(seconds(2.0)).await;
            assert_eq!(host.lines("").len(), 1);
            sleep(seconds(600.0)).await;
            assert_eq!(host.lines("They wait for the objects of: things cluster-wide (403).").len(), 2);
            drop(gate_guard);
        };
        tokio::join!(logging, waiting);
    }
}
