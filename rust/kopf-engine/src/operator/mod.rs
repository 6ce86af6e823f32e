//! The operator: its start, its life, and its end in stages.
//!
//! When it is asked to stop: first the streams, so that nothing new comes; then the workers get
//! `settings.queueing.exit_timeout` to finish what they do; then what is left is cancelled. See contract/engine 2.4 and 12.

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
use crate::event_recorder::{EventSender, Mail, mailbox};
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

/// Everything that makes one operator.
pub struct Config {
    /// Its handlers.
    pub registry: Arc<Registry>,
    /// Its settings.
    pub settings: Settings,
    /// How the handlers of one cycle are chosen.
    pub lifecycle: Lifecycle,
    /// What time it is to it.
    pub clock: Clock,
    /// Where it works.
    pub namespace_scope: NamespaceScope,
    /// Where admission reviews are taken in.
    pub admission: Arc<AdmissionRouter>,
    /// What the server is told of who asks.
    pub agent: String,
    /// Who we are among the operators.
    pub identity: String,
    /// Where the operator's health is served, if anywhere.
    pub liveness: Option<Endpoint>,
    /// Credentials that are there from the beginning; the login handlers are asked when these are used up.
    pub credentials: Vec<(String, Credentials)>,
    /// What is to be done instead of working.
    pub command: Option<Command>,
}

/// A running operator. It goes on until it is told to stop, even if all handles are dropped.
#[derive(Clone)]
pub struct Operator {
    mailbox: EventSender,
    stopping: CancellationToken,
    outcome: Arc<OnceLock<Result<(), Failure>>>,
    finished: CancellationToken,
    rules: LiveConfig,
    command_sender: CommandSender,
}

impl Operator {
    /// Starts an operator and returns at once.
    pub fn start(runtime: &Handle, config: Config, host: Arc<dyn Host>) -> Self {
        let (mailbox, mail) = mailbox();
        let rules = OperatorConfig {
            registry: Arc::clone(&config.registry),
            settings: Arc::new(config.settings.clone()),
            lifecycle: config.lifecycle,
        };
        let operator = Self {
            mailbox,
            stopping: CancellationToken::new(),
            outcome: Arc::default(),
            finished: CancellationToken::new(),
            rules: LiveConfig::new(Arc::new(rules)),
            command_sender: CommandSender::default(),
        };
        let this = operator.clone();
        runtime.spawn(async move {
            // Those who wait are answered in any case.
            let _finished = this.finished.clone().drop_guard();
            let life = Box::pin(run(&this, config, mail, host));
            let outcome = guarded("The operator", life).await;
            let _ = this.outcome.set(outcome.unwrap_or_else(|panicked| Err(panicked.into())));
        });
        operator
    }

    /// Where Kubernetes events are put to be posted.
    pub fn mailbox(&self) -> &EventSender {
        &self.mailbox
    }

