//! Admission: reviews come, handlers are called, answers go.
//!
//! Owns the way of a review from its text to the answer ([`Desk`]), whoever brings it: our own server (`server`, with `tls`),
//! or one that the user wrote. `managed` tells the cluster of our webhooks. What is asked and answered, the core decides.

use std::sync::{Arc, OnceLock};

use kopf_core::admission::{Candidate, Hint, Problem, Request, Served, answer, candidates};
use kopf_core::handler::{Handler, Kind};
use kopf_core::registry::Registry;
use kopf_core::resource::Resource;
use kopf_core::value::Value;
use tokio::sync::{oneshot, watch};

use crate::admission::server::{Backend, Call, Rejection};
use crate::api::Api;
use crate::error::RequestError;
use crate::invoke::{Invoker, Job};

pub mod certificates;
pub mod clients;
pub mod managed;
pub mod server;
pub mod tls;

/// What the desk knows of the cluster; it changes while the operator runs.
#[derive(Debug, Clone, Default)]
pub struct Site {
    /// The resources that have admission handlers; none before the cluster is scanned.
    pub served: Option<Arc<Served>>,
    /// How the cluster reaches the server of webhooks, as that server says; none before it does.
    pub client: Option<Arc<Value>>,
}

/// Where reviews are taken in.
pub struct Desk {
    registry: Arc<Registry>,
    invoker: Arc<dyn Invoker>,
    site: watch::Sender<Site>,
    api: OnceLock<Api>,
    compat: bool,
}

/// A review that has found its handlers.
#[derive(Debug)]
pub struct Review {
    /// What is asked.
    pub request: Request,
    /// What kind of object it is about.
    pub resource: Arc<Resource>,
    /// Who is to be called.
    pub candidates: Vec<Candidate>,
}

/// A review with the way to answer it.
#[derive(Debug)]
pub struct ReviewJob {
    /// The review.
    pub review: Review,
    /// The headers of the HTTP request.
    pub headers: Vec<(String, String)>,
    /// The client's certificate.
    pub peer: Option<Arc<Value>>,
    /// Where the answer goes: as JSON, or what went wrong.
    pub reply: oneshot::Sender<Result<Vec<u8>, Rejection>>,
}

impl Desk {
    /// It knows nothing of the cluster yet.
    pub fn new(registry: Arc<Registry>, invoker: Arc<dyn Invoker>) -> Self {
        Self { registry, invoker, site: watch::Sender::default(), api: OnceLock::new(), compat: false }
    }

    /// Whether reviews for unknown handlers, or for the one with an empty id, are allowed without asking, as Kopf 1.45 does.
    #[must_use]
    pub fn with_compat(self, compat: bool) -> Self {
        Self { compat, ..self }
    }

    /// All handlers that are declared.
    pub fn handlers(&self) -> &[Handler] {
        &self.registry.handlers
    }

    /// Takes the way to the API server.
    pub fn connect(&self, api: Api) {
        // An operator lives once, and so does its way to the server.
        let _first = self.api.set(api);
    }

    /// Where the API server is, and of which version, for those who want to recognise the cluster.
    pub async fn locate(&self) -> Result<(String, String), RequestError> {
        let unknown =
            || RequestError::Malformed("The operator is not connected to a cluster yet.".to_owned());
        let api = self.api.get().ok_or_else(unknown)?;
        let version = api.get("/version").await?;
        let version: Value = serde_json::from_slice(&version)
            .map_err(|error| RequestError::Malformed(format!("the version cannot be read: {error}")))?;
        let version = version.get("gitVersion").and_then(Value::as_str).unwrap_or_default();
        Ok((api.server().await?, version.to_owned()))
    }

    /// Takes the resources that have admission handlers now.
    pub fn serve(&self, served: Served) {
        self.site.send_modify(|site| site.served = Some(Arc::new(served)));
    }

    /// Takes the address by which the cluster reaches the server.
    pub fn advertise(&self, client: Value) {
        self.site.send_modify(|site| site.client = Some(Arc::new(client)));
    }

    /// To be told of changes.
    pub fn subscribe(&self) -> watch::Receiver<Site> {
        self.site.subscribe()
    }

    /// Reads a review and finds its handlers.
    ///
    /// # Errors
    /// It is not a review, or not for us. A review for a handler that is not declared is not allowed silently: the webhook
    /// configuration does not fit the operator, such as after a handler was renamed. An empty id stands for all handlers.
    pub fn open(&self, text: &[u8], mut hint: Hint<'_>) -> Result<Review, Problem> {
        if !self.compat {
            hint.webhook = hint.webhook.filter(|id| !id.is_empty());
            if let Some(id) = hint.webhook.filter(|id| !self.has_webhook(id)) {
                return Err(Problem::UnknownHandler(id.to_owned()));
            }
        }
        let opened = Request::open(text)?;
        let served = self.site.borrow().served.clone().unwrap_or_default();
        let (resource, handlers) = served.find(&opened.wanted)?;
        let request = opened.read()?;
        let candidates = candidates(&self.registry.handlers, handlers, &request, hint);
        Ok(Review { request, resource: Arc::clone(resource), candidates })
    }

    fn has_webhook(&self, id: &str) -> bool {
        self.registry
            .handlers
            .iter()
            .any(|handler| matches!(handler.kind, Kind::Webhook(_)) && *handler.id == *id)
    }
}

impl Backend for Desk {
    fn call(&self, call: Call) {
        let Call { webhook, headers, peer, body, reply } = call;
        let _gone = match self.open(&body, Hint { webhook: Some(&webhook), reason: None }) {
            Err(Problem::TooDeep { denial, .. }) => reply.send(Ok(denial.into_bytes())),
            Err(problem) => reply.send(Err(problem.into())),
            Ok(review) if review.candidates.is_empty() => {
                let text = answer(&review.request, &[], &[], &[]).to_string();
                reply.send(Ok(text.into_bytes()))
            }
            Ok(review) => {
                let job = ReviewJob { review, headers, peer, reply };
                self.invoker.submit(Job::Review(Box::new(job)));
                Ok(())
            }
        };
    }
}

impl From<Problem> for Rejection {
    fn from(problem: Problem) -> Self {
        let status = match &problem {
            Problem::UnknownHandler(_) | Problem::UnknownResource(_) => 404,
            Problem::AmbiguousResource(_) => 409,
            Problem::MissingData(_) | Problem::NotJson(_) | Problem::TooDeep { .. } => 400,
            Problem::Malformed(_) => 500,
        };
        Self { status, reason: problem.to_string() }
    }
}

#[cfg(test)]
mod tests;
