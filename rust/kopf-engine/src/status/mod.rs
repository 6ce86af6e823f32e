//! The status server: probes, health, streams and metrics of one operator.
//!
//! It listens before the engine runs, so that the startup is observable. Until [`StatusServer::connect`], nothing is known except
//! that the operator is starting.

mod heartbeats;
mod metrics;
mod monitor;
mod probing;
mod responses;
mod serving;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use tokio::net::{TcpListener, lookup_host};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::caches::Caches;
use crate::context::index_gate::IndexGate;
use crate::error::Failure;
use crate::host::{Host, LogRecord, Logger};
use crate::http_server::connection_limit::ConnectionLimit;
use crate::reconciling::Reconcilers;
use crate::supervision::{Failing, guarded};
use crate::watch_health::WatchHealth;
use kopf_core::log_level::Level;

pub use heartbeats::{Heartbeats, HostLoad, Threads};
pub use monitor::{HealthMonitor, Monitored};

use probing::{MAX_WAITING, Waiter};
use responses::Site;

pub(crate) const LOGGER: Logger = Logger::Probing;

/// The address and the path of the probes (`--liveness`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The host name or address to listen at.
    pub host: String,
    /// The port to listen at.
    pub port: u16,
    /// The path of the probes.
    pub path: String,
}

/// The addresses of the server.
#[derive(Debug, Clone, Default)]
pub struct StatusOptions {
    /// The endpoint of the probes.
    pub liveness: Option<Endpoint>,
    /// The host and the port of all other paths; none for those of the probes.
    pub address: Option<(String, u16)>,
    /// The version of Python, for the metrics.
    pub python: String,
}

/// The parts of the operator that must be ready before it is ready itself.
#[derive(Clone, Default)]
pub struct Awaited {
    /// The reconcilers, if there are any.
    pub reconcilers: Option<Arc<Reconcilers>>,
    /// The caches, if there are any.
    pub caches: Option<Arc<Caches>>,
    /// The gate that opens when the indices are filled, if there are any.
    pub index_gate: Option<Arc<IndexGate>>,
}

/// The running operator, as the server shows it.
pub struct Connected {
    /// Collects the results of the probes.
    pub host: Arc<dyn Host>,
    /// Receives the panic of the server.
    pub failing: Arc<Failing>,
    /// Whether there are probes.
    pub has_probes: bool,
    /// Everything but the probes; none to behave as Kopf 1.45.
    pub status: Option<OperatorStatus>,
}

/// The content of all paths except that of the probes.
pub struct OperatorStatus {
    /// The health of the streams.
    pub health: Arc<WatchHealth>,
    /// The parts that must be ready.
    pub awaited: Awaited,
    /// The results of the checks.
    pub monitor: Arc<HealthMonitor>,
}

/// The status server of one operator. It serves until it is stopped.
#[derive(Clone)]
pub struct StatusServer(Arc<Shared>);

/// A host and a port.
type Place = (String, u16);

/// A later address, and the result of listening at all addresses.
type Listening = (Option<Place>, Result<Vec<SocketAddr>, Failure>);

struct Shared {
    options: StatusOptions,
    connected: OnceLock<Connected>,
    /// The result of listening, and the later address that it includes.
    listening: watch::Sender<Option<Listening>>,
    /// The address of the status endpoints, if it was set later.
    later: watch::Sender<Option<Place>>,
    stopping: CancellationToken,
}

impl StatusServer {
    /// Starts to listen, and returns at once.
    pub fn start(runtime: &Handle, options: StatusOptions) -> Self {
        let server = Self(Arc::new(Shared {
            options,
            connected: OnceLock::new(),
            listening: watch::Sender::default(),
            later: watch::Sender::default(),
            stopping: CancellationToken::new(),
        }));
        let this = server.clone();
        // The address can be set before the task begins.
        let later = server.0.later.subscribe();
        runtime.spawn(async move {
            let stopping = this.0.stopping.clone();
            let serving = guarded("The server of probes", this.serve(later));
            if let Some(Err(panicked)) = stopping.run_until_cancelled(serving).await
                && let Some(connected) = this.0.connected.get()
            {
                connected.failing.raise(panicked.into());
            }
        });
        server
    }

    /// Connects the running operator. Further calls have no effect.
    pub fn connect(&self, connected: Connected) {
        let Endpoint { host, port, path } = match &self.0.options {
            StatusOptions { liveness: Some(endpoint), .. } => endpoint.clone(),
            StatusOptions { address: Some((host, port)), .. } => {
                Endpoint { host: host.clone(), port: *port, path: "/livez".to_owned() }
            }
            StatusOptions { .. } => return,
        };
        if connected.host.enabled(Level::Debug) {
            let text = format!("Serving health status at http://{host}:{port}{path}");
            connected.host.log(LogRecord::general(Level::Debug, LOGGER, text));
        }
        if connected.status.is_some() && self.0.options.liveness.is_some() && responses::is_status(&path) {
            let text = format!(
                "The path {path} of the liveness endpoint replaces the status endpoint of the same path."
            );
            connected.host.log(LogRecord::general(Level::Warning, LOGGER, text));
        }
        let _first = self.0.connected.set(connected);
    }

