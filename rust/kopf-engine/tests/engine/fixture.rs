//! The environment of a test: the API server, the operator, and virtual time.
//!
//! Sockets do not follow virtual time: tokio's paused time would jump to the next timer while a response is on its way. So a
//! blocking task inhibits the jumps, and time stands still until a test advances it. It advances in steps, and all pending
//! responses are delivered between the steps.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use kopf_apiserver::{LoggedRequest, Server, ServerOptions};
use kopf_core::handler::Handler;
use kopf_core::handler::lifecycle::Lifecycle;
use kopf_core::handler::registry::Registry;
use kopf_core::settings::Settings;
use kopf_engine::admission::AdmissionRouter;
use kopf_engine::discovery::namespaces::NamespaceScope;
use kopf_engine::host::credentials::Credentials;
use kopf_engine::operator::{Config, Operator};
use kopf_engine::time::clock::Clock;
use serde_json::{Value, json};

use crate::scripted_host::ScriptedHost;

pub(crate) const CRDS_PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const COLLECTION: &str = "/apis/example.com/v1/namespaces/default/widgets";
/// Maximum number of polls, in real time. Only a broken engine needs that many.
const MAX_POLLS: usize = 20_000;

/// The environment of one test.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) host: Arc<ScriptedHost>,
    /// The clock of operators that are started later.
    pub(crate) clock: Clock,
    operator: Option<Operator>,
    _stillness: mpsc::Sender<()>,
}

/// A handler of widgets.
pub(crate) fn handler(id: &str, reason: &str) -> Value {
    json!({
        "id": id, "key": id.len(), "kind": "changing", "reason": reason, "requires_finalizer": reason == "delete",
        "selector": {"group": "example.com", "version": "v1", "plural": "widgets"},
    })
}

impl Fixture {
    /// A server with the CRD of widgets, and paused time.
    pub(crate) async fn new() -> Self {
        Self::with(json!({"x-kubernetes-preserve-unknown-fields": true}), false).await
    }

    /// As `new`, with the status of widgets as a subresource of this schema.
    pub(crate) async fn with_status(status: Value) -> Self {
        let preserved = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        Self::with(json!({"properties": {"spec": preserved, "status": status}}), true).await
    }

    /// As `new`, with this schema of the spec.
    pub(crate) async fn with_spec(spec: Value) -> Self {
        Self::with(json!({"properties": {"spec": spec}}), false).await
    }

