//! The heartbeats of the host's event loop and of the orchestrator, for the health monitor.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::metrics::Histogram;

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
    /// How late the heartbeats of the host were.
    lag: Histogram,
    last: Mutex<HostLoad>,
}

/// The load of the host, reported with each heartbeat.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostLoad {
    /// The running calls of handlers, except for daemons: the id of the handler, and the age in seconds.
    pub calls: Vec<(String, f64)>,
    /// The threads of synchronous handlers.
    pub threads: Threads,
}

/// The threads of synchronous handlers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Threads {
    /// The functions that run.
    pub active: usize,
    /// The functions that wait for a thread.
    pub waiting: usize,
    /// The maximum number of threads; none if it is not known.
    pub limit: Option<usize>,
}

impl Heartbeats {
    /// The heartbeats begin now.
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
            host: AtomicU64::new(NONE),
            orchestrator: AtomicU64::new(0),
            lag: Histogram::fast(),
            last: Mutex::default(),
        }
    }

    /// Records a heartbeat of the host's event loop, with its load.
    pub fn on_host(&self, load: HostLoad) {
        let now = self.now();
        if let Some(age) = self.host_age(now) {
            self.lag.observe((age - INTERVAL.as_secs_f64()).max(0.0));
        }
        *self.last() = load;
        self.host.store(millis(self.start.elapsed()), Ordering::Relaxed);
    }

    /// How late the heartbeats of the host were.
    pub(super) fn lag(&self) -> &Histogram {
        &self.lag
    }

    /// The load of the host, with the present ages of its calls.
    pub(super) fn load(&self, now: f64) -> HostLoad {
        let (mut load, elapsed) = (self.last().clone(), self.host_age(now).unwrap_or_default());
        load.calls.iter_mut().for_each(|(_, age)| *age += elapsed);
        load
    }

    fn last(&self) -> MutexGuard<'_, HostLoad> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
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
        let oldest = self.last().calls.iter().map(|(_, age)| *age).reduce(f64::max)?;
        Some(oldest + self.host_age(now)?)
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
        let calls = vec![("a".to_owned(), 30.0), ("b".to_owned(), 10.0)];
        beats.on_host(HostLoad { calls, ..HostLoad::default() });
        tokio::select! {
            _never = beats.beat() => {}
            () = sleep(Duration::from_millis(2500)) => {}
        }
        let now = beats.now();
        assert_eq!((beats.host_age(now), beats.orchestrator_age(now)), (Some(2.5), 0.5));
        assert_eq!(beats.call_age(now), Some(32.5));
        assert_eq!(beats.load(now).calls[1], ("b".to_owned(), 12.5));
        assert_eq!(beats.lag().count(), 0);
        beats.on_host(HostLoad::default());
        assert_eq!(beats.lag().count(), 1);
        assert_eq!(beats.call_age(now), None);
    }
}