    /// Serves the status endpoints at this address, and no longer at that of the probes. It has no effect if there was an address
    /// for them from the start.
    pub fn serve_status_at(&self, host: String, port: u16) {
        let StatusOptions { liveness, address, .. } = &self.0.options;
        let is_own = liveness.as_ref().is_some_and(|own| own.host == host && own.port == port);
        if address.is_none() && !is_own {
            self.0.later.send_replace(Some((host, port)));
        }
    }

    /// Waits until the server listens; returns the addresses.
    ///
    /// # Errors
    /// The host does not exist, or the port is in use.
    pub async fn listening(&self) -> Result<Vec<SocketAddr>, Failure> {
        let mut listening = self.0.listening.subscribe();
        let later = self.0.later.borrow().clone();
        let is_current = |result: &Option<Listening>| result.as_ref().is_some_and(|it| it.0 == later);
        let result = match listening.wait_for(is_current).await {
            Ok(result) => result.clone().map(|(_, result)| result),
            Err(_) => None,
        };
        result.unwrap_or_else(|| Err(Failure::other("The status server has ended.")))
    }

    /// Closes all connections. Further calls have no effect.
    pub fn stop(&self) {
        self.0.stopping.cancel();
    }

    async fn serve(&self, mut later: watch::Receiver<Option<Place>>) {
        let (askers, receiver) = channel(MAX_WAITING);
        let mut tasks = JoinSet::new();
        tasks.spawn(probing::collect(Arc::clone(&self.0), receiver));
        let connection_limit = ConnectionLimit::new(serving::CONNECTIONS);
        let (mut place, mut addresses, mut found) = (None::<Place>, vec![], self.listen().await);
        loop {
            let result = found.map(|listeners| {
                addresses.extend(listeners.iter().filter_map(|(listener, _)| listener.local_addr().ok()));
                for (listener, site) in listeners {
                    let served = Served { shared: Arc::clone(&self.0), site, askers: askers.clone() };
                    tasks.spawn(serving::accept(listener, served, Arc::clone(&connection_limit)));
                }
                addresses.clone()
            });
            self.0.listening.send_replace(Some((place.clone(), result)));
            tokio::select! {
                // The tasks do not end by themselves; all are aborted when this is dropped. A panic is passed on.
                Some(Err(panicked)) = tasks.join_next() => {
                    if let Ok(panic) = panicked.try_into_panic() {
                        std::panic::resume_unwind(panic);
                    }
                    return;
                }
                Ok(()) = later.changed() => {}
                else => return,
            }
            place.clone_from(&later.borrow_and_update());
            let Some(place) = &place else { return };
            let site = Site { liveness: None, has_status: true };
            let with_site = |listener| (listener, site.clone());
            found = listen_at(place).await.map(|listeners| listeners.into_iter().map(with_site).collect());
        }
    }

    async fn listen(&self) -> Result<Vec<(TcpListener, Site)>, Failure> {
        let StatusOptions { liveness, address, .. } = &self.0.options;
        let own = liveness.as_ref().map(|endpoint| (endpoint.host.clone(), endpoint.port));
        let path: Option<Arc<str>> = liveness.as_ref().map(|endpoint| Arc::from(endpoint.path.as_str()));
        let is_shared = address.is_none() || *address == own;
        let mut listeners = vec![];
        if let Some(place) = own {
            let site = Site { liveness: path, has_status: is_shared };
            listeners.extend(listen_at(&place).await?.into_iter().map(|listener| (listener, site.clone())));
        }
        if let Some(place) = address.as_ref().filter(|_| !is_shared || liveness.is_none()) {
            let site = Site { liveness: None, has_status: true };
            listeners.extend(listen_at(place).await?.into_iter().map(|listener| (listener, site.clone())));
        }
        Ok(listeners)
    }
}

/// The content for the clients of one address.
#[derive(Clone)]
struct Served {
    shared: Arc<Shared>,
    site: Site,
    askers: Sender<Waiter>,
}

impl Served {
    /// Whether the status endpoints are served here.
    fn has_status(&self) -> bool {
        self.site.has_status && (self.site.liveness.is_none() || self.shared.later.borrow().is_none())
    }
}

/// Listens at all addresses of the host.
async fn listen_at((host, port): &(String, u16)) -> Result<Vec<TcpListener>, Failure> {
    let place = format!("{host}:{port}");
    let failed =
        |error: std::io::Error| Failure::other(format!("Cannot serve the health status at {place}: {error}"));
    let mut listeners = vec![];
    let mut failure = None;
    let addresses = lookup_host((host.as_str(), *port)).await.map_err(failed)?;
    for address in addresses {
        match TcpListener::bind(address).await {
            Ok(listener) => listeners.push(listener),
            Err(error) => failure = Some(error),
        }
    }
    // Some hosts resolve to IPv6 addresses without supporting IPv6; one working address is enough.
    if let (true, Some(error)) = (listeners.is_empty(), failure) {
        return Err(failed(error));
    }
    Ok(listeners)
}

#[cfg(test)]
mod tests;
