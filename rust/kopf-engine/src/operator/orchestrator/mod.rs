//! Orchestration: one watch for each served resource in each served namespace, adjusted as they come and go.
//!
//! The only module that starts and stops watches.

use crate::admission::AdmissionRouter;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use kopf_core::admission::AdmissionResources;
use kopf_core::handler::Handler;
use kopf_core::handler::projection::Projection;
use kopf_core::handler::selection::{self, Selection};
use kopf_core::log_level::Level;
use kopf_core::resource::Resource;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::context::index_gate::{IndexGate, IndexGateGuard};
use crate::discovery::namespaces::{NamespaceMatches, NamespaceScope};
use crate::discovery::observers::{DiscoveryQueue, Source};
use crate::error::Failure;
use crate::event_recorder::{EventReceiver, EventRecorder};
use crate::host::{HostTask, LogRecord, Logger, MatchResourcesTask};
use crate::objects::dispatcher::Dispatcher;
use crate::operator::OperatorContext;
use crate::peering::{self, MISSING, Peering, Tasks};
use crate::supervision::{joined, supervised};
use crate::user_client::Api;
use crate::watch::{self, FatalRejections, Stream};

mod feeds;
mod observing;
mod refresh;
mod required_peering;
mod streams;
mod unavailable;

use refresh::Scan;
use unavailable::UnavailableGroup;

const LOGGER: Logger = Logger::Observation;
/// The name under which the index gate waits for the first watches.
const SPAWNING: &str = "the first scan of the cluster";
/// The key of a watch: a resource and a namespace, or none for all namespaces.
type StreamKey = (Resource, Option<String>);

/// Starts and stops the watches.
pub struct Orchestrator {
    shared: Arc<OperatorContext>,
    admission: Arc<AdmissionRouter>,
    namespace_scope: NamespaceScope,
    scanned: Vec<Arc<Resource>>,
    namespaces: BTreeSet<String>,
    /// The results of matching namespaces with patterns.
    answers: NamespaceMatches,
    streams: HashMap<StreamKey, (AbortHandle, Arc<Dispatcher>)>,
    peerings: HashMap<StreamKey, (Peering, [AbortHandle; 3])>,
    tasks: Tasks,
    /// Keep-alives and the posting of events: they run until the last worker is done.
    background_tasks: Tasks,
    event_receiver: Option<EventReceiver>,
    closing: CancellationToken,
    discovery: Arc<DiscoveryQueue>,
    logged_issues: Vec<String>,
    /// The tasks of delayed rescans, by group.
    rescans: HashMap<String, AbortHandle>,
    /// The running scans, by group.
    scans: HashMap<String, Scan>,
    /// The groups of which a version cannot be read, by name.
    unavailable: HashMap<String, UnavailableGroup>,
    /// The names of the watches that the engine itself needs.
    observers: BTreeMap<Source, String>,
    /// Keeps the index gate closed until the first watches are started.
    spawning: Option<IndexGateGuard>,
    /// Whether the served namespaces are known.
    is_located: bool,
    /// There is a peering object, if one is required.
    has_required_peering: bool,
    /// The client for the deletion of children.
    api: Api,
}

impl Orchestrator {
    /// An orchestrator without any resources yet.
    pub fn new(
        shared: Arc<OperatorContext>,
        admission: Arc<AdmissionRouter>,
        namespace_scope: NamespaceScope,
        event_receiver: EventReceiver,
    ) -> Self {
        let is_located = matches!(namespace_scope, NamespaceScope::Cluster);
        let closing = CancellationToken::new();
        let api = Api::new(shared.base.client.clone(), closing.clone());
        let spawning =
            shared.dispatch.index_gate.as_ref().and_then(|index_gate| IndexGate::block(index_gate, SPAWNING));
        Self {
            shared,
            admission,
            namespace_scope,
            scanned: vec![],
            namespaces: BTreeSet::new(),
            answers: NamespaceMatches::default(),
            streams: HashMap::new(),
            peerings: HashMap::new(),
            tasks: JoinSet::new(),
            background_tasks: JoinSet::new(),
            event_receiver: Some(event_receiver),
            closing,
            discovery: Arc::default(),
            logged_issues: vec![],
            rescans: HashMap::new(),
            scans: HashMap::new(),
            unavailable: HashMap::new(),
            observers: BTreeMap::new(),
            spawning,
            is_located,
            has_required_peering: false,
            api,
        }
    }

