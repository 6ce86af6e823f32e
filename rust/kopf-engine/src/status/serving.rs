//! Connections of the status server.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kopf_core::log_level::Level;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::responses::response_to;
use super::{LOGGER, Served};
use crate::host::LogRecord;
use crate::http_server::connection_limit::{ConnectionLimit, ConnectionPermit};
use crate::http_server::write_timeout::WriteTimeout;
use crate::supervision::guarded;

/// The timeout for receiving a request, and for idle connections.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout for sending a response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of connections, so that descriptors are left for the API server and for the next probe. When it
/// is reached, the connection that has been idle for longest is closed.
pub(super) const CONNECTIONS: usize = 100;
/// The pause after a failed accept, such as for lack of descriptors.
const ACCEPT_DELAY: Duration = Duration::from_millis(100);

/// Accepts connections until it is cancelled.
pub(super) async fn accept(listener: TcpListener, served: Served, connection_limit: Arc<ConnectionLimit>) {
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
                    if let Some(connected) = served.shared.connected.get() {
                        connected.host.log(LogRecord::general(Level::Error, LOGGER, format!("{panicked}.")));
                    }
                }
            }
        };
        if let Some((stream, permit)) = accepted {
            let serving = serve_http(stream, served.clone(), permit);
            connections.spawn(guarded("A connection of the server of probes", serving));
        }
    }
}

async fn serve_http(stream: TcpStream, content: Served, permit: ConnectionPermit) {
    let permit = Arc::new(permit);
    let asking = Arc::clone(&permit);
    let service = service_fn(move |request: Request<Incoming>| {
        let (content, permit) = (content.clone(), Arc::clone(&asking));
        async move {
            let _served = permit.serve();
            Ok::<_, Infallible>(response_to(&request, &content).await)
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
