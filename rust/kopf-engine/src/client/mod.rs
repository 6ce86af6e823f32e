//! Requests to the API server: sending, retrying, reading.
//!
//! The engine sends every request through [`Client`]. Failures of transport, 5xx, 403, and 429 are retried with the delays
//! of `settings.networking.error_backoffs`, as `kopf_core::request_retry` decides. A 401 of the API server itself discards the
//! credentials, and the request continues with others (`unauthorized.rs`).
//! Watches are opened here; `watch` reads and restarts them.
//!
//! All callers can be repeated although the server may have received the first attempt: merge patches are idempotent,
//! JSON patches test the resource version, and named objects are created once (409). Only Kubernetes events have no name:
//! they are posted at least once, so that a lost response may lead to a second event, as in Kopf 1.45.

pub(crate) mod authorization;
mod bodies;
mod compression;
pub(crate) mod config;
pub mod connection;
pub(crate) mod connector;
pub mod credentials;
mod dedicated;
pub mod exec;
mod happy_eyeballs;
pub(crate) mod http1;
pub mod kubeconfig;
mod metered;
pub(crate) mod redact;
mod server_certificate;
mod spans;
mod unauthorized;
pub(crate) mod usage;
mod user_requests;

use crate::time::duration::seconds;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryFutureExt as _;
use http::{HeaderMap, Method, Response};
use kopf_core::backoff::override_text;
use kopf_core::log_level::Level;
use kopf_core::logins::unauthorized::{OnUnauthorized, Verdict};
use kopf_core::request_retry::{AfterFailure, Attempts, RetriedFailures};
use kopf_core::settings::{ErrorBackoffs, Settings};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument as _, Span};

pub(crate) use crate::client::bodies::ACCEPT_DISCOVERY;
pub use crate::client::bodies::{RequestBody, StreamBody};
use crate::client::bodies::{head_of, read_error};
use crate::client::compression::read_whole;
pub use crate::client::connection::RequestHead;
use crate::client::connection::{MAX_BODY, Pool};
use crate::client::credentials::CredentialStore;
use crate::client::dedicated::while_open;
use crate::client::http1::ResponseBody;
use crate::client::spans::{path_of, record_result, request_span};
pub use crate::client::user_requests::Received;
use crate::error::RequestError;
use crate::fence::{Fence, Rejection};
use crate::host::{Host, LogRecord, Logger};
use crate::metrics::ResourceMetrics;
use crate::time::clock::Clock;
use crate::time::virtual_time::Busy;

const LOGGER: Logger = Logger::Api;

/// The limits of a request, and the reaction to a 401.
#[derive(Clone, Copy)]
struct OpenOptions<'a> {
    /// Seconds until the head of the response.
    timeout: Option<f64>,
    permits: Option<&'a Semaphore>,
    pool: Pool,
    on_unauthorized: OnUnauthorized,
}

/// A response whose body is not read yet.
struct OpenStream<'a> {
    response: Response<ResponseBody>,
    begun: Instant,
    deadline: Option<Instant>,
    _permit: Option<SemaphorePermit<'a>>,
    _busy: Option<Busy>,
}

/// The client of the API server for the whole engine.
#[derive(Clone)]
pub struct Client {
    credential_store: Arc<CredentialStore>,
    settings: Arc<Settings>,
    host: Arc<dyn Host>,
    /// Limits the concurrent requests, apart from watches.
    permits: Arc<Semaphore>,
    /// Limits the concurrent requests of users' code further, so that the engine never waits for all of them.
    user_permits: Arc<Semaphore>,
    /// The headers of requests, in addition to those of the connection.
    headers: Arc<HeaderMap>,
    /// The same for streams, which are not compressed.
    stream_headers: Arc<HeaderMap>,
    /// The clock of the delays between attempts; timeouts do not use it.
    clock: Clock,
    /// The numbers of requests and of their attempts.
    counts: Arc<usage::RequestCounts>,
    /// The metrics of the resource whose objects this client patches; none for other requests.
    patches: Option<Arc<ResourceMetrics>>,
    /// Admits the requests that change anything, apart from those of leader election; none without it.
    fence: Option<Arc<Fence>>,
}