    /// Serves until a fatal failure.
    pub async fn run(&mut self) -> Result<(), Failure> {
        self.scan_all().await?;
        self.observe();
        self.reconcile_streams().await?;
        loop {
            tokio::select! {
                changes = async { self.discovery.take().await } => {
                    self.on_discovery(changes).await?;
                    self.reconcile_streams().await?;
                }
                // Watches that we stopped end as cancelled tasks.
                Some(ended) = self.tasks.join_next() => joined(ended)?,
                Some(ended) = self.background_tasks.join_next() => joined(ended)?,
            }
        }
    }

    /// The objects that are worked on now, for the log.
    pub fn busy(&self) -> Vec<String> {
        let busy = self.streams.iter().flat_map(|((resource, _), (_, dispatcher))| {
            dispatcher.slots().busy().into_iter().map(move |key| format!("({resource}, '{key}')"))
        });
        busy.collect()
    }

    /// Stops all watches: no further events arrive.
    pub async fn stop(&mut self) {
        self.shared.health.expect(BTreeSet::new());
        self.tasks.abort_all();
        while let Some(ended) = self.tasks.join_next().await {
            self.report(ended);
        }
    }

    /// Logs the failure of a task during the shutdown.
    fn report(&self, ended: Result<Result<(), Failure>, JoinError>) {
        if let Err(failure) = joined(ended) {
            self.log(Level::Error, failure.message);
        }
    }

    /// Posts the queued Kubernetes events, and removes our records from the peerings.
    pub async fn leave(&mut self) {
        self.closing.cancel();
        for (_, tasks) in self.peerings.values() {
            tasks.iter().for_each(AbortHandle::abort);
        }
        while let Some(ended) = self.background_tasks.join_next().await {
            self.report(ended);
        }
        let mut leaving = JoinSet::new();
        for (_, (peering, _)) in self.peerings.drain() {
            leaving.spawn(supervised(format!("Leaving the peering {}", peering.name()), async move {
                peering.leave().await;
                Ok(())
            }));
        }
        while let Some(ended) = leaving.join_next().await {
            self.report(ended);
        }
    }

    fn handlers(&self) -> &[Handler] {
        &self.shared.base.startup_config.registry.handlers
    }

    fn own(&self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        let fits = |one: &&Arc<Resource>| one.group == group && one.plural == plural && one.preferred;
        self.scanned.iter().find(fits).cloned()
    }

    /// Adjusts the watches to the resources and namespaces: redundant ones are stopped before new ones are started.
    async fn reconcile_streams(&mut self) -> Result<(), Failure> {
        let verdicts = self.ask_selectors().await?;
        let selected =
            |handler: usize, resource: &Resource| verdicts.contains(&(handler, resource.to_string()));
        let chosen = selection::select(self.handlers(), &self.scanned, &selected);
        self.log_issues(&chosen);
        self.admission.serve(AdmissionResources::select(self.handlers(), &self.scanned, &selected));
        self.start_posting();
        self.adjust_peerings();
        self.require_peering().await?;
        let plans: Vec<_> =
            chosen.served.iter().flat_map(|resource| self.plans_of(resource, &selected)).collect();
        self.require_streams(&chosen.served, &plans);
        self.require_caches(&plans);
        self.adjust_streams(plans);
        // Before, the streams of the namespaces are missing, and the operator is not ready.
        if self.is_located {
            let all_keys = self.streams.keys().chain(self.peerings.keys());
            let names = all_keys.map(|(resource, namespace)| watch::name_of(resource, namespace.as_deref()));
            self.shared.health.expect(names.chain(self.observers.values().cloned()).collect());
            self.spawning = None;
        }
        Ok(())
    }

    /// Joins the peerings that exist now, and leaves the others. This precedes the start of watches, so that they start paused
    /// if the operator is paused.
    fn adjust_peerings(&mut self) {
        let settings = &self.shared.base.startup_config.settings.peering;
        if settings.standalone {
            return;
        }
        let (clusterwide, mandatory) = (settings.clusterwide, settings.mandatory);
        let resources: Vec<_> = self
            .scanned
            .iter()
            .filter(|resource| peering::is_peering(resource, clusterwide))
            .cloned()
            .collect();
        let keys: HashSet<StreamKey> =
            resources.iter().flat_map(|resource| self.stream_keys(resource)).collect();
        self.peerings.retain(|key, (peering, tasks)| {
            let served = keys.get(key);
            let is_kept = served.is_some_and(|(resource, _)| resource.is_served_like(&key.0));
            if !is_kept {
                tasks.iter().for_each(AbortHandle::abort);
            }
            // With or without the subresource of the status, it is the same peering.
            if served.is_none() {
                peering.forget();
            }
            is_kept
        });
        for key in keys {
            if self.peerings.contains_key(&key) {
                continue;
            }
            let resource = Arc::new(key.0.clone());
            let stream = self.stream(&resource, key.1.as_deref());
            let local = (self.shared.identity.as_str(), &self.shared.dispatch.pause);
            let peering = Peering::new(Arc::clone(&self.shared.base), local, resource, key.1.clone());
            let keep_alive = peering.spawn_keepalive(&mut self.background_tasks);
            let [evaluation, stream] = peering.spawn_watch(&mut self.tasks, stream);
            self.peerings.insert(key, (peering, [keep_alive, evaluation, stream]));
        }
        let is_missing = mandatory && resources.is_empty();
        if is_missing && !self.shared.dispatch.pause.has(MISSING) {
            self.log(Level::Warning, peering::missing_text(clusterwide));
        }
        self.shared.dispatch.pause.turn(MISSING, is_missing);
    }

