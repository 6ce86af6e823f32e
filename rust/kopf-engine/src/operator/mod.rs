//! The operator: start, run, and shutdown in stages.
//!
//! Shutdown: first the watches are stopped, so that no new events arrive. Then the workers get `settings.queueing.exit_timeout`
//! to finish. Then the remaining work is cancelled.

pub mod commands;
pub mod orchestrator;

use crate::daemons::DaemonContext;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};

use kopf_core::cycle::OperatorConfig;
use kopf_core::handler::Kind;
use kopf_core::handler::lifecycle::Lifecycle;
use kopf_core::handler::registry::Registry;
use kopf_core::log_level::Level;
use kopf_core::settings::Settings;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::AdmissionRouter;
use crate::admission::managed::Managed;
use crate::client::Api;
use crate::client::connection::ConnectionOptions;
use crate::client::credentials::{CredentialStore, CredentialStoreOptions};
use crate::context::index_gate::IndexGate;
use crate::context::{DetachedRegistry, OperatorContext};
use crate::daemons::{self, CommandSender, DaemonManager};
use crate::discovery::namespaces::NamespaceScope;
use crate::error::{Failure, FailureKind};
use crate::event_recorder::{EventReceiver, EventSender, event_channel};
use crate::host::credentials::Credentials;
use crate::host::{Host, LogRecord};
use crate::live_config::LiveConfig;
use crate::metrics::Health;
use crate::operator::commands::Command;
use crate::operator::orchestrator::Orchestrator;
use crate::patching::Denials;
use crate::probes::{Endpoint, Probes};
use crate::supervision::{Failing, guarded};
use crate::time::clock::Clock;
use crate::time::duration::seconds;
use crate::time::pause::Pause;

/// The configuration of one operator.
pub struct Config {
    /// The handlers.
    pub registry: Arc<Registry>,
    /// The settings.
    pub settings: Settings,
    /// The selection of the handlers of one cycle.
    pub lifecycle: Lifecycle,
    /// The clock.
    pub clock: Clock,
    /// The namespaces to serve.
    pub namespace_scope: NamespaceScope,
    /// Receives admission reviews.
    pub admission: Arc<AdmissionRouter>,
    /// The `User-Agent` of all requests.
    pub agent: String,
    /// This operator's identity among its peers.
    pub identity: String,
    /// The endpoint of the probes, if they are served.
    pub liveness: Option<Endpoint>,
    /// Initial credentials; when these are used up, the login handlers are called.
    pub credentials: Vec<(String, Credentials)>,
    /// A one-shot command to run instead of the operator.
    pub command: Option<Command>,
}

/// A running operator. It runs until it is stopped, even if all handles are dropped.
#[derive(Clone)]
pub struct Operator {
    event_sender: EventSender,
    stopping: CancellationToken,
    outcome: Arc<OnceLock<Result<(), Failure>>>,
    finished: CancellationToken,
    rules: LiveConfig,
    command_sender: CommandSender,
}

impl Operator {
    /// Starts an operator and returns at once.
    pub fn start(runtime: &Handle, config: Config, host: Arc<dyn Host>) -> Self {
        let (event_sender, event_receiver) = event_channel();
        let rules = OperatorConfig {
            registry: Arc::clone(&config.registry),
            settings: Arc::new(config.settings.clone()),
            lifecycle: config.lifecycle,
        };
        let operator = Self {
            event_sender,
            stopping: CancellationToken::new(),
            outcome: Arc::default(),
            finished: CancellationToken::new(),
            rules: LiveConfig::new(Arc::new(rules)),
            command_sender: CommandSender::default(),
        };
        let this = operator.clone();
        runtime.spawn(async move {
            // Tasks waiting in `finished()` are released in any case.
            let _finished = this.finished.clone().drop_guard();
            let running = Box::pin(run(&this, config, event_receiver, host));
            let outcome = guarded("The operator", running).await;
            let _ = this.outcome.set(outcome.unwrap_or_else(|panicked| Err(panicked.into())));
        });
        operator
    }

    /// The sender of Kubernetes events.
    pub fn event_sender(&self) -> &EventSender {
        &self.event_sender
    }

