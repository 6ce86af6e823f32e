//! The progress of a stream, as the health monitor samples it: no clock is read per event.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::metrics::{ResourceMetrics, WatchMetrics};

const UNLIMITED: u64 = u64::MAX;

/// Counts the steps of one stream, and has the timeout of what it waits for.
///
/// The stream is the only writer. It has made progress if the count has changed between two samples.
#[derive(Debug, Default)]
pub struct StreamActivity {
    steps: AtomicU64,
    /// Milliseconds.
    timeout: AtomicU64,
    /// The stream waits for the end of a pause.
    is_held: AtomicBool,
    /// The metrics of the resource, once the stream is registered.
    metrics: OnceLock<Arc<ResourceMetrics>>,
}

impl StreamActivity {
    /// The stream begins to wait, at most for so many seconds; none if something else limits the time, such as the timeouts of
    /// requests.
    pub fn wait(&self, timeout: Option<f64>) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a saturating conversion of a number of seconds"
        )]
        let timeout = timeout.map_or(UNLIMITED, |seconds| (seconds * 1000.0) as u64);
        self.timeout.store(timeout, Ordering::Relaxed);
        self.is_held.store(false, Ordering::Relaxed);
        self.step();
    }

    /// The stream begins to wait for the end of a pause.
    pub fn hold(&self) {
        self.wait(None);
        self.is_held.store(true, Ordering::Relaxed);
    }

    /// Whether the stream waits for the end of a pause.
    pub fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }

    /// The stream has received something.
    pub fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the records of the stream in these metrics from now on; those of the first call stay.
    pub(super) fn count_in(&self, metrics: Arc<ResourceMetrics>) {
        let _first = self.metrics.set(metrics);
    }

    /// The metrics of the stream; none before it is registered.
    pub fn metrics(&self) -> Option<&WatchMetrics> {
        self.metrics.get().map(|metrics| &metrics.watch)
    }

    /// The number of steps, and the timeout in seconds.
    pub fn sample(&self) -> (u64, Option<f64>) {
        let timeout = self.timeout.load(Ordering::Relaxed);
        #[expect(clippy::cast_precision_loss, reason = "timeouts are short")]
        let seconds = (timeout != UNLIMITED).then_some(timeout as f64 / 1000.0);
        (self.steps.load(Ordering::Relaxed), seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_is_a_step_with_its_timeout() {
        let activity = StreamActivity::default();
        assert_eq!(activity.sample(), (0, Some(0.0)));
        activity.wait(Some(70.5));
        assert_eq!(activity.sample(), (1, Some(70.5)));
        activity.step();
        activity.hold();
        assert_eq!((activity.sample(), activity.is_held()), ((3, None), true));
        activity.wait(None);
        assert!(!activity.is_held());
    }
}