    async fn with(mut schema: Value, has_status: bool) -> Self {
        schema["type"] = json!("object");
        let subresources = if has_status { json!({"status": {}}) } else { json!({}) };
        tokio::time::pause();
        let (stillness, end) = mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || end.recv());
        #[allow(clippy::field_reassign_with_default, reason = "the options cannot be written as a literal")]
        let mut options = ServerOptions::default();
        options.tls = false;
        let server = kopf_apiserver::start(options).await.unwrap();
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": subresources,
                    "schema": {"openAPIV3Schema": schema},
                }],
            },
        });
        server.create(CRDS_PATH, &crd).await.unwrap();
        let credentials = Credentials {
            server: server.url(),
            token: Some(server.token().to_owned().into()),
            ..Credentials::default()
        };
        let fixture = Self {
            server,
            host: Arc::new(ScriptedHost::new(credentials)),
            clock: Clock::start(),
            operator: None,
            _stillness: stillness,
        };
        while fixture.server.get(COLLECTION).await.is_err() {
            fixture.settle().await;
        }
        fixture
    }

    /// Starts the operator with these handlers, and waits until it watches widgets.
    pub(crate) async fn start(&mut self, handlers: Vec<Value>, tune: impl FnOnce(&mut Settings)) {
        self.start_in(NamespaceScope::Cluster, handlers, tune).await;
    }

    /// As `start`, for some namespaces.
    #[allow(clippy::unused_async, reason = "it is awaited like all other steps of a test")]
    pub(crate) async fn start_in(
        &mut self,
        namespace_scope: NamespaceScope,
        handlers: Vec<Value>,
        tune: impl FnOnce(&mut Settings),
    ) {
        let mut settings = Settings::default();
        settings.peering.standalone = true;
        tune(&mut settings);
        let handlers: Vec<Handler> =
            handlers.into_iter().map(|one| serde_json::from_value(one).unwrap()).collect();
        let registry = Arc::new(Registry { handlers });
        let config = Config {
            admission: Arc::new(AdmissionRouter::new(Arc::clone(&registry), Arc::clone(&self.host) as _)),
            registry,
            settings,
            lifecycle: Lifecycle::AllAtOnce,
            clock: self.clock.clone(),
            namespace_scope,
            agent: "engine-tests".to_owned(),
            identity: "engine-tests".to_owned(),
            status: None,
            has_probes: false,
            credentials: vec![],
            command: None,
        };
        let runtime = tokio::runtime::Handle::current();
        self.operator = Some(Operator::start(&runtime, config, Arc::clone(&self.host) as _));
    }

    /// As `start`, and waits until the operator watches.
    pub(crate) async fn serve(&mut self, handlers: Vec<Value>, tune: impl FnOnce(&mut Settings)) {
        self.start(handlers, tune).await;
        self.until("the watch", |fixture| !fixture.asked("watch").is_empty()).await;
    }

    pub(crate) fn operator(&self) -> &Operator {
        self.operator.as_ref().unwrap()
    }

    // --- Time.

    /// Waits until all pending requests and tasks are processed. No virtual time passes.
    pub(crate) async fn settle(&self) {
        let mut quiet = 0;
        let mut before = self.state();
        while quiet < 2 {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            breathe().await;
            let now = self.state();
            quiet = if now == before { quiet + 1 } else { 0 };
            before = now;
        }
    }

    fn state(&self) -> (u64, usize) {
        (self.server.resource_version(), self.host.beats())
    }

    /// Advances virtual time at once, and waits until its effects are processed.
    pub(crate) async fn pass(&self, seconds: f64) {
        self.settle().await;
        tokio::time::advance(Duration::from_secs_f64(seconds)).await;
        self.settle().await;
    }

    /// Waits for a condition that needs no virtual time.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..MAX_POLLS {
            if holds(self) {
                return;
            }
            tokio::task::yield_now().await;
            breathe().await;
        }
        panic!("{what} has not come");
    }

    /// Advances virtual time in steps until the condition holds; returns the seconds that it took.
    pub(crate) async fn pass_until(
        &self,
        what: &str,
        step: f64,
        at_most: f64,
        holds: impl Fn(&Self) -> bool,
    ) -> f64 {
        let start = tokio::time::Instant::now();
        loop {
            self.settle().await;
            let passed = start.elapsed().as_secs_f64();
            if holds(self) {
                return passed;
            }
            assert!(passed <= at_most, "{what} has not come in {at_most} s of virtual time");
            tokio::time::advance(Duration::from_secs_f64(step)).await;
        }
    }

    // --- Objects.

    pub(crate) async fn create(&self, name: &str, spec: Value) {
        let body = json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec,
        });
        self.server.create(COLLECTION, &body).await.unwrap();
    }

    pub(crate) async fn patch(&self, name: &str, patch: Value) {
        self.server.call("PATCH", &format!("{COLLECTION}/{name}"), Some(&patch)).await.unwrap();
    }

    pub(crate) async fn patch_status(&self, name: &str, patch: Value) {
        self.server.call("PATCH", &format!("{COLLECTION}/{name}/status"), Some(&patch)).await.unwrap();
    }

    /// As `patch`, by this field manager.
    pub(crate) async fn patch_as(&self, name: &str, patch: Value, manager: &str) {
        let url = format!("{COLLECTION}/{name}?fieldManager={manager}");
        self.server.call("PATCH", &url, Some(&patch)).await.unwrap();
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.server.call("DELETE", &format!("{COLLECTION}/{name}"), None).await.unwrap();
    }

    pub(crate) async fn find(&self, name: &str) -> Option<Value> {
        self.server.get(&format!("{COLLECTION}/{name}")).await.ok()
    }

    /// Whether the object's current spec was handled last, with no work left.
    pub(crate) async fn is_handled(&self, name: &str) -> bool {
        let Some(object) = self.find(name).await else { return false };
        let annotations = object["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
        let last = annotations
            .get("kopf.zalando.org/last-handled-configuration")
            .and_then(Value::as_str)
            .and_then(|text| serde_json::from_str::<Value>(text).ok());
        annotations.len() == 1 && last.is_some_and(|last| last["spec"] == object["spec"])
    }

    // --- The request log.

    /// The operator's requests about widgets: `list`, `watch`, `patch`.
    pub(crate) fn asked(&self, verb: &str) -> Vec<LoggedRequest> {
        let fits = |entry: &LoggedRequest| {
            let watch = entry.query.contains("watch=true");
            let its = match entry.method.as_str() {
                "GET" if watch => "watch",
                "GET" => "list",
                "PATCH" => "patch",
                _ => "other",
            };
            entry.path.contains("/widgets") && its == verb && entry.user_agent == "engine-tests"
        };
        self.server.request_log().entries().into_iter().filter(fits).collect()
    }
}

/// Sleeps for a millisecond of real time: the kernel may need it to deliver data.
#[expect(clippy::disallowed_methods, reason = "virtual time stands still; sockets live in real time")]
async fn breathe() {
    let pause = || std::thread::sleep(Duration::from_millis(1));
    tokio::task::spawn_blocking(pause).await.unwrap();
}
