//! The number of activations that have run for long, without a timer for each.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use kopf_core::time::Timestamp;

/// Seconds after which an activation has run for long: its handlers wait for something else than their turn.
const LONG: f64 = 5.0;
/// Activations that begin within so many seconds are counted together.
const PERIOD: f64 = 1.0;

/// The activations in progress.
#[derive(Debug, Default)]
pub struct RunningActivations {
    /// Each activation has a clone.
    all: Arc<()>,
    /// The periods in which activations have begun, of the last seconds. Each activation has a clone of its period.
    recent: Mutex<VecDeque<(Timestamp, Arc<()>)>>,
}

/// An activation in progress, until it is dropped.
#[derive(Debug)]
pub struct RunningActivation {
    _all: Arc<()>,
    _period: Arc<()>,
}

impl RunningActivations {
    /// An activation begins now.
    pub fn begin(&self, now: Timestamp) -> RunningActivation {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = recent.back().filter(|(begun, _)| now.seconds_since(*begun) < PERIOD);
        let newest = newest.map(|(_, period)| Arc::clone(period));
        let period = newest.unwrap_or_else(|| {
            recent.retain(|(begun, _)| now.seconds_since(*begun) < LONG);
            let period = Arc::default();
            recent.push_back((now, Arc::clone(&period)));
            period
        });
        RunningActivation { _all: Arc::clone(&self.all), _period: period }
    }

    /// Number of activations that have run for long.
    pub fn long(&self, now: Timestamp) -> usize {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let periods = recent.iter().filter(|(begun, _)| now.seconds_since(*begun) < LONG);
        let short: usize = periods.map(|(_, period)| Arc::strong_count(period) - 1).sum();
        (Arc::strong_count(&self.all) - 1).saturating_sub(short)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_micros(0).plus(seconds)
    }

    #[test]
    fn activations_that_last_are_counted_until_they_end() {
        let running = RunningActivations::default();
        let first: Vec<_> = (0..10).map(|number| running.begin(at(0.1 * f64::from(number)))).collect();
        let second = running.begin(at(3.0));
        assert_eq!(running.long(at(4.9)), 0);
        assert_eq!(running.long(at(5.0)), 10);
        let third = running.begin(at(20.0));
        assert_eq!(running.long(at(20.0)), 11);
        drop(first);
        assert_eq!(running.long(at(20.0)), 1);
        drop((second, third));
        assert_eq!(running.long(at(60.0)), 0);
    }

    #[test]
    fn periods_that_have_passed_are_dropped() {
        let running = RunningActivations::default();
        let held: Vec<_> = (0..1000).map(|second| running.begin(at(f64::from(second)))).collect();
        let kept = running.recent.lock().map_or(0, |recent| recent.len());
        assert!(kept <= 6, "{kept}");
        assert_eq!(running.long(at(2000.0)), held.len());
    }
}
