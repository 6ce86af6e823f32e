//! The HTTP(S) server of admission webhooks.
//!
//! Enforces the routes and the limits of size, time, and connections. The [`Backend`] processes the requests;
//! certificates are those of `tls`. Requests are served concurrently.

use crate::host::admission::Rejection;
use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kopf_core::json::value::Value;
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::tls::Tls;
use crate::http_server::connection_limit::{ConnectionLimit, ConnectionPermit};
use crate::http_server::write_timeout::WriteTimeout;
use crate::supervision::{guarded, run_restarting};
use body::BodyBudget;
use listener::Acceptor;

/// The API server accepts requests of up to 3 MiB, and a review contains up to two objects and some metadata.
const BODY_LIMIT: usize = 8 * 1024 * 1024;
/// The read buffer of a connection, which also limits the head of a request.
const READ_BUFFER: usize = 32 * 1024;
/// The timeout for receiving the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an idle connection is kept open. It is longer than the API server's own limit (90 s): the side that closes
/// first may break a request that the other side is just sending.
const IDLE_TIMEOUT: Duration = Duration::from_mins(2);
/// How long a stopped server waits for the responses to its current requests.
const JOIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout for sending a response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of connections. An API server sends some hundreds of reviews at once, each over a separate
/// connection. Many systems limit a process to 1,024 descriptors, some of which the operator needs for other purposes.
const CONNECTIONS: usize = 800;
/// The same for connections that Python has accepted and decrypts: each of them takes three descriptors.
const ADOPTED_CONNECTIONS: usize = 200;

mod body;
mod listener;

/// The processor of the requests.
pub trait Backend: Send + Sync + 'static {
    /// Takes a request. The response is sent through its channel, now or later.
    fn call(&self, call: Call);

    /// Logs an error of the server.
    fn log_error(&self, text: String);
}

/// One HTTP request.
#[derive(Debug)]
pub struct Call {
    /// The rest of the path: the id of the handler.
    pub webhook: String,
    /// The headers, each name once.
    pub headers: Vec<(String, String)>,
    /// The client's certificate, if it was requested and sent.
    pub peer: Option<Arc<Value>>,
    /// The body.
    pub body: Bytes,
    /// The channel for the response: a JSON text, or the rejection.
    pub reply: oneshot::Sender<Result<Vec<u8>, Rejection>>,
}

/// A running server. It stops when it is dropped; only [`Server::join`] waits for its tasks.
pub struct Server {
    service: Arc<Service>,
    port: u16,
    runtime: Handle,
}

struct Service {
    backend: Arc<dyn Backend>,
    prefix: String,
    stopping: CancellationToken,
    /// Cancels the tasks that do not end after a stop.
    giving_up: CancellationToken,
    /// The acceptor and the connections.
    tasks: TaskTracker,
    connection_limit: Arc<ConnectionLimit>,
    bodies: Arc<BodyBudget>,
}

impl Server {
    /// Listens and serves until it is stopped. Without an address, it listens on all interfaces; port 0 is any free
    /// port.
    ///
    /// # Errors
    /// The address or the port cannot be used.
    pub fn start(
        runtime: &Handle,
        backend: Arc<dyn Backend>,
        (address, port): (Option<&str>, u16),
        path: &str,
        tls: Option<Arc<Tls>>,
    ) -> io::Result<Self> {
        let listener = {
            let _context = runtime.enter();
            listener::listen(address.filter(|address| !address.is_empty()), port)?
        };
        let port = listener.local_addr()?.port();
        let service = Service::new(backend, path, CONNECTIONS);
        let server = Self { service, port, runtime: runtime.clone() };
        server.spawn(run_restarting(Acceptor { listener, service: Arc::clone(&server.service), tls }));
        Ok(server)
    }

