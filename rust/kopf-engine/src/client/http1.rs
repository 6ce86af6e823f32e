//! The HTTP/1.1 client: hyper's connections to one server, with a pool of idle ones.
//!
//! The task that sends a request also drives its connection, so there is no task or channel per connection. A response
//! returns its connection to the pool when its body is read to the end; otherwise the connection is closed.
//!
//! A server may close an idle connection at any moment, also while a request is on its way. If a reused connection
//! breaks before a byte of the response, `kopf_core::request_retry` decides whether the request is sent again over another one.
//!
//! Only an error of the transport shows that a connection is broken: the kernel reports it if the other side acknowledges
//! neither data nor keep-alive probes (see [`connector`](super::connector)). A server that takes long has received the
//! request, and must not get it twice; so the time without a response is limited only by the timeout of the request.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use kopf_core::request_retry::FailedConnection;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tower::BoxError;

use crate::supervision::guarded;
use crate::time::traffic::NO_TASK;

/// Idle connections are closed after this time; API servers close them somewhat later.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// The maximum head of a response, and the read buffer of a connection, in bytes.
const MAX_HEAD: usize = 256 * 1024;

/// The bytes of a connection: TCP, TLS over TCP, or an in-memory stream of a test.
pub(crate) trait Transport: hyper::rt::Read + hyper::rt::Write + Send + Unpin {}

impl<T: hyper::rt::Read + hyper::rt::Write + Send + Unpin> Transport for T {}

/// Opens a connection to the server.
pub(crate) type Connector =
    Box<dyn Fn() -> BoxFuture<'static, Result<Box<dyn Transport>, BoxError>> + Send + Sync>;

/// The connections to one server, with one set of credentials.
pub(crate) struct Http1Client {
    connector: Arc<Connector>,
    pool: Arc<Pool>,
}

/// The options of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendOptions {
    /// Whether the request is idempotent: then it is repeated if a reused connection fails before the response, although
    /// the server may have received it.
    pub(crate) is_idempotent: bool,
    /// The timeout for opening a connection.
    pub(crate) connect_timeout: Duration,
}

impl Http1Client {
    /// A client without connections.
    pub(crate) fn new(connector: Connector) -> Self {
        Self { connector: Arc::new(connector), pool: Arc::default() }
    }

    /// A client of the same server with separate connections.
    pub(crate) fn separate(&self) -> Self {
        Self { connector: Arc::clone(&self.connector), pool: Arc::default() }
    }

    /// Sends a request, at most twice, and waits for the head of the response. The function is called immediately before each
    /// attempt.
    ///
    /// Cancel safe: the connection of an abandoned request is closed.
    ///
    /// # Errors
    /// An error of the function that builds the request; or the server cannot be reached, or closes the connection.
    pub(crate) async fn send<E: From<BoxError>>(
        &self,
        request: impl Fn() -> Result<Request<Full<Bytes>>, E>,
        options: SendOptions,
    ) -> Result<Response<ResponseBody>, E> {
        while let Some(connection) = self.pool.take() {
            let mut guard = CloseIdleOnFailure(Some(&self.pool));
            match self.exchange(connection, request()?).await {
                Ok(response) => {
                    guard.0 = None;
                    return Ok(response);
                }
                Err(failure) => {
                    let failed = FailedConnection { is_reused: true, is_unsent: failure.is_unsent };
                    if !failed.is_replaced(options.is_idempotent) {
                        return Err(failure.into_error().into());
                    }
                }
            }
        }
        let connected = self.connect(options.connect_timeout).await;
        let connection = connected.map_err(|error| E::from(Box::new(Unsent(error)) as BoxError))?;
        // Not earlier: the function checks whether the request may still be sent.
        self.exchange(connection, request()?).await.map_err(|failure| failure.into_error().into())
    }

    async fn connect(&self, limit: Duration) -> Result<Box<Connection>, BoxError> {
        let transport = timeout(limit, (self.connector)()).await.map_err(|_| ConnectTimeout(limit))??;
        let mut builder = http1::Builder::new();
        let (sender, driver) = builder.max_buf_size(MAX_HEAD).handshake(transport).await?;
        Ok(Box::new(Connection { sender, driver: Some(driver) }))
    }

