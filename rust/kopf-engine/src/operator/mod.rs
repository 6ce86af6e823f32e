//! The operator: start, run, and shutdown in stages.
//!
//! Shutdown: first the watches are stopped, so that no new events arrive. Then the workers get `settings.queueing.exit_timeout`
//! to finish. Then the remaining work is cancelled.

pub mod commands;
mod election;
mod health;
pub mod orchestrator;
mod shutdown;
mod webhooks;

use std::sync::{Arc, OnceLock, Weak};

use kopf_core::cycle::OperatorConfig;
use kopf_core::handler::lifecycle::Lifecycle;
use kopf_core::handler::registry::Registry;
use kopf_core::handler::{Handler, Kind};
use kopf_core::settings::Settings;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admission::AdmissionRouter;
use crate::apply::DeletedOwners;
use crate::caches::Caches;
use crate::client::Client;
use crate::client::connection::ConnectionOptions;
use crate::client::credentials::{CredentialStore, CredentialStoreOptions};
use crate::context::index_gate::IndexGate;
use crate::context::{DeletionHolds, DispatchContext};
use crate::daemons::{self, CommandSender, DaemonContext, DaemonManager};
use crate::discovery::namespaces::NamespaceScope;
use crate::error::Failure;
use crate::event_recorder::{EventReceiver, EventSender, event_channel};
use crate::fence::Fence;
use crate::host::Host;
use crate::host::credentials::Credentials;
use crate::leadership::Replica;
use crate::live_config::LiveConfig;
use crate::operator::commands::Command;
use crate::operator::orchestrator::Orchestrator;
use crate::reconciling::Reconcilers;
use crate::status::{Heartbeats, HostLoad, StatusServer};
use crate::supervision::guarded;
use crate::task_context::TaskContext;
use crate::time::clock::Clock;
use crate::watch_health::WatchHealth;

/// The reason why there are no warnings about other operators: the replicas of a leader election are such operators.
const LEADER_ELECTION: &str = "leader election";

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
    /// The status server, if there is one.
    pub status: Option<StatusServer>,
    /// Whether there are probes.
    pub has_probes: bool,
    /// Initial credentials; when these are used up, the login handlers are called.
    pub credentials: Vec<(String, Credentials)>,
    /// A one-shot command to run instead of the operator.
    pub command: Option<Command>,
}

/// The context of the operator and its orchestrator.
pub struct OperatorContext {
    /// The part that all tasks share.
    pub base: Arc<TaskContext>,
    /// The context of the dispatchers and their workers.
    pub dispatch: Arc<DispatchContext>,
    /// The health of the watches.
    pub health: Arc<WatchHealth>,
    /// This operator's identity among its peers.
    pub identity: String,
    /// The reconcilers; none if none are declared.
    pub reconcilers: Option<Arc<Reconcilers>>,
    /// The caches; none if none are declared.
    pub caches: Option<Arc<Caches>>,
    /// The objects whose deletion was observed.
    pub deleted_owners: Arc<DeletedOwners>,
    /// The part in a leader election; none without it.
    pub replica: Option<Arc<Replica>>,
}

/// A running operator. It runs until it is stopped, even if all handles are dropped.
#[derive(Clone)]
pub struct Operator {
    event_sender: EventSender,
    stopping: CancellationToken,
    outcome: Arc<OnceLock<Result<(), Failure>>>,
    finished: CancellationToken,
    live_config: LiveConfig,
    command_sender: CommandSender,
    client: Arc<OnceLock<Client>>,
    reconcilers: Arc<OnceLock<Arc<Reconcilers>>>,
    caches: Arc<OnceLock<Arc<Caches>>>,
    deleted_owners: Arc<DeletedOwners>,
    heartbeats: Arc<Heartbeats>,
    context: Arc<OnceLock<Weak<OperatorContext>>>,
}

