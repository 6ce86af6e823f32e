//! The api for users' code: verbs, their retries, and watches.
//!
//! The rules are in `kopf-core/src/user_request`; requests are sent through [`Client`], with the engine's connections, credentials,
//! limits and clock. A api ends with its operator: then pending calls and watches end with [`CallError::Closed`].

mod attempts;
mod changes;
mod discovery;
mod error;
mod logs;
mod streams;
mod writes;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderMap, Method};
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::resource::Resource;
use kopf_core::user_request::{
    Call, Class, DefaultNamespace, FailedAttempt, Failure, Idempotency, Request, Verb, WriteOptions,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::client::{Client, Received, RequestHead};
use crate::host::{LogRecord, Logger, RunId};
use crate::time::clock::Clock;
use crate::time::duration::seconds;

use attempts::{attempt_of, failed, rejected, retry_after};
use discovery::Discovery;
pub(crate) use discovery::is_unserved;
pub use error::CallError;
pub use streams::{StreamItem, UserStream};
use writes::ObservedCall;
pub(crate) use writes::decoded;
pub use writes::{StartedWrite, WriteObserver, WriteOutcome, WrittenObject};

const LOGGER: Logger = Logger::Api;

/// The options of one call.
#[derive(Clone, Debug)]
pub struct CallOptions {
    /// The parameters of writing verbs.
    pub write: WriteOptions,
    /// The namespace of calls that specify none.
    pub namespace: DefaultNamespace,
    /// Seconds for a call with all its retries.
    pub timeout: Option<f64>,
    /// Whether failed requests are repeated.
    pub retries: bool,
    /// Additional headers.
    pub headers: HeaderMap,
    /// The call of a reconciler that makes the call.
    pub run: Option<RunId>,
}

/// A response.
#[derive(Debug)]
pub struct Response {
    /// The HTTP status. 404 if the object was deleted by an attempt whose response was lost.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The resource, if it is the response of a verb.
    pub resource: Option<Arc<Resource>>,
    /// The decoded body, if it is the response to an observed write.
    pub object: Option<Arc<Object>>,
}

/// The api. Clones share everything.
#[derive(Clone)]
pub struct Api {
    client: Client,
    discovery: Arc<Discovery>,
    closing: CancellationToken,
    streams: Arc<AtomicUsize>,
    observers: Vec<Arc<dyn WriteObserver>>,
}

/// The state of a call, for its timeout.
#[derive(Default)]
struct Progress {
    /// The request, for messages, as soon as its resource is known.
    subject: OnceLock<String>,
    /// The server may have executed the request.
    is_uncertain: AtomicBool,
}

impl Api {
    /// A api that ends when the token is cancelled.
    pub fn new(client: Client, closing: CancellationToken) -> Self {
        Self { client, discovery: Arc::default(), closing, streams: Arc::default(), observers: vec![] }
    }

    /// The same api, whose writes are observed.
    #[must_use]
    pub fn with_observers(self, observers: Vec<Arc<dyn WriteObserver>>) -> Self {
        Self { observers, ..self }
    }

    /// Ends all calls and watches.
    pub fn close(&self) {
        self.closing.cancel();
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.client.clock()
    }

    pub(crate) fn log(&self, record: LogRecord) {
        self.client.host().log(record);
    }

    /// The resource of the name.
    ///
    /// # Errors
    /// There is none, or there are several; or discovery fails.
    pub async fn resolve(&self, kind: &str, options: &CallOptions) -> Result<Arc<Resource>, CallError> {
        // In a box: the login and the requests of discovery have large futures.
        let resolving = Box::pin(self.discovery.resolve(self, kind, options));
        self.limited(options, "discover the resources", &Progress::default(), resolving).await
    }

    /// All resources that the server serves, of all versions.
    ///
    /// # Errors
    /// Discovery fails.
    pub async fn resources(&self, options: &CallOptions) -> Result<Vec<Arc<Resource>>, CallError> {
        let loading = Box::pin(self.discovery.load(self, options));
        self.limited(options, "discover the resources", &Progress::default(), loading).await
    }

    /// Executes a verb.
    ///
    /// Cancel safe: a request that was not sent is not sent any more; otherwise, its outcome is unknown.
    ///
    /// # Errors
    /// The arguments are wrong, or the request has failed.
    pub async fn call(&self, kind: &str, call: &Call, options: &CallOptions) -> Result<Response, CallError> {
        let progress = Progress::default();
        let subject = format!("{} {kind}", call.verb.word());
        // In a box, as it would make the futures of all callers large.
        let executing = Box::pin(async {
            let (resource, request, namespace) = self.prepare(kind, call, options).await?;
            progress.subject.get_or_init(|| request.subject.clone());
            let write = (&resource, namespace.as_deref());
            let observed = ObservedCall::start(&self.observers, write, call, options);
            let mut executed = self.execute(&request, options, &progress).await;
            observed.finish(&mut executed);
            match executed {
                Err(CallError::Failed(mut failure)) => {
                    if failure.class == Class::AlreadyExists && failure.is_uncertain {
                        failure.existing = self.existing(&resource, call, options).await;
                    }
                    self.discovery.on_failure(&resource, &failure);
                    Err(CallError::Failed(failure))
                }
                executed => executed.map(|response| Response { resource: Some(resource), ..response }),
            }
        });
        self.limited(options, &subject, &progress, executing).await
    }

    /// Whether the api's user may do this, by a `SelfSubjectAccessReview`. The namespace is chosen as for the verb.
    ///
    /// # Errors
    /// The arguments are wrong, or the request has failed.
    pub async fn is_allowed(
        &self,
        (verb, kind): (&str, &str),
        call: &Call,
        options: &CallOptions,
    ) -> Result<bool, CallError> {
        let resource = self.resolve(kind, options).await?;
        let of_credentials = self.default_namespace().await?;
        let namespace = call.namespace(&resource, &options.namespace, of_credentials.as_deref());
        let mut attributes = json!({
            "verb": verb, "group": resource.group, "version": resource.version, "resource": resource.plural,
        });
        let parts = [
            ("namespace", namespace.map_err(CallError::Misuse)?),
            ("name", call.name.clone()),
            ("subresource", call.subresource.clone()),
        ];
        for (key, value) in parts {
            if let Some(value) = value {
                attributes[key] = value.into();
            }
        }
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        });
        let body = Some(review.to_string().into_bytes());
        let review =
            Call { verb: Verb::Review, namespace: None, name: None, subresource: None, body, ..call.clone() };
        let response =
            self.call("authorization.k8s.io/v1/selfsubjectaccessreviews", &review, options).await?;
        let review: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        Ok(review.pointer("/status/allowed").and_then(Value::as_bool).unwrap_or_default())
    }

    /// Sends any request. It is repeated only if it reads, or if it was not executed.
    ///
    /// # Errors
    /// The request has failed.
    pub async fn request(
        &self,
        (method, path): (&str, &str),
        body: Option<(&[u8], &str)>,
        accept: &str,
        options: &CallOptions,
    ) -> Result<Response, CallError> {
        let method: Method =
            method.parse().map_err(|_| CallError::Misuse(format!("{method:?} is not an HTTP method.")))?;
        let is_reading = matches!(method, Method::GET | Method::HEAD | Method::OPTIONS);
        let idempotency = if is_reading { Idempotency::Safe } else { Idempotency::NotIdempotent };
        let subject = format!("{method} {}", path.split('?').next().unwrap_or_default());
        let head = RequestHead {
            method: &method,
            url: path,
            accept,
            content_type: body.map(|(_, content_type)| content_type),
            is_idempotent: idempotency.is_idempotent(),
            // An empty name at the end would delete all objects.
            may_end_with_slash: method != Method::DELETE,
        };
        let progress = Progress::default();
        let body = body.map(|(body, _)| body).unwrap_or_default();
        let sending =
            Box::pin(self.send_with_retries(head, body, (idempotency, &subject), options, &progress));
        self.limited(options, &subject, &progress, sending).await
    }

    /// The namespace of the credentials, if they have one.
    async fn default_namespace(&self) -> Result<Option<String>, CallError> {
        Box::pin(self.client.default_namespace()).await.map_err(|error| failed(&error))
    }

    /// The resource and the request of a call.
    async fn prepare(
        &self,
        kind: &str,
        call: &Call,
        options: &CallOptions,
    ) -> Result<(Arc<Resource>, Request, Option<String>), CallError> {
        let resource = Box::pin(self.discovery.resolve(self, kind, options)).await?;
        let of_credentials = self.default_namespace().await?;
        let of_credentials = of_credentials.as_deref();
        let request = call.request(&resource, &options.write, &options.namespace, of_credentials);
        let request = request.map_err(CallError::Misuse)?;
        let namespace = call.namespace(&resource, &options.namespace, of_credentials).ok().flatten();
        Ok((resource, request, namespace))
    }

    async fn execute(
        &self,
        request: &Request,
        options: &CallOptions,
        progress: &Progress,
    ) -> Result<Response, CallError> {
        let method: Method = request.method.parse().unwrap_or_default();
        let head = RequestHead {
            method: &method,
            url: &request.url,
            accept: request.accept,
            content_type: request.content_type,
            is_idempotent: request.idempotency.is_idempotent(),
            may_end_with_slash: false,
        };
        self.send_with_retries(
            head,
            &request.body,
            (request.idempotency, &request.subject),
            options,
            progress,
        )
        .await
    }

    /// Sends a request until it succeeds, fails finally, or may not be repeated.
    async fn send_with_retries(
        &self,
        head: RequestHead<'_>,
        body: &[u8],
        (idempotency, subject): (Idempotency, &str),
        options: &CallOptions,
        progress: &Progress,
    ) -> Result<Response, CallError> {
        let headed;
        let client = if options.headers.is_empty() {
            &self.client
        } else {
            headed = self.client.with_headers(&options.headers);
            &headed
        };
        let networking = &client.settings().networking;
        let policy = networking
            .error_backoffs
            .policy(client.next_request())
            .with_retry_after_enforced(networking.enforce_retry_after);
        let mut retries = policy.retries();
        let mut was_unknown = false;
        loop {
            progress.set(idempotency != Idempotency::Safe);
            let error = match client.send(head, body).await {
                Ok(Received { status, headers, body }) => {
                    return Ok(Response { status, headers, body, resource: None, object: None });
                }
                Err(error) => error,
            };
            let attempt = attempt_of(&error);
            was_unknown |= attempt == Some(FailedAttempt::Unknown);
            let is_uncertain = was_unknown && idempotency != Idempotency::Safe;
            progress.set(is_uncertain);
            let attempt = match attempt {
                None => return Err(failed(&error).uncertain(is_uncertain).about(subject)),
                Some(FailedAttempt::Rejected) => {
                    return rejected(&error, head, idempotency, is_uncertain).map_err(|it| it.about(subject));
                }
                Some(attempt) => attempt,
            };
            let may_retry = options.retries && idempotency.is_retried_after(attempt);
            let delay = if may_retry { retries.next(retry_after(&error), 0.0) } else { None };
            let Some(delay) = delay else {
                return Err(failed(&error).uncertain(is_uncertain).about(subject));
            };
            let text = format!(
                "Request attempt #{} failed; will retry in {} seconds: {subject}: {error}",
                retries.failures(),
                delay.seconds
            );
            client.host().log(LogRecord::general(Level::Warning, LOGGER, text));
            client.clock().sleep(seconds(delay.seconds)).await;
        }
    }

    /// The object that a creation has found, as JSON.
    async fn existing(&self, resource: &Resource, call: &Call, options: &CallOptions) -> Option<Vec<u8>> {
        let get = Call { verb: Verb::Get, body: None, query: vec![], ..call.clone() };
        let of_credentials = self.default_namespace().await.ok()?;
        let request =
            get.request(resource, &options.write, &options.namespace, of_credentials.as_deref()).ok()?;
        let response = self.execute(&request, options, &Progress::default()).await.ok()?;
        Some(response.body.to_vec())
    }

    /// Limits a call by its timeout, and by the end of the api.
    async fn limited<T>(
        &self,
        options: &CallOptions,
        subject: &str,
        progress: &Progress,
        work: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let expired = async {
            match options.timeout {
                Some(limit) => self.client.clock().sleep(seconds(limit)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            result = work => result,
            () = self.closing.cancelled() => Err(CallError::Closed),
            () = expired => {
                let limit = options.timeout.unwrap_or_default();
                let failure = Failure::unanswered(Class::TimedOut, &format!("no success within {limit} seconds"));
                let subject = progress.subject.get().map_or(subject, String::as_str);
                let error = CallError::Failed(Box::new(failure)).about(subject);
                Err(error.uncertain(progress.is_uncertain.load(Ordering::Relaxed)))
            }
        }
    }
}

impl Progress {
    fn set(&self, is_uncertain: bool) {
        self.is_uncertain.store(is_uncertain, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
