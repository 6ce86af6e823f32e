//! Orchestration: one stream for each served resource in each served namespace, adjusted as they come and go.
//!
//! The only place that starts and stops streams. Rules: contract/engine 1.5-1.7.

use crate::admission::AdmissionRouter;
use crate::worker::Pool;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kopf_core::admission::AdmissionResources;
use kopf_core::handler::Handler;
use kopf_core::handler::projection::Projection;
use kopf_core::handler::selection::{self, Selection};
use kopf_core::log_level::Level;
use kopf_core::resource::Resource;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::context::OperatorContext;
use crate::context::index_gate::{IndexGate, IndexGateGuard};
use crate::discovery::namespaces::{NamespaceMatches, NamespaceScope};
use crate::discovery::observers::DiscoveryQueue;
use crate::discovery::scan::scan;
use crate::error::{Failure, FailureKind};
use crate::event_recorder::{EventRecorder, Mail};
use crate::feed;
use crate::host::{HostTask, LogRecord, MatchResourcesTask};
use crate::objects::dispatcher::Dispatcher;
use crate::peering::{self, MISSING, Peering, Tasks};
use crate::supervision::{guarded, joined, supervised};
use crate::time::duration::seconds;
use crate::watch::{self, Stream};

mod refresh;

use refresh::Scan;

const LOGGER: &str = "kopf._core.reactor.observation";
/// What keeps the indices' barrier closed until the first streams are there.
const SPAWNING: &str = "the first look at the cluster";
/// A stream that has lived for so many seconds panics for another reason than before.
const LONG_LIVED: f64 = 600.0;
/// The key of a stream: a resource and a namespace, or none for all namespaces.
type StreamKey = (Resource, Option<String>);

/// Starts and stops the streams.
pub struct Orchestrator {
    shared: Arc<OperatorContext>,
    admission: Arc<AdmissionRouter>,
    namespace_scope: NamespaceScope,
    scanned: Vec<Arc<Resource>>,
    namespaces: BTreeSet<String>,
    /// What is known of the names of namespaces.
    answers: NamespaceMatches,
    streams: HashMap<StreamKey, (AbortHandle, Arc<Dispatcher>)>,
    peerings: HashMap<StreamKey, (Peering, [AbortHandle; 3])>,
    tasks: Tasks,
    /// Signs of life and the posting of events: they go on until the last worker is done.
    background_tasks: Tasks,
    mail: Option<Mail>,
    closing: CancellationToken,
    news: Arc<DiscoveryQueue>,
    told: Vec<String>,
    /// Who will ask to look at a group later.
    looking: HashMap<String, AbortHandle>,
    /// The groups that are looked at now.
    scans: HashMap<String, Scan>,
    /// The names of the streams of our own.
    observers: BTreeSet<String>,
    /// Keeps the indices' barrier closed until the first streams are there.
    spawning: Option<IndexGateGuard>,
    /// Whether it is known which namespaces are served.
    is_located: bool,
}