    async fn exchange(
        &self,
        mut connection: Box<Connection>,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<ResponseBody>, ExchangeFailure> {
        let Connection { sender, driver } = &mut *connection;
        let mut response = pin!(sender.try_send_request(request));
        let response = poll_fn(|context| {
            if let Poll::Ready(response) = response.as_mut().poll(context) {
                return Poll::Ready(response);
            }
            // A request that was not sent is returned only when the driver of the closed connection is dropped.
            if driver.as_mut().is_some_and(|driver| Pin::new(driver).poll(context).is_ready()) {
                *driver = None;
            }
            response.as_mut().poll(context)
        })
        .await
        .map_err(|mut failure| ExchangeFailure {
            is_unsent: failure.take_message().is_some(),
            error: failure.into_error().into(),
        })?;
        let connection = connection.driver.is_some().then_some(connection);
        let pool = Arc::clone(&self.pool);
        Ok(response.map(|incoming| ResponseBody { incoming, connection, pool }))
    }
}

/// A request without a response.
struct ExchangeFailure {
    error: BoxError,
    /// The connection was closed before a byte of the request was sent: any request can be repeated.
    is_unsent: bool,
}

impl ExchangeFailure {
    fn into_error(self) -> BoxError {
        if self.is_unsent { Box::new(Unsent(self.error)) } else { self.error }
    }
}

/// An error before a byte of the request was sent.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct Unsent(pub(crate) BoxError);

/// Closes the idle connections if a reused connection fails or is abandoned without a response: they were idle for
/// longer.
struct CloseIdleOnFailure<'p>(Option<&'p Pool>);

impl Drop for CloseIdleOnFailure<'_> {
    fn drop(&mut self) {
        if let Some(pool) = self.0 {
            pool.clear();
        }
    }
}

/// The timeout for opening a connection has expired.
#[derive(Debug, thiserror::Error)]
#[error("the connection was not established in {} seconds", .0.as_secs_f64())]
struct ConnectTimeout(Duration);

/// Kept in a box, as it would make the futures of all requests large.
struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    /// None after the end of the connection.
    driver: Option<http1::Connection<Box<dyn Transport>, Full<Bytes>>>,
}

impl Connection {
    /// Whether the connection is open and has received no unexpected bytes.
    fn is_idle(&mut self) -> bool {
        let mut context = Context::from_waker(NO_TASK);
        let driver = self.driver.as_mut();
        driver.is_some_and(|driver| Pin::new(driver).poll(&mut context).is_pending())
            && self.sender.is_ready()
    }
}

/// The body of a response, together with its connection.
pub(crate) struct ResponseBody {
    incoming: Incoming,
    connection: Option<Box<Connection>>,
    pool: Arc<Pool>,
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let mut polled = Pin::new(&mut this.incoming).poll_frame(context);
        if polled.is_pending()
            && let Some(connection) = &mut this.connection
        {
            if connection.driver.as_mut().is_none_or(|driver| Pin::new(driver).poll(context).is_ready()) {
                this.connection = None;
            }
            polled = Pin::new(&mut this.incoming).poll_frame(context);
        }
        if let Poll::Ready(None) = polled
            && let Some(mut connection) = this.connection.take()
            && connection.is_idle()
        {
            this.pool.put(connection);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        // The last poll returns the connection to the pool.
        false
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// The idle connections.
#[derive(Default)]
struct Pool(Mutex<PoolState>);

#[derive(Default)]
struct PoolState {
    /// Ordered by use, the most recently used connection last.
    idle: Vec<(Box<Connection>, Instant)>,
    /// The task that closes idle connections; at most one runs.
    closing: Option<AbortOnDropHandle<()>>,
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Box<Connection>> {
        loop {
            let (mut connection, since) = self.lock().idle.pop()?;
            if since.elapsed() < IDLE_TIMEOUT && connection.is_idle() {
                return Some(connection);
            }
        }
    }

    fn put(self: &Arc<Self>, connection: Box<Connection>) {
        let mut state = self.lock();
        state.idle.push((connection, Instant::now()));
        // The task of the last time has panicked if it is finished but still here.
        if state.closing.as_ref().is_none_or(AbortOnDropHandle::is_finished) {
            let closing = guarded("The closing of idle connections", close_idle(Arc::downgrade(self)));
            state.closing = Some(AbortOnDropHandle::new(tokio::spawn(closing.map(|ended| {
                if let Err(panicked) = ended {
                    tracing::error!(name: "panic", %panicked);
                }
            }))));
        }
    }

    fn clear(&self) {
        let idle = std::mem::take(&mut self.lock().idle);
        drop(idle);
    }
}

/// Closes connections that were idle for too long; ends when there are none.
async fn close_idle(pool: Weak<Pool>) {
    loop {
        sleep(IDLE_TIMEOUT).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut state = pool.lock();
        state.idle.retain(|(_, since)| since.elapsed() < IDLE_TIMEOUT);
        if state.idle.is_empty() {
            state.closing = None;
            return;
        }
    }
}

#[cfg(test)]
mod tests;