impl Operator {
    /// Starts an operator and returns at once.
    pub fn start(runtime: &Handle, config: Config, host: Arc<dyn Host>) -> Self {
        let (event_sender, event_receiver) = event_channel();
        let startup_config = OperatorConfig {
            registry: Arc::clone(&config.registry),
            settings: Arc::new(config.settings.clone()),
            lifecycle: config.lifecycle,
        };
        let operator = Self {
            event_sender,
            stopping: CancellationToken::new(),
            outcome: Arc::default(),
            finished: CancellationToken::new(),
            live_config: LiveConfig::new(Arc::new(startup_config)),
            command_sender: CommandSender::default(),
            client: Arc::default(),
            reconcilers: Arc::default(),
            caches: Arc::default(),
            deleted_owners: Arc::default(),
            heartbeats: Arc::new(Heartbeats::start()),
            context: Arc::default(),
        };
        let (this, last_host) = (operator.clone(), Arc::clone(&host));
        // Nothing joins this task: it catches all panics, and `finished()` returns its result.
        runtime.spawn(async move {
            // Tasks waiting in `finished()` are released in any case.
            let releasing = this.finished.clone().drop_guard();
            let status = config.status.clone();
            let running = Box::pin(run(&this, config, event_receiver, host));
            let outcome = guarded("The operator", running).await;
            if let Some(status) = status {
                status.stop();
            }
            let outcome = outcome.unwrap_or_else(|panicked| Err(panicked.into()));
            let _ = this.outcome.set(outcome.clone());
            drop(releasing);
            last_host.engine_stopped(outcome.err());
        });
        operator
    }

    /// The sender of Kubernetes events.
    pub fn event_sender(&self) -> &EventSender {
        &self.event_sender
    }

    /// Calls the function, and sends all its completions of daemons and timers to the engine as one batch.
    pub fn batch(&self, send: impl FnOnce()) {
        self.command_sender.batch(send);
    }

    /// The API client for users' code, and the token that is cancelled when the operator has ended; none before the start.
    pub fn client(&self) -> Option<(Client, CancellationToken)> {
        Some((self.client.get()?.clone(), self.finished.child_token()))
    }

    /// The reconcilers; none before the start, or if none are declared.
    pub fn reconcilers(&self) -> Option<&Arc<Reconcilers>> {
        self.reconcilers.get()
    }

    /// The caches; none before the start, or if none are declared.
    pub fn caches(&self) -> Option<&Arc<Caches>> {
        self.caches.get()
    }

    /// Whether it takes part in a leader election.
    pub fn has_leader_election(&self) -> bool {
        self.live_config.get().settings.leadership.is_some()
    }

    /// The part in a leader election; none without it, and before and after the run.
    pub fn replica(&self) -> Option<Arc<Replica>> {
        self.context.get()?.upgrade()?.replica.clone()
    }

    /// The pause; none before and after the run.
    pub fn pause(&self) -> Option<Arc<crate::operator_pause::Pause>> {
        Some(Arc::clone(&self.context.get()?.upgrade()?.dispatch.pause))
    }

    /// The objects whose deletion was observed: nothing is applied for them.
    pub fn deleted_owners(&self) -> &Arc<DeletedOwners> {
        &self.deleted_owners
    }

    /// The token that is cancelled when the operator has ended.
    pub fn closing(&self) -> CancellationToken {
        self.finished.child_token()
    }

    /// Records that the event loop of the host runs, and its load.
    pub fn heartbeat(&self, load: HostLoad) {
        self.heartbeats.on_host(load);
    }

    /// The streams whose first listing is still awaited, with the reason: neither listed, nor rejected, nor failing. None of them
    /// while the operator is paused, or after its end.
    pub fn awaited_streams(&self) -> Vec<String> {
        health::awaited_streams(&self.context)
    }

    /// Requests the shutdown. Further calls have no effect.
    pub fn stop(&self) {
        self.stopping.cancel();
    }

    /// Changes the settings, except for those that are read only once at the start.
    pub fn configure(&self, settings: Settings) {
        self.live_config.configure(settings);
    }

