//! The heartbeats of the host's event loop and of the orchestrator, for the health monitor.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The interval of the heartbeats.
const INTERVAL: Duration = Duration::from_secs(1);
/// No value.
const NONE: u64 = u64::MAX;

/// The times of the last heartbeats. They use real time, not the time of the operator's delays.
#[derive(Debug)]
pub struct Heartbeats {
    start: Instant,
    /// Milliseconds since the start.
    host: AtomicU64,
    orchestrator: AtomicU64,
    /// The age of the oldest call of a handler at the last heartbeat of the host, in milliseconds.
    call: AtomicU64,
}

impl Heartbeats {
    /// The heartbeats begin now.
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
            host: AtomicU64::new(NONE),
            orchestrator: AtomicU64::new(0),
            call: AtomicU64::new(NONE),
        }
    }

    /// Records a heartbeat of the host's event loop, and the age of its oldest call of a handler in seconds.
    pub fn on_host(&self, oldest_call: Option<f64>) {
        let call =
            oldest_call.map_or(NONE, |age| millis(Duration::try_from_secs_f64(age).unwrap_or_default()));
        self.call.store(call, Ordering::Relaxed);
        self.host.store(millis(self.start.elapsed()), Ordering::Relaxed);
    }

    /// Records heartbeats of the calling task until it is cancelled.
    pub async fn beat(&self) -> std::convert::Infallible {
        loop {
            self.orchestrator.store(millis(self.start.elapsed()), Ordering::Relaxed);
            sleep(INTERVAL).await;
        }
    }

    /// The seconds since the start.
    pub(super) fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// The seconds since the last heartbeat of the host; none if it has sent none.
    pub(super) fn host_age(&self, now: f64) -> Option<f64> {
        stored(&self.host).map(|at| (now - at).max(0.0))
    }

    /// The seconds since the last heartbeat of the orchestrator.
    pub(super) fn orchestrator_age(&self, now: f64) -> f64 {
        stored(&self.orchestrator).map_or(0.0, |at| (now - at).max(0.0))
    }

    /// The age of the oldest call of a handler.
    pub(super) fn call_age(&self, now: f64) -> Option<f64> {
        Some(stored(&self.call)? + self.host_age(now)?)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(NONE - 1)
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of a run are exact in a float")]
fn stored(value: &AtomicU64) -> Option<f64> {
    Some(value.load(Ordering::Relaxed)).filter(|value| *value != NONE).map(|value| value as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ages_count_from_the_last_heartbeat() {
        let beats = Heartbeats::start();
        tokio::time::advance(Duration::from_secs(10)).await;
        let now = beats.now();
        assert_eq!(
            (beats.host_age(now), beats.orchestrator_age(now), beats.call_age(now)),
            (None, 10.0, None)
        );
        beats.on_host(Some(30.0));
        tokio::select! {
            _never = beats.beat() => {}
            () = sleep(Duration::from_millis(2500)) => {}
        }
        let now = beats.now();
        assert_eq!((beats.host_age(now), beats.orchestrator_age(now)), (Some(2.5), 0.5));
        assert_eq!(beats.call_age(now), Some(32.5));
        beats.on_host(None);
        assert_eq!(beats.call_age(now), None);
    }
}