    /// Calls the function, and sends all its completions of daemons and timers to the engine as one batch.
    pub fn batch(&self, answer: impl FnOnce()) {
        self.command_sender.batch(answer);
    }

    /// Requests the shutdown. Further calls have no effect.
    pub fn stop(&self) {
        self.stopping.cancel();
    }

    /// Changes the settings, except for those that are read only once at the start.
    pub fn configure(&self, settings: Settings) {
        self.rules.configure(settings);
    }

    /// Waits for the end of the operator.
    ///
    /// # Errors
    /// If the operator ended without a request to stop.
    pub async fn finished(&self) -> Result<(), Failure> {
        self.finished.cancelled().await;
        self.outcome.get().cloned().unwrap_or_else(|| {
            Err(Failure { kind: FailureKind::Other, message: "The engine has been interrupted.".to_owned() })
        })
    }
}

async fn run(
    operator: &Operator,
    config: Config,
    event_receiver: EventReceiver,
    host: Arc<dyn Host>,
) -> Result<(), Failure> {
    let shared = context(operator, &config, &host)?;
    let Config { admission, namespace_scope, liveness, command, .. } = config;
    let stopping = operator.stopping.clone();
    if let Some(command) = command {
        return tokio::select! {
            outcome = commands::run(&shared, &namespace_scope, command) => outcome,
            () = stopping.cancelled() => Ok(()),
        };
    }
    // These end with the operator: probes are served until the shutdown is complete. Dropping the set stops the server.
    let _essential_tasks = start_essential_tasks(&shared, liveness).await?;
    admission.connect(shared.api.clone());
    let mut managed = managed(&shared, &admission);
    let mut orchestrator = Orchestrator::new(Arc::clone(&shared), admission, namespace_scope, event_receiver);
    let outcome = tokio::select! {
        // Failures caused by the shutdown are ignored.
        biased;
        () = stopping.cancelled() => Ok(()),
        outcome = guarded("The orchestrator of the watch-streams", orchestrator.run()) => {
            outcome.unwrap_or_else(|panicked| Err(panicked.into()))
        }
        failure = guarded("The keeper of webhook configurations", keep(&mut managed)) => {
            Err(failure.unwrap_or_else(Failure::from))
        }
        failure = shared.failing.failed() => Err(failure),
    };
    stopping.cancel();
    // This comes first: from now on, the cluster must not wait for our admission responses.
    if let Some(managed) = &mut managed {
        managed.clean_up().await;
    }
    shutdown(&mut orchestrator, &shared).await;
    outcome
}

/// The context of all tasks of the operator.
fn context(
    operator: &Operator,
    config: &Config,
    host: &Arc<dyn Host>,
) -> Result<Arc<OperatorContext>, Failure> {
    let (stopping, clock) = (operator.stopping.clone(), config.clock.clone());
    let networking = &config.settings.networking;
    let options = CredentialStoreOptions {
        connections: ConnectionOptions {
            agent: config.agent.clone(),
            trust_env: networking.trust_env,
            compat: config.settings.compat,
            clock: clock.clone(),
        },
        login_timeout: if config.settings.compat { 0.0 } else { networking.login_timeout },
        stopping: stopping.clone(),
    };
    let credential_store = Arc::new(CredentialStore::new(Arc::clone(host), options, &config.credentials)?);
    let rules = operator.rules.get();
    let has_indices = rules.registry.handlers.iter().any(|handler| matches!(handler.kind, Kind::Indexing));
    let (cycles, failing) = (Arc::new(AtomicU64::new(1)), Arc::new(Failing::default()));
    let api = Api::new(credential_store, Arc::clone(&rules.settings), Arc::clone(host), clock.clone());
    let daemons = Arc::new(DaemonContext {
        rules: Arc::clone(&rules),
        current: operator.rules.clone(),
        api: api.clone(),
        host: Arc::clone(host),
        clock: clock.clone(),
        stopping: stopping.clone(),
        cycles: Arc::clone(&cycles),
        failing: Arc::clone(&failing),
        manager: DaemonManager::reached_by(operator.command_sender.clone()),
    });
    Ok(Arc::new(OperatorContext {
        api,
        rules,
        current: operator.rules.clone(),
        host: Arc::clone(host),
        health: Arc::new(Health::new(clock.clone())),
        clock,
        stopping,
        killing: CancellationToken::new(),
        workers: TaskTracker::new(),
        freed: Notify::new(),
        sleeping_workers: AtomicUsize::new(0),
        daemons,
        cycles,
        pause: Arc::new(Pause::default()),
        identity: config.identity.clone(),
        index_gate: has_indices.then(Arc::<IndexGate>::default),
        detached: DetachedRegistry::default(),
        denials: Denials::default(),
        parked: Arc::default(),
        failing,
    }))
}

