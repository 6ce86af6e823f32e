//! Admission reviews: parsing, routing to handlers, responses.
//!
//! [`AdmissionRouter`] takes a review from its JSON to the response, both from our server (`server`, with `tls`) and
//! from one that the user wrote. `managed` writes the webhook configurations. `kopf_core::admission` decides which
//! handlers are called and how their results are merged.

use crate::host::admission::{AdmissionReviewTask, Rejection, Review};
use std::sync::{Arc, OnceLock};

use kopf_core::admission::{
    AdmissionResources, Request, ReviewError, ReviewFilter, Verdict, admission_response, candidates,
};
use kopf_core::handler::registry::Registry;
use kopf_core::handler::{Handler, Kind};
use kopf_core::json::value::Value;
use kopf_core::log_level::Level;
use kopf_core::time::Timestamp;
use tokio::sync::watch;

use crate::admission::server::{Backend, Call};
use crate::client::Client;
use crate::error::RequestError;
use crate::host::{Host, HostTask, LogRecord, Logger};
use crate::metrics::{OTHER, OpenedReview, ResourceTable, ReviewMetrics};

pub mod managed;
pub mod server;
pub mod tls;

const LOGGER: Logger = Logger::Admission;

/// The state of the router that changes while the operator runs.
#[derive(Debug, Clone, Default)]
pub struct AdmissionState {
    /// The resources that have admission handlers; none before the cluster is scanned.
    pub served: Option<Arc<AdmissionResources>>,
    /// The metrics of their reviews, in the same order.
    metrics: Arc<[Arc<ReviewMetrics>]>,
    /// The `clientConfig` of the webhook server; none before the server is started.
    pub client: Option<Arc<Value>>,
    /// The end of the validity of its certificate; none without encryption.
    certificate_expiry: Option<Timestamp>,
}

impl AdmissionState {
    /// Why the API server cannot call the webhooks now, if it cannot.
    pub fn problem(&self, now: Timestamp) -> Option<String> {
        if self.client.is_none() {
            return Some("the webhook server does not listen yet".to_owned());
        }
        let expiry = self.certificate_expiry.filter(|expiry| *expiry < now)?;
        Some(format!("the certificate of the webhook server has expired at {expiry}"))
    }
}

/// Routes admission reviews to handlers.
pub struct AdmissionRouter {
    registry: Arc<Registry>,
    host: Arc<dyn Host>,
    site: watch::Sender<AdmissionState>,
    client: OnceLock<Client>,
    compat: bool,
    reviews: ResourceTable<ReviewMetrics>,
    /// The metrics of reviews of unknown resources, and of what is no review.
    unknown: Arc<ReviewMetrics>,
}

impl AdmissionRouter {
    /// A router without resources: the cluster is not scanned yet.
    pub fn new(registry: Arc<Registry>, host: Arc<dyn Host>) -> Self {
        let reviews = ResourceTable::default();
        let has_handlers = registry.handlers.iter().any(|handler| matches!(handler.kind, Kind::Webhook(_)));
        let unknown = if has_handlers { reviews.named(OTHER) } else { Arc::default() };
        let (site, client) = (watch::Sender::default(), OnceLock::new());
        Self { registry, host, site, client, compat: false, reviews, unknown }
    }

    /// Whether reviews for unknown handlers, or with an empty handler id, are allowed without calling handlers, as in
    /// Kopf 1.45.
    #[must_use]
    pub fn with_compat(self, compat: bool) -> Self {
        Self { compat, ..self }
    }

    /// All declared handlers.
    pub fn handlers(&self) -> &[Handler] {
        &self.registry.handlers
    }

    /// Sets the client of the API server.
    pub fn connect(&self, client: Client) {
        // Called once per operator, before all that waits: webhook servers use it at their start.
        let _first = self.client.set(client);
    }

    /// The address of the API server and its version. A webhook server uses them to recognise the kind of cluster.
    pub async fn locate(&self) -> Result<(String, String), RequestError> {
        let unknown =
            || RequestError::Malformed("The operator is not connected to a cluster yet.".to_owned());
        let client = self.client.get().ok_or_else(unknown)?;
        let version = client.get("/version").await?;
        let version: Value = serde_json::from_slice(&version)
            .map_err(|error| RequestError::Malformed(format!("the version cannot be read: {error}")))?;
        let version = version.get("gitVersion").and_then(Value::as_str).unwrap_or_default();
        Ok((client.server().await?, version.to_owned()))
    }