    /// Waits for the end of the operator.
    ///
    /// # Errors
    /// If the operator ended without a request to stop.
    pub async fn finished(&self) -> Result<(), Failure> {
        self.finished.cancelled().await;
        self.outcome.get().cloned().unwrap_or_else(|| Err(Failure::other("The engine has been interrupted.")))
    }
}

async fn run(
    operator: &Operator,
    config: Config,
    event_receiver: EventReceiver,
    host: Arc<dyn Host>,
) -> Result<(), Failure> {
    let shared = context(operator, &config, &host)?;
    let _first = operator.context.set(Arc::downgrade(&shared));
    let _first = operator.client.set(shared.base.client.clone());
    if let Some(reconcilers) = &shared.reconcilers {
        let _first = operator.reconcilers.set(Arc::clone(reconcilers));
    }
    if let Some(caches) = &shared.caches {
        let _first = operator.caches.set(Arc::clone(caches));
    }
    let Config { admission, namespace_scope, status, has_probes, command, .. } = config;
    admission.connect(shared.base.client.clone());
    let stopping = operator.stopping.clone();
    if let Some(command) = command {
        return tokio::select! {
            outcome = commands::run(&shared.base, &shared.identity, &namespace_scope, command) => outcome,
            () = stopping.cancelled() => Ok(()),
        };
    }
    // These end with the operator: probes are served until the shutdown is complete.
    let is_monitored = status.is_some();
    let mut essential_tasks = start_essential_tasks(&shared);
    let monitored = || health::monitored(&shared, &admission, &operator.heartbeats);
    if let Some(status) = status {
        let monitor = health::connect(&shared, &status, monitored(), has_probes).await?;
        if let Some(monitor) = monitor {
            let running = async move { monitor.run().await };
            spawn_essential(&mut essential_tasks, &shared, "The health monitor", running);
        }
    }
    if let Some(replica) = shared.replica.clone() {
        let elector = tokio::select! {
            elector = replica.elector(&shared.base) => elector?,
            () = stopping.cancelled() => return Ok(()),
        };
        election::start(&mut essential_tasks, &shared, (replica, elector), monitored());
    }
    let mut managed = webhooks::managed(&shared.base, &admission);
    let mut orchestrator = Orchestrator::new(Arc::clone(&shared), admission, namespace_scope, event_receiver);
    let outcome = tokio::select! {
        // Failures caused by the shutdown are ignored.
        biased;
        () = stopping.cancelled() => Ok(()),
        outcome = guarded("The orchestrator of the watch-streams", orchestrator.run()) => {
            outcome.unwrap_or_else(|panicked| Err(panicked.into()))
        }
        failure = guarded("The manager of webhook configurations", webhooks::keep(&mut managed, &shared)) => {
            Err(failure.unwrap_or_else(Failure::from))
        }
        failure = shared.base.failing.failed() => Err(failure),
        // In the task of the orchestrator: it proves that the task runs.
        never = operator.heartbeats.beat(), if is_monitored => match never {},
    };
    stopping.cancel();
    // This comes first: from now on, the cluster must not wait for our admission responses.
    webhooks::clean_up(&mut managed, &shared).await;
    if shutdown::shutdown(&mut orchestrator, &shared).await {
        webhooks::clean_up_as_last(&mut managed, &shared).await;
    }
    essential_tasks.shutdown().await;
    // A task may have panicked during the shutdown.
    outcome.and_then(|()| shared.base.failing.result())
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
    let startup_config = operator.live_config.get();
    let is_awaited = |handler: &Handler| match &handler.kind {
        Kind::Indexing => true,
        Kind::Caching(options) => !options.optional,
        _ => false,
    };
    let has_indices = startup_config.registry.handlers.iter().any(is_awaited);
    let fence = config.settings.leadership.as_ref().map(|_| Arc::new(Fence::new(clock.clone())));
    let client =
        Client::new(credential_store, Arc::clone(&startup_config.settings), Arc::clone(host), clock.clone())
            .fenced_by(fence.clone());
    let base =
        TaskContext::new(operator.live_config.clone(), client, Arc::clone(host), clock.clone(), stopping);
    let health = Arc::new(WatchHealth::new(clock.clone()).counting_in(&base.metrics.resources));
    let manager = DaemonManager::reached_by(operator.command_sender.clone());
    let daemons = Arc::new(DaemonContext { base: Arc::clone(&base), manager });
    let index_gate = has_indices.then(Arc::<IndexGate>::default);
    let dispatch = Arc::new(DispatchContext::new(Arc::clone(&base), daemons, index_gate));
    let leadership = config.settings.leadership.clone().zip(fence);
    let replica =
        leadership.map(|(settings, fence)| Arc::new(Replica::new(settings, fence, &dispatch.pause, clock)));
    let caches = Caches::of(&base, &health, dispatch.index_gate.as_ref());
    let reconcilers = Reconcilers::of(&base, &health, &dispatch.pause);
    if let Some(reconcilers) = &reconcilers {
        let holds = Arc::<Reconcilers>::clone(reconcilers) as Arc<dyn DeletionHolds>;
        let _first = dispatch.deletion_holds.set(holds);
    }
    if let (Some(reconcilers), Some(caches)) = (&reconcilers, &caches) {
        reconcilers.wait_for_writes(Arc::<Caches>::clone(caches));
    }
    let identity = election::identity_among_peers(config);
    if replica.is_some() {
        // The replicas write the same objects, one after the other.
        base.other_operators.set_peering(LEADER_ELECTION, true);
    }
    Ok(Arc::new(OperatorContext {
        base,
        dispatch,
        health,
        identity,
        reconcilers,
        caches,
        deleted_owners: Arc::clone(&operator.deleted_owners),
        replica,
    }))
}

