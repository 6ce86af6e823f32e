//! The operator: its start, its life, and its end in stages.
//!
//! When it is asked to stop: first the streams, so that nothing new comes; then the workers get
//! `settings.queueing.exit_timeout` to finish what they do; then what is left is cancelled. See contract/engine 2.4 and 12.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use kopf_core::cycle::Rules;
use kopf_core::lifecycle::Lifecycle;
use kopf_core::notes::Level;
use kopf_core::registry::Registry;
use kopf_core::settings::Settings;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::Desk;
use crate::admission::managed::Managed;
use crate::api::{Api, seconds};
use crate::clock::Clock;
use crate::dispatch::Shared;
use crate::error::{Failure, FailureKind};
use crate::invoke::{Entry, Invoker};
use crate::orchestration::{Orchestrator, Territory};
use crate::vault::Vault;

/// Everything that makes one operator.
pub struct Config {
    /// Its handlers.
    pub registry: Arc<Registry>,
    /// Its settings.
    pub settings: Settings,
    /// How the handlers of one cycle are chosen.
    pub lifecycle: Lifecycle,
    /// The patterns of the namespaces' names; empty for the whole cluster.
    pub namespaces: Vec<String>,
    /// Where admission reviews are taken in.
    pub admission: Arc<Desk>,
    /// What the server is told of who asks.
    pub agent: String,
}

/// A running operator. It goes on until it is told to stop, even if all handles are dropped.
#[derive(Clone)]
pub struct Operator {
    stopping: CancellationToken,
    outcome: Arc<OnceLock<Result<(), Failure>>>,
    finished: CancellationToken,
}

impl Operator {
    /// Starts an operator and returns at once.
    pub fn start(runtime: &Handle, config: Config, invoker: Arc<dyn Invoker>) -> Self {
        let operator = Self {
            stopping: CancellationToken::new(),
            outcome: Arc::default(),
            finished: CancellationToken::new(),
        };
        let this = operator.clone();
        runtime.spawn(async move {
            let outcome = live(config, invoker, this.stopping.clone()).await;
            let _ = this.outcome.set(outcome);
            this.finished.cancel();
        });
        operator
    }

    /// Asks it to stop. Further calls change nothing.
    pub fn stop(&self) {
        self.stopping.cancel();
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It ended without being asked to.
    pub async fn finished(&self) -> Result<(), Failure> {
        self.finished.cancelled().await;
        self.outcome.get().cloned().unwrap_or_else(|| {
            Err(Failure { kind: FailureKind::Other, message: "The engine has been interrupted.".to_owned() })
        })
    }
}

async fn live(config: Config, invoker: Arc<dyn Invoker>, stopping: CancellationToken) -> Result<(), Failure> {
    let settings = Arc::new(config.settings);
    let vault = Arc::new(Vault::new(Arc::clone(&invoker), config.agent));
    let rules =
        Rules { registry: config.registry, settings: Arc::clone(&settings), lifecycle: config.lifecycle };
    let shared = Arc::new(Shared {
        rules: Arc::new(rules),
        api: Api::new(vault, Arc::clone(&settings), Arc::clone(&invoker)),
        invoker: Arc::clone(&invoker),
        admission: config.admission,
        clock: Clock::start(),
        stopping: stopping.clone(),
        killing: CancellationToken::new(),
        workers: TaskTracker::new(),
        freed: Notify::new(),
        cycles: AtomicU64::new(1),
    });
    let territory = match config.namespaces {
        patterns if patterns.is_empty() => Territory::Cluster,
        patterns => Territory::Namespaces(patterns),
    };
    let mut orchestrator = Orchestrator::new(Arc::clone(&shared), territory);
    shared.admission.connect(shared.api.clone());
    let mut managed = managed(&shared);
    let outcome = tokio::select! {
        outcome = orchestrator.run() => outcome,
        failure = keep(&mut managed) => Err(failure),
        () = stopping.cancelled() => Ok(()),
    };
    stopping.cancel();
    // First of all: from now on, the cluster must not wait for answers of ours.
    if let Some(managed) = &mut managed {
        managed.clean_up().await;
    }
    wind_down(&mut orchestrator, &shared).await;
    outcome
}

/// The keeper of webhook configurations, if the settings want one.
fn managed(shared: &Shared) -> Option<Managed> {
    let name = shared.rules.settings.admission.managed.clone()?;
    let (api, invoker) = (shared.api.clone(), Arc::clone(&shared.invoker));
    let registry = Arc::clone(&shared.rules.registry);
    Some(Managed::new(api, invoker, registry, shared.admission.subscribe(), name))
}

async fn keep(managed: &mut Option<Managed>) -> Failure {
    match managed {
        Some(managed) => managed.keep().await,
        None => std::future::pending().await,
    }
}

/// Stops the streams, lets the workers finish, and cancels those that do not.
async fn wind_down(orchestrator: &mut Orchestrator, shared: &Shared) {
    orchestrator.stop().await;
    shared.workers.close();
    let grace = seconds(shared.rules.settings.queueing.exit_timeout);
    if timeout(grace, shared.workers.wait()).await.is_err() {
        let left = orchestrator.busy().join(", ");
        let text = format!("Unprocessed streams left for [{left}].");
        shared.invoker.log(Entry::general(Level::Warning, "kopf._core.reactor.queueing", text));
        shared.killing.cancel();
        shared.workers.wait().await;
    }
}
