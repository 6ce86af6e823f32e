//! Management of webhook configurations: creation, updates, and the clean-up at the exit.
//!
//! A configuration is written when its content changes, and again at intervals, as another client may have changed it.
//! `kopf_core::admission::configuration` decides the content.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use kopf_core::admission::AdmissionResources;
use kopf_core::admission::configuration::{self, WebhookType};
use kopf_core::backoff::Backoff;
use kopf_core::handler::registry::Registry;
use kopf_core::json::value::Value;
use kopf_core::log_level::Level;
use kopf_core::resource::Resource;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::admission::{AdmissionState, LOGGER};
use crate::client::{Client, RequestBody};
use crate::error::{Failure, RequestError};
use crate::host::{Host, LogRecord};
use crate::time::duration::seconds;

const COLLECTION: &str = "/apis/admissionregistration.k8s.io/v1";
/// The delays before retries of temporary failures.
const RETRIES: Backoff = Backoff::endless(&[10.0]);
/// The timeout of the clean-up request at the exit.
const CLEANUP: Duration = Duration::from_secs(10);

/// The interval at which the configurations are written again. For the API server, a write of the same content is no change.
pub const REPETITION: Duration = Duration::from_mins(10);

/// Manages the webhook configurations of one operator.
pub struct Managed {
    client: Client,
    host: Arc<dyn Host>,
    registry: Arc<Registry>,
    site: watch::Receiver<AdmissionState>,
    name: String,
    /// The interval of repeated writes, if they are enabled.
    repetition: Option<Duration>,
    written: Vec<(WebhookType, Vec<Value>)>,
}

impl Managed {
    /// Writes nothing yet.
    pub fn new(
        client: Client,
        host: Arc<dyn Host>,
        registry: Arc<Registry>,
        site: watch::Receiver<AdmissionState>,
        name: String,
        repetition: Option<Duration>,
    ) -> Self {
        Self { client, host, registry, site, name, repetition, written: vec![] }
    }

    /// The configurations may be changed by another replica from now on: they are neither known nor cleaned up.
    pub fn forget_written(&mut self) {
        self.written.clear();
    }

    /// Creates the configurations and writes every change of them. Temporary failures are logged and retried; returns
    /// at the first failure that is not temporary.
    pub async fn run(&mut self) -> Failure {
        loop {
            match self.keep_until_error().await {
                ManageError::Rejected(error) => return error.into(),
                ManageError::Failed(error) => {
                    let pause = RETRIES.step(0).unwrap_or_default();
                    let text = format!(
                        "Cannot write the admission webhook {}: {error}. Will try again in {pause} seconds.",
                        self.name
                    );
                    self.log(Level::Error, text);
                    self.client.clock().sleep(seconds(pause)).await;
                }
            }
        }
    }

    async fn keep_until_error(&mut self) -> ManageError {
        if let Err(error) = self.create_all().await {
            return error.into();
        }
        let (client, repetition) = (self.client.clone(), self.repetition);
        let pause = || async {
            match repetition {
                Some(interval) => client.clock().sleep(interval).await,
                None => pending().await,
            }
        };
        let mut repeated = pin!(pause());
        loop {
            let site = self.site.borrow_and_update().clone();
            if let (Some(served), Some(client)) = (&site.served, &site.client) {
                for flavour in WebhookType::ALL {
                    if let Err(error) = self.configure(flavour, served, client).await {
                        return error.into();
                    }
                }
            }
            tokio::select! {
                // The router exists as long as the operator.
                Ok(()) = self.site.changed() => {}
                () = &mut repeated => {
                    self.write_again().await;
                    repeated.set(pause());
                }
            }
        }
    }

    /// Whether there are webhooks that [`Self::clean_up`] removes.
    pub fn has_removable(&self) -> bool {
        let site = self.site.borrow();
        let (Some(served), Some(client)) = (&site.served, &site.client) else { return false };
        self.written
            .iter()
            .any(|(flavour, written)| self.webhooks(*flavour, served, client, true) != *written)
    }

    /// Removes our webhooks from the configurations, except for the persistent ones. Configurations that were never
    /// written are left as they are, and a replica whose term has ended leaves all to the next leader.
    pub async fn clean_up(&mut self) {
        if !self.client.may_write() {
            return;
        }
        let site = self.site.borrow().clone();
        let (Some(served), Some(client)) = (site.served, site.client) else { return };
        for flavour in WebhookType::ALL {
            if !self.written.iter().any(|(known, _)| *known == flavour) {
                continue;
            }
            self.log(Level::Info, format!("Cleaning up the admission webhook {}.", self.name));
            let webhooks = self.webhooks(flavour, &served, &client, true);
            let problem = match timeout(CLEANUP, self.write(flavour, &webhooks)).await {
                Ok(Ok(()) | Err(RequestError::Fenced)) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer in {} seconds", CLEANUP.as_secs()),
            };
            let text = format!("Cannot clean up the admission webhook {}: {problem}", self.name);
            self.log(Level::Error, text);
        }
    }