    /// Serves only connections passed to [`Server::adopt`].
    pub fn without_listener(runtime: &Handle, backend: Arc<dyn Backend>, path: &str, port: u16) -> Self {
        let service = Service::new(backend, path, ADOPTED_CONNECTIONS);
        Self { service, port, runtime: runtime.clone() }
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Serves a connection that was accepted and decrypted elsewhere. Closes it if all other connections are waiting
    /// for responses.
    ///
    /// # Errors
    /// The socket is not usable.
    pub fn adopt(&self, socket: StdUnixStream, peer: Option<Arc<Value>>) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        let _context = self.runtime.enter();
        let stream = UnixStream::from_std(socket)?;
        if let Some(permit) = self.service.connection_limit.try_enter() {
            let serving = serve_http(stream, Arc::clone(&self.service), peer, permit);
            self.spawn(self.service.guard(serving));
        }
        Ok(())
    }

    fn spawn(&self, task: impl Future + Send + 'static) {
        self.service.tasks.spawn_on(self.service.cancellable(task), &self.runtime);
    }

    /// Accepts no more connections. Idle connections are closed at once, others after their current request.
    pub fn stop(&self) {
        self.service.stopping.cancel();
    }

    /// Stops the server and waits for the end of all its tasks. Requests without a response after 5 seconds are
    /// cancelled.
    pub async fn join(&self) {
        self.stop();
        self.service.tasks.close();
        if timeout(JOIN_TIMEOUT, self.service.tasks.wait()).await.is_err() {
            self.service.giving_up.cancel();
            self.service.tasks.wait().await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn serve_connection(
    stream: TcpStream,
    service: Arc<Service>,
    tls: Option<Arc<Tls>>,
    permit: ConnectionPermit,
) {
    // Only an optimisation, so errors are ignored.
    let _ignored = stream.set_nodelay(true);
    let Some(tls) = tls else { return serve_http(stream, service, None, permit).await };
    let accepted = tokio::select! {
        accepted = timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)) => accepted,
        () = permit.evicted() => return,
        () = service.stopping.cancelled() => return,
    };
    // Port scanners, load balancers, and clients without our CA fail here; logging them would only be noise.
    let Ok(Ok(stream)) = accepted else { return };
    let peer = Tls::peer(&stream).map(Arc::new);
    serve_http(stream, service, peer, permit).await;
}

async fn serve_http<S>(stream: S, service: Arc<Service>, peer: Option<Arc<Value>>, permit: ConnectionPermit)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stopping = service.stopping.clone();
    let permit = Arc::new(permit);
    let asking = Arc::clone(&permit);
    let respond = service_fn(move |request| {
        let (service, peer, permit) = (Arc::clone(&service), peer.clone(), Arc::clone(&asking));
        async move { Ok::<_, std::convert::Infallible>(service.respond(request, peer, &permit).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT).max_buf_size(READ_BUFFER);
    let connection =
        builder.serve_connection(TokioIo::new(WriteTimeout::new(stream, ANSWER_TIMEOUT)), respond);
    tokio::pin!(connection);
    // Errors of the connection are ignored: the client observes them itself.
    tokio::select! {
        _ended = connection.as_mut() => return,
        () = permit.evicted() => return,
        () = stopping.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ended = connection => {}
        () = permit.evicted() => {}
    }
}

impl Service {
    fn new(backend: Arc<dyn Backend>, path: &str, limit: usize) -> Arc<Self> {
        let prefix = path.trim_end_matches('/').to_owned();
        let (connection_limit, bodies) = (ConnectionLimit::new(limit), BodyBudget::new(body::SHARED_LIMIT));
        Arc::new(Self {
            backend,
            prefix,
            stopping: CancellationToken::new(),
            giving_up: CancellationToken::new(),
            tasks: TaskTracker::new(),
            connection_limit,
            bodies,
        })
    }

    /// A task of the server, which ends when the server gives up.
    fn cancellable<F: Future + Send + 'static>(&self, task: F) -> impl Future<Output = ()> + Send + use<F> {
        let giving_up = self.giving_up.clone();
        async move {
            let _cancelled = giving_up.run_until_cancelled_owned(task).await;
        }
    }

    /// The task of a connection: its panic closes the connection and is logged.
    fn guard<F: Future<Output = ()>>(&self, serving: F) -> impl Future<Output = ()> + use<F> {
        let backend = Arc::clone(&self.backend);
        guarded("A connection of the webhook server", serving).map(move |ended| {
            if let Err(panicked) = ended {
                backend.log_error(format!("{panicked}. The connection is closed."));
            }
        })
    }

    async fn respond(
        &self,
        request: Request<Incoming>,
        peer: Option<Arc<Value>>,
        permit: &ConnectionPermit,
    ) -> Response<Full<Bytes>> {
        match self.serve(request, peer, permit).await {
            Ok(text) => {
                let mut response = Response::new(Full::new(Bytes::from(text)));
                let json = header::HeaderValue::from_static("application/json; charset=utf-8");
                response.headers_mut().insert(header::CONTENT_TYPE, json);
                response
            }
            Err(rejection) => rejected(&rejection),
        }
    }

    async fn serve(
        &self,
        request: Request<Incoming>,
        peer: Option<Arc<Value>>,
        permit: &ConnectionPermit,
    ) -> Result<Vec<u8>, Rejection> {
        let webhook = self.route(request.uri().path())?;
        if request.method() != Method::POST {
            return Err(Rejection::of(StatusCode::METHOD_NOT_ALLOWED));
        }
        if request.body().size_hint().lower() > BODY_LIMIT as u64 {
            return Err(Rejection::of(StatusCode::PAYLOAD_TOO_LARGE));
        }
        let headers = named(request.headers());
        let body = timeout(BODY_TIMEOUT, body::read(request.into_body(), BODY_LIMIT, &self.bodies))
            .await
            .map_err(|_| Rejection::of(StatusCode::REQUEST_TIMEOUT))?
            .map_err(|error| match error {
                body::BodyError::TooLarge => Rejection::of(StatusCode::PAYLOAD_TOO_LARGE),
                body::BodyError::Broken(_) => Rejection::of(StatusCode::BAD_REQUEST),
            })?;
        let (reply, receiver) = oneshot::channel();
        let _served = permit.serve();
        self.backend.call(Call { webhook, headers, peer, body, reply });
        // The channel is closed without a response when the operator is exiting.
        receiver.await.unwrap_or_else(|_| Err(Rejection::of(StatusCode::SERVICE_UNAVAILABLE)))
    }

    /// The handler id in a path.
    fn route(&self, path: &str) -> Result<String, Rejection> {
        let tail = path.strip_prefix(&self.prefix).and_then(|tail| tail.strip_prefix('/'));
        let tail = tail.ok_or_else(|| Rejection::of(StatusCode::NOT_FOUND))?;
        Ok(percent_decode_str(tail).decode_utf8_lossy().into_owned())
    }
}

fn rejected(rejection: &Rejection) -> Response<Full<Bytes>> {
    let status = StatusCode::from_u16(rejection.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let text = format!("{}: {}", status.as_u16(), rejection.reason);
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("POST"));
    }
    if let Ok(reason) = ReasonPhrase::try_from(rejection.reason.as_bytes().to_vec()) {
        response.extensions_mut().insert(reason);
    }
    response
}

/// The headers with names in the usual capitalization; the first value of repeated ones.
fn named(headers: &HeaderMap) -> Vec<(String, String)> {
    let named = headers.keys().filter_map(|name| {
        let value = headers.get(name)?;
        Some((capitalized(name.as_str()), String::from_utf8_lossy(value.as_bytes()).into_owned()))
    });
    named.collect()
}

fn capitalized(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let (first, rest) = word.split_at_checked(1).unwrap_or((word, ""));
        first.to_ascii_uppercase() + rest
    });
    words.collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests;
