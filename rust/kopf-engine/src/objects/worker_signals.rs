//! The signals between the slot of a busy object and its worker.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use kopf_core::time::Timestamp;

use tokio::sync::Notify;

/// The signals between the slot of a busy object and its worker.
#[derive(Debug, Default)]
pub struct WorkerSignals {
    /// Notifies the worker about new events.
    pub arrived: Notify,
    /// The number of times that the worker has begun or ended to wait for something outside of the engine.
    steps: AtomicU32,
    /// How many such waits are in progress.
    waits: AtomicU32,
    /// When the cycle in progress was opened, in microseconds; zero without a cycle.
    opened: AtomicI64,
}

/// A wait for something outside of the engine, until it is dropped.
pub struct OutsideGuard<'a>(&'a WorkerSignals);

impl WorkerSignals {
    /// The worker begins to wait for something outside of the engine: the host, a request, a delay, another worker.
    pub fn wait_outside(&self) -> OutsideGuard<'_> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.steps.fetch_add(1, Ordering::Relaxed);
        OutsideGuard(self)
    }

    /// A cycle is in progress that was opened then; none: it has ended.
    pub fn set_cycle(&self, opened: Option<Timestamp>) {
        self.opened.store(opened.map_or(0, Timestamp::micros), Ordering::Relaxed);
    }

    /// When the cycle in progress was opened.
    pub fn cycle_opened(&self) -> Option<Timestamp> {
        let micros = self.opened.load(Ordering::Relaxed);
        (micros != 0).then(|| Timestamp::from_micros(micros))
    }

    /// The number of steps so far if the worker is inside of the engine now. The same number in two samples means that it was
    /// inside all the time.
    pub fn inside(&self) -> Option<u32> {
        let steps = self.steps.load(Ordering::Relaxed);
        (self.waits.load(Ordering::Relaxed) == 0).then_some(steps)
    }
}

impl Drop for OutsideGuard<'_> {
    fn drop(&mut self) {
        self.0.steps.fetch_add(1, Ordering::Relaxed);
        self.0.waits.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_inside_between_its_waits() {
        let signals = WorkerSignals::default();
        let before = signals.inside();
        assert!(before.is_some());
        let outer = signals.wait_outside();
        assert_eq!(signals.inside(), None);
        drop(signals.wait_outside());
        assert_eq!(signals.inside(), None);
        drop(outer);
        assert!(signals.inside().is_some() && signals.inside() != before);
    }
}
