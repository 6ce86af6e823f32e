//! The operator: its start, its life, and its end in stages.
//!
//! When it is asked to stop: first the streams, so that nothing new comes; then the workers get
//! `settings.queueing.exit_timeout` to finish what they do; then what is left is cancelled. See contract/engine 2.4 and 12.

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};

use kopf_core::cycle::Rules;
use kopf_core::handler::Kind;
use kopf_core::lifecycle::Lifecycle;
use kopf_core::notes::Level;
use kopf_core::registry::Registry;
use kopf_core::settings::Settings;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::Desk;
use crate::admission::managed::Managed;
use crate::api::{Api, seconds};
use crate::client::ConnectionOptions;
use crate::clock::Clock;
use crate::credentials::Credentials;
use crate::daemons::{self, Background, Reports};
use crate::dispatch::{Absentees, Shared};
use crate::errands::{self, Errand};
use crate::error::{Failure, FailureKind};
use crate::health::Health;
use crate::indexing::Barrier;
use crate::invoke::{Entry, Invoker};
use crate::orchestration::Orchestrator;
use crate::patching::Denials;
use crate::posting::{Mail, Mailbox, mailbox};
use crate::probes::{Endpoint, Probes};
use crate::rules::CurrentRules;
use crate::supervision::{Failing, guarded};
use crate::territory::Territory;
use crate::toggles::Pause;
use crate::vault::{Vault, VaultOptions};

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
    pub territory: Territory,
    /// Where admission reviews are taken in.
    pub admission: Arc<Desk>,
    /// What the server is told of who asks.
    pub agent: String,
    /// Who we are among the operators.
    pub identity: String,
    /// Where the operator's health is served, if anywhere.
    pub liveness: Option<Endpoint>,
    /// Credentials that are there from the beginning; the login handlers are asked when these are used up.
    pub credentials: Vec<(String, Credentials)>,
    /// What is to be done instead of working.
    pub errand: Option<Errand>,
}

/// A running operator. It goes on until it is told to stop, even if all handles are dropped.
#[derive(Clone)]
pub struct Operator {
    mailbox: Mailbox,
    stopping: CancellationToken,
    outcome: Arc<OnceLock<Result<(), Failure>>>,
    finished: CancellationToken,
    rules: CurrentRules,
    reports: Reports,
}

impl Operator {
    /// Starts an operator and returns at once.
    pub fn start(runtime: &Handle, config: Config, invoker: Arc<dyn Invoker>) -> Self {
        let (mailbox, mail) = mailbox();
        let rules = Rules {
            registry: Arc::clone(&config.registry),
            settings: Arc::new(config.settings.clone()),
            lifecycle: config.lifecycle,
        };
        let operator = Self {
            mailbox,
            stopping: CancellationToken::new(),
            outcome: Arc::default(),
            finished: CancellationToken::new(),
            rules: CurrentRules::new(Arc::new(rules)),
            reports: Reports::default(),
        };
        let this = operator.clone();
        runtime.spawn(async move {
            // Those who wait are answered in any case.
            let _finished = this.finished.clone().drop_guard();
            let life = Box::pin(live(&this, config, mail, invoker));
            let outcome = guarded("The operator", life).await;
            let _ = this.outcome.set(outcome.unwrap_or_else(|panicked| Err(panicked.into())));
        });
        operator
    }