    /// Lets many answers of daemons and timers be given as one: the engine goes on with them when all are there.
    pub fn batch(&self, answer: impl FnOnce()) {
        self.command_sender.batch(answer);
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

async fn run(operator: &Operator, config: Config, mail: Mail, host: Arc<dyn Host>) -> Result<(), Failure> {
    let stopping = operator.stopping.clone();
    let networking = &config.settings.networking;
    let options = CredentialStoreOptions {
        connections: ConnectionOptions {
            agent: config.agent,
            trust_env: networking.trust_env,
            compat: config.settings.compat,
            clock: config.clock.clone(),
        },
        login_timeout: if config.settings.compat { 0.0 } else { networking.login_timeout },
        stopping: stopping.clone(),
    };
    let credential_store = Arc::new(CredentialStore::new(Arc::clone(&host), options, &config.credentials)?);
    let rules = operator.rules.get();
    let has_indices = rules.registry.handlers.iter().any(|handler| matches!(handler.kind, Kind::Indexing));
    let (cycles, failing) = (Arc::new(AtomicU64::new(1)), Arc::new(Failing::default()));
    let api =
        Api::new(credential_store, Arc::clone(&rules.settings), Arc::clone(&host), config.clock.clone());
    let daemons = Arc::new(DaemonContext {
        rules: Arc::clone(&rules),
        current: operator.rules.clone(),
        api: api.clone(),
        host: Arc::clone(&host),
        clock: config.clock.clone(),
        stopping: stopping.clone(),
        cycles: Arc::clone(&cycles),
        failing: Arc::clone(&failing),
        manager: DaemonManager::reached_by(operator.command_sender.clone()),
    });
    let admission = config.admission;
    let shared = Arc::new(OperatorContext {
        api,
        rules,
        current: operator.rules.clone(),
        host: Arc::clone(&host),
        clock: config.clock.clone(),
        stopping: stopping.clone(),
        killing: CancellationToken::new(),
        workers: TaskTracker::new(),
        freed: Notify::new(),
        sleeping_workers: AtomicUsize::new(0),
        daemons,
        cycles,
        pause: Arc::new(Pause::default()),
        health: Arc::new(Health::new(config.clock.clone())),
        identity: config.identity,
        index_gate: has_indices.then(Arc::<IndexGate>::default),
        detached: DetachedRegistry::default(),
        denials: Denials::default(),
        parked: Arc::default(),
        failing,
    });
    let namespace_scope = config.namespace_scope;
    if let Some(command) = config.command {
        return tokio::select! {
            outcome = commands::run(&shared, &namespace_scope, command) => outcome,
            () = stopping.cancelled() => Ok(()),
        };
    }
    // These end with the operator: probes are served until the shutdown is complete. Dropping the set stops the server.
    let mut attendants = JoinSet::new();
    if let Some(endpoint) = config.liveness {
        let beside = (!shared.rules.settings.compat).then(|| Arc::clone(&shared.health));
        let serving = Probes::listen(endpoint, Arc::clone(&host), beside).await?.serve();
        attend(&mut attendants, &shared, "The server of probes", serving);
    }
    let scheduling = daemons::run_scheduler(Arc::clone(&shared.daemons));
    attend(&mut attendants, &shared, "The scheduler of daemons and timers", scheduling);
    attend(&mut attendants, &shared, "The pausing of daemons and timers", pause_daemons(Arc::clone(&shared)));
    if let Some(index_gate) = shared.index_gate.clone() {
        let whole = Arc::clone(&shared);
        let complaining = async move { index_gate.log_waiting(&whole.health, &*whole.host).await };
        attend(&mut attendants, &shared, "The observer of the indices", complaining);
    }
    admission.connect(shared.api.clone());
    let mut managed = managed(&shared, &admission);
    let mut orchestrator = Orchestrator::new(Arc::clone(&shared), admission, namespace_scope, mail);
    let outcome = tokio::select! {
        // What fails because of the exit is no failure.
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
    // First of all: from now on, the cluster must not wait for answers of ours.
    if let Some(managed) = &mut managed {
        managed.clean_up().await;
    }
    shutdown(&mut orchestrator, &shared).await;
    outcome
}

/// Starts a task that is needed as long as the operator lives: its panic ends the operator.
fn attend(
    attendants: &mut JoinSet<()>,
    shared: &Arc<OperatorContext>,
    task: &'static str,
    future: impl Future<Output = ()> + Send + 'static,
) {
    let shared = Arc::clone(shared);
    attendants.spawn(async move { shared.failing.guard(task, future).await });
}

/// Stops daemons and timers at the beginning of each pause; after it, the listings start them again. The only place that
/// does so.
async fn pause_daemons(shared: Arc<OperatorContext>) {
    loop {
        shared.pause.paused_since(shared.pause.count()).await;
        shared.daemons.pause_daemons();
        shared.pause.over().await;
        shared.daemons.resume_daemons();
    }
}

/// The keeper of webhook configurations, if the settings want one.
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

/// Stops the streams, lets the workers finish, and cancels those that do not; meanwhile, daemons and timers are stopped.
async fn shutdown(orchestrator: &mut Orchestrator, shared: &Arc<OperatorContext>) {
    orchestrator.stop().await;
    shared.workers.close();
    tokio::join!(finish_workers(orchestrator, shared), shared.daemons.close_daemons());
    // Only now: others may begin as soon as we are not among the peers any more.
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
