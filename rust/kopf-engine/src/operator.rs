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

use crate::api::{Api, seconds};
use crate::clock::Clock;
use crate::daemons::{self, Background};
use crate::dispatch::Shared;
use crate::error::{Failure, FailureKind};
use crate::invoke::{Entry, Invoker};
use crate::orchestration::{Orchestrator, Territory};
use crate::rules::CurrentRules;
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
    /// What the server is told of who asks.
    pub agent: String,
}

/// A running operator. It goes on until it is told to stop, even if all handles are dropped.
#[derive(Clone)]
pub struct Operator {
    stopping: CancellationToken,
    outcome: Arc<OnceLock<Result<(), Failure>>>,
    finished: CancellationToken,
    rules: CurrentRules,
}

impl Operator {
    /// Starts an operator and returns at once.
    pub fn start(runtime: &Handle, config: Config, invoker: Arc<dyn Invoker>) -> Self {
        let Config { registry, settings, lifecycle, namespaces, agent } = config;
        let rules = Rules { registry, settings: Arc::new(settings), lifecycle };
        let operator = Self {
            stopping: CancellationToken::new(),
            outcome: Arc::default(),
            finished: CancellationToken::new(),
            rules: CurrentRules::new(Arc::new(rules)),
        };
        let this = operator.clone();
        runtime.spawn(async move {
            let outcome = live(&this, namespaces, agent, invoker).await;
            let _ = this.outcome.set(outcome);
            this.finished.cancel();
        });
        operator
    }

    /// Asks it to stop. Further calls change nothing.
    pub fn stop(&self) {
        self.stopping.cancel();
    }

    /// Changes its settings, as far as they are not read only once at the start.
    pub fn configure(&self, settings: Settings) {
        self.rules.configure(settings);
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

async fn live(
    operator: &Operator,
    namespaces: Vec<String>,
    agent: String,
    invoker: Arc<dyn Invoker>,
) -> Result<(), Failure> {
    let stopping = operator.stopping.clone();
    let vault = Arc::new(Vault::new(Arc::clone(&invoker), agent));
    let rules = operator.rules.get();
    let shared = Arc::new(Shared {
        api: Api::new(vault, Arc::clone(&rules.settings), Arc::clone(&invoker)),
        rules,
        current: operator.rules.clone(),
        invoker: Arc::clone(&invoker),
        clock: Clock::start(),
        stopping: stopping.clone(),
        killing: CancellationToken::new(),
        workers: TaskTracker::new(),
        freed: Notify::new(),
        background: Background::default(),
        cycles: AtomicU64::new(1),
    });
    let territory = match namespaces {
        patterns if patterns.is_empty() => Territory::Cluster,
        patterns => Territory::Namespaces(patterns),
    };
    let wheel = tokio::spawn(daemons::turn(Arc::clone(&shared)));
    let mut orchestrator = Orchestrator::new(Arc::clone(&shared), territory);
    let outcome = tokio::select! {
        outcome = orchestrator.run() => outcome,
        () = stopping.cancelled() => Ok(()),
    };
    stopping.cancel();
    wind_down(&mut orchestrator, &shared).await;
    wheel.abort();
    outcome
}

/// Stops the streams, lets the workers finish, and cancels those that do not; meanwhile, daemons and timers are stopped.
async fn wind_down(orchestrator: &mut Orchestrator, shared: &Arc<Shared>) {
    orchestrator.stop().await;
    shared.workers.close();
    tokio::join!(finish_workers(orchestrator, shared), shared.close_daemons());
}

async fn finish_workers(orchestrator: &Orchestrator, shared: &Shared) {
    let grace = seconds(shared.rules.settings.queueing.exit_timeout);
    if timeout(grace, shared.workers.wait()).await.is_err() {
        let left = orchestrator.busy().join(", ");
        let text = format!("Unprocessed streams left for [{left}].");
        shared.invoker.log(Entry::general(Level::Warning, "kopf._core.reactor.queueing", text));
        shared.killing.cancel();
        shared.workers.wait().await;
    }
}
