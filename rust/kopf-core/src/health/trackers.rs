//! Ages of signals, computed from samples. Times are seconds of a monotonic clock.

use std::collections::BTreeMap;

/// A longer interval between two samples means that the process was suspended.
const SUSPENDED: f64 = 5.0;
/// The shortest duration of the extension of limits after a suspension.
const SHORTEST_EXTENSION: f64 = 30.0;
/// Without a heartbeat for so long, the event loop is blocked, and takes no tasks.
const BLOCKED: f64 = 5.0;

/// Since when each value is unchanged.
#[derive(Clone, Debug)]
pub struct Unchanged<K, V>(BTreeMap<K, (V, f64)>);

impl<K, V> Default for Unchanged<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord, V: PartialEq> Unchanged<K, V> {
    /// Takes a sample of all values. Keys that it does not have are forgotten.
    pub fn observe(&mut self, sample: impl IntoIterator<Item = (K, V)>, now: f64) {
        let mut previous = std::mem::take(&mut self.0);
        self.0.extend(sample.into_iter().map(|(key, value)| {
            let since = previous.remove(&key).filter(|(known, _)| *known == value).map_or(now, |it| it.1);
            (key, (value, since))
        }));
    }

    /// For how many seconds the value of the key is unchanged; none for an unknown key.
    pub fn age<Q>(&self, key: &Q, now: f64) -> Option<f64>
    where
        K: std::borrow::Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.0.get(key).map(|(_, since)| now - since)
    }
}

/// The suspensions of the process, as gaps between evaluations.
///
/// Each gap extends the limits of all checks by its length. The extension lasts as long as the gap, but at least 30 s. So no process
/// is restarted because it was suspended.
#[derive(Clone, Debug, Default)]
pub struct Suspensions {
    last: Option<f64>,
    /// The lengths of gaps, and when their extensions end.
    gaps: Vec<(f64, f64)>,
}

impl Suspensions {
    /// Records an evaluation; returns the extension of all limits. The evaluations must be at most 5 s apart.
    pub fn observe(&mut self, now: f64) -> f64 {
        if let Some(gap) = self.last.map(|last| now - last).filter(|gap| *gap > SUSPENDED) {
            self.gaps.push((gap, now + gap.max(SHORTEST_EXTENSION)));
        }
        self.last = Some(now);
        self.gaps.retain(|(_, end)| now < *end);
        self.gaps.iter().map(|(gap, _)| gap).sum()
    }
}

/// The queue of tasks to the host: how many it has taken, and how many were put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePosition {
    /// The number of tasks that the host has taken so far.
    pub taken: u64,
    /// The number of tasks that were put so far and that the host was notified of.
    pub submitted: u64,
}

/// The age of the oldest task in the queue to the host.
#[derive(Clone, Debug, Default)]
pub struct QueueAge {
    /// The number of tasks in an earlier sample that the host has not taken yet, and the time of that sample.
    waiting: Option<(u64, f64)>,
}

impl QueueAge {
    /// Takes a sample; returns the age of the oldest task. While the event loop is blocked, no time counts: `heartbeat` is the time
    /// since its last heartbeat.
    pub fn observe(&mut self, position: QueuePosition, heartbeat: Option<f64>, now: f64) -> f64 {
        let is_blocked = heartbeat.is_some_and(|age| age > BLOCKED);
        let is_waiting = self.waiting.is_some_and(|(submitted, _)| position.taken < submitted);
        if !is_waiting {
            self.waiting =
                Some((position.submitted, now)).filter(|(submitted, _)| *submitted > position.taken);
        }
        if let Some((_, since)) = self.waiting.as_mut().filter(|_| is_blocked) {
            *since = now;
        }
        self.waiting.map_or(0.0, |(_, since)| now - since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_count_from_the_first_sample_of_the_same_value() {
        let mut unchanged = Unchanged::default();
        unchanged.observe([("a", 1), ("b", 1)], 0.0);
        unchanged.observe([("a", 1), ("b", 2)], 10.0);
        assert_eq!((unchanged.age("a", 15.0), unchanged.age("b", 15.0)), (Some(15.0), Some(5.0)));
        unchanged.observe([("b", 2)], 20.0);
        unchanged.observe([("a", 1), ("b", 2)], 30.0);
        assert_eq!((unchanged.age("a", 30.0), unchanged.age("b", 30.0)), (Some(0.0), Some(20.0)));
    }

    #[test]
    fn a_suspension_extends_the_limits_for_its_length_or_for_30_seconds() {
        for (gap, lasts) in [(6.0, 30.0), (120.0, 120.0)] {
            let mut suspensions = Suspensions::default();
            assert_eq!(Some(suspensions.observe(0.0)), Some(0.0));
            assert_eq!(Some(suspensions.observe(5.0)), Some(0.0), "evaluations may be 5 s apart");
            let end = 5.0 + gap;
            assert_eq!(Some(suspensions.observe(end)), Some(gap));
            let mut now = end;
            while now + 4.0 < end + lasts {
                now += 4.0;
                assert_eq!(Some(suspensions.observe(now)), Some(gap), "{now}");
            }
            assert_eq!(Some(suspensions.observe(end + lasts)), Some(0.0));
        }
    }

    #[test]
    fn extensions_of_suspensions_in_a_row_add_up() {
        let mut suspensions = Suspensions::default();
        suspensions.observe(0.0);
        suspensions.observe(100.0);
        suspensions.observe(101.0);
        assert_eq!(Some(suspensions.observe(161.0)), Some(160.0));
        for now in 162..200 {
            suspensions.observe(f64::from(now));
        }
        assert_eq!(Some(suspensions.observe(200.0)), Some(60.0));
    }

    #[test]
    fn the_oldest_task_counts_until_it_is_taken() {
        let mut queue = QueueAge::default();
        let mut at =
            |taken, submitted, now| Some(queue.observe(QueuePosition { taken, submitted }, Some(0.5), now));
        assert_eq!(at(0, 0, 0.0), Some(0.0));
        assert_eq!(at(0, 3, 1.0), Some(0.0));
        assert_eq!(at(2, 9, 5.0), Some(4.0), "the third task is not taken yet");
        assert_eq!(at(3, 9, 6.0), Some(0.0));
        assert_eq!(at(3, 9, 8.0), Some(2.0));
        assert_eq!(at(9, 9, 9.0), Some(0.0));
        assert_eq!(at(9, 9, 99.0), Some(0.0));
    }

    #[test]
    fn a_blocked_event_loop_does_not_count_as_a_blocked_queue() {
        let mut queue = QueueAge::default();
        let mut at = |heartbeat, now| {
            Some(queue.observe(QueuePosition { taken: 0, submitted: 1 }, Some(heartbeat), now))
        };
        assert_eq!(at(1.0, 0.0), Some(0.0));
        assert_eq!(at(6.0, 5.0), Some(0.0));
        assert_eq!(at(900.0, 899.0), Some(0.0));
        assert_eq!(at(0.0, 900.0), Some(1.0));
    }
}
