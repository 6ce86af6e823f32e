//! The metrics of the admission reviews of one resource.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kopf_core::admission::Verdict;
use tokio::time::Instant;

use super::instruments::{Counter, Histogram};

/// The results of reviews.
pub(super) const RESULTS: [&str; 3] = ["allowed", "denied", "errored"];

/// The metrics of the reviews of one resource.
#[derive(Debug)]
pub struct ReviewMetrics {
    pub(super) results: [Counter; RESULTS.len()],
    pub(super) duration: Histogram,
}

impl Default for ReviewMetrics {
    fn default() -> Self {
        Self { results: Default::default(), duration: Histogram::fast() }
    }
}

impl ReviewMetrics {
    fn on_response(&self, verdict: Verdict, seconds: f64) {
        self.results[match verdict {
            Verdict::Allowed => 0,
            Verdict::Denied => 1,
            Verdict::Errored => 2,
        }]
        .increment();
        self.duration.observe(seconds);
    }
}

/// A review that has no response yet. If it is dropped without one, it counts as an error.
#[derive(Debug)]
pub struct OpenedReview {
    metrics: Arc<ReviewMetrics>,
    start: Instant,
    is_counted: AtomicBool,
}

impl OpenedReview {
    /// A review whose request has just been read.
    pub(crate) fn new(metrics: &Arc<ReviewMetrics>) -> Self {
        Self { metrics: Arc::clone(metrics), start: Instant::now(), is_counted: AtomicBool::new(false) }
    }

    /// The same review, once its resource is known.
    pub(crate) fn counted_by(mut self, metrics: &Arc<ReviewMetrics>) -> Self {
        self.metrics = Arc::clone(metrics);
        self
    }

    /// Counts the response. Further ones are not sent, and do not count.
    pub fn on_response(&self, verdict: Verdict) {
        if !self.is_counted.swap(true, Ordering::Relaxed) {
            self.metrics.on_response(verdict, self.start.elapsed().as_secs_f64());
        }
    }
}

impl Drop for OpenedReview {
    fn drop(&mut self) {
        self.on_response(Verdict::Errored);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn counts(metrics: &ReviewMetrics) -> Vec<u64> {
        metrics.results.iter().map(Counter::get).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_counts_once_with_its_first_result_and_its_duration() {
        let metrics = Arc::default();
        let review = OpenedReview::new(&metrics);
        tokio::time::advance(Duration::from_secs(2)).await;
        review.on_response(Verdict::Denied);
        review.on_response(Verdict::Allowed);
        drop(review);
        OpenedReview::new(&metrics).on_response(Verdict::Allowed);
        assert_eq!(counts(&metrics), [1, 1, 0]);
        assert_eq!((metrics.duration.count(), metrics.duration.seconds()), (2, 2.0));
    }

    #[test]
    fn a_review_without_a_response_is_an_error_of_its_resource() {
        let [unknown, pods] = [Arc::default(), Arc::default()];
        drop(OpenedReview::new(&unknown).counted_by(&pods));
        assert_eq!((counts(&unknown), counts(&pods)), (vec![0, 0, 0], vec![0, 0, 1]));
    }
}
