//! Requests of users' code: single attempts, with further headers, and with fewer permits than the engine's requests.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use kopf_core::logins::unauthorized::OnUnauthorized;
use kopf_core::settings::Settings;
use tracing::Instrument as _;

use super::compression::{accepting, read_whole};
use super::connection::{MAX_BODY, Pool};
use super::spans::{record_result, request_span};
use super::{Client, OpenOptions, RequestHead, StreamBody, within};
use crate::error::RequestError;
use crate::host::Host;

/// The number of concurrent requests that users' code leaves to the engine.
pub(super) const RESERVED_PERMITS: usize = 4;

/// A successful response to a request of users' code.
#[derive(Debug)]
pub struct Received {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Client {
    /// The same client with more headers in all requests, also in those of streams.
    #[must_use]
    pub fn with_headers(&self, headers: &HeaderMap) -> Self {
        let mut all = (*self.stream_headers).clone();
        for (name, value) in headers {
            all.append(name, value.clone());
        }
        self.clone().with_all_headers(all)
    }

    /// The client with exactly these headers.
    pub(super) fn with_all_headers(self, headers: HeaderMap) -> Self {
        let is_compressible = self.settings.networking.compression;
        let stream_headers = Arc::new(headers);
        let headers =
            if is_compressible { accepting(&stream_headers).into() } else { Arc::clone(&stream_headers) };
        Self { headers, stream_headers, ..self }
    }

    /// The settings at the start.
    pub fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// The host, which gets log records.
    pub fn host(&self) -> &Arc<dyn Host> {
        &self.host
    }

    /// The number of a request, which selects its delays.
    pub(crate) fn next_request(&self) -> usize {
        self.counts.requests.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request of users' code once. Credentials are replaced if the API server itself rejects them.
    ///
    /// # Errors
    /// The request was not sent, or was rejected, or has no response.
    pub async fn send(&self, head: RequestHead<'_>, body: &[u8]) -> Result<Received, RequestError> {
        let timeout = self.settings.networking.request_timeout;
        let permits = Some(&*self.permits);
        let on_unauthorized = OnUnauthorized::Verify;
        let options = OpenOptions { timeout, permits, pool: Pool::Shared, on_unauthorized };
        let span = request_span(head.method, head.url);
        let attempt = async {
            // The semaphores are never closed.
            let _permit = self.user_permits.acquire().await.ok();
            let opened = self.open(head, (&*self.headers, body), options, &span).await?;
            let (begun, deadline) = (opened.begun, opened.deadline);
            let (parts, body) = within(deadline, read_whole(opened.response, MAX_BODY)).await?.into_parts();
            self.counts.on_response(head.method, begun.elapsed().as_secs_f64());
            Ok(Received { status: parts.status.as_u16(), headers: parts.headers, body })
        };
        let result = attempt.instrument(span.clone()).await;
        record_result(&span, &result);
        result
    }

    /// Opens a stream of users' code other than a watch, with a single attempt. Credentials are replaced as for [`Self::send`].
    ///
    /// # Errors
    /// The request was not sent, or was rejected, or has no response.
    pub async fn send_for_stream(&self, head: RequestHead<'_>) -> Result<StreamBody, RequestError> {
        self.open_stream(head).await
    }
}

/// The headers of the settings. Python has checked them.
pub(super) fn headers_of(settings: &Settings) -> HeaderMap {
    let headers = settings.client.headers.iter();
    headers
        .filter_map(|(name, value)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        })
        .collect()
}
