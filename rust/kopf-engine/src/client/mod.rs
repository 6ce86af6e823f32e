//! Requests to the API server: sending, retrying, reading.
//!
//! The engine sends every request through [`Api`]. Failures of transport, 5xx, 403, and 429 are retried with the delays
//! of `settings.networking.error_backoffs`; a 401 discards the credentials and continues with others.
//! Watches are opened here; `watch` reads and restarts them.
//!
//! All callers can be repeated although the server may have received the first attempt: merge patches are idempotent,
//! JSON patches test the resource version, and named objects are created once (409). Only Kubernetes events have no name:
//! they are posted at least once, so that a lost response may lead to a second event, as in Kopf 1.45.

pub(crate) mod authorization;
pub(crate) mod config;
pub mod connection;
pub(crate) mod connector;
pub mod credentials;
pub(crate) mod exec;
pub(crate) mod http1;
pub mod kubeconfig;
pub(crate) mod redact;

use crate::time::duration::seconds;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Method, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use kopf_core::handling::backoff::{Backoff, override_text};
use kopf_core::log_level::Level;
use kopf_core::object::redaction::is_discreet_path;
use kopf_core::settings::{ErrorBackoffs, Settings};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument as _, Span, field};

use crate::client::connection::{MAX_BODY, RequestHead, read_body};
use crate::client::credentials::CredentialStore;
use crate::client::http1::ResponseBody;
use crate::error::{ApiError, RequestError};
use crate::host::{Host, LogRecord};
use crate::time::clock::Clock;
use crate::time::virtual_time::Busy;

const LOGGER: &str = "kopf._cogs.clients.api";

/// Lists of objects with their metadata only, or full objects from servers that do not support that. Supporting servers
/// distinguish strictly between lists and single objects.
const ACCEPT_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const ACCEPT_OBJECTS: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// The body of a request with its content type.
#[derive(Debug, Clone, Copy)]
pub enum RequestBody<'a> {
    /// No body.
    None,
    /// No body; the response is to be a list with only the metadata of objects.
    PartialList,
    /// No body; the response is to be a stream of objects with only their metadata.
    PartialObjects,
    /// A new object.
    Json(&'a [u8]),
    /// A merge patch, RFC 7386.
    MergePatch(&'a [u8]),
    /// A JSON patch, RFC 6902.
    JsonPatch(&'a [u8]),
}

impl<'a> RequestBody<'a> {
    fn accept(self) -> &'static str {
        match self {
            Self::PartialList => ACCEPT_LIST,
            Self::PartialObjects => ACCEPT_OBJECTS,
            _ => "application/json",
        }
    }

    fn bytes(self) -> &'a [u8] {
        match self {
            Self::None | Self::PartialList | Self::PartialObjects => b"",
            Self::Json(bytes) | Self::MergePatch(bytes) | Self::JsonPatch(bytes) => bytes,
        }
    }

    fn content_type(self) -> Option<&'static str> {
        match self {
            Self::None | Self::PartialList | Self::PartialObjects => None,
            Self::Json(_) => Some("application/json"),
            Self::MergePatch(_) => Some("application/merge-patch+json"),
            Self::JsonPatch(_) => Some("application/json-patch+json"),
        }
    }
}

/// The body of a watch, read piece by piece.
pub struct WatchBody(ResponseBody);

impl WatchBody {
    /// The next piece; none at the end.
    ///
    /// # Errors
    /// The connection failed.
    pub async fn frame(&mut self) -> Option<Result<Frame<Bytes>, hyper::Error>> {
        self.0.frame().await
    }
}

/// A response whose body is not read yet.
struct OpenStream<'a> {
    response: Response<ResponseBody>,
    deadline: Option<Instant>,
    _permit: Option<SemaphorePermit<'a>>,
    _busy: Option<Busy>,
}