impl Orchestrator {
    /// Knows nothing of the cluster yet.
    pub fn new(
        shared: Arc<OperatorContext>,
        admission: Arc<AdmissionRouter>,
        namespace_scope: NamespaceScope,
        mail: Mail,
    ) -> Self {
        let is_located = matches!(namespace_scope, NamespaceScope::Cluster);
        let spawning =
            shared.index_gate.as_ref().and_then(|index_gate| IndexGate::block(index_gate, SPAWNING));
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
            mail: Some(mail),
            closing: CancellationToken::new(),
            news: Arc::default(),
            told: vec![],
            looking: HashMap::new(),
            scans: HashMap::new(),
            observers: BTreeSet::new(),
            spawning,
            is_located,
        }
    }

    /// Serves until something makes it impossible.
    pub async fn run(&mut self) -> Result<(), Failure> {
        self.scanned = scan(&self.shared.api, &self.scope()).await?;
        self.observe();
        self.reconcile_streams().await?;
        loop {
            tokio::select! {
                news = async { self.news.take().await } => {
                    self.learn(news).await?;
                    self.reconcile_streams().await?;
                }
                // Cancelled streams are those that we stopped ourselves.
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

    /// Stops all streams: no events come any longer.
    pub async fn stop(&mut self) {
        self.shared.health.expect(BTreeSet::new());
        self.tasks.abort_all();
        while let Some(ended) = self.tasks.join_next().await {
            self.report(ended);
        }
    }

    /// Logs the failure of a task that has ended while the operator ends anyway.
    fn report(&self, ended: Result<Result<(), Failure>, JoinError>) {
        if let Err(failure) = joined(ended) {
            self.say(Level::Error, failure.message);
        }
    }

    /// Posts what is left to be posted, and takes us from among the peers.
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
            leaving.spawn(supervised(format!("The farewell to {}", peering.name()), async move {
                peering.leave().await;
                Ok(())
            }));
        }
        while let Some(ended) = leaving.join_next().await {
            self.report(ended);
        }
    }

    fn handlers(&self) -> &[Handler] {
        &self.shared.rules.registry.handlers
    }

    fn own(&self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        let fits = |one: &&Arc<Resource>| one.group == group && one.plural == plural && one.preferred;
        self.scanned.iter().find(fits).cloned()
    }

    /// Brings the streams in line with the resources and namespaces: what is redundant stops before what is new starts.
    async fn reconcile_streams(&mut self) -> Result<(), Failure> {
        let verdicts = self.ask_selectors().await?;
        let wanted =
            |handler: usize, resource: &Resource| verdicts.contains(&(handler, resource.to_string()));
        let chosen = selection::select(self.handlers(), &self.scanned, &wanted);
        self.log_issues(&chosen);
        self.admission.serve(AdmissionResources::select(self.handlers(), &self.scanned, &wanted));
        self.start_posting();
        self.adjust_peerings();
        let keys: Vec<_> = chosen.served.iter().flat_map(|resource| self.places(resource)).collect();
        let stale: Vec<_> = self.streams.keys().filter(|known| !keys.contains(known)).cloned().collect();
        let mut leaving = vec![];
        for key in stale {
            if let Some((task, dispatcher)) = self.streams.remove(&key) {
                task.abort();
                leaving.push((key, dispatcher));
            }
        }
        for (resource, namespace) in keys {
            if self.streams.contains_key(&(resource.clone(), namespace.clone())) {
                continue;
            }
            let shared = Arc::new(resource.clone());
            let callables = |handler: usize| wanted(handler, &resource);
            let plan = Arc::new(self.shared.rules.registry.plan(&shared, &callables));
            let dispatcher = Dispatcher::new(Arc::clone(&self.shared), &Pool, plan, namespace.as_deref());
            // Another version of the same objects.
            let is_same = |((other, place), _): &((Resource, _), _)| {
                (&other.group, &other.plural) == (&resource.group, &resource.plural) && *place == namespace
            };
            if let Some(position) = leaving.iter().position(is_same) {
                leaving.swap_remove(position).1.hand_over(&dispatcher);
            }
            let mut stream = self.stream(&shared, namespace.as_deref());
            stream.pause = Some(Arc::clone(&self.shared.pause));
            stream.projection = Projection::of(&dispatcher.plan, &self.shared.rules.registry);
            stream.derived.clone_from(&dispatcher.derived);
            let task = self.tasks.spawn(serve(stream, Arc::clone(&dispatcher)));
            self.streams.insert((resource, namespace), (task, dispatcher));
        }
        for (_, dispatcher) in leaving {
            dispatcher.end_departures();
            dispatcher.shutdown();
        }
        let places = self.streams.keys().chain(self.peerings.keys());
        let names = places.map(|(resource, namespace)| watch::name_of(resource, namespace.as_deref()));
        self.shared.health.expect(names.chain(self.observers.iter().cloned()).collect());
        if self.is_located {
            self.spawning = None;
        }
        Ok(())
    }

    /// Takes part in the peerings that are there now, and in no others. It comes before the streams, so that they are
    /// paused from the beginning if they are to be.
    fn adjust_peerings(&mut self) {
        let settings = &self.shared.rules.settings.peering;
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
        let places: Vec<StreamKey> = resources.iter().flat_map(|resource| self.places(resource)).collect();
        self.peerings.retain(|place, (peering, tasks)| {
            let stays = places.contains(place);
            if !stays {
                tasks.iter().for_each(AbortHandle::abort);
                peering.forget();
            }
            stays
        });
        for place in places {
            if self.peerings.contains_key(&place) {
                continue;
            }
            let resource = Arc::new(place.0.clone());
            let stream = self.stream(&resource, place.1.as_deref());
            let peering = Peering::new(Arc::clone(&self.shared), resource, place.1.clone());
            let life = peering.spawn_keepalive(&mut self.background_tasks);
            let [watchman, stream] = peering.spawn_watch(&mut self.tasks, stream);
            self.peerings.insert(place, (peering, [life, watchman, stream]));
        }
        let is_missing = mandatory && resources.is_empty();
        if is_missing && !self.shared.pause.has(MISSING) {
            self.say(Level::Warning, peering::missing_text(clusterwide));
        }
        self.shared.pause.turn(MISSING, is_missing);
    }

    /// Posts Kubernetes events as soon as it is known where.
    fn start_posting(&mut self) {
        let Some(resource) = self.own("", "events") else { return };
        let Some(mail) = self.mail.take() else { return };
        let poster = EventRecorder::new(Arc::clone(&self.shared), resource);
        let closing = self.closing.clone();
        self.background_tasks.spawn(supervised("The posting of Kubernetes events".to_owned(), async move {
            poster.run(mail, closing).await;
            Ok(())
        }));
    }

    /// Where a resource is served.
    fn places(&self, resource: &Resource) -> Vec<StreamKey> {
        match &self.namespace_scope {
            NamespaceScope::Namespaces { .. } if resource.namespaced => {
                self.namespaces.iter().map(|name| (resource.clone(), Some(name.clone()))).collect()
            }
            _ => vec![(resource.clone(), None)],
        }
    }

    /// The verdicts of selectors that are functions: pairs of handlers and wanted resources.
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
        let (reply, answer) = oneshot::channel();
        let resources = self.scanned.clone();
        self.shared.host.submit(HostTask::Select(MatchResourcesTask {
            handlers: handlers.clone(),
            resources,
            reply,
        }));
        let failed = |message: String| Failure { kind: FailureKind::Other, message };
        let verdicts =
            answer.await.map_err(|_| failed("The operator is exiting.".to_owned()))?.map_err(failed)?;
        let mut wanted = BTreeSet::new();
        for (handler, verdicts) in handlers.into_iter().zip(verdicts) {
            let yes = self.scanned.iter().zip(verdicts).filter(|(_, verdict)| *verdict);
            wanted.extend(yes.map(|(resource, _)| (handler, resource.to_string())));
        }
        Ok(wanted)
    }

    fn stream(&self, resource: &Arc<Resource>, namespace: Option<&str>) -> Stream {
        let watching = &self.shared.rules.settings.watching;
        let chosen = |mapping: &[(kopf_core::resource::Selector, String)]| -> BTreeSet<String> {
            mapping
                .iter()
                .filter(|(selector, _)| selector.check(resource))
                .map(|(_, value)| value.clone())
                .collect()
        };
        let joined = |values: BTreeSet<String>| values.into_iter().collect::<Vec<_>>().join(",");
        let shard = watching.shard_selectors.iter().find(|(selector, _)| selector.check(resource));
        let selectors = [
            ("labelSelector", joined(chosen(&watching.label_selectors))),
            ("fieldSelector", joined(chosen(&watching.field_selectors))),
            ("shardSelector", shard.map(|(_, value)| value.clone()).unwrap_or_default()),
        ];
        let stream = Stream {
            api: self.shared.api.clone(),
            resource: Arc::clone(resource),
            namespace: namespace.map(str::to_owned),
            projection: Projection::Whole,
            derived: None,
            selectors: selectors.into_iter().filter(|(_, value)| !value.is_empty()).collect(),
            settings: Arc::clone(&self.shared.rules.settings),
            host: Arc::clone(&self.shared.host),
            health: Arc::clone(&self.shared.health),
            pause: None,
        };
        // From now on, it is known that there is one, though it may have to wait.
        stream.announce();
        stream
    }

    /// Tells what is wrong with the selection, once for each change of it.
    fn log_issues(&mut self, chosen: &Selection) {
        if self.told != chosen.complaints {
            for complaint in &chosen.complaints {
                self.say(Level::Warning, complaint.clone());
            }
            if chosen.unresolved && !self.shared.rules.settings.compat {
                for hint in selection::suggestions(self.handlers(), &self.scanned) {
                    self.say(Level::Warning, hint);
                }
            }
            self.told.clone_from(&chosen.complaints);
        }
    }

    fn say(&self, level: Level, text: String) {
        self.shared.host.log(LogRecord::general(level, LOGGER, text));
    }
}

/// Serves a stream for ever. If its task panics, it begins again after a pause, with a new listing.
async fn serve(stream: Stream, dispatcher: Arc<Dispatcher>) -> Result<(), Failure> {
    let name = stream.task_name();
    let mut panics = 0;
    loop {
        let begun = Instant::now();
        let panicked = match guarded(&name, feed::follow(&stream, Arc::clone(&dispatcher))).await {
            Ok(Ok(never)) => match never {},
            Ok(Err(error)) => return Err(error.into()),
            Err(panicked) => panicked,
        };
        // The objects whose first states were being indexed would wait for ever.
        if dispatcher.is_filling.load(Ordering::Acquire) {
            return Err(panicked.into());
        }
        panics = if begun.elapsed() > seconds(LONG_LIVED) { 0 } else { panics + 1 };
        stream.recover(&panicked, panics).await;
    }
}
