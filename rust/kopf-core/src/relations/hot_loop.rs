//! Detection of hot loops: a reconciler whose writes trigger itself (1.7).

use std::collections::VecDeque;

use crate::schedule::Delays;
use crate::time::Timestamp;

/// The time in which the reconciliations of a hot loop occur, in seconds.
const WINDOW: f64 = 60.0;

/// The origin of the triggers of one reconciliation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerOrigin {
    /// Only own writes of the previous reconciliation, or reverts of its writes by other managers.
    OwnWrites,
    /// At least one other trigger.
    Other,
}

/// The detector of one (reconciler, primary). It takes no memory beyond itself until its own writes trigger it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HotLoop {
    /// The starts of the last reconciliations in a row that were triggered by own writes only and have changed something.
    starts: VecDeque<Timestamp>,
    /// The start of the running reconciliation, if own writes have triggered it.
    running: Option<Timestamp>,
    /// The number of delayed triggers, while a hot loop is detected.
    delayed: Option<u32>,
}

impl HotLoop {
    /// Records the start of a reconciliation. Another trigger ends the hot loop.
    pub fn start(&mut self, origin: TriggerOrigin, now: Timestamp) {
        if origin == TriggerOrigin::Other {
            *self = Self::default();
        } else {
            self.running = Some(now);
        }
    }

    /// Records the end of a reconciliation, and whether it has changed anything: otherwise, it does not count. Returns whether a
    /// hot loop of `limit` reconciliations is detected now: it is logged once.
    pub fn finish(&mut self, has_changed: bool, limit: usize) -> bool {
        let Some(start) = self.running.take() else { return false };
        if !has_changed {
            return false;
        }
        self.starts.push_back(start);
        while self.starts.len() > limit.max(1) {
            self.starts.pop_front();
        }
        let is_full = self.starts.len() == limit.max(1);
        let is_hot =
            is_full && self.starts.front().is_some_and(|first| start.seconds_since(*first) <= WINDOW);
        let is_new = is_hot && self.delayed.is_none();
        if is_new {
            self.delayed = Some(0);
        }
        is_new
    }

    /// Whether own writes have triggered the running reconciliation, or the last one.
    pub fn is_suspected(&self) -> bool {
        self.running.is_some() || !self.starts.is_empty()
    }

    /// Whether triggers are delayed.
    pub fn is_detected(&self) -> bool {
        self.delayed.is_some()
    }

    /// The delay in seconds of a trigger by own writes; none if it is not delayed. `chance` is a random number from 0 to 1.
    pub fn delay(&mut self, delays: &Delays, chance: f64) -> Option<f64> {
        let delayed = self.delayed.as_mut()?;
        let delay = delays.delay(*delayed, chance);
        *delayed = delayed.saturating_add(1);
        Some(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_micros(0).plus(seconds)
    }

    fn run(detector: &mut HotLoop, origin: TriggerOrigin, now: f64, has_changed: bool) -> bool {
        detector.start(origin, at(now));
        detector.finish(has_changed, 10)
    }

    #[test]
    fn s1_14_22_after_ten_reconciliations_delays_grow() {
        let mut detector = HotLoop::default();
        let found: Vec<_> =
            (0..12).map(|n| run(&mut detector, TriggerOrigin::OwnWrites, f64::from(n), true)).collect();
        assert_eq!(found.iter().position(|found| *found), Some(9), "{found:?}");
        assert_eq!(found.iter().filter(|found| **found).count(), 1, "one warning");
        let delays: Vec<_> = (0..4).map(|_| detector.delay(&Delays::default(), 0.0)).collect();
        assert_eq!(delays, [1.0, 2.0, 4.0, 8.0].map(Some));
        run(&mut detector, TriggerOrigin::OwnWrites, 900.0, true);
        assert_eq!(detector.delay(&Delays::default(), 0.0), Some(16.0), "delays do not end the hot loop");
        run(&mut detector, TriggerOrigin::Other, 901.0, true);
        assert_eq!(detector.delay(&Delays::default(), 0.0), None);
    }

    #[test]
    fn other_reconciliations_are_no_hot_loop() {
        let mut slow = HotLoop::default();
        assert!(!(0..50).any(|n| run(&mut slow, TriggerOrigin::OwnWrites, f64::from(n) * 7.0, true)));
        let mut idle = HotLoop::default();
        assert!(!(0..50).any(|n| run(&mut idle, TriggerOrigin::OwnWrites, 0.0, n % 9 == 0)));
        let mut triggered = HotLoop::default();
        let origin = |n| if n % 9 == 0 { TriggerOrigin::Other } else { TriggerOrigin::OwnWrites };
        assert!(!(0..50).any(|n| run(&mut triggered, origin(n), 0.0, true)));
    }
}
