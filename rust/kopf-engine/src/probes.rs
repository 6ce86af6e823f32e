//! The HTTP server of the health probes, whose results the host collects.
//!
//! Requests share one collection at a time, and its results are kept for a while. A failed probe results in the status
//! 500, which is not kept.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kopf_core::log_level::Level;
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::caches::Caches;
use crate::context::index_gate::IndexGate;
use crate::error::Failure;
use crate::host::{Host, HostTask, LogRecord, ProbeTask};
use crate::http_server::connection_limit::{ConnectionLimit, ConnectionPermit};
use crate::http_server::write_timeout::WriteTimeout;
use crate::reconciling::Reconcilers;
use crate::supervision::guarded;
use crate::watch_health::WatchHealth;

const LOGGER: &str = "kopf._core.engines.probing";
/// How long the results are kept.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// The timeout for receiving a request, and for idle connections.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout for sending a response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of connections, so that descriptors are left for the API server and for the next probe. When it
/// is reached, the connection that has been idle for longest is closed.
const CONNECTIONS: usize = 100;
/// The maximum number of requests that wait for the same results; further ones wait until there is space in the queue.
const MAX_WAITING: usize = 64;
/// The pause after a failed accept, such as for lack of descriptors.
const ACCEPT_DELAY: Duration = Duration::from_millis(100);

/// The address of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The host name or address to listen at.
    pub host: String,
    /// The port to listen at.
    pub port: u16,
    /// The path of the probes.
    pub path: String,
}

/// The server with its listening sockets.
pub struct Probes {
    endpoint: Endpoint,
    listeners: Vec<TcpListener>,
    invoker: Arc<dyn Host>,
    health: Option<Arc<WatchHealth>>,
    awaited: Awaited,
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

/// The content for clients.
#[derive(Clone)]
struct Served {
    /// The path of the probes.
    path: Arc<str>,
    /// The health of the streams, if it is served.
    health: Option<Arc<WatchHealth>>,
    awaited: Awaited,
}

/// A request that waits for the results; none if a probe has failed.
type Waiter = oneshot::Sender<Option<Bytes>>;

impl Probes {
    /// Listens at all addresses of the host.
    ///
    /// # Errors
    /// The host does not exist, or the port is in use.
    pub async fn listen(
        endpoint: Endpoint,
        invoker: Arc<dyn Host>,
        health: Option<Arc<WatchHealth>>,
    ) -> Result<Self, Failure> {
        let place = format!("{}:{}", endpoint.host, endpoint.port);
        let failed = |error: std::io::Error| {
            Failure::other(format!("Cannot serve the health status at {place}: {error}"))
        };
        let mut listeners = vec![];
        let mut failure = None;
        let addresses = lookup_host((endpoint.host.as_str(), endpoint.port)).await.map_err(failed)?;
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
        Ok(Self { endpoint, listeners, invoker, health, awaited: Awaited::default() })
    }

    /// The same with what the operator waits for at its start.
    #[must_use]
    pub fn awaiting(self, awaited: Awaited) -> Self {
        Self { awaited, ..self }
    }