impl Client {
    /// A client with the credentials of the store, and with the timeouts and back-offs of the settings.
    pub fn new(
        credential_store: Arc<CredentialStore>,
        settings: Arc<Settings>,
        host: Arc<dyn Host>,
        clock: Clock,
    ) -> Self {
        let limit = settings.networking.request_limit.unwrap_or(Semaphore::MAX_PERMITS);
        let permits = Arc::new(Semaphore::new(limit.clamp(1, Semaphore::MAX_PERMITS)));
        let for_users =
            limit.saturating_sub(user_requests::RESERVED_PERMITS).clamp(1, Semaphore::MAX_PERMITS);
        let headers = user_requests::headers_of(&settings);
        let client = Self {
            credential_store,
            host,
            permits,
            user_permits: Arc::new(Semaphore::new(for_users)),
            headers: Arc::default(),
            stream_headers: Arc::default(),
            settings,
            clock,
            counts: Arc::default(),
            patches: None,
            fence: None,
        };
        client.with_all_headers(headers)
    }

    /// The clock of the delays.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The address of the server that requests are sent to now.
    pub async fn server(&self) -> Result<String, RequestError> {
        Ok(self.credential_store.connection().await?.server.clone())
    }

    /// Whether there are credentials that the server has not rejected.
    pub fn is_logged_in(&self) -> bool {
        self.credential_store.has_connection()
    }

    /// Whether all credentials are rejected, including those of repeated logins.
    pub fn is_rejected(&self) -> bool {
        self.credential_store.is_rejected()
    }

    /// The namespace for objects that specify none, if the credentials have one.
    pub async fn default_namespace(&self) -> Result<Option<String>, RequestError> {
        Ok(self.credential_store.connection().await?.default_namespace.clone())
    }

    /// Sends a GET request, and returns the whole body of the response.
    pub async fn get(&self, url: &str) -> Result<Bytes, RequestError> {
        self.request(&Method::GET, url, RequestBody::None).await
    }

    /// Sends a request once: its failure is neither logged nor retried.
    pub async fn request_once(
        &self,
        method: &Method,
        url: &str,
        payload: RequestBody<'_>,
    ) -> Result<Bytes, RequestError> {
        self.attempt(method, url, payload, OnUnauthorized::Verify).await
    }

    /// Sends a GET request once. 401 is an error like others, and does not discard the credentials: an aggregated API may
    /// reject what the API server accepts.
    pub async fn get_once(&self, url: &str) -> Result<Bytes, RequestError> {
        self.attempt(&Method::GET, url, RequestBody::None, OnUnauthorized::Fail).await
    }

    /// Sends a patch or an object, and returns the whole body of the response.
    pub async fn request(
        &self,
        method: &Method,
        url: &str,
        payload: RequestBody<'_>,
    ) -> Result<Bytes, RequestError> {
        self.request_with(method, url, payload, &self.settings.networking.error_backoffs).await
    }

    /// The same, but 401 and 403 are errors at once, and are not logged.
    pub async fn request_unless_forbidden(
        &self,
        method: &Method,
        url: &str,
        payload: RequestBody<'_>,
    ) -> Result<Bytes, RequestError> {
        let backoffs = &self.settings.networking.error_backoffs;
        self.request_while(method, url, payload, backoffs, RetriedFailures::UnlessForbidden).await
    }

    /// The same with other delays between the attempts than those of the settings.
    pub async fn request_with(
        &self,
        method: &Method,
        url: &str,
        payload: RequestBody<'_>,
        backoffs: &ErrorBackoffs,
    ) -> Result<Bytes, RequestError> {
        self.request_while(method, url, payload, backoffs, RetriedFailures::Temporary).await
    }

