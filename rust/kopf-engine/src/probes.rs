//! The health of the operator, served by HTTP to whoever asks: the results of the probes, collected by the other side.
//!
//! One collection at a time, whoever asks; it is kept for a while. A probe that fails is an answer 500, and is not kept.
//! Rules: contract/api 10.2.

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

use crate::error::{Failure, FailureKind};
use crate::host::{Host, HostTask, LogRecord, ProbeTask};
use crate::http_server::connection_limit::{ConnectionLimit, ConnectionPermit};
use crate::http_server::write_timeout::WriteTimeout;
use crate::metrics::Health;

const LOGGER: &str = "kopf._core.engines.probing";
/// For how long the results are kept.
const KEPT: Duration = Duration::from_secs(10);
/// How long a client may take to tell what it wants.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client may take to read an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How many connections there may be: descriptors are left for the API server, and for the next probe. When there are more,
/// the connection is closed that is silent for the longest time.
const CONNECTIONS: usize = 100;
/// How many requests wait for the same results; further ones wait for their place.
const MOST_ASKERS: usize = 64;
/// The pause after a connection could not be accepted, such as for the lack of descriptors.
const BREATH: Duration = Duration::from_millis(100);

/// Where the health is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The name or address to listen at.
    pub host: String,
    /// The port to listen at.
    pub port: u16,
    /// The path of the probes.
    pub path: String,
}

/// The server, ready to serve.
pub struct Probes {
    endpoint: Endpoint,
    listeners: Vec<TcpListener>,
    invoker: Arc<dyn Host>,
    beside: Option<Arc<Health>>,
}

/// What is served to a client.
#[derive(Clone)]
struct Served {
    /// Where the results of the probes are.
    path: Arc<str>,
    /// What there is beside them, if there is.
    beside: Option<Arc<Health>>,
}

/// An HTTP request that waits for the results; none if a probe has failed.
type Waiter = oneshot::Sender<Option<Bytes>>;

impl Probes {
    /// Begins to listen, at all the addresses of the host.
    ///
    /// # Errors
    /// There is no such host, or the port is taken.
    pub async fn listen(
        endpoint: Endpoint,
        invoker: Arc<dyn Host>,
        beside: Option<Arc<Health>>,
    ) -> Result<Self, Failure> {
        let place = format!("{}:{}", endpoint.host, endpoint.port);
        let failed = |error: std::io::Error| Failure {
            kind: FailureKind::Other,
            message: format!("Cannot serve the health status at {place}: {error}"),
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
        // Some hosts have a name for IPv6 without having IPv6; being there at one of the addresses is enough.
        if let (true, Some(error)) = (listeners.is_empty(), failure) {
            return Err(failed(error));
        }
        Ok(Self { endpoint, listeners, invoker, beside })
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
        let (sender, receiver) = channel(MOST_ASKERS);
        let mut tasks = JoinSet::new();
        tasks.spawn(collect(Arc::clone(&self.invoker), receiver));
        let served = Served { path: Arc::from(path.as_str()), beside: self.beside };
        let connection_limit = ConnectionLimit::new(CONNECTIONS);
        for listener in self.listeners {
            tasks.spawn(accept(listener, served.clone(), sender.clone(), Arc::clone(&connection_limit)));
        }
        // Nothing of it ends by itself; when this is dropped, all of it is.
        tasks.join_all().await;
    }
}

async fn accept(
    listener: TcpListener,
    served: Served,
    askers: Sender<Waiter>,
    connection_limit: Arc<ConnectionLimit>,
) {
    let mut connections = JoinSet::new();
    let accept_next = async || {
        if let Ok((stream, _)) = listener.accept().await {
            return Some((stream, connection_limit.enter().await));
        }
        sleep(BREATH).await;
        None
    };
    loop {
        // Not within the loop of `select!`: a connection that waits for its turn is not dropped when another one ends.
        let mut accepting = std::pin::pin!(accept_next());
        let accepted = loop {
            tokio::select! {
                accepted = accepting.as_mut() => break accepted,
                Some(_) = connections.join_next() => {}
            }
        };
        if let Some((stream, permit)) = accepted {
            connections.spawn(serve_http(stream, served.clone(), askers.clone(), permit));
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
            Ok::<_, Infallible>(answer(&request, &shown, &askers).await)
        }
    });
    let mut speaker = http1::Builder::new();
    speaker.timer(TokioTimer::new()).header_read_timeout(READ_TIMEOUT);
    let stream = WriteTimeout::new(stream, ANSWER_TIMEOUT);
    // A broken connection is the client's affair.
    tokio::select! {
        _ended = speaker.serve_connection(TokioIo::new(stream), service) => {}
        () = permit.sent_away() => {}
    }
}

async fn answer<B>(request: &Request<B>, served: &Served, askers: &Sender<Waiter>) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let beside = served.beside.as_ref().filter(|_| path != &*served.path).and_then(|it| side(it, path));
    if path != &*served.path && beside.is_none() {
        return text(StatusCode::NOT_FOUND, "404: Not Found");
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed");
        response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("GET,HEAD"));
        return response;
    }
    if let Some((kind, body)) = beside {
        return respond(StatusCode::OK, kind, body);
    }
    // A stream without a task is a bug: its objects would wait for ever.
    let missing = served.beside.as_ref().map(|health| health.missing()).unwrap_or_default();
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

/// What is served beside the probes: how the streams are.
fn side(health: &Health, path: &str) -> Option<(&'static str, Bytes)> {
    match path {
        "/streams" => Some(("application/json; charset=utf-8", health.to_json().to_string().into())),
        "/metrics" => Some(("text/plain; version=0.0.4; charset=utf-8", health.to_metrics().into())),
        _ => None,
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

/// Answers those who ask, one after another. Whoever has gone away meanwhile makes no work.
async fn collect(invoker: Arc<dyn Host>, mut askers: Receiver<Waiter>) {
    let mut kept: Option<(Instant, Bytes)> = None;
    while let Some(asker) = askers.recv().await {
        if asker.is_closed() {
            continue;
        }
        if kept.as_ref().is_none_or(|(since, _)| since.elapsed() >= KEPT) {
            let (reply, results) = oneshot::channel();
            invoker.submit(HostTask::Probe(ProbeTask { reply }));
            kept = results.await.ok().flatten().map(|results| (Instant::now(), Bytes::from(results)));
        }
        let _gone = asker.send(kept.as_ref().map(|(_, results)| results.clone()));
    }
}

#[cfg(test)]
mod tests;