    /// The addresses that it listens at.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Serves until it is cancelled.
    pub async fn serve(self) {
        let Endpoint { host, port, path } = &self.endpoint;
        if self.invoker.enabled(Level::Debug) {
            let text = format!("Serving health status at http://{host}:{port}{path}");
            self.invoker.log(LogRecord::general(Level::Debug, LOGGER, text));
        }
        let (sender, receiver) = channel(MAX_WAITING);
        let mut tasks = JoinSet::new();
        tasks.spawn(collect(Arc::clone(&self.invoker), receiver));
        let served = Served { path: Arc::from(path.as_str()), health: self.health, awaited: self.awaited };
        let connection_limit = ConnectionLimit::new(CONNECTIONS);
        for listener in self.listeners {
            let host = Arc::clone(&self.invoker);
            tasks.spawn(accept(
                listener,
                served.clone(),
                sender.clone(),
                Arc::clone(&connection_limit),
                host,
            ));
        }
        // The tasks do not end by themselves; all are aborted when this is dropped. A panic is passed on.
        tasks.join_all().await;
    }
}

async fn accept(
    listener: TcpListener,
    served: Served,
    askers: Sender<Waiter>,
    connection_limit: Arc<ConnectionLimit>,
    host: Arc<dyn Host>,
) {
    let mut connections = JoinSet::new();
    let accept_next = async || {
        if let Ok((stream, _)) = listener.accept().await {
            return Some((stream, connection_limit.enter().await));
        }
        sleep(ACCEPT_DELAY).await;
        None
    };
    loop {
        // Created outside of `select!`, so that a connection that waits for its permit is not dropped when another one
        // ends.
        let mut accepting = std::pin::pin!(accept_next());
        let accepted = loop {
            tokio::select! {
                accepted = accepting.as_mut() => break accepted,
                Some(Ok(Err(panicked))) = connections.join_next(), if !connections.is_empty() => {
                    host.log(LogRecord::general(Level::Error, LOGGER, format!("{panicked}.")));
                }
            }
        };
        if let Some((stream, permit)) = accepted {
            let serving = serve_http(stream, served.clone(), askers.clone(), permit);
            connections.spawn(guarded("A connection of the server of probes", serving));
        }
    }
}

async fn serve_http(stream: TcpStream, shown: Served, askers: Sender<Waiter>, permit: ConnectionPermit) {
    let permit = Arc::new(permit);
    let asking = Arc::clone(&permit);
    let service = service_fn(move |request: Request<Incoming>| {
        let (shown, askers, permit) = (shown.clone(), askers.clone(), Arc::clone(&asking));
        async move {
            let _served = permit.serve();
            Ok::<_, Infallible>(response_to(&request, &shown, &askers).await)
        }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(READ_TIMEOUT);
    let stream = WriteTimeout::new(stream, ANSWER_TIMEOUT);
    // A broken connection needs no reaction: the client observes it itself.
    tokio::select! {
        _ended = server.serve_connection(TokioIo::new(stream), service) => {}
        () = permit.evicted() => {}
    }
}

async fn response_to<B>(
    request: &Request<B>,
    served: &Served,
    askers: &Sender<Waiter>,
) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let others = served.health.as_ref().filter(|_| path != &*served.path);
    let monitored = others.and_then(|it| monitored(it, &served.awaited, path));
    if path != &*served.path && monitored.is_none() {
        return text(StatusCode::NOT_FOUND, "404: Not Found");
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed");
        response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("GET,HEAD"));
        return response;
    }
    if let Some((status, kind, body)) = monitored {
        return respond(status, kind, body);
    }
    // A watch without a task is a bug: its objects would never be handled.
    let missing = served.health.as_ref().map(|health| health.missing()).unwrap_or_default();
    if !missing.is_empty() {
        let problem = format!("500 Internal Server Error\n\nNot watched: {}", missing.join(", "));
        return respond(StatusCode::INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", problem.into());
    }
    let (asker, results) = oneshot::channel();
    let _ = askers.send(asker).await;
    if let Ok(Some(results)) = results.await {
        return respond(StatusCode::OK, "application/json; charset=utf-8", results);
    }
    let problem = "500 Internal Server Error\n\nServer got itself in trouble";
    text(StatusCode::INTERNAL_SERVER_ERROR, problem)
}

/// The responses for other paths than that of the probes.
fn monitored(
    health: &WatchHealth,
    awaited: &Awaited,
    path: &str,
) -> Option<(StatusCode, &'static str, Bytes)> {
    const JSON: &str = "application/json; charset=utf-8";
    let reconcilers = awaited.reconcilers.as_ref();
    match path {
        "/streams" => {
            let mut shown = health.to_json();
            if let (Some(reconcilers), Some(shown)) = (reconcilers, shown.as_object_mut()) {
                shown.insert("waiting".to_owned(), reconcilers.missing().into());
            }
            Some((StatusCode::OK, JSON, shown.to_string().into()))
        }
        "/metrics" => {
            let of_reconcilers = reconcilers.map(|reconcilers| reconcilers.to_metrics()).unwrap_or_default();
            let of_caches = awaited.caches.as_ref().map(|caches| caches.to_metrics()).unwrap_or_default();
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            Some((StatusCode::OK, kind, (health.to_metrics() + &of_reconcilers + &of_caches).into()))
        }
        "/readyz" | "/ready" => {
            let missing = awaited.missing(health);
            let status = if missing.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            let body = serde_json::json!({"ready": missing.is_empty(), "missing": missing});
            Some((status, JSON, body.to_string().into()))
        }
        _ => None,
    }
}

impl Awaited {
    /// The missing streams and indices, and the reports of caches and reconcilers that are not ready.
    fn missing(&self, health: &WatchHealth) -> Vec<String> {
        let streams = health.missing().into_iter().map(|stream| format!("watch {stream}"));
        let is_indexing = self.index_gate.as_ref().is_some_and(|gate| !gate.is_open());
        let indices = is_indexing.then(|| "indices".to_owned());
        let caches = self.caches.iter().flat_map(|caches| caches.missing());
        let reconcilers = self.reconcilers.iter().flat_map(|reconcilers| reconcilers.missing());
        streams.chain(indices).chain(caches).chain(reconcilers).collect()
    }
}

fn text(status: StatusCode, body: &'static str) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", Bytes::from_static(body.as_bytes()))
}

fn respond(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

/// Collects the results for waiting requests, one collection at a time. Abandoned requests cause no collection.
async fn collect(invoker: Arc<dyn Host>, mut askers: Receiver<Waiter>) {
    let mut kept: Option<(Instant, Bytes)> = None;
    while let Some(asker) = askers.recv().await {
        if asker.is_closed() {
            continue;
        }
        if kept.as_ref().is_none_or(|(since, _)| since.elapsed() >= KEPT_FOR) {
            let (reply, results) = oneshot::channel();
            invoker.submit(HostTask::Probe(ProbeTask { reply }));
            kept = results.await.ok().flatten().map(|results| (Instant::now(), Bytes::from(results)));
        }
        let _gone = asker.send(kept.as_ref().map(|(_, results)| results.clone()));
    }
}

#[cfg(test)]
mod tests;