    /// Creates the configurations, so that they can be patched later.
    async fn create_all(&mut self) -> Result<(), RequestError> {
        // The first scan shows that the API server is reachable and accepts the credentials.
        while self.site.borrow_and_update().served.is_none() && self.site.changed().await.is_ok() {}
        for flavour in WebhookType::ALL {
            self.create(flavour).await?;
        }
        Ok(())
    }

    async fn create(&self, flavour: WebhookType) -> Result<(), RequestError> {
        let body = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": flavour.kind(),
            "metadata": {"name": self.name},
        });
        let url = format!("{COLLECTION}/{}", flavour.plural());
        let created =
            self.client.request(&Method::POST, &url, RequestBody::Json(body.to_string().as_bytes())).await;
        match created {
            Err(error) if error.status() == Some(409) => Ok(()),
            Err(error) => {
                if error.status() == Some(403) {
                    let resource = format!("{}.v1.admissionregistration.k8s.io", flavour.plural());
                    self.log(Level::Error, format!("Not enough RBAC permissions to create a {resource}."));
                }
                Err(error)
            }
            Ok(_) => Ok(()),
        }
    }

    async fn configure(
        &mut self,
        flavour: WebhookType,
        served: &AdmissionResources,
        client: &Value,
    ) -> Result<(), RequestError> {
        let webhooks = self.webhooks(flavour, served, client, false);
        if self.written.iter().any(|(known, written)| *known == flavour && *written == webhooks) {
            return Ok(());
        }
        self.log(Level::Info, format!("Reconfiguring the {} webhook {}.", flavour.as_str(), self.name));
        self.write_or_create(flavour, &webhooks).await?;
        self.written.retain(|(known, _)| *known != flavour);
        self.written.push((flavour, webhooks));
        Ok(())
    }

    /// Writes the configurations as they were written last. A failure is only logged: they may be unchanged.
    async fn write_again(&self) {
        for (flavour, webhooks) in &self.written {
            if let Err(error) = self.write_or_create(*flavour, webhooks).await {
                let text = format!("Cannot check the {} webhook {}: {error}", flavour.as_str(), self.name);
                self.log(Level::Error, text);
            }
        }
    }

    async fn write_or_create(&self, flavour: WebhookType, webhooks: &[Value]) -> Result<(), RequestError> {
        match self.write(flavour, webhooks).await {
            Err(error) if error.status() == Some(404) => {
                // Another client has deleted the configuration.
                self.create(flavour).await?;
                self.write(flavour, webhooks).await
            }
            done => done,
        }
    }

    async fn write(&self, flavour: WebhookType, webhooks: &[Value]) -> Result<(), RequestError> {
        let patch = Value::Object(configuration::patch(webhooks.to_vec())).to_string();
        let url = format!("{COLLECTION}/{}/{}", flavour.plural(), self.name);
        self.client.request(&Method::PATCH, &url, RequestBody::MergePatch(patch.as_bytes())).await.map(drop)
    }

    fn webhooks(
        &self,
        flavour: WebhookType,
        served: &AdmissionResources,
        client: &Value,
        persistent_only: bool,
    ) -> Vec<Value> {
        let of_handler = |index: usize| -> Vec<Arc<Resource>> {
            let served = served.0.iter().filter(|(_, handlers)| handlers.contains(&index));
            served.map(|(resource, _)| Arc::clone(resource)).collect()
        };
        let site = configuration::WebhookDefaults { name: &self.name, client, persistent_only };
        configuration::webhooks(&self.registry.handlers, &of_handler, flavour, site)
    }

    fn log(&self, level: Level, text: String) {
        self.host.log(LogRecord::general(level, LOGGER, text));
    }
}

/// The reason why the management of webhook configurations has stopped.
enum ManageError {
    /// The API server rejects the request: a retry would fail, too.
    Rejected(RequestError),
    /// A temporary failure: the request is retried.
    Failed(RequestError),
}

impl From<RequestError> for ManageError {
    fn from(error: RequestError) -> Self {
        match &error {
            RequestError::Transport(_)
            | RequestError::Unsent(_)
            | RequestError::Timeout
            | RequestError::Fenced => Self::Failed(error),
            RequestError::Api(api_error) if api_error.status == 429 || api_error.status >= 500 => {
                Self::Failed(error)
            }
            RequestError::Api(_) | RequestError::Malformed(_) | RequestError::Login(_) => {
                Self::Rejected(error)
            }
        }
    }
}

#[cfg(test)]
mod tests;
