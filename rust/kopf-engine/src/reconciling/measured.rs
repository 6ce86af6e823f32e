//! The counters of one reconciler, for its metrics.

use std::collections::BTreeMap;

use kopf_core::schedule::{Conclusion, ReconcileResult};

/// The upper bounds of the buckets of durations, in seconds.
pub(super) const BUCKETS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

/// The outcomes and the sources are exposed from the beginning, so that `rate()` sees the first event.
const OUTCOMES: [&str; 5] = ["succeeded", "requeued", "failed", "gave_up", "cancelled"];
const SOURCES: [&str; 4] = ["list", "primary", "related", "external"];

/// What one reconciler has done so far.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) outcomes: BTreeMap<&'static str, u64>,
    pub(super) triggers: BTreeMap<&'static str, u64>,
    /// Not cumulative; the last one is for longer calls.
    pub(super) durations: [u64; BUCKETS.len() + 1],
    pub(super) seconds: f64,
    /// The hot loops.
    pub(super) loops: u64,
}

impl Default for Measured {
    fn default() -> Self {
        Self {
            outcomes: OUTCOMES.map(|outcome| (outcome, 0)).into(),
            triggers: SOURCES.map(|source| (source, 0)).into(),
            durations: Default::default(),
            seconds: 0.0,
            loops: 0,
        }
    }
}

impl Measured {
    /// Counts a trigger by its source.
    pub(super) fn triggered(&mut self, source: &'static str) {
        *self.triggers.entry(source).or_default() += 1;
    }

    /// Counts a reconciliation with its duration.
    pub(super) fn ended(&mut self, result: ReconcileResult, conclusion: Conclusion, seconds: f64) {
        let outcome = match (conclusion, result) {
            (Conclusion::Succeeded { .. }, ReconcileResult::Requeued(_)) => "requeued",
            (Conclusion::Succeeded { .. }, _) => "succeeded",
            (Conclusion::Retried(_), _) => "failed",
            (Conclusion::GaveUp, _) => "gave_up",
            (Conclusion::Cancelled, _) => "cancelled",
        };
        *self.outcomes.entry(outcome).or_default() += 1;
        let bucket = BUCKETS.iter().position(|most| seconds <= *most).unwrap_or(BUCKETS.len());
        if let Some(count) = self.durations.get_mut(bucket) {
            *count += 1;
        }
        self.seconds += seconds.max(0.0);
    }
}