    /// Where Kubernetes events are put to be posted.
    pub fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// Lets many answers of daemons and timers be given as one: the engine goes on with them when all are there.
    pub fn in_bulk(&self, answer: impl FnOnce()) {
        self.reports.in_bulk(answer);
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
    config: Config,
    mail: Mail,
    invoker: Arc<dyn Invoker>,
) -> Result<(), Failure> {
    let stopping = operator.stopping.clone();
    let networking = &config.settings.networking;
    let options = VaultOptions {
        connections: ConnectionOptions {
            agent: config.agent,
            trust_env: networking.trust_env,
            compat: config.settings.compat,
            clock: config.clock.clone(),
        },
        login_timeout: if config.settings.compat { 0.0 } else { networking.login_timeout },
        stopping: stopping.clone(),
    };
    let vault = Arc::new(Vault::new(Arc::clone(&invoker), options, &config.credentials)?);
    let rules = operator.rules.get();
    let has_indices = rules.registry.handlers.iter().any(|handler| matches!(handler.kind, Kind::Indexing));
    let shared = Arc::new(Shared {
        api: Api::new(vault, Arc::clone(&rules.settings), Arc::clone(&invoker), config.clock.clone()),
        rules,
        current: operator.rules.clone(),
        invoker: Arc::clone(&invoker),
        admission: config.admission,
        clock: config.clock.clone(),
        stopping: stopping.clone(),
        killing: CancellationToken::new(),
        workers: TaskTracker::new(),
        freed: Notify::new(),
        dozing: AtomicUsize::new(0),
        background: Background::reached_by(operator.reports.clone()),
        cycles: AtomicU64::new(1),
        pause: Arc::new(Pause::default()),
        health: Arc::new(Health::new(config.clock.clone())),
        identity: config.identity,
        barrier: has_indices.then(Arc::<Barrier>::default),
        absentees: Absentees::default(),
        denials: Denials::default(),
        parked: Arc::default(),
        failing: Failing::default(),
    });
    let territory = config.territory;
    if let Some(errand) = config.errand {
        return tokio::select! {
            outcome = errands::run(&shared, &territory, errand) => outcome,
            () = stopping.cancelled() => Ok(()),
        };
    }
    // These end with the operator: probes are served until the shutdown is complete. Dropping the set stops the server.
    let mut attendants = JoinSet::new();
    if let Some(endpoint) = config.liveness {
        let beside = (!shared.rules.settings.compat).then(|| Arc::clone(&shared.health));
        let serving = Probes::listen(endpoint, Arc::clone(&invoker), beside).await?.serve();
        attend(&mut attendants, &shared, "The server of probes", serving);
    }
    let scheduling = daemons::turn(Arc::clone(&shared));
    attend(&mut attendants, &shared, "The scheduler of daemons and timers", scheduling);
    attend(&mut attendants, &shared, "The pausing of daemons and timers", pause_daemons(Arc::clone(&shared)));
    if let Some(barrier) = shared.barrier.clone() {
        let whole = Arc::clone(&shared);
        let complaining = async move { barrier.complain(&whole.health, &*whole.invoker).await };
        attend(&mut attendants, &shared, "The observer of the indices", complaining);
    }
    shared.admission.connect(shared.api.clone());
    let mut managed = managed(&shared);
    let mut orchestrator = Orchestrator::new(Arc::clone(&shared), territory, mail);
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
    wind_down(&mut orchestrator, &shared).await;
    outcome
}

/// Starts a task that is needed as long as the operator lives: its panic ends the operator.
fn attend(
    attendants: &mut JoinSet<()>,
    shared: &Arc<Shared>,
    task: &'static str,
    future: impl Future<Output = ()> + Send + 'static,
) {
    let shared = Arc::clone(shared);
    attendants.spawn(async move { shared.failing.guard(task, future).await });
}

/// Stops daemons and timers at the beginning of each pause; after it, the listings start them again. The only place that
/// does so.
async fn pause_daemons(shared: Arc<Shared>) {
    loop {
        shared.pause.begun_since(shared.pause.count()).await;
        shared.pause_daemons();
        shared.pause.over().await;
        shared.resume_daemons();
    }
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

/// Stops the streams, lets the workers finish, and cancels those that do not; meanwhile, daemons and timers are stopped.
async fn wind_down(orchestrator: &mut Orchestrator, shared: &Arc<Shared>) {
    orchestrator.stop().await;
    shared.workers.close();
    tokio::join!(finish_workers(orchestrator, shared), shared.close_daemons());
    // Only now: others may begin as soon as we are not among the peers any more.
    orchestrator.leave().await;
}

async fn finish_workers(orchestrator: &Orchestrator, shared: &Shared) {
    let grace = seconds(shared.rules.settings.queueing.exit_timeout);
    if timeout(grace, shared.workers.wait()).await.is_err() {
        let left = orchestrator.busy().join(", ");
        let text = format!("Unprocessed streams left for [{left}].");
        shared.invoker.log(Entry::general(Level::Warning, "kopf._core.reactor.queueing", text));
        shared.killing.cancel();
        shared.absentees.give_up();
        shared.workers.wait().await;
    }
}
