//! The requests and the permits of a client, for metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use http::{Method, Response, StatusCode};
use tokio::sync::Semaphore;

use super::{Client, RequestHead};
use crate::error::{ApiError, RequestError};
use crate::metrics::{Counter, Histogram, PatchMetrics, PatchPart, ResourceMetrics};

/// How many of the request permits are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestPermits {
    /// The permits in use.
    pub active: usize,
    /// All permits; none without a limit.
    pub limit: Option<usize>,
}

impl Client {
    /// The use of the request permits now. Watches need none.
    pub fn request_permits(&self) -> RequestPermits {
        let limit = self.settings.networking.request_limit;
        let all = limit.unwrap_or(Semaphore::MAX_PERMITS).clamp(1, Semaphore::MAX_PERMITS);
        RequestPermits {
            active: all.saturating_sub(self.permits.available_permits()),
            limit: limit.map(|_| all),
        }
    }

    /// The attempts of requests so far, by method and status; without those of leader election, which has its own
    /// connections.
    pub fn attempts(&self) -> Vec<Attempts> {
        self.counts.to_attempts()
    }

    /// The use of requests so far, apart from the attempts.
    pub(crate) fn usage(&self) -> RequestUsage<'_> {
        let RequestCounts { durations, retries, waiting, .. } = &*self.counts;
        let timed = METHODS.into_iter().zip(durations).filter(|(_, histogram)| histogram.count() > 0);
        RequestUsage {
            retries: RETRY_CAUSES.into_iter().zip(retries).map(|(cause, it)| (cause, it.get())).collect(),
            durations: timed.collect(),
            waiting: waiting.load(Ordering::Relaxed),
        }
    }

    /// The numbers of successful and of failed logins.
    pub(crate) fn logins(&self) -> [u64; 2] {
        self.credential_store.login_counts()
    }

    /// The same client, whose patches are counted as those of one resource's objects.
    #[must_use]
    pub fn counting_patches(&self, metrics: &Arc<ResourceMetrics>) -> Self {
        Self { patches: Some(Arc::clone(metrics)), ..self.clone() }
    }

    /// The metrics of the patches of one resource's objects, if they are counted.
    pub(crate) fn patch_metrics(&self) -> Option<&PatchMetrics> {
        self.patches.as_deref().map(|metrics| &metrics.patches)
    }

    /// Counts an attempt to patch an object, unless the server has accepted it, or [`Self::count_error`] follows.
    pub(super) fn count_patch<B>(
        &self,
        head: RequestHead<'_>,
        body: &[u8],
        sent: &Result<Response<B>, RequestError>,
    ) {
        if let Some(patches) = self.patch_metrics().filter(|_| *head.method == Method::PATCH) {
            if !matches!(sent, Err(RequestError::Fenced)) {
                patches.bytes.add(body.len());
            }
            let result = sent.as_ref().map(|response| response.status().as_u16());
            patches.on_attempt(PatchPart::of(head.url, head.content_type), result);
        }
    }

    /// Counts an attempt to patch an object that the server has rejected, if the reason is needed: `error` is the response.
    pub(super) fn count_error(
        &self,
        head: RequestHead<'_>,
        status: StatusCode,
        error: Result<ApiError, RequestError>,
    ) -> Result<ApiError, RequestError> {
        if let Some(patches) = self.patch_metrics().filter(|_| *head.method == Method::PATCH) {
            let is_unfit = error.as_ref().is_ok_and(ApiError::is_unfit_patch);
            patches.on_rejection(PatchPart::of(head.url, head.content_type), status.as_u16(), is_unfit);
        }
        error
    }

    /// Counts an attempt to patch an object that the server has accepted, but whose response is incomplete.
    pub(super) fn count_lost_response(&self, head: RequestHead<'_>, failure: &RequestError) {
        if let Some(patches) = self.patch_metrics().filter(|_| *head.method == Method::PATCH) {
            patches.on_attempt(PatchPart::of(head.url, head.content_type), Err(failure));
        }
    }

    /// The address of the server that requests are sent to now; empty before the login.
    pub fn current_server(&self) -> String {
        self.credential_store.server()
    }
}

/// The use of requests.
pub(crate) struct RequestUsage<'a> {
    /// The repetitions, by their cause.
    pub(crate) retries: Vec<(&'static str, u64)>,
    /// The durations of attempts, by their method.
    pub(crate) durations: Vec<(&'static str, &'a Histogram)>,
    /// The number of requests that wait for a permit.
    pub(crate) waiting: usize,
}

/// The causes for which requests are repeated.
pub(crate) const RETRY_CAUSES: [&str; 6] = ["429", "401", "403", "5xx", "transport", "timeout"];

/// The methods that the engine and users' code use; the last one stands for all others.
const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OTHER"];
/// The statuses of HTTP begin here, and there are so many.
const FIRST_STATUS: usize = 100;
const STATUSES: usize = 500;

/// The numbers of requests and of their attempts.
pub(super) struct RequestCounts {
    /// The number of requests sent, which selects the delays of each.
    pub(super) requests: AtomicUsize,
    /// By method and status; the last status is that of attempts without a response.
    attempts: Box<[AtomicU64]>,
    /// By method: the seconds until the end of the response; without watches.
    durations: [Histogram; METHODS.len()],
    /// By the cause.
    retries: [Counter; RETRY_CAUSES.len()],
    /// The requests that wait for a permit.
    waiting: AtomicUsize,
}