    /// Repeats the request while it fails with such errors.
    async fn request_while(
        &self,
        method: &Method,
        url: &str,
        payload: RequestBody<'_>,
        backoffs: &ErrorBackoffs,
        retried: RetriedFailures,
    ) -> Result<Bytes, RequestError> {
        let request = self.next_request();
        let enforced = self.settings.networking.enforce_retry_after;
        let policy = backoffs.policy(request).with_retry_after_enforced(enforced);
        let mut attempts = Attempts::new(policy, retried);
        loop {
            let server = if attempts.is_retry() { self.credential_store.server() } else { String::new() };
            if attempts.is_retry() {
                self.debug(|| format!("Request attempt {attempts}: {method} {server}{url}"));
            }
            let error = match self.attempt(method, url, payload, OnUnauthorized::Verify).await {
                Ok(body) => {
                    if attempts.is_retry() {
                        self.debug(|| {
                            format!("Request attempt {attempts} succeeded: {method} {server}{url}")
                        });
                    }
                    return Ok(body);
                }
                Err(error) => error,
            };
            let attempt = attempts;
            let request = || format!("{method} {}{url}", self.credential_store.server());
            let delay = match attempts.on_failure(&error) {
                AfterFailure::Fail => return Err(error),
                AfterFailure::GiveUp => {
                    let request = request();
                    self.error(format!("Request attempt {attempt} failed; escalating: {request} -> {error}"));
                    return Err(error);
                }
                AfterFailure::Retry(delay) => delay,
            };
            let request = request();
            self.counts.on_retry(&error);
            self.error(format!("Request attempt {attempt} failed; will retry: {request} -> {error}"));
            if let Some(planned) = delay.overridden {
                self.debug(|| override_text(planned, delay.seconds, &request));
            }
            self.clock.sleep(seconds(delay.seconds)).await;
        }
    }

    async fn attempt(
        &self,
        method: &Method,
        url: &str,
        payload: RequestBody<'_>,
        on_unauthorized: OnUnauthorized,
    ) -> Result<Bytes, RequestError> {
        let (timeout, pool) = (self.settings.networking.request_timeout, Pool::Shared);
        let options = OpenOptions { timeout, permits: Some(&self.permits), pool, on_unauthorized };
        let span = request_span(method, url);
        let attempt = async {
            let head = head_of(method, url, payload);
            let content = (&*self.headers, payload.bytes());
            let opened = self.open(head, content, options, &span).await?;
            let (begun, deadline) = (opened.begun, opened.deadline);
            let body = within(deadline, read_whole(opened.response, MAX_BODY))
                .await
                .inspect_err(|failure| self.count_lost_response(head, failure))?
                .into_body();
            self.counts.on_response(method, begun.elapsed().as_secs_f64());
            Ok(body)
        };
        let result = attempt.instrument(span.clone()).await;
        record_result(&span, &result);
        result
    }

    /// Opens a watch with a single attempt, which may be repeated only with other credentials.
    ///
    /// The head of the response must arrive before the request timeout, and before
    /// `settings.watching.inactivity_timeout` at the latest.
    pub async fn stream(&self, url: &str, payload: RequestBody<'_>) -> Result<StreamBody, RequestError> {
        self.open_stream(head_of(&Method::GET, url, payload)).await
    }

    /// The same for any stream.
    async fn open_stream(&self, head: RequestHead<'_>) -> Result<StreamBody, RequestError> {
        let watching = &self.settings.watching;
        let networking = &self.settings.networking;
        let limit = watching.connect_timeout.or(networking.connect_timeout).or(networking.request_timeout);
        let timeout = match (limit, watching.inactivity_timeout) {
            (Some(limit), Some(silence)) => Some(limit.min(silence)),
            (limit, silence) => limit.or(silence),
        };
        let span = request_span(head.method, head.url);
        let on_unauthorized = OnUnauthorized::Verify;
        let options = OpenOptions { timeout, permits: None, pool: Pool::Shared, on_unauthorized };
        let opening = self.open(head, (&*self.stream_headers, b""), options, &span);
        let opened = opening.instrument(span.clone()).await;
        record_result(&span, &opened);
        let opened = opened?;
        Ok(StreamBody(opened.response.into_body()))
    }

