//! Counters and histograms: plain atomics, without locks, allocations or look-ups of labels.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::metrics_text::{add_family, add_sample};

/// The bounds of buckets for what takes milliseconds, in seconds.
pub(crate) const FAST: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// The bounds of buckets for what may take minutes, in seconds.
pub(crate) const SLOW: &[f64] =
    &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0];

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds so many.
    pub fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// The number so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The distribution of durations.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// By bucket; the last one has what exceeds all bounds.
    counts: Box<[AtomicU64]>,
    micros: AtomicU64,
}

impl Histogram {
    /// With the buckets for what takes milliseconds.
    pub(crate) fn fast() -> Self {
        Self::with(FAST)
    }

    /// With the buckets for what may take minutes.
    pub(crate) fn slow() -> Self {
        Self::with(SLOW)
    }

    fn with(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, micros: AtomicU64::new(0) }
    }

    /// Records a duration in seconds. Negative ones count as zero.
    pub fn observe(&self, seconds: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a saturating conversion of a number of seconds"
        )]
        let micros = (seconds * 1e6) as u64;
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// The number of durations so far.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// The sum of the durations in seconds.
    pub(super) fn seconds(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "exact for centuries")]
        let micros = self.micros.load(Ordering::Relaxed) as f64;
        micros / 1e6
    }
}

/// Appends a family of counters or gauges, each with its labels.
pub(crate) fn add_all<'a, const N: usize, V: Display>(
    text: &mut String,
    (name, kind, help): (&str, &str, &str),
    samples: impl IntoIterator<Item = ([(&'a str, &'a str); N], V)>,
) {
    add_family(text, name, kind, help);
    for (labels, value) in samples {
        add_sample(text, name, &labels, value);
    }
}

/// Appends a family of histograms, each with one label.
pub(crate) fn add_histograms<'a>(
    text: &mut String,
    name: &str,
    help: &str,
    histograms: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, &'a Histogram)>,
) {
    add_family(text, name, "histogram", help);
    let (bucket, sum, total) = (format!("{name}_bucket"), format!("{name}_sum"), format!("{name}_count"));
    for (labels, histogram) in histograms {
        let mut count = 0;
        let bounds = histogram.bounds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        for (bound, within) in bounds.zip(&histogram.counts) {
            count += within.load(Ordering::Relaxed);
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            add_sample(text, &bucket, &labels, count);
        }
        add_sample(text, &sum, &labels, histogram.seconds());
        add_sample(text, &total, &labels, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::fast();
        for seconds in [-1.0, 0.001, 0.002, 100.0] {
            histogram.observe(seconds);
        }
        let mut text = String::new();
        add_histograms(&mut text, "h", "A help.", [(vec![("a", "b")], &histogram)]);
        assert!(text.starts_with("# HELP h A help.\n# TYPE h histogram\nh_bucket{a=\"b\",le=\"0.001\"} 2\n"));
        assert!(text.contains("le=\"0.0025\"} 3\n") && text.contains("le=\"30\"} 3\n"), "{text}");
        assert!(text.contains("le=\"+Inf\"} 4\nh_sum{a=\"b\"} 100.003\nh_count{a=\"b\"} 4\n"), "{text}");
        assert_eq!(histogram.count(), 4);
    }
}