/// The client of the API server for the whole engine.
#[derive(Clone)]
pub struct Api {
    credential_store: Arc<CredentialStore>,
    settings: Arc<Settings>,
    host: Arc<dyn Host>,
    /// Limits the concurrent requests, apart from watches.
    permits: Arc<Semaphore>,
    /// The clock of the delays between attempts; timeouts do not use it.
    clock: Clock,
    /// The number of requests sent.
    requests: Arc<AtomicUsize>,
}

impl Api {
    /// A client with the credentials of the store, and with the timeouts and back-offs of the settings.
    pub fn new(
        credential_store: Arc<CredentialStore>,
        settings: Arc<Settings>,
        host: Arc<dyn Host>,
        clock: Clock,
    ) -> Self {
        let limit = settings.networking.request_limit.unwrap_or(Semaphore::MAX_PERMITS);
        let permits = Arc::new(Semaphore::new(limit.clamp(1, Semaphore::MAX_PERMITS)));
        Self { credential_store, settings, host, permits, clock, requests: Arc::default() }
    }

    /// The clock of the delays.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The address of the server that requests are sent to now.
    pub async fn server(&self) -> Result<String, RequestError> {
        Ok(self.credential_store.connection().await?.server.clone())
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
        self.attempt(method, url, payload).await
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

    /// The same with other delays between the attempts than those of the settings.
    pub async fn request_with(
        &self,
        method: &Method,
        url: &str,
        payload: RequestBody<'_>,
        backoffs: &ErrorBackoffs,
    ) -> Result<Bytes, RequestError> {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        let enforced = self.settings.networking.enforce_retry_after;
        let policy = Backoff::of_request(backoffs, request).with_retry_after_enforced(enforced);
        let total = policy.attempts().map(|total| format!("/{total}")).unwrap_or_default();
        let mut retries = policy.retries();
        loop {
            let attempt = retries.failures().saturating_add(1);
            let what = format!("#{attempt}{total}");
            let server = if attempt > 1 { self.credential_store.server() } else { String::new() };
            if attempt > 1 {
                self.debug(|| format!("Request attempt {what}: {method} {server}{url}"));
            }
            let error = match self.attempt(method, url, payload).await {
                Ok(body) => {
                    if attempt > 1 {
                        self.debug(|| format!("Request attempt {what} succeeded: {method} {server}{url}"));
                    }
                    return Ok(body);
                }
                Err(error) if !is_retriable(&error) => return Err(error),
                Err(error) => error,
            };
            let server = self.credential_store.server();
            let Some(delay) = retries.next(retry_after(&error), 0.0) else {
                self.error(format!(
                    "Request attempt {what} failed; escalating: {method} {server}{url} -> {error}"
                ));
                return Err(error);
            };
            self.error(format!(
                "Request attempt {what} failed; will retry: {method} {server}{url} -> {error}"
            ));
            if let Some(planned) = delay.overridden {
                self.debug(|| override_text(planned, delay.seconds, &format!("{method} {server}{url}")));
            }
            self.clock.sleep(seconds(delay.seconds)).await;
        }
    }

    async fn attempt(
        &self,
        method: &Method,
        url: &str,
        payload: RequestBody<'_>,
    ) -> Result<Bytes, RequestError> {
        let limit = self.settings.networking.request_timeout;
        let span = request_span(method, url);
        let attempt = async {
            let opened = self.open(method, url, payload, (limit, Some(&self.permits)), &span).await?;
            within(opened.deadline, read_body(opened.response.into_body(), MAX_BODY)).await
        };
        let result = attempt.instrument(span.clone()).await;
        record_result(&span, &result);
        result
    }

    /// Opens a watch with a single attempt, which may be repeated only with other credentials.
    ///
    /// The head of the response must arrive before the request timeout, and before
    /// `settings.watching.inactivity_timeout` at the latest.
    pub async fn stream(&self, url: &str, payload: RequestBody<'_>) -> Result<WatchBody, RequestError> {
        let watching = &self.settings.watching;
        let networking = &self.settings.networking;
        let limit = watching.connect_timeout.or(networking.connect_timeout).or(networking.request_timeout);
        let limit = match (limit, watching.inactivity_timeout) {
            (Some(limit), Some(silence)) => Some(limit.min(silence)),
            (limit, silence) => limit.or(silence),
        };
        let span = request_span(&Method::GET, url);
        let opening = self.open(&Method::GET, url, payload, (limit, None), &span);
        let opened = opening.instrument(span.clone()).await;
        record_result(&span, &opened);
        let opened = opened?;
        Ok(WatchBody(opened.response.into_body()))
    }

    /// Sends a request, and returns the head of a successful response. Rejected credentials are replaced until there
    /// are no others.
    ///
    /// The timeout and the permit are for the request alone, not for waiting for a login.
    async fn open<'a>(
        &self,
        method: &Method,
        url: &str,
        payload: RequestBody<'_>,
        (limit, permits): (Option<f64>, Option<&'a Semaphore>),
        span: &Span,
    ) -> Result<OpenStream<'a>, RequestError> {
        let head =
            RequestHead { method, url, accept: payload.accept(), content_type: payload.content_type() };
        let connect_timeout = self.settings.networking.connect_timeout.map(seconds);
        loop {
            let connection = self.credential_store.connection().await?;
            let authorization = connection.authorization().await?;
            // The semaphore is never closed.
            let permit = match permits {
                Some(permits) => permits.acquire().await.ok(),
                None => None,
            };
            let busy = self.clock.busy();
            let deadline = limit.and_then(|limit| Instant::now().checked_add(seconds(limit)));
            let sent = connection.send(head, payload.bytes(), authorization, connect_timeout);
            let sent = within(deadline, sent).await;
            let response = match sent {
                Ok(response) => response,
                Err(error) => {
                    drop((permit, busy));
                    if connection.is_distrusted() {
                        self.credential_store.renew(&connection).await;
                    }
                    return Err(error);
                }
            };
            let status = response.status();
            if status != StatusCode::UNAUTHORIZED {
                self.credential_store.on_authorized();
            }
            if status.is_success() {
                span.record("status", status.as_u16());
                return Ok(OpenStream { response, deadline, _permit: permit, _busy: busy });
            }
            let error = within(deadline, read_error(response, url)).await?;
            drop((permit, busy));
            if status != StatusCode::UNAUTHORIZED {
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

/// The span of a request. The query is left out: it may be long, and selectors may contain values of objects.
fn request_span(method: &Method, url: &str) -> Span {
    let path = url.split('?').next().unwrap_or_default();
    tracing::debug_span!("request", %method, path, status = field::Empty, error = field::Empty)
}

/// Records the status of an error response, or the kind of another error. The status of success is recorded when the head of
/// the response arrives.
fn record_result<T>(span: &Span, result: &Result<T, RequestError>) {
    let Err(error) = result else { return };
    match error {
        RequestError::Api(error) => span.record("status", error.status),
        RequestError::Timeout => span.record("error", "timeout"),
        RequestError::Transport(_) => span.record("error", "transport"),
        RequestError::Malformed(_) => span.record("error", "malformed"),
        RequestError::Login(_) => span.record("error", "login"),
    };
}

/// Whether the failure may be temporary. This includes 403: permissions are often granted shortly after the operator's
/// start.
fn is_retriable(error: &RequestError) -> bool {
    match error {
        RequestError::Api(api_error) => matches!(api_error.status, 403 | 429 | 500..),
        RequestError::Transport(_) | RequestError::Timeout => true,
        RequestError::Malformed(_) | RequestError::Login(_) => false,
    }
}

/// The delay in seconds that an overloaded server requests.
fn retry_after(error: &RequestError) -> Option<f64> {
    match error {
        RequestError::Api(api_error) if api_error.status == 429 => api_error.retry_after,
        _ => None,
    }
}

async fn read_error(response: Response<ResponseBody>, url: &str) -> Result<ApiError, RequestError> {
    let status = response.status().as_u16();
    let header = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = header.map(str::to_owned);
    let body = read_body(response.into_body(), MAX_BODY).await?;
    let error = ApiError::from_response(status, retry_after.as_deref(), &body);
    Ok(if is_discreet_path(url) { error.redacted() } else { error })
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
