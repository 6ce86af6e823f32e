//! Requests to the API server: sending, retrying, reading.
//!
//! Every request of the engine passes here. Retried are failures of transport, 5xx, 403, 429, with the pauses of
//! `settings.networking.error_backoffs`; 401 throws the credentials away and goes on with others. Rules: contract/engine 1.9.
//! Streams are opened here, but what becomes of them is the watcher's affair.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, header};
use http_body_util::BodyExt as _;
use kopf_core::discretion::is_discreet_path;
use kopf_core::notes::Level;
use kopf_core::settings::Settings;
use kube::client::Body;
use tokio::time::timeout;

use crate::clock::Clock;
use crate::error::{ApiError, RequestError};
use crate::invoke::{Entry, Invoker};
use crate::traffic::Traffic;
use crate::vault::Vault;
use crate::wire::Question;

const LOGGER: &str = "kopf._cogs.clients.api";

/// Lists and objects with the metadata only, or all of it from servers that cannot do that. Servers that can are strict about
/// which is which.
const ACCEPT_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const ACCEPT_OBJECTS: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// What a request sends.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    /// Nothing.
    None,
    /// Nothing, and a list with no more than the metadata of its objects is wanted back.
    PartialList,
    /// Nothing, and objects with no more than their metadata are wanted back, one after another.
    PartialObjects,
    /// A new object.
    Json(&'a [u8]),
    /// RFC 7386.
    MergePatch(&'a [u8]),
    /// RFC 6902.
    JsonPatch(&'a [u8]),
}

impl<'a> Payload<'a> {
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

/// The way to the API server for everything in the engine.
#[derive(Clone)]
pub struct Api {
    vault: Arc<Vault>,
    settings: Arc<Settings>,
    invoker: Arc<dyn Invoker>,
    /// Requests under way, apart from streams.
    traffic: Arc<Traffic>,
    /// Pauses between attempts follow it; timeouts do not.
    clock: Clock,
}

impl Api {
    /// Uses the vault's credentials and the settings' timeouts and back-offs.
    pub fn new(vault: Arc<Vault>, settings: Arc<Settings>, invoker: Arc<dyn Invoker>, clock: Clock) -> Self {
        Self { vault, settings, invoker, traffic: Arc::default(), clock }
    }

    /// What time it is for those who talk to the server.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Where the server is that the requests go to now.
    pub async fn server(&self) -> Result<String, RequestError> {
        Ok(self.vault.connection().await?.server.clone())
    }

    /// The namespace for whatever has none of its own, if the credentials have one.
    pub async fn default_namespace(&self) -> Result<Option<String>, RequestError> {
        Ok(self.vault.connection().await?.default_namespace.clone())
    }

    /// Reads something; the whole answer at once.
    pub async fn get(&self, url: &str) -> Result<Bytes, RequestError> {
        self.request(&Method::GET, url, Payload::None).await
    }

    /// Sends a patch or an object; the whole answer at once.
    pub async fn request(
        &self,
        method: &Method,
        url: &str,
        payload: Payload<'_>,
    ) -> Result<Bytes, RequestError> {
        let backoffs = &self.settings.networking.error_backoffs;
        self.request_with(method, url, payload, backoffs).await
    }

    /// The same with other pauses between the attempts than the settings'.
    pub async fn request_with(
        &self,
        method: &Method,
        url: &str,
        payload: Payload<'_>,
        backoffs: &[f64],
    ) -> Result<Bytes, RequestError> {
        let total = backoffs.len() + 1;
        let mut attempt = 1;
        loop {
            let what = format!("#{attempt}/{total}");
            let server = if attempt > 1 { self.vault.server() } else { String::new() };
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
            let server = self.vault.server();
            let Some(&planned) = backoffs.get(attempt - 1) else {
                self.error(format!(
                    "Request attempt {what} failed; escalating: {method} {server}{url} -> {error}"
                ));
                return Err(error);
            };
            self.error(format!(
                "Request attempt {what} failed; will retry: {method} {server}{url} -> {error}"
            ));
            self.clock.sleep(seconds(self.pause(planned, &error, method, url))).await;
            attempt += 1;
        }
    }

    /// The planned pause, or the one that the server asks for, if that is longer or the settings say so.
    fn pause(&self, planned: f64, error: &RequestError, method: &Method, url: &str) -> f64 {
        let asked = match error {
            RequestError::Api(refusal) if refusal.status == 429 => refusal.retry_after,
            _ => None,
        };
        match asked {
            Some(asked) if asked > planned || self.settings.networking.enforce_retry_after => {
                let what = format!("{method} {}{url}", self.vault.server());
                self.debug(|| format!("Overriding the backoff {planned}s with the retry-after {asked}s from the server: {what}"));
                asked
            }
            _ => planned,
        }
    }

    async fn attempt(&self, method: &Method, url: &str, payload: Payload<'_>) -> Result<Bytes, RequestError> {
        let lane = self.traffic.enter().await;
        let result = within(self.settings.networking.request_timeout, self.ask(method, url, payload)).await;
        lane.leave(result.as_ref().err().is_some_and(is_retriable));
        result
    }

    /// Gets the body of a successful response. Refused credentials are replaced until there are no others.
    async fn ask(&self, method: &Method, url: &str, payload: Payload<'_>) -> Result<Bytes, RequestError> {
        loop {
            let connection = self.vault.connection().await?;
            let busy = self.clock.busy();
            let question =
                Question { method, url, accept: payload.accept(), content_type: payload.content_type() };
            let answered = connection.ask(question, payload.bytes()).await;
            drop(busy);
            if answered.is_err() && connection.is_distrusted() {
                self.vault.renew(&connection).await;
            }
            let answer = answered?;
            if answer.status != 401 {
                self.vault.accept().await;
            }
            if (200..300).contains(&answer.status) {
                return Ok(answer.body);
            }
            let error = ApiError::from_response(answer.status, answer.retry_after.as_deref(), &answer.body);
            let error = if is_discreet_path(url) { error.discreet() } else { error };
            if error.status != 401 {
                return Err(RequestError::Api(Box::new(error)));
            }
            self.vault.invalidate(&connection).await;
        }
    }

    /// Opens a stream for reading: one attempt, apart from changes of credentials.
    pub async fn stream(&self, url: &str, payload: Payload<'_>) -> Result<Body, RequestError> {
        let watching = &self.settings.watching;
        let networking = &self.settings.networking;
        let limit = watching.connect_timeout.or(networking.connect_timeout).or(networking.request_timeout);
        Ok(within(limit, self.open(url, payload)).await?.into_body())
    }

    /// Gets the head of a successful response. Refused credentials are replaced until there are no others.
    async fn open(&self, url: &str, payload: Payload<'_>) -> Result<Response<Body>, RequestError> {
        loop {
            let connection = self.vault.connection().await?;
            let busy = self.clock.busy();
            let sent = connection.open(url, payload.accept()).await;
            drop(busy);
            if sent.is_err() && connection.is_distrusted() {
                self.vault.renew(&connection).await;
            }
            let response = sent?;
            if response.status() != http::StatusCode::UNAUTHORIZED {
                self.vault.accept().await;
            }
            if response.status().is_success() {
                return Ok(response);
            }
            let error = refusal(response, url).await;
            if error.status != 401 {
                return Err(RequestError::Api(Box::new(error)));
            }
            self.vault.invalidate(&connection).await;
        }
    }

    fn debug(&self, text: impl FnOnce() -> String) {
        if self.invoker.enabled(Level::Debug) {
            self.invoker.log(Entry::general(Level::Debug, LOGGER, text()));
        }
    }

    fn error(&self, text: String) {
        self.invoker.log(Entry::general(Level::Error, LOGGER, text));
    }
}

/// What may pass by itself: 403 too, as permissions are often granted a moment after the operator is started.
fn is_retriable(error: &RequestError) -> bool {
    match error {
        RequestError::Api(refusal) => matches!(refusal.status, 403 | 429 | 500..),
        RequestError::Transport(_) | RequestError::Timeout => true,
        RequestError::Malformed(_) | RequestError::Login(_) => false,
    }
}

async fn refusal(response: Response<Body>, url: &str) -> ApiError {
    let status = response.status().as_u16();
    let retry_after =
        response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let body =
        response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let error = ApiError::from_response(status, retry_after.as_deref(), &body);
    if is_discreet_path(url) { error.discreet() } else { error }
}

async fn within<T>(
    limit: Option<f64>,
    work: impl Future<Output = Result<T, RequestError>>,
) -> Result<T, RequestError> {
    match limit {
        Some(limit) => timeout(seconds(limit), work).await.unwrap_or(Err(RequestError::Timeout)),
        None => work.await,
    }
}

/// A duration of so many seconds; negative and endless ones are brought to what the clock can do.
pub fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value.max(0.0)).unwrap_or(Duration::from_secs(u64::from(u32::MAX)))
}