/// A request that waits for a permit, until it is dropped.
pub(super) struct WaitingGuard<'a>(&'a AtomicUsize);

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for RequestCounts {
    fn default() -> Self {
        let attempts = (0..METHODS.len() * (STATUSES + 1)).map(|_| AtomicU64::new(0)).collect();
        Self {
            requests: AtomicUsize::new(0),
            attempts,
            durations: std::array::from_fn(|_| Histogram::slow()),
            retries: Default::default(),
            waiting: AtomicUsize::new(0),
        }
    }
}

impl RequestCounts {
    /// Counts a request as waiting for a permit.
    pub(super) fn wait(&self) -> WaitingGuard<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        WaitingGuard(&self.waiting)
    }

    /// Records the time of an attempt with a complete response.
    pub(super) fn on_response(&self, method: &Method, seconds: f64) {
        self.durations[row_of(method)].observe(seconds);
    }

    /// Counts the repetition of a request after this failure.
    pub(super) fn on_retry(&self, failure: &RequestError) {
        let cause = match failure.status() {
            Some(429) => 0,
            Some(401) => 1,
            Some(403) => 2,
            Some(_) => 3,
            None if matches!(failure, RequestError::Timeout) => 5,
            None => 4,
        };
        self.retries[cause].increment();
    }

    /// Counts one attempt, and returns its result.
    pub(super) fn record<B>(
        &self,
        method: &Method,
        sent: Result<Response<B>, RequestError>,
    ) -> Result<Response<B>, RequestError> {
        let status = sent.as_ref().map_or(STATUSES, |response| {
            usize::from(response.status().as_u16()).saturating_sub(FIRST_STATUS).min(STATUSES - 1)
        });
        let row = row_of(method);
        if let Some(count) = self.attempts.get(row * (STATUSES + 1) + status) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        sent
    }

    /// The methods and statuses that have occurred, with the numbers of attempts. Attempts without a response have no status.
    pub(super) fn to_attempts(&self) -> Vec<Attempts> {
        let rows = METHODS.iter().zip(self.attempts.chunks(STATUSES + 1));
        let cells = rows.flat_map(|(method, row)| {
            row.iter().enumerate().map(move |(number, count)| Attempts {
                method,
                status: (number < STATUSES).then_some(number + FIRST_STATUS),
                count: count.load(Ordering::Relaxed),
            })
        });
        cells.filter(|attempts| attempts.count > 0).collect()
    }
}

fn row_of(method: &Method) -> usize {
    METHODS.iter().position(|name| *name == method.as_str()).unwrap_or(METHODS.len() - 1)
}

/// The attempts with one method and one result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempts {
    /// The HTTP method.
    pub method: &'static str,
    /// The HTTP status; none if there was no response.
    pub status: Option<usize>,
    /// The number of attempts.
    pub count: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::Fixture;

    #[tokio::test]
    async fn permits_are_active_while_they_are_held() {
        let fixture = Fixture::new(&json!({"networking": {"request_limit": 3}}), |_| (200, None));
        let client = &fixture.shared.base.client;
        let permit = client.permits.acquire().await;
        assert_eq!(client.request_permits(), RequestPermits { active: 1, limit: Some(3) });
        drop(permit);
        assert_eq!(client.request_permits(), RequestPermits { active: 0, limit: Some(3) });
    }

    #[tokio::test]
    async fn without_a_limit_there_are_only_active_permits() {
        let fixture = Fixture::new(&json!({"networking": {"request_limit": null}}), |_| (200, None));
        let client = &fixture.shared.base.client;
        assert_eq!(client.request_permits(), RequestPermits { active: 0, limit: None });
    }

    #[test]
    fn repetitions_are_counted_by_the_failure_before_them() {
        let counts = RequestCounts::default();
        let failures = [401, 403, 429, 500, 503].map(|status| {
            RequestError::Api(Box::new(crate::error::ApiError::from_response(status, None, b"")))
        });
        let others = [
            RequestError::Transport(String::new()),
            RequestError::Unsent(String::new()),
            RequestError::Timeout,
        ];
        failures.iter().chain(&others).for_each(|failure| counts.on_retry(failure));
        let counted = RETRY_CAUSES.into_iter().zip(counts.retries.each_ref().map(Counter::get));
        let counted: std::collections::BTreeMap<_, _> = counted.collect();
        let expected = [("401", 1), ("403", 1), ("429", 1), ("5xx", 2), ("transport", 2), ("timeout", 1)];
        assert_eq!(counted, expected.into());
    }

    fn response(status: u16) -> Response<()> {
        Response::builder().status(status).body(()).unwrap()
    }

    #[test]
    fn attempts_are_counted_by_method_and_result() {
        let counts = RequestCounts::default();
        for status in [200, 200, 999] {
            let same = counts.record(&Method::GET, Ok(response(status))).unwrap();
            assert_eq!(same.status(), status);
        }
        assert!(counts.record::<()>(&Method::GET, Err(RequestError::Timeout)).is_err());
        assert_eq!(counts.record(&Method::TRACE, Ok(response(404))).unwrap().status(), 404);
        let row = |method, status, count| Attempts { method, status, count };
        assert_eq!(
            counts.to_attempts(),
            [
                row("GET", Some(200), 2),
                row("GET", Some(599), 1),
                row("GET", None, 1),
                row("OTHER", Some(404), 1),
            ]
        );
    }
}
