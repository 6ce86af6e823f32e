//! The requests to the Lease: over separate connections, each once, with a timeout; and its watch.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use kopf_core::lease::{Input, Lease, Options, Record, Unavailable, Version, WriteError};
use serde_json::{Value, json};

use super::Response;
use crate::client::{Client, RequestBody, StreamBody};
use crate::error::RequestError;
use crate::time::clock::Clock;
use crate::time::duration::seconds;

/// The client of one Lease.
pub(super) struct LeaseClient {
    client: Client,
    clock: Clock,
    namespace: String,
    name: String,
    timeout: Duration,
    /// For records without a duration, in seconds.
    default_duration: i64,
    /// The Lease as last read or written, whose other fields updates keep.
    document: Mutex<Option<Value>>,
    /// The Lease as last observed by the watch, which may be late.
    observed: Mutex<Option<Value>>,
}

impl LeaseClient {
    pub(super) fn new(
        client: Client,
        (namespace, name): (String, String),
        options: &Options,
        clock: Clock,
    ) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "a whole number of seconds; the cast saturates")]
        let default_duration = options.lease_duration as i64;
        let timeout = seconds(options.request_timeout());
        Self {
            client,
            clock,
            namespace,
            name,
            timeout,
            default_duration,
            document: Mutex::default(),
            observed: Mutex::default(),
        }
    }

    /// Reads the Lease.
    pub(super) async fn read(self: Arc<Self>) -> Response {
        match self.request(&Method::GET, &self.url(Some(&self.name)), RequestBody::None).await {
            Ok(body) => match self.parse(&body) {
                Ok(lease) => Response { input: Input::Read(Ok(Some(lease))), failure: None },
                Err(text) => self.unavailable("get", &text),
            },
            Err(error) if error.status() == Some(404) => {
                *self.document() = None;
                Response { input: Input::Read(Ok(None)), failure: None }
            }
            Err(error) => self.unavailable("get", &text_of(&error)),
        }
    }

    /// Creates the Lease.
    pub(super) async fn create(self: Arc<Self>, record: Record) -> Response {
        let document = record.document(None, (&self.namespace, &self.name), self.clock.now_for_others());
        let body = document.to_string();
        let url = self.url(None);
        let result = self.request(&Method::POST, &url, RequestBody::Json(body.as_bytes())).await;
        self.written("create", result)
    }

    /// Replaces the Lease if it has the version.
    pub(super) async fn update(self: Arc<Self>, version: Version, record: Record) -> Response {
        let previous = self.document_of(&version);
        let place = (self.namespace.as_str(), self.name.as_str());
        let mut document = record.document(previous.as_ref(), place, self.clock.now_for_others());
        document["metadata"]["resourceVersion"] = json!(version);
        let body = document.to_string();
        let url = self.url(Some(&self.name));
        let result = self.request(&Method::PUT, &url, RequestBody::Json(body.as_bytes())).await;
        self.written("update", result)
    }

    /// Opens a watch of the Lease, which begins with its present state.
    ///
    /// # Errors
    /// The watch is rejected, or there is no response.
    pub(super) async fn watch(&self) -> Result<StreamBody, RequestError> {
        let url = format!("{}?watch=true&fieldSelector=metadata.name%3D{}", self.url(None), self.name);
        self.client.stream(&url, RequestBody::None).await
    }

    /// The state of the Lease in a watch event, as an input of the candidate; none in events without a state.
    ///
    /// # Errors
    /// The event is an error, or not readable.
    pub(super) fn parse_event(&self, line: &[u8]) -> Result<Option<Input>, String> {
        let mut event: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") => {
                let document = event["object"].take();
                let lease =
                    Lease::parse(&document, self.default_duration).map_err(|error| error.to_string())?;
                *lock(&self.observed) = Some(document);
                Ok(Some(Input::Observed(Some(lease))))
            }
            Some("DELETED") => Ok(Some(Input::Observed(None))),
            Some("ERROR") => Err(event["object"].to_string()),
            _ => Ok(None),
        }
    }

    async fn request(
        &self,
        method: &Method,
        url: &str,
        payload: RequestBody<'_>,
    ) -> Result<Bytes, RequestError> {
        self.client.request_dedicated(method, url, payload, self.timeout).await
    }

    /// The result of a write.
    fn written(&self, verb: &str, result: Result<Bytes, RequestError>) -> Response {
        let (error, text) = match result {
            Ok(body) => match self.parse(&body) {
                Ok(lease) => return Response { input: Input::Written(Ok(lease.version)), failure: None },
                Err(text) => (WriteError::Unknown, Some(text)),
            },
            Err(error) => match error_of(verb, &error) {
                // Another replica was faster: nothing has failed.
                WriteError::Conflict => (WriteError::Conflict, None),
                kind => (kind, Some(text_of(&error))),
            },
        };
        let failure = text.map(|text| self.failure(verb, &text));
        Response { input: Input::Written(Err(error)), failure }
    }

    fn unavailable(&self, verb: &str, text: &str) -> Response {
        Response { input: Input::Read(Err(Unavailable)), failure: Some(self.failure(verb, text)) }
    }

    /// The log line of a failed request. It names the verb, the resource, and the namespace of the missing permission.
    fn failure(&self, verb: &str, text: &str) -> String {
        let Self { namespace, name, .. } = self;
        format!(
            "Cannot {verb} leases.coordination.k8s.io {name:?} in the namespace {namespace:?} for the leader election; will \
             retry: {text}"
        )
    }

    /// Parses and keeps a Lease.
    fn parse(&self, body: &[u8]) -> Result<Lease, String> {
        let document: Value =
            serde_json::from_slice(body).map_err(|error| format!("the response is no Lease: {error}"))?;
        let lease = Lease::parse(&document, self.default_duration).map_err(|error| error.to_string())?;
        *self.document() = Some(document);
        Ok(lease)
    }

    fn url(&self, name: Option<&str>) -> String {
        let name = name.map(|name| format!("/{name}")).unwrap_or_default();
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases{name}", self.namespace)
    }

    fn document(&self) -> MutexGuard<'_, Option<Value>> {
        lock(&self.document)
    }

    /// The document of this version; the last one that was read or written if it is not known.
    fn document_of(&self, version: &str) -> Option<Value> {
        let observed = lock(&self.observed).clone();
        let observed = observed.filter(|it| it["metadata"]["resourceVersion"].as_str() == Some(version));
        observed.or_else(|| self.document().clone())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The effect of a failed write.
fn error_of(verb: &str, error: &RequestError) -> WriteError {
    match error {
        RequestError::Api(error) => match error.status {
            409 => WriteError::Conflict,
            // The Lease was deleted. For a creation, there is no such namespace.
            404 if verb == "update" => WriteError::Conflict,
            408 | 500.. => WriteError::Unknown,
            _ => WriteError::Rejected,
        },
        RequestError::Unsent(_) | RequestError::Login(_) | RequestError::Fenced => WriteError::Rejected,
        RequestError::Transport(_) | RequestError::Timeout | RequestError::Malformed(_) => {
            WriteError::Unknown
        }
    }
}

/// The failure for the log, in sentences if the server has responded.
fn text_of(error: &RequestError) -> String {
    match error {
        RequestError::Api(error) => error.explanation(),
        RequestError::Timeout => "the API server has not responded in time".to_owned(),
        error => error.to_string(),
    }
}