/// Starts the tasks that run as long as the operator, apart from the orchestrator.
async fn start_essential_tasks(
    shared: &Arc<OperatorContext>,
    liveness: Option<Endpoint>,
) -> Result<JoinSet<()>, Failure> {
    let mut tasks = JoinSet::new();
    if let Some(endpoint) = liveness {
        let health = (!shared.rules.settings.compat).then(|| Arc::clone(&shared.health));
        let serving = Probes::listen(endpoint, Arc::clone(&shared.host), health).await?.serve();
        spawn_essential(&mut tasks, shared, "The server of probes", serving);
    }
    let scheduling = daemons::run_scheduler(Arc::clone(&shared.daemons));
    spawn_essential(&mut tasks, shared, "The scheduler of daemons and timers", scheduling);
    let pausing = pause_daemons(Arc::clone(shared));
    spawn_essential(&mut tasks, shared, "The pausing of daemons and timers", pausing);
    if let Some(index_gate) = shared.index_gate.clone() {
        let whole = Arc::clone(shared);
        let logging = async move { index_gate.log_waiting(&whole.health, &*whole.host).await };
        spawn_essential(&mut tasks, shared, "The observer of the indices", logging);
    }
    Ok(tasks)
}

/// Spawns a task that is required as long as the operator runs: its panic ends the operator.
fn spawn_essential(
    essential_tasks: &mut JoinSet<()>,
    shared: &Arc<OperatorContext>,
    task: &'static str,
    future: impl Future<Output = ()> + Send + 'static,
) {
    let shared = Arc::clone(shared);
    essential_tasks.spawn(async move { shared.failing.guard(task, future).await });
}

/// Stops daemons and timers at the start of each pause; the listings after the pause start them again. No other code stops them
/// for pauses.
async fn pause_daemons(shared: Arc<OperatorContext>) {
    loop {
        shared.pause.paused_since(shared.pause.count()).await;
        shared.daemons.pause_daemons();
        shared.pause.over().await;
        shared.daemons.resume_daemons();
    }
}

/// The manager of webhook configurations, if the settings enable it.
fn managed(shared: &OperatorContext, admission: &AdmissionRouter) -> Option<Managed> {
    let name = shared.rules.settings.admission.managed.clone()?;
    let (api, host) = (shared.api.clone(), Arc::clone(&shared.host));
    let registry = Arc::clone(&shared.rules.registry);
    Some(Managed::new(api, host, registry, admission.subscribe(), name))
}

async fn keep(managed: &mut Option<Managed>) -> Failure {
    match managed {
        Some(managed) => managed.run().await,
        None => std::future::pending().await,
    }
}

/// Stops the watches, lets the workers finish, and cancels those that do not; meanwhile, daemons and timers are stopped.
async fn shutdown(orchestrator: &mut Orchestrator, shared: &Arc<OperatorContext>) {
    orchestrator.stop().await;
    shared.workers.close();
    tokio::join!(finish_workers(orchestrator, shared), shared.daemons.close_daemons());
    // Only now: other operators may start handling as soon as our record is removed.
    orchestrator.leave().await;
}

async fn finish_workers(orchestrator: &Orchestrator, shared: &OperatorContext) {
    let grace = seconds(shared.rules.settings.queueing.exit_timeout);
    if timeout(grace, shared.workers.wait()).await.is_err() {
        let left = orchestrator.busy().join(", ");
        let text = format!("Unprocessed streams left for [{left}].");
        shared.host.log(LogRecord::general(Level::Warning, "kopf._core.reactor.queueing", text));
        shared.killing.cancel();
        shared.detached.give_up();
        shared.workers.wait().await;
    }
}