    /// Sends a request, and returns the head of a successful response. Rejected credentials are replaced until there
    /// are no others.
    ///
    /// The timeout and the permit are for the request alone, not for waiting for a login.
    async fn open<'a>(
        &self,
        head: RequestHead<'_>,
        (headers, body): (&HeaderMap, &[u8]),
        options: OpenOptions<'a>,
        span: &Span,
    ) -> Result<OpenStream<'a>, RequestError> {
        let connect_timeout = self.settings.networking.connect_timeout.map(seconds);
        loop {
            let connection = self.credential_store.connection().await?;
            let authorization = connection.authorization().await?;
            // The semaphore is never closed.
            let permit = match options.permits {
                Some(permits) => {
                    let _waiting = self.counts.wait();
                    permits.acquire().await.ok()
                }
                None => None,
            };
            let fence = self.fence_of(head.method, options.pool).inspect_err(|_| {
                self.count_patch::<ResponseBody>(head, body, &Err(RequestError::Fenced));
            })?;
            let busy = self.clock.busy(|| format!("the request {} {}", head.method, path_of(head.url)));
            let begun = Instant::now();
            let deadline = options.timeout.and_then(|limit| begun.checked_add(seconds(limit)));
            let mut is_distrusted = false;
            let sent =
                connection.send(head, headers, body, authorization, (options.pool, connect_timeout, fence));
            let sent = sent.map_err(|failure| {
                is_distrusted = failure.is_about_certificates;
                failure.error
            });
            let sent = match fence {
                // Boxed: most operators have no fence.
                Some(fence) => Box::pin(while_open(fence, within(deadline, sent))).await,
                None => within(deadline, sent).await,
            };
            let sent = self.counts.record(head.method, sent);
            self.count_patch(head, body, &sent);
            let response = match sent {
                Ok(response) => response,
                Err(error) => {
                    drop((permit, busy));
                    if is_distrusted {
                        self.credential_store.renew(&connection).await;
                    }
                    return Err(error);
                }
            };
            if let Some(fence) = fence {
                // Whether the server has accepted it is known from the response: it is only counted.
                let _counted = fence.admit(Rejection::Late);
            }
            let status = response.status();
            let verdict = Verdict::of_status(status.as_u16());
            if verdict == Verdict::Accepted {
                self.credential_store.on_authorized();
            }
            if status.is_success() {
                span.record("status", status.as_u16());
                return Ok(OpenStream { response, begun, deadline, _permit: permit, _busy: busy });
            }
            let error = self.count_error(head, status, within(deadline, read_error(response, head)).await)?;
            self.counts.on_response(head.method, begun.elapsed().as_secs_f64());
            drop((permit, busy));
            if verdict != Verdict::Rejected || !self.replaces(&connection, options.on_unauthorized).await {
                return Err(RequestError::Api(Box::new(error)));
            }
            self.credential_store.invalidate(&connection);
        }
    }

    fn debug(&self, text: impl FnOnce() -> String) {
        if self.host.enabled(Level::Debug) {
            self.host.log(LogRecord::general(Level::Debug, LOGGER, text()));
        }
    }

    fn error(&self, text: String) {
        self.host.log(LogRecord::general(Level::Error, LOGGER, text));
    }
}

async fn within<T>(
    deadline: Option<Instant>,
    work: impl Future<Output = Result<T, RequestError>>,
) -> Result<T, RequestError> {
    match deadline {
        Some(deadline) => timeout_at(deadline, work).await.unwrap_or(Err(RequestError::Timeout)),
        None => work.await,
    }
}