/// Starts the tasks that run as long as the operator, apart from the orchestrator.
fn start_essential_tasks(shared: &Arc<OperatorContext>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let scheduling = daemons::run_scheduler(Arc::clone(&shared.dispatch.daemons));
    spawn_essential(&mut tasks, shared, "The scheduler of daemons and timers", scheduling);
    let pausing = pause_daemons(Arc::clone(&shared.dispatch));
    spawn_essential(&mut tasks, shared, "The pausing of daemons and timers", pausing);
    if let Some(reconcilers) = &shared.reconcilers {
        let running = Arc::clone(reconcilers).run(shared.dispatch.index_gate.clone());
        spawn_essential(&mut tasks, shared, "The scheduler of reconcilers", running);
        let pausing = Arc::clone(reconcilers).follow_pauses();
        spawn_essential(&mut tasks, shared, "The pausing of reconcilers", pausing);
    }
    if let Some(caches) = &shared.caches {
        let running = Arc::clone(caches).run(shared.reconcilers.clone());
        spawn_essential(&mut tasks, shared, "The upkeep of the caches", running);
    }
    if let Some(index_gate) = shared.dispatch.index_gate.clone() {
        let whole = Arc::clone(shared);
        let logging = async move { index_gate.log_waiting(&whole.health, &*whole.base.host).await };
        spawn_essential(&mut tasks, shared, "The observer of the indices", logging);
    }
    tasks
}

/// Spawns a task that is required as long as the operator runs: its panic ends the operator.
fn spawn_essential(
    essential_tasks: &mut JoinSet<()>,
    shared: &Arc<OperatorContext>,
    task: &'static str,
    future: impl Future<Output = ()> + Send + 'static,
) {
    essential_tasks.spawn(shared.base.failing.guard(task, future));
}

/// Stops daemons and timers at the start of each pause; the listings after the pause start them again. No other code stops them
/// for pauses.
async fn pause_daemons(shared: Arc<DispatchContext>) {
    loop {
        shared.pause.paused_since(shared.pause.count()).await;
        shared.daemons.pause_daemons();
        shared.pause.over().await;
        shared.daemons.resume_daemons();
    }
}