    /// Sets the resources that have admission handlers.
    pub fn serve(&self, served: AdmissionResources) {
        let metrics = served.0.iter().map(|(resource, _)| self.reviews.of(resource)).collect();
        self.site.send_modify(|site| {
            site.served = Some(Arc::new(served));
            site.metrics = metrics;
        });
    }

    /// The metrics of the reviews.
    pub(crate) fn reviews(&self) -> &ResourceTable<ReviewMetrics> {
        &self.reviews
    }

    /// Sets the `clientConfig` by which the API server reaches the webhook server.
    pub fn publish_endpoint(&self, client: Value) {
        self.site.send_modify(|site| site.client = Some(Arc::new(client)));
    }

    /// Sets the end of the validity of the certificate of the webhook server.
    pub fn set_certificate_expiry(&self, expiry: Option<Timestamp>) {
        self.site.send_if_modified(|site| {
            site.certificate_expiry = expiry;
            // The webhook configurations do not depend on it.
            false
        });
    }

    /// A receiver of changes of the state.
    pub fn subscribe(&self) -> watch::Receiver<AdmissionState> {
        self.site.subscribe()
    }

    /// Parses a review and finds its handlers.
    ///
    /// # Errors
    /// The text is not a review, or has no declared handler. A review for an undeclared handler is an error and is not
    /// allowed silently: the webhook configuration does not match the operator, such as after a handler was renamed. An
    /// empty id stands for all handlers.
    pub fn open(&self, text: &[u8], mut hint: ReviewFilter<'_>) -> Result<Review, ReviewError> {
        let review = OpenedReview::new(&self.unknown);
        if !self.compat {
            hint.webhook = hint.webhook.filter(|id| !id.is_empty());
            if let Some(id) = hint.webhook.filter(|id| !self.has_webhook(id)) {
                return Err(ReviewError::UnknownHandler(id.to_owned()));
            }
        }
        let opened = Request::open(text)?;
        let AdmissionState { served, metrics, .. } = self.site.borrow().clone();
        let served = served.unwrap_or_default();
        let (resource, handlers) = served.find(&opened.requested)?;
        let mut all = served.0.iter().zip(&*metrics);
        let metrics = all.find(|((one, _), _)| Arc::ptr_eq(one, resource)).map(|(_, metrics)| metrics);
        let review = review.counted_by(metrics.unwrap_or(&self.unknown));
        let request = opened.read()?;
        let candidates = candidates(&self.registry.handlers, handlers, &request, hint);
        Ok(Review { request, resource: Arc::clone(resource), candidates, opened: review })
    }

    fn has_webhook(&self, id: &str) -> bool {
        self.registry
            .handlers
            .iter()
            .any(|handler| matches!(handler.kind, Kind::Webhook(_)) && *handler.id == *id)
    }
}

impl Backend for AdmissionRouter {
    fn log_error(&self, text: String) {
        self.host.log(LogRecord::general(Level::Error, LOGGER, text));
    }

    fn call(&self, call: Call) {
        let Call { webhook, headers, peer, body, reply } = call;
        let _gone = match self.open(&body, ReviewFilter { webhook: Some(&webhook), reason: None }) {
            Err(ReviewError::TooDeep { denial, .. }) => reply.send(Ok(denial.into_bytes())),
            Err(problem) => reply.send(Err(problem.into())),
            Ok(review) if review.candidates.is_empty() => {
                let text = admission_response(&review.request, &[], &[], &[]).to_string();
                review.opened.on_response(Verdict::Allowed);
                reply.send(Ok(text.into_bytes()))
            }
            Ok(review) => {
                let task = AdmissionReviewTask { review, headers, peer, reply };
                self.host.submit(HostTask::AdmissionReview(Box::new(task)));
                Ok(())
            }
        };
    }
}

impl From<ReviewError> for Rejection {
    fn from(problem: ReviewError) -> Self {
        let status = match &problem {
            ReviewError::UnknownHandler(_) | ReviewError::UnknownResource(_) => 404,
            ReviewError::AmbiguousResource(_) => 409,
            ReviewError::MissingData(_) | ReviewError::NotJson(_) | ReviewError::TooDeep { .. } => 400,
            ReviewError::Malformed(_) => 500,
        };
        Self { status, reason: problem.to_string() }
    }
}

#[cfg(test)]
mod tests;