    /// Starts the posting of Kubernetes events as soon as their resource is discovered.
    fn start_posting(&mut self) {
        let Some(resource) = self.own("", "events") else { return };
        let Some(event_receiver) = self.event_receiver.take() else { return };
        let poster = EventRecorder::new(Arc::clone(&self.shared.base), resource);
        let closing = self.closing.clone();
        self.background_tasks.spawn(supervised("The posting of Kubernetes events".to_owned(), async move {
            poster.run(event_receiver, closing).await;
            Ok(())
        }));
    }

    /// The keys of the watches of a resource.
    fn stream_keys(&self, resource: &Resource) -> Vec<StreamKey> {
        match &self.namespace_scope {
            NamespaceScope::Namespaces { .. } if resource.namespaced => {
                self.namespaces.iter().map(|name| (resource.clone(), Some(name.clone()))).collect()
            }
            _ => vec![(resource.clone(), None)],
        }
    }

    /// The results of callable selectors: pairs of handlers and selected resources.
    async fn ask_selectors(&self) -> Result<BTreeSet<(usize, String)>, Failure> {
        let asks = |handler: &Handler| handler.selector.as_ref().is_some_and(|selector| selector.callable);
        let handlers: Vec<usize> = self
            .handlers()
            .iter()
            .enumerate()
            .filter(|(_, handler)| asks(handler))
            .map(|(index, _)| index)
            .collect();
        if handlers.is_empty() {
            return Ok(BTreeSet::new());
        }
        let (reply, receiver) = oneshot::channel();
        let resources = self.scanned.clone();
        self.shared.base.host.submit(HostTask::MatchResources(MatchResourcesTask {
            handlers: handlers.clone(),
            resources,
            reply,
        }));
        let verdicts = receiver.await.map_err(|_| Failure::other("The operator is exiting."))?;
        let verdicts = verdicts.map_err(Failure::other)?;
        let mut selected = BTreeSet::new();
        for (handler, verdicts) in handlers.into_iter().zip(verdicts) {
            let yes = self.scanned.iter().zip(verdicts).filter(|(_, verdict)| *verdict);
            selected.extend(yes.map(|(resource, _)| (handler, resource.to_string())));
        }
        Ok(selected)
    }

    fn stream(&self, resource: &Arc<Resource>, namespace: Option<&str>) -> Stream {
        let stream = Stream {
            client: self.shared.base.client.clone(),
            resource: Arc::clone(resource),
            namespace: namespace.map(str::to_owned),
            projection: Projection::Whole,
            derived: None,
            selectors: self.shared.base.startup_config.settings.watching.selectors_of(resource),
            settings: Arc::clone(&self.shared.base.startup_config.settings),
            host: Arc::clone(&self.shared.base.host),
            health: Arc::clone(&self.shared.health),
            activity: Arc::default(),
            fatal: FatalRejections::None,
            pause: None,
            on_missing: None,
        };
        // The health contains the watch from now on, though its first request may have to wait.
        stream.announce();
        stream
    }

    /// Logs the issues of the selection, once for each change of them.
    fn log_issues(&mut self, chosen: &Selection) {
        if self.logged_issues != chosen.complaints {
            for complaint in &chosen.complaints {
                self.log(Level::Warning, complaint.clone());
            }
            if chosen.unresolved && !self.shared.base.startup_config.settings.compat {
                for hint in selection::suggestions(self.handlers(), &self.scanned) {
                    self.log(Level::Warning, hint);
                }
            }
            self.logged_issues.clone_from(&chosen.complaints);
        }
    }

    fn log(&self, level: Level, text: String) {
        self.shared.base.host.log(LogRecord::general(level, LOGGER, text));
    }
}
